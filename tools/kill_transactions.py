"""Kills at random places of a stream from topic to topic with transactions, and then an account of every row.

    make kill-spark SINK=topic ROUNDS=100
    make kill-spark SINK=topic ROUNDS=100 BROKER=kafka

A producer writes numbered records without a pause. An application streams them from one topic into another one, with
transactions=true. It is killed again and again, with SIGKILL, at a moment of chance:

- everything: driver, executors, workers; before the first batch, or within one;
- between: the same, from the moment when the sink's decision is in Kafka: amid its commits, or before Spark's own;
- driver: the JVM alone, whose Python processes live on for a moment;
- worker: one Python worker, whose task Spark repeats;
- executor: the JVM of one of two executors (local-cluster), whose tasks Spark repeats;
- broker: the broker, which is started again.

In the end, or after Ctrl-C, it runs once undisturbed. A consumer with isolation.level=read_committed must then see each
record once.

POSIX with /proc (Linux): that is how the processes of an application are found.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kadence import Admin, Consumer, TopicPartition
from kadence.errors import KafkaError
from kadence_testing.kafka import Kafka, free_ports
from killing import CONF, PARTITIONS, TOPIC, Application, Records, logged, parser, scratch

OUT = "copies"
PREFIX = "kill"

FATAL = ("everything", "between", "between", "driver")
"""After these the application is started again. Chance picks one of them for the end of each of its lives."""

LIGHT = ("worker", "worker", "broker", "executor")
"""These it should survive. A life has none to three of them."""


# ---------------------------------------------------------------- the application that is killed


def application(servers: str, directory: Path, master: str, timeout_ms: str, *, to_the_end: bool) -> None:
    """Copy the topic; says "started" when the query has begun."""
    from kadence_spark import session

    spark = session("kill-spark", master=master, conf={**CONF, "spark.executor.memory": "512m"})
    writer = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .option("minPartitions", 3)
        .load()
        .select("key", "value")
        .writeStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.transaction.timeout.ms", timeout_ms)
        .option("topic", OUT)
        .option("transactions", "true")
        .option("transactionalIdPrefix", PREFIX)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    query = (writer.trigger(availableNow=True) if to_the_end else writer).start()
    print("started", flush=True)
    query.awaitTermination()
    spark.stop()


# ---------------------------------------------------------------- brokers that can be killed


class Server(Protocol):
    bootstrap_servers: str

    @property
    def directory(self) -> Path | None: ...

    def start(self) -> object: ...

    def halt(self) -> None: ...

    def stop(self) -> None: ...


class Embedded:
    """Kadence's broker as a process with its data in files."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "kadence", "broker", "--port", str(port)]
        self.directory: Path | None = directory / "broker"
        self._command += ["--data-dir", str(self.directory), "--fsync", "never"]
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"the broker does not start, see {self._log}")

    def halt(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> None:
        self.halt()


# ---------------------------------------------------------------- the kills


def start(
    servers: str, directory: Path, master: str, timeout_ms: int, *, to_the_end: bool = False
) -> Application:
    given = (servers, str(directory), master, str(timeout_ms))
    return Application(__file__, directory, *given, to_the_end=to_the_end)


class Hunt:
    """Lives of the application and its deaths, until there were enough."""

    def __init__(self, server: Server, directory: Path, chance: random.Random) -> None:
        self._server = server
        self._directory = directory
        self._chance = chance
        self._admin = Admin(bootstrap_servers=server.bootstrap_servers)
        self.kills: Counter[str] = Counter()
        self.failures = 0

    def run(self, rounds: int) -> None:
        """Kill ``rounds`` times."""
        in_a_row = 0
        while sum(self.kills.values()) < rounds:
            is_cluster = self._chance.random() < 0.25
            # Short ones are aborted by brokers between two lives.
            timeout_ms = self._chance.choice((15_000, 120_000))
            master = "local-cluster[2,1,512]" if is_cluster else "local[2,4]"
            app = start(self._server.bootstrap_servers, self._directory, master, timeout_ms)
            try:
                in_a_row = 0 if self._live(app, is_cluster=is_cluster) else in_a_row + 1
            finally:
                app.kill()
            self.failures += in_a_row > 0
            if in_a_row > 5:
                raise app.failure("the query cannot go on")

    def _live(self, app: Application, *, is_cluster: bool) -> bool:
        """One life; False if it ended by itself."""
        before = begun(self._directory)
        if not app.started():
            print("the application ended by itself before its query began", flush=True)
            return False
        lights = [self._chance.choice(LIGHT) for _ in range(self._chance.randint(0, 3))]
        for light in lights:
            if light == "executor" and not is_cluster:
                continue
            self._wait_for_batches(app, self._chance.choice((1, 1, 2)))
            time.sleep(self._chance.uniform(0, 0.5))
            if app.is_alive:
                getattr(self, f"_kill_{light}")(app)
        fatal = self._chance.choice(FATAL)
        self._wait_for_batches(app, self._chance.choice((0, 1, 1, 2)))
        if fatal == "between":
            self._wait_for_a_decision(app)
            time.sleep(self._chance.choice((0, 0, self._chance.uniform(0, 0.1))))
        else:
            time.sleep(self._chance.uniform(0, 0.5))
        was_alive = app.is_alive
        if fatal == "driver":
            for pid in app.find("org.apache.spark.deploy.SparkSubmit"):
                os.kill(pid, signal.SIGKILL)
            app.wait()
        app.kill()
        if was_alive:
            self._count(fatal, begun(self._directory) - before)
        else:
            print("the query ended by itself", flush=True)
        return was_alive

    def _count(self, kind: str, batches: int) -> None:
        self.kills[kind] += 1
        print(
            f"kill {sum(self.kills.values())}: {kind}, {batches} batches since the start, "
            f"{batches_done(self._directory)} done so far",
            flush=True,
        )

    def _wait_for_batches(self, app: Application, count: int) -> None:
        enough = begun(self._directory) + count
        self._wait(app, lambda: begun(self._directory) >= enough)

    def _wait_for_a_decision(self, app: Application) -> None:
        """Until Kafka has another decision than now: the driver commits from then on."""
        query = json.loads((self._directory / "checkpoint" / "metadata").read_text())["id"]

        def decision() -> object:
            try:
                return self._admin.list_consumer_group_offsets(f"{PREFIX}-{query}", timeout=5)
            except KafkaError:
                return None

        now = decision()
        self._wait(app, lambda: decision() not in (now, None), every=0.001)

    def _wait(self, app: Application, done: Callable[[], bool], every: float = 0.02) -> None:
        end = time.monotonic() + 120
        while app.is_alive and not done():
            if time.monotonic() > end:
                print("nothing happens for two minutes", flush=True)
                return
            time.sleep(every)

    def _kill_worker(self, app: Application) -> None:
        workers = [pid for pid in app.find("daemon") if _parent(pid) in set(app.find("daemon"))]
        if workers:
            os.kill(self._chance.choice(workers), signal.SIGKILL)
            self._count("worker", 0)

    def _kill_executor(self, app: Application) -> None:
        executors = app.find("CoarseGrainedExecutorBackend")
        if executors:
            os.kill(self._chance.choice(executors), signal.SIGKILL)
            self._count("executor", 0)

    def _kill_broker(self, _app: Application) -> None:
        self._server.halt()
        time.sleep(self._chance.choice((0, self._chance.uniform(0, 3))))
        self._server.start()
        self._count("broker", 0)

    def close(self) -> None:
        self._admin.close()


def begun(directory: Path) -> int:
    return logged(directory / "checkpoint", "offsets")


def batches_done(directory: Path) -> int:
    return logged(directory / "checkpoint", "commits")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


# ---------------------------------------------------------------- the account


def account(servers: str, topic: str, sent: Counter[int]) -> dict[str, int]:
    """What a reader of committed records of a topic sees; all but the rows should be 0."""
    seen: Counter[bytes | None] = Counter()
    with Consumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as reader:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        quiet_until = time.monotonic() + 60
        while any(reader.position(tp) < end for tp, end in ends.items()) and time.monotonic() < quiet_until:
            values = reader.poll_arrow(1.0, max_records=100_000).column("value").to_pylist()
            seen.update(values)
            if values:
                quiet_until = time.monotonic() + 60
    expected = {
        f"{partition}/{number}".encode() for partition, count in sent.items() for number in range(count)
    }
    doubled = sorted(value.decode() for value, count in seen.items() if value is not None and count > 1)
    if doubled:
        print(f"twice in {topic}: from {doubled[0]} to {doubled[-1]}, as texts are sorted", flush=True)
    return {
        "rows": sum(seen.values()),
        "lost": len(expected - seen.keys()),
        "twice": sum(count - 1 for count in seen.values()),
        "wrong": len(seen.keys() - expected),
    }


def hunt(server: Server, directory: Path, rounds: int, rate: int, seed: int) -> bool:
    """The kills, one undisturbed run, the account; whether it is as it should be."""
    began = time.monotonic()
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.create_topics({TOPIC: PARTITIONS, OUT: PARTITIONS})
        hunting = Hunt(server, directory, random.Random(seed))
        with Records(server.bootstrap_servers, rate) as records:
            try:
                hunting.run(rounds)
            except KeyboardInterrupt:
                print("no more kills", flush=True)
        last = start(server.bootstrap_servers, directory, "local[2,4]", 120_000, to_the_end=True)
        if last.wait():
            raise last.failure("the last run failed")
        last.kill()
        hunting.close()
        found = account(server.bootstrap_servers, OUT, records.sent)
        if found["twice"]:
            # The stream copies what is there: rows that were sent twice are no fault of the sink.
            account(server.bootstrap_servers, TOPIC, records.sent)
        listed = admin.list_transactions(states=["Ongoing"])
        left = [each.transactional_id for each in listed if each.transactional_id.startswith(PREFIX)]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(hunting.kills.items()))
    print(
        f"{sum(hunting.kills.values())} kills ({kinds}), {batches_done(directory)} batches, {found['rows']:,} rows: "
        f"{found['lost']} lost, {found['twice']} twice, {found['wrong']} wrong, {len(left)} transactions left open; "
        f"{hunting.failures} times the query ended by itself; {time.monotonic() - began:.0f} s"
    )
    return not (found["lost"] or found["twice"] or found["wrong"] or left)


def main() -> int:
    given = parser(__doc__, arguments=4, rate=2_000).parse_args()
    if given.application:
        servers, place, master, timeout_ms = given.application
        application(servers, Path(place), master, timeout_ms, to_the_end=given.to_the_end)
        return 0
    print(f"seed {given.seed}, {given.broker} broker", flush=True)
    # A shell has programs that it starts behind its back ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with scratch(given.keep) as directory:
        server: Server = Kafka() if given.broker == "kafka" else Embedded(directory)
        server.start()
        try:
            is_clean = hunt(server, directory, given.rounds, given.rate, given.seed)
            stored = server.directory
            # What the broker has stored, too, where it tells of wrong rows.
            if given.keep and not is_clean and stored and not stored.is_relative_to(directory):
                shutil.copytree(stored, directory / "broker")
            return 0 if is_clean else 1
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
