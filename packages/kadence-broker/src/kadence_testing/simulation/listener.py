"""A rebalance listener that records its calls, and reports calls that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kadence.consumer.application.callbacks import RebalanceListener
from kadence.types import TopicPartition
from kadence_testing.simulation.scheduler import Process

__all__ = ["Recorder", "Told"]


class Told(NamedTuple):
    """One callback. ``kind`` is "assigned", "revoked" or "lost"; ``at_ms`` is since the simulation began."""

    at_ms: int
    kind: str
    partitions: tuple[TopicPartition, ...]


class Recorder(RebalanceListener):
    """Listens for one consumer.

    Args:
        told: the list to which it appends its calls. object_to: called for a callback that contradicts earlier ones.

    Attributes:
        held: the consumer's partitions according to the callbacks.
    """

    def __init__(self, process: Process, told: list[Told], object_to: Callable[[str], None]) -> None:
        self.held: set[TopicPartition] = set()
        self._process = process
        self._told = told
        self._object_to = object_to

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)
        if twice := self.held & set(partitions):
            self._object_to(f"{self._process.name} was assigned {sorted(twice)} twice")
        self.held |= set(partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        strange = set(partitions) - self.held
        # A killed program leaves its coroutines, perhaps during an assignment, which is not a contradiction.
        if strange and self._process.is_alive:
            self._object_to(
                f"{self._process.name} was to give up {sorted(strange)}, which it was never assigned"
            )
        self.held -= set(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        # on_partitions_lost may have partitions whose assignment was not reported yet.
        self._note("lost", partitions)
        self.held -= set(partitions)

    def _note(self, kind: str, partitions: list[TopicPartition]) -> None:
        self._told.append(Told(self._process.scheduler.elapsed_ms, kind, tuple(partitions)))
