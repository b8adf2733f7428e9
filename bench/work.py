"""`Consumer.process` beside other ways to handle records in parallel, on one real Kafka: ``make bench-work``.

    python bench/work.py                                     every handler, 8, 64 and 512 workers: 20 minutes
    python bench/work.py --wait 10 --workers 64 --only threads java
    python bench/work.py --order partition --zipf 1.0
    python bench/work.py --write bench/NOTES.md          and the tables go into the notes

Beside Kadence's threads, event loop and processes run Confluent's parallel consumer for Java, pyrallel-consumer (in an
environment of its own, on a Python of 3.12 or newer that is found on PATH or by pyenv) and the thread pool on
confluent-kafka that everybody writes first. Handlers sleep and do nothing else.

Keys are drawn from 100,000 by Zipf's law. No client works on two records of one key at once, so the most frequent key
bounds them all in the long run: with the exponent 0.6 it has 0.4 % of the records, and 10 ms a record let 25,000 a
second through; with 0.8 it has 2 % (4,800 a second), and with 1 it has 8 % (1,200). More is seen while other keys go
on, for as long as a client has room for the records that wait. Handlers of 10 ms are measured with each of these
exponents, by the clients that keep the order of keys at such rates.

A rate is of the records handled in the window, which opens two seconds after the first commit. Where processes handle
them it is of the group's committed offsets, which is all that can be seen of them. A lag is how long ago as many
records had been handled as the committed offsets are beyond now; it holds the 500 ms between two commits.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.ground import real_kafka
from harness.table import Goal, Table, goals_table, write_section
from harness.topics import PARTITIONS, create
from kadence import Admin, Producer
from kadence.errors import KafkaError, MissingDependencyError
from kadence.java import cache_directory, find_java
from kadence_testing.kafka import KAFKA_VERSION
from kadence_testing.maven import maven_jars

WORKERS = Path(__file__).resolve().parent / "workers"
PARALLEL_CONSUMER = "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3"
PYRALLEL = "pyrallel-consumer==1.0.0"
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12")
KEYS = 100_000
WARM_S = 2.0
PATIENCE_S = 40.0
LOOK_S = 0.05
SLOW_MS = 10.0
QUICK = ("Kadence, threads", "Kadence, loop", "Confluent parallel consumer")
"""Those that keep the order of keys, and handle thousands of records a second."""
MOST_PROCESSES = 16
"""More would measure how a machine of few processors changes between processes."""


@dataclass(frozen=True, slots=True)
class Client:
    """One way to do the work: the command before its arguments, and where its handlers run."""

    title: str
    command: tuple[str, ...]
    executor: str

    def workers(self, asked: int) -> int:
        return min(asked, MOST_PROCESSES) if self.executor == "processes" else asked


@dataclass(frozen=True, slots=True)
class Figures:
    """What came out of one run: records/s, and the lag of the committed offsets in ms where it can be known."""

    rate: float
    lag_p50: float | None = None
    lag_p99: float | None = None


Found = dict[tuple[float, float, str, int], Figures | None]
"""By Zipf's exponent, the handlers' ms, the client's title and the workers that were asked for."""


