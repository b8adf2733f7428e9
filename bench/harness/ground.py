"""What the rows stand on: one running cluster, and topics that are filled when a row first asks for them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import topics
from harness.plan import Options

PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


@dataclass(slots=True)
class Ground:
    """One cluster.

    Attributes:
        bootstrap: its plaintext address. tls: its TLS address. certificate: the file to trust there.
        java: the command that starts ConsumerPerformance; empty where the cluster has no Java.
        another: starts a second cluster, for a row that needs other properties or one that keeps its log in memory;
            see `real_kafka`.
    """

    bootstrap: str
    tls: str = ""
    certificate: str = ""
    java: tuple[str, ...] = ()
    another: Callable[..., AbstractContextManager[Ground]] | None = None
    _topics: set[str] = field(default_factory=set)

    def values(self, size: int, options: Options) -> tuple[str, int]:
        """A topic of records of ``size`` bytes in 8 partitions, and how many of them a run may read.

        The last ones are left: a tail shorter than one poll would measure the wait for more.
        """
        total = options.records if size == 100 else options.records // 5
        return self.filled(f"values-{size}", size, total), total - total // 10

    def filled(self, name: str, size: int, total: int) -> str:
        """A topic of ``total`` records of ``size`` bytes in 8 partitions."""
        if name not in self._topics:
            print(f"filling a topic with {total:,} records of {size} B", flush=True)
            # In a process of its own: the producer's memory and threads are gone when the first client starts.
            fill = [sys.executable, "-m", "harness.topics", self.bootstrap, name, str(size), str(total)]
            subprocess.run(fill, check=True, cwd=Path(__file__).resolve().parent.parent)
            self._topics.add(name)
        return name

    def empty(self, name: str, partitions: int) -> str:
        """A topic without records."""
        if name not in self._topics:
            topics.create(self.bootstrap, name, partitions)
            self._topics.add(name)
        return name


@contextmanager
def real_kafka(
    properties: Mapping[str, str] | None = None, *, parent: Path | None = None
) -> Iterator[Ground]:
    """A node of Apache Kafka on this machine, thrown away afterwards.

    Args:
        properties: further server properties. parent: where it keeps its data; see `kadence_testing.Kafka`.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        topics.benchmark_kafka(Path(scratch), properties, parent=parent) as kafka,
    ):
        yield Ground(
            kafka.bootstrap_servers,
            kafka.addresses["TLS"],
            str(Path(scratch) / "certificate.pem"),
            tuple(kafka.tool_command(PERFORMANCE)),
            real_kafka,
        )
