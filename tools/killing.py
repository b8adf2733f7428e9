"""What the tools share that kill a Spark application: the records, the application, its end.

POSIX with /proc (Linux): that is how the processes of an application are found.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from kadence import Broker, Producer

TOPIC = "rows"
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


_MARK = "KADENCE_KILL_APPLICATION"
"""The variable by which the processes of one life are known; some of them leave the session that it begins with."""


class Application:
    """One life of ``tool --application ARGUMENTS``."""

    def __init__(
        self, tool: str, directory: Path, *arguments: str, to_the_end: bool, **variables: str
    ) -> None:
        command = [sys.executable, tool, "--application", *arguments]
        mark = str(uuid.uuid4())
        self._mark = f"{_MARK}={mark}".encode()
        self.log = directory / "application.log"
        with self.log.open("a") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                [*command, "--to-the-end"] if to_the_end else command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **variables, _MARK: mark},
            )

    def started(self) -> bool:
        """Wait until its queries have begun; False: it has ended before."""
        assert self._process.stdout is not None
        return bool(self._process.stdout.readline())

    def wait(self) -> int:
        return self._process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def failure(self, what: str) -> SystemExit:
        """Of this life, which ends or has ended by itself: what happened, and the last lines that it has logged."""
        self.wait()
        with self.log.open("rb") as log:
            log.seek(self._log_begins)
            lines = log.read().decode(errors="replace").splitlines()
        return SystemExit("\n".join((f"{what}, see {self.log}", *lines[-60:])))

    def find(self, words: str) -> list[int]:
        """Processes whose command line has these words."""
        found = []
        for pid in self.processes():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words in line:
                found.append(pid)
        return found

    def kill(self) -> int:
        """SIGKILL to every process of it, until there is none; how many there were."""
        killed = set()
        while alive := self.processes():
            for pid in alive:
                killed.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return len(killed)

    def processes(self) -> list[int]:
        """All that live."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and self._mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found


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


def logged(checkpoint: Path, log: str) -> int:
    """How many batches one of a checkpoint's logs tells of, offsets or commits; it keeps the last few."""
    return max((int(path.name) for path in (checkpoint / log).glob("[0-9]*")), default=-1) + 1


@contextmanager
def broker(kind: str) -> Iterator[str]:
    """Addresses of an embedded broker, or of Kafka."""
    if kind == "kafka":
        from kadence_testing.kafka import Kafka

        with Kafka() as kafka:
            yield kafka.bootstrap_servers
    else:
        with Broker() as running:
            yield running.bootstrap_servers


def parser(doc: str | None, *, arguments: int, rate: int) -> argparse.ArgumentParser:
    """What every tool takes. ``arguments``: of the application."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=100)
    made.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    made.add_argument("--rate", type=int, default=rate, help="records a second")
    made.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    made.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="where all that the run writes stays: logs, checkpoints, tables; otherwise it goes",
    )
    made.add_argument("--application", nargs=arguments, help=argparse.SUPPRESS)
    made.add_argument("--to-the-end", action="store_true", help=argparse.SUPPRESS)
    return made


def written(journal: Path) -> int:
    """How many bytes a journal has; 0 before it is there."""
    return journal.stat().st_size if journal.exists() else 0


def kill_members(
    lives: list[subprocess.Popen[bytes]],
    start: Callable[[int], subprocess.Popen[bytes]],
    journal: Path,
    rounds: int,
    chance: random.Random,
    rate: int,
    send: Callable[[int], object],
) -> int:
    """Kill members, each at a moment of chance, and start them anew, until ``rounds`` are killed or Ctrl-C.

    Args:
        lives: a process for each member. start: starts the one with that number. journal: what they write while they
            work. rate: records a second. send: sends the record with that number.

    Returns:
        how many were killed.
    """
    kills = sent = 0
    try:
        while kills < rounds:
            until = time.monotonic() + chance.uniform(0.5, 4)
            # On a slow machine most kills would hit members that have not begun yet.
            begun = written(journal) + (2_000 if chance.random() < 0.8 else 0)
            while time.monotonic() < until or written(journal) < begun:
                for _ in range(rate // 20):
                    send(sent)
                    sent += 1
                time.sleep(0.05)
            member = chance.randrange(len(lives))
            lives[member].kill()
            lives[member].wait()
            kills += 1
            if kills % 10 == 0:
                print(f"{kills} kills, {sent:,} records", flush=True)
            lives[member] = start(member)
    except KeyboardInterrupt:
        print("no more kills", flush=True)
    return kills


@contextmanager
def scratch(keep: Path | None) -> Iterator[Path]:
    """A directory that goes with the run, or the one that is to stay."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="kadence-kill-") as made:
        yield Path(made)