class RunFailedError(Exception):
    """A client did nothing, or ended."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wait", nargs="*", type=float, default=[0.0, 1.0, 10.0], help="ms of each handler")
    parser.add_argument("--workers", nargs="*", type=int, default=[8, 64, 512])
    parser.add_argument("--order", choices=("key", "partition", "none"), default="key")
    parser.add_argument("--zipf", type=float, default=0.6, help="the exponent of the keys' frequencies")
    parser.add_argument(
        "--more-zipf", nargs="*", type=float, default=[0.8, 1.0], help="and those of handlers of 10 ms"
    )
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="the window of each run")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each client, of which the best counts")
    parser.add_argument("--only", nargs="*", default=[], help="only clients whose names hold one of these")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this Markdown file")
    chosen = parser.parse_args()
    clients = [
        client
        for client in all_clients()
        if not chosen.only or any(word in client.title.lower() for word in chosen.only)
    ]
    found: Found = {}
    all_keys = [(chosen.zipf, chosen.wait, clients)]
    if SLOW_MS in chosen.wait and chosen.order == "key":
        quick = [client for client in clients if client.title.startswith(QUICK)]
        all_keys += [(exponent, [SLOW_MS], quick) for exponent in chosen.more_zipf]
    with real_kafka() as ground:
        for exponent, waits, these in all_keys:
            topic = f"work-{exponent:g}"
            fill(ground.bootstrap, topic, chosen.records, exponent)
            bench = Bench(ground.bootstrap, topic, chosen.records, chosen.order, chosen.seconds)
            cells = itertools.product(range(chosen.rounds), waits, chosen.workers, these)
            for _, wait, workers, client in cells:
                cell = (exponent, wait, client.title, workers)
                figures = bench.run(client, wait, client.workers(workers))
                best = found.get(cell)
                if best is None or (figures is not None and figures.rate > best.rate):
                    found[cell] = figures
    tables = [
        table(found, these, exponent, wait, chosen.workers)
        for exponent, waits, these in all_keys
        for wait in waits
    ]
    tables.append(goals_table(goals(found)))
    about = conditions(chosen.order, chosen.seconds)
    print(f"\n{about}")
    for each in tables:
        print(f"\n{each.text()}", flush=True)
    if chosen.write:
        write_section(
            chosen.write, "bench-work", "make bench-work", [about, *(each.markdown() for each in tables)]
        )


def all_clients() -> list[Client]:
    """Those that this machine can run; the others are named, with why."""
    own = (sys.executable, str(WORKERS / "with_kadence.py"))
    clients = [Client(f"Kadence, {each}", own, each) for each in ("threads", "loop", "processes")]
    try:
        jars = maven_jars("parallel-consumer", [PARALLEL_CONSUMER])
        java = (str(find_java().executable), "-cp", f"{jars}/*", str(WORKERS / "WithParallelConsumer.java"))
        clients.append(Client("Confluent parallel consumer (Java), threads", java, "threads"))
    except MissingDependencyError as error:
        print(f"without the parallel consumer for Java: {error}", flush=True)
    pyrallel = pyrallel_python()
    if pyrallel is None:
        print(f"without pyrallel-consumer: none of {', '.join(NEWER_PYTHONS)} is here", flush=True)
    else:
        command = (pyrallel, str(WORKERS / "with_pyrallel.py"))
        clients += [Client(f"pyrallel-consumer, {each}", command, each) for each in ("loop", "processes")]
    clients.append(
        Client(
            "confluent-kafka with a thread pool", (sys.executable, str(WORKERS / "with_pool.py")), "threads"
        )
    )
    return clients


def pyrallel_python() -> str | None:
    """The Python of an environment that has pyrallel-consumer; it is made once, and kept in the user's cache."""
    home = cache_directory() / "environments" / PYRALLEL.replace("==", "-")
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return str(python)
    newer = next(filter(None, map(_find, NEWER_PYTHONS)), None)
    if newer is None:
        return None
    print(f"installing {PYRALLEL} for {newer}", flush=True)
    subprocess.run([newer, "-m", "venv", "--clear", str(home)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", PYRALLEL], check=True)
    (home / "complete").touch()
    return str(python)


def _find(name: str) -> str | None:
    """This Python on PATH, if it runs, or else among pyenv's."""
    candidates = [shutil.which(name)]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(map(str, root.glob(f"{name.removeprefix('python')}.*/bin/{name}")))
    for each in candidates:
        # A shim of pyenv is on PATH also for versions that are not chosen; it fails.
        if each and subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode == 0:
            return each
    return None


def fill(bootstrap: str, topic: str, records: int, exponent: float) -> None:
    """Records of 100 B whose keys follow Zipf's law."""
    print(f"filling a topic with {records:,} records", flush=True)
    create(bootstrap, topic, PARTITIONS)
    chance = random.Random(7)
    weights = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(KEYS)))
    keys = [b"key-%06d" % rank for rank in range(KEYS)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(0, records, 10_000):
            for key in chance.choices(keys, cum_weights=weights, k=10_000):
                producer.send(topic, b"x" * 100, key)


class Bench:
    """Runs clients on one topic, each in a group of its own."""

    def __init__(self, bootstrap: str, topic: str, records: int, order: str, seconds: float) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._records = records
        self._order = order
        self._seconds = seconds
        self._groups = map(f"{topic}-{{}}".format, itertools.count())

    def run(self, client: Client, wait_ms: float, workers: int) -> Figures | None:
        """One run; None if it failed, and then a line says why."""
        group = next(self._groups)
        arguments = [self._bootstrap, self._topic, group, str(wait_ms / 1000), str(workers), self._order]
        with (
            tempfile.TemporaryFile("w+") as errors,
            started([*client.command, *arguments, client.executor], errors) as process,
        ):
            handled = Handled(process)
            try:
                figures = self._watch(group, process, handled)
            except RunFailedError as error:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or [""])[-1]
                print(f"{client.title}, {wait_ms:g} ms, {workers} workers: {error} {last}", flush=True)
                return None
        print(f"{client.title}, {wait_ms:g} ms, {workers} workers: {figures.rate:,.0f} records/s", flush=True)
        return figures

    def _watch(self, group: str, process: subprocess.Popen[str], handled: Handled) -> Figures:
        """Look at the committed offsets until the window is over."""
        seen: list[tuple[float, int]] = []
        opens: float | None = None
        ends = time.monotonic() + PATIENCE_S
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            while time.monotonic() < ends:
                if process.poll() is not None:
                    raise RunFailedError(f"ended with {process.returncode}.")
                committed = committed_of(admin, group)
                now = time.time()
                if committed and opens is None:
                    opens = now + WARM_S
                    ends = time.monotonic() + WARM_S + self._seconds
                if opens is not None and now >= opens:
                    seen.append((now, committed))
                if committed >= self._records:
                    break
                time.sleep(LOOK_S)
        if not seen:
            raise RunFailedError("was done before the window opened." if opens else "committed nothing.")
        rate = handled.rate(seen[0][0], seen[-1][0])
        return Figures(rate_of(seen) if rate is None else rate, *handled.lags(seen))


