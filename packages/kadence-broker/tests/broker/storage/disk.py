"""A data directory without the broker around it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.storage.test_partition import NOW
from tests.patience import PATIENCE

from kadence_broker.cluster import BrokerNode, Cluster
from kadence_broker.storage import DataDirectory, Flusher, LogConfig, Partition

__all__ = ["Disk"]


class Disk:
    """A data directory without a broker: one topic "t" of one partition, whose flushes end when `flush` is called."""

    def __init__(self, path: Path, *, fsync: Any = "flush", **config: Any) -> None:
        self.path = path
        self._soon: list[Callable[[], None]] = []
        self._done: list[Callable[[], None]] = []
        self.directory = DataDirectory(path, "cluster", fsync)
        self._flusher = Flusher(lambda _ms, call: self._soon.append(call), self._done.append)
        self.directory.attach(self._flusher)
        self.cluster = Cluster("cluster", log_defaults=LogConfig(**config))
        self.cluster.nodes[1] = BrokerNode(1, "localhost", 9092)
        try:
            self.cut_bytes = self.cluster.load(self.directory, lambda: NOW)
        except BaseException:
            self.directory.close()
            raise
        if "t" not in self.cluster.topics:
            self.cluster.create_topic("t", 1)
        self.flush()

    @property
    def partition(self) -> Partition:
        return self.cluster.topics["t"].partitions[0]

    def flush(self) -> None:
        """Let everything that waits for the disk happen; what was put off is tried again."""
        for _ in range(3):
            for call in self._take(self._soon):
                call()
            idle = threading.Event()
            self._flusher.run(idle.set)
            assert idle.wait(PATIENCE)
            for call in self._take(self._done):
                call()

    @staticmethod
    def _take(calls: list[Callable[[], None]]) -> list[Callable[[], None]]:
        taken, calls[:] = list(calls), []
        return taken

    def close(self) -> None:
        self.flush()
        self.directory.close()

    def crash(self, to: Path) -> Path:
        """What a kill at this moment leaves: a copy."""
        shutil.copytree(self.path, to)
        return to
