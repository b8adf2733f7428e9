"""Programs of examples/ as processes, whose lines a test waits for."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tests.patience import PATIENCE

from kadence import Admin, Broker, Consumer, Producer

__all__ = ["EXAMPLES", "Child", "committed", "finished", "members", "running", "values", "write"]

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


class Child:
    """A program that runs. What it writes is read all the time, so that it never waits for us."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        """What it has printed, as far as `wait_for` has read."""
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,))
        self._reader.start()

    def wait_for(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Read lines until so many match; gives the last match."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._new.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no line like {pattern!r} ({times} more) in:\n" + "\n".join(self.lines)
            self.lines.append(line)
            if found := re.search(pattern, line):
                times -= 1
                if not times:
                    return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and read what is left. Gives the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self._reader.join()
        while (line := self._new.get()) is not None:
            self.lines.append(line)
        return status

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._new.put(line.rstrip("\n"))
        self._new.put(None)


@contextmanager
def running(program: str, *arguments: str, servers: str, **environment: str) -> Iterator[Child]:
    """A program of examples/ that runs, killed at the end if it has not ended; its log is among its lines."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(servers) | environment,
    )
    child = Child(process)
    try:
        yield child
    finally:
        process.kill()
        process.wait()
        child._reader.join()
        assert process.stdout is not None
        process.stdout.close()


def finished(program: str, *arguments: str, servers: str, python: tuple[str, ...] = ()) -> list[str]:
    """What a program of examples/ prints that ends by itself."""
    done = subprocess.run(
        [sys.executable, *python, str(EXAMPLES / program), *arguments],
        capture_output=True,
        text=True,
        env=_environment(servers),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write(servers: str, topic: str, records: Sequence[tuple[str | None, str]]) -> None:
    """Write pairs of key and value."""
    with Producer(bootstrap_servers=servers, key_serializer="string", value_serializer="string") as producer:
        for key, value in records:
            producer.send(topic, value, key=key)


def committed(servers: str, group: str) -> int:
    """The sum of the offsets that a group has committed."""
    with Admin(bootstrap_servers=servers) as admin:
        return sum(at.offset for at in admin.list_consumer_group_offsets(group).values())


def members(servers: str, group: str) -> int:
    """How many members a group has."""
    with Admin(bootstrap_servers=servers) as admin:
        return len(admin.describe_consumer_groups(group)[group].members)


def values(broker: Broker, topic: str) -> list[tuple[int, bytes | None, bytes]]:
    """The records of a topic: partition, key and value, in the order of partitions and offsets."""
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign({(topic, number): edges for number, edges in enumerate(broker.offsets(topic))})
        found = sorted(consumer, key=lambda record: (record.partition, record.offset))
        return [(record.partition, record.key, record.value) for record in found]


def _environment(servers: str) -> dict[str, str]:
    environment = os.environ | {"KADENCE_BOOTSTRAP_SERVERS": servers}
    # Unbuffered, a line and its end are two writes, and a line of the log may come between them.
    environment.pop("PYTHONUNBUFFERED", None)
    return environment