def committed_of(admin: Admin, group: str) -> int:
    """How many records the group's committed offsets are beyond."""
    try:
        return sum(at.offset for at in admin.list_consumer_group_offsets(group).values())
    except KafkaError:
        # There is no such group yet.
        return 0


def rate_of(seen: list[tuple[float, int]]) -> float:
    """Records/s from the first commit in the window to the last: commits come in steps."""
    steps = [seen[0], *(now for before, now in itertools.pairwise(seen) if now[1] != before[1])]
    # Up to the first step nobody knows since when its records have been under way.
    steps = steps[1:]
    if len(steps) < 2:
        raise RunFailedError("committed less than twice in the window.")
    (begin, least), (end, most) = steps[0], steps[-1]
    return (most - least) / (end - begin)


class Handled:
    """Reads what a worker tells of the records that it has handled."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            words = line.split()
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
                self._times.append(int(words[0]) / 1000)
                self._counts.append(int(words[1]))

    def rate(self, begin: float, end: float) -> float | None:
        """Records/s between these times; None where the worker tells nothing."""
        times, counts = self._taken()
        first, last = bisect_left(times, begin), bisect_left(times, end) - 1
        if last <= first:
            return None
        return (counts[last] - counts[first]) / (times[last] - times[first])

    def _taken(self) -> tuple[list[float], list[int]]:
        counts = list(self._counts)
        return self._times[: len(counts)], counts

    def lags(self, seen: list[tuple[float, int]]) -> tuple[float | None, float | None]:
        """p50 and p99, in ms."""
        times, counts = self._taken()
        lags = []
        for now, committed in seen:
            place = bisect_left(counts, committed)
            if place < len(counts):
                lags.append(max(now - times[place], 0.0) * 1000)
        if len(lags) < 2:
            return None, None
        cuts = statistics.quantiles(lags, n=100)
        return cuts[49], cuts[98]


@contextmanager
def started(command: list[str], errors: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """The worker and its children, in a group of processes that ends with the block."""
    environment = dict(os.environ)
    # Where that is forbidden, each process of a worker would compile a checkout at its start.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def table(
    found: Found,
    clients: list[Client],
    exponent: float,
    wait: float,
    workers: list[int],
) -> Table:
    lines = []
    for client in clients:
        cells = [client.title]
        for count in workers:
            figures = found[exponent, wait, client.title, count]
            cells.append("failed" if figures is None else f"{figures.rate:,.0f}")
            lag = None if figures is None else figures.lag_p99
            cells.append("" if lag is None else f"{lag:,.0f} ms")
        lines.append(tuple(cells))
    headings = ("", *itertools.chain.from_iterable((f"{count} workers", "p99 lag") for count in workers))
    return Table(f"Handlers of {wait:g} ms, keys by Zipf's exponent {exponent:g}: records/s", headings, lines)


def goals(found: Found) -> list[Goal]:
    """What the issue of `process` asks for, where it was measured."""

    def best(word: str, exponent: float, wait: float) -> float | None:
        rates = [
            figures.rate
            for (keys, each, title, _), figures in found.items()
            if (keys, each) == (exponent, wait) and title.startswith(word) and figures is not None
        ]
        return max(rates, default=None)

    goals = []
    exponents = sorted({exponent for exponent, *_ in found})
    for exponent in exponents:
        own, java = best("Kadence", exponent, SLOW_MS), best("Confluent", exponent, SLOW_MS)
        if own and java:
            ratio = own / java
            what = f"handlers of 10 ms, Zipf's exponent {exponent:g}, best of all workers, beside Java's best"
            goals.append(Goal(what, "≥ 2 ×", f"{ratio:.2f} ×", ratio >= 2))
    idle = max((rate for each in exponents if (rate := best("Kadence", each, 0.0)) is not None), default=None)
    if idle is not None:
        goals.append(Goal("handlers of 0 ms", "≥ 100 k/s", f"{idle / 1000:,.0f} k/s", idle >= 100_000))
    return goals


def conditions(order: str, seconds: float) -> str:
    return (
        f"Apache Kafka {KAFKA_VERSION} on the same machine ({os.cpu_count()} processors), {PARTITIONS} partitions, "
        f"records of 100 B, {KEYS:,} keys, order by {order}, a commit each 500 ms, "
        f"windows of {seconds:g} s. p99 lag: how long ago as many records had been handled as the committed "
        f"offsets are beyond. At most {MOST_PROCESSES} processes. The thread pool keeps no order and loses records "
        f"in a crash. {PARALLEL_CONSUMER.split(':', 1)[1]}, {PYRALLEL}."
    )


if __name__ == "__main__":
    main()
