"""kill -9 of a whole Spark application, again and again, and then an account of every row.

    make kill-spark ROUNDS=100
    make kill-spark ROUNDS=100 BROKER=kafka

A producer writes numbered records without a pause. An application (driver, JVM, Python runner and workers) streams them
from format("kadence") into a Parquet table, with a group. In each round it is started on the same checkpoint and
killed at a moment of chance: before its first batch, within one, between the table and the checkpoint. In the end it
runs once undisturbed. Each record must then be in the table exactly once, and the group must stand where the logs end.
SINK=topic kills a stream from topic to topic: kill_transactions.py.

POSIX with /proc (Linux): that is how the processes of an application are found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kadence import Admin, Broker, Producer

TOPIC = "rows"
GROUP = "kill-spark"
PARTITIONS = 3

CONF = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "2",
}


# ---------------------------------------------------------------- the application that is killed


def application(servers: str, directory: Path, *, to_the_end: bool) -> None:
    """Stream the topic into the table; says "started" when the query has begun."""
    from pyspark.sql import functions

    from kadence.spark import session

    spark = session("kill-spark", master="local[2]", conf=CONF)
    writer = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .option("kafka.group.id", GROUP)
        .option("commitOffsets", "true")
        .load()
        .selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    query = (writer.trigger(availableNow=True) if to_the_end else writer).start()
    print("started", flush=True)
    query.awaitTermination()
    if to_the_end:
        table = spark.read.parquet(str(directory / "table")).groupBy("partition")
        counts = table.agg(
            functions.expr("count(*)"),
            functions.expr("count(distinct offset)"),
            functions.expr("max(offset)"),
            functions.expr("count_if(value != concat(partition, '/', offset))"),
        )
        (directory / "rows.json").write_text(json.dumps([tuple(row) for row in counts.collect()]))
    spark.stop()


def _start(servers: str, directory: Path, *, to_the_end: bool = False) -> subprocess.Popen[str]:
    """In a session of its own, in which all of its processes stay."""
    command = [sys.executable, __file__, "--application", servers, str(directory)]
    log = (directory / "application.log").open("a")
    return subprocess.Popen(
        [*command, "--to-the-end"] if to_the_end else command,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )


def processes_of(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == session:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return found


def kill_session(session: int) -> int:
    """SIGKILL to every process of it, until there is none; how many there were."""
    killed = set()
    while alive := [pid for pid in processes_of(session) if not _is_zombie(pid)]:
        for pid in alive:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    return len(killed)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


# ---------------------------------------------------------------- the records


class Records:
    """Writes records without a pause; the value says which one it is."""

    def __init__(self, servers: str, per_second: int) -> None:
        self._servers = servers
        self._pause = 0.05
        self._at_once = max(PARTITIONS, round(per_second * self._pause))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="records")
        self.sent: Counter[int] = Counter()

    def _write(self) -> None:
        with Producer(bootstrap_servers=self._servers) as producer:
            numbers = itertools.count()
            while not self._stop.is_set():
                for number in itertools.islice(numbers, self._at_once):
                    partition = number % PARTITIONS
                    producer.send(TOPIC, f"{partition}/{self.sent[partition]}".encode(), partition=partition)
                    self.sent[partition] += 1
                self._stop.wait(self._pause)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()


# ---------------------------------------------------------------- rounds and the account


@dataclass(slots=True)
class Account:
    """What became of the records. The last four should be 0."""

    rounds: int
    batches: int
    rows: int = 0
    missing: int = 0
    twice: int = 0
    wrong: int = 0
    behind: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.twice or self.wrong or self.behind)

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills, {self.batches} batches, {self.rows:,} rows in the table: {self.missing} missing, "
            f"{self.twice} twice, {self.wrong} wrong; the group is {self.behind} offsets behind"
        )


def run(servers: str, directory: Path, rounds: int, seed: int, per_second: int = 2_000) -> Account:
    """``rounds`` kills, one undisturbed run, and the account."""
    chance = random.Random(seed)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({TOPIC: PARTITIONS})
        with Records(servers, per_second) as records:
            for number in range(1, rounds + 1):
                _round(servers, directory, number, chance)
        last = _start(servers, directory, to_the_end=True)
        if last.wait() != 0:
            raise SystemExit(f"the last run failed, see {directory / 'application.log'}")
        return _account(admin, directory, rounds, records.sent)


def _round(servers: str, directory: Path, number: int, chance: random.Random) -> None:
    began = time.monotonic()
    app = _start(servers, directory)
    assert app.stdout is not None
    if not app.stdout.readline():
        raise SystemExit(
            f"round {number}: the application ended by itself, see {directory / 'application.log'}"
        )
    # Some batches later, and then at once or within the next one; none later is within what a former kill left.
    batches, pause = chance.choice((0, 0, 1, 1, 2, 3)), chance.uniform(0, 0.5)
    enough = begun(directory) + batches
    while begun(directory) < enough and app.poll() is None:
        time.sleep(0.02)
    time.sleep(pause)
    if app.poll() is not None:
        raise SystemExit(f"round {number}: the query failed, see {directory / 'application.log'}")
    processes = kill_session(app.pid)
    app.wait()
    app.stdout.close()
    print(
        f"round {number}: {processes} processes killed {pause:.2f} s after batch {batches} since the start began, "
        f"{batches_done(directory)} batches done so far, {time.monotonic() - began:.0f} s",
        flush=True,
    )


def begun(directory: Path) -> int:
    return _logged(directory, "offsets")


def batches_done(directory: Path) -> int:
    return _logged(directory, "commits")


def _logged(directory: Path, log: str) -> int:
    """How many batches one of the checkpoint's logs tells of; it keeps the last few."""
    return max((int(path.name) for path in (directory / "checkpoint" / log).glob("[0-9]*")), default=-1) + 1


def _account(admin: Admin, directory: Path, rounds: int, sent: Counter[int]) -> Account:
    account = Account(rounds=rounds, batches=batches_done(directory))
    found = {partition: counts for partition, *counts in json.loads((directory / "rows.json").read_text())}
    committed = {tp.partition: at.offset for tp, at in admin.group_offsets(GROUP).items()}
    for partition, count in sent.items():
        rows, different, highest, wrong = found.get(partition, (0, 0, -1, 0))
        account.rows += rows
        account.missing += max(count - different, 0)
        account.twice += rows - different
        account.wrong += wrong + max(highest - (count - 1), 0)
        account.behind += count - committed.get(partition, 0)
    return account


@contextmanager
def _broker(kind: str) -> Iterator[str]:
    if kind == "kafka":
        from kadence.testing.kafka import Kafka

        with Kafka() as kafka:
            yield kafka.bootstrap_servers
    else:
        with Broker() as broker:
            yield broker.bootstrap_servers


def main() -> int:
    """Run the rounds; 1 when a row is missing, there twice or wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--application", nargs=2, metavar=("SERVERS", "DIRECTORY"), help=argparse.SUPPRESS)
    parser.add_argument("--to-the-end", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.application:
        servers, directory = given.application
        application(servers, Path(directory), to_the_end=given.to_the_end)
        return 0
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kadence-kill-") as scratch, _broker(given.broker) as servers:
        account = run(servers, Path(scratch), given.rounds, given.seed, given.rate)
    print(f"{account} ({given.broker} broker, {time.monotonic() - began:.0f} s)")
    return 0 if account.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
