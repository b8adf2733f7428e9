"""The broker's periodic work: it forgets idle producers, deletes old records and compacts logs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from kadence.clock import add_ms
from kadence.logs import logger
from kadence_broker.cluster import Cluster
from kadence_broker.server.loop import Loop
from kadence_broker.settings import Settings
from kadence_broker.storage import DataDirectory, Partition
from kadence_broker.storage.compaction import compacting, due_of

_FLUSH_INTERVAL_MS: Final = 1_000
_PIECE_US: Final = 10_000
"""For which others wait for compaction at a time."""

_log = logger("kadence.broker")

__all__ = ["Upkeep"]


class Upkeep:
    """Timers on the loop; call `start` on its thread, or before it runs."""

    __slots__ = ("_cluster", "_disk", "_is_compacting", "_loop", "_settings")

    def __init__(
        self, loop: Loop, cluster: Cluster, settings: Settings, disk: DataDirectory | None = None
    ) -> None:
        self._disk = disk
        self._loop = loop
        self._cluster = cluster
        self._settings = settings
        self._is_compacting = False

    def start(self) -> None:
        self._every(self._settings.retention_check_interval_ms, self._retain)
        self._every(self._settings.cleaner_backoff_ms, self._compact)
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

    # Compaction: one partition after the other, in pieces

    def _compact(self) -> None:
        """Begin with the partition that needs it most, if any does, unless one is on the way."""
        if self._is_compacting:
            return
        now = self._loop.wall_ms()
        due = [(found, each) for each in self._partitions() if (found := due_of(each, now)) is not None]
        if due:
            found, partition = max(due, key=lambda each: (each[0].is_overdue, each[0].ratio))
            self._is_compacting = True
            self._piece(partition, compacting(partition, found, now))

    def _piece(self, partition: Partition, steps: Generator[int, None, bool]) -> None:
        """Go on with a pass for a while; then others are served."""
        spent, is_whole = 0, False
        try:
            while spent < _PIECE_US and self._cluster.topics.get(partition.topic.name) is partition.topic:
                spent += next(steps)
        except StopIteration as end:
            is_whole = end.value
        except OSError as error:
            _log.warning("%r could not be compacted: %s", partition, error)
        else:
            if spent >= _PIECE_US:
                self._loop.soon(lambda: self._piece(partition, steps))
                return
            steps.close()  # Its topic has gone.
        self._is_compacting = False
        if is_whole:
            self._loop.soon(self._compact)

    def _expire_producers(self) -> None:
        older_than = self._loop.wall_ms() - self._settings.producer_id_expiration_ms
        for partition in self._partitions():
            partition.producers.expire(older_than)

    def _partitions(self) -> list[Partition]:
        return [each for topic in self._cluster.topics.values() for each in topic.partitions]
