"""The broker's periodic work: it forgets idle producers and deletes old records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.clock import add_ms
from kadence_broker.cluster import Cluster
from kadence_broker.server.loop import Loop
from kadence_broker.settings import Settings
from kadence_broker.storage import DataDirectory, Partition

_FLUSH_INTERVAL_MS: Final = 1_000

__all__ = ["Upkeep"]


class Upkeep:
    """Timers on the loop; call `start` on its thread, or before it runs."""

    __slots__ = ("_cluster", "_disk", "_loop", "_settings")

    def __init__(
        self, loop: Loop, cluster: Cluster, settings: Settings, disk: DataDirectory | None = None
    ) -> None:
        self._disk = disk
        self._loop = loop
        self._cluster = cluster
        self._settings = settings

    def start(self) -> None:
        self._every(self._settings.retention_check_interval_ms, self._retain)
        if self._disk is not None and self._disk.fsync == "interval":
            self._every(_FLUSH_INTERVAL_MS, self._disk.flush_soon)
        self._every(self._settings.producer_id_expiration_check_interval_ms, self._expire_producers)

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            self._every(interval_ms, action)
            action()

        self._loop.at(add_ms(self._loop.clock.now_ms(), max(interval_ms, 1)), again)

    def _retain(self) -> None:
        now = self._loop.wall_ms()
        for partition in self._partitions():
            partition.retain(now)

    def _expire_producers(self) -> None:
        older_than = self._loop.wall_ms() - self._settings.producer_id_expiration_ms
        for partition in self._partitions():
            partition.producers.expire(older_than)

    def _partitions(self) -> list[Partition]:
        return [each for topic in self._cluster.topics.values() for each in topic.partitions]
