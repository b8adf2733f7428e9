"""The assignment as the program knows it. Application side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kadence.consumer.application.client_core import Chosen
from kadence.consumer.events import Failed
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import IllegalStateError
from kadence.types import TopicPartition

__all__ = ["KnownAssignment"]

_NOTHING: Final[Mapping[TopicPartition, SharedPartition]] = MappingProxyType({})


class KnownAssignment:
    """The assignment as the program knows it: what the last poll, or call, has told (C16).

    The network thread goes on while the program works: it may lose a partition and get it again, and others have read
    it meanwhile. So a call that names a partition means the assignment of it that the program knows. It asks here for
    the shared partition, which is another object with each assignment, and events for the network thread carry that
    object: on any other assignment than that they have no effect. This is the one door to a partition by its name.

    By hand each call that changes the assignment looks what is assigned, and so does each poll: partitions that are
    made later may join it. Any thread may ask; the application's thread changes it.

    Attributes:
        partitions: the shared partition of each. Nobody changes this mapping: it is replaced as a whole, so that other
            threads see a whole one.
    """

    def __init__(self, shared_state: SharedState, chosen: Chosen) -> None:
        self._shared_state = shared_state
        self._chosen = chosen
        self.partitions = _NOTHING

    @property
    def is_by_hand(self) -> bool:
        """Whether partitions are assigned by hand."""
        return self._chosen.by_hand

    def look(self) -> None:
        """A poll, or a call that assigns by hand, tells what is assigned by hand."""
        if self._chosen.by_hand:
            self.partitions = self._shared_state.shared_partitions

    def shared_partition(self, partition: TopicPartition) -> SharedPartition:
        """That of one partition; if it was lost since, it is the one that it had.

        Raises:
            IllegalStateError: it is not assigned to this consumer, as far as the program knows.
        """
        found = self.partitions.get(partition)
        if found is None:
            raise IllegalStateError(f"{partition} is not assigned to this consumer{self._why(partition)}")
        return found

    def _why(self, partition: TopicPartition) -> str:
        return " before the next poll reports it" if partition in self._shared_state.shared_partitions else ""

    def assigned(self, partitions: Mapping[TopicPartition, SharedPartition]) -> None:
        """The program is about to be told that these are assigned."""
        self.partitions = MappingProxyType({**self.partitions, **partitions})

    def gone(
        self, partitions: Iterable[TopicPartition], told: Mapping[TopicPartition, SharedPartition]
    ) -> None:
        """The program was told that these are revoked, or lost.

        Args:
            told: what it knew when that began. A poll inside the callback may have told of a new assignment since.
        """
        left = dict(self.partitions)
        for partition in partitions:
            if partition in left and left[partition] is told.get(partition):
                del left[partition]
        self.partitions = MappingProxyType(left)

    def forget(self) -> None:
        """The group is left, or the assignment by hand."""
        self.partitions = _NOTHING

    def stands(self, failure: Failed) -> bool:
        """Whether it is still true: an error of a position is void once a seek or an assignment has changed it."""
        if failure.partition is None:
            return True
        shared_partition = self._shared_state.shared_partitions.get(failure.partition)
        return shared_partition is not None and shared_partition.fetch_epoch == failure.fetch_epoch
