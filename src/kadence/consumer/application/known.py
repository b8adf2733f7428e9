"""The assignment as the program knows it: what the last poll has told. Application side.

The network thread goes on while the program works: it may lose a partition and get it again, and others have read it
meanwhile. So a call that names a partition means the assignment of it that the program knows. It asks here for the
shared partition, which is another object with each assignment, and events for the network thread carry that object: on
any other assignment than that they have no effect. This is the one door to a partition by its name.

By hand there is nobody who takes a partition away, so what is assigned is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import IllegalStateError
from kadence.types import TopicPartition

__all__ = ["KnownAssignment"]

_NOTHING: Final[Mapping[TopicPartition, SharedPartition]] = MappingProxyType({})


class KnownAssignment:
    """What the program knows to be assigned. Any thread may ask; the application's thread changes it.

    Args:
        by_hand: tells whether partitions are assigned by hand.
    """

    def __init__(self, shared_state: SharedState, by_hand: Callable[[], bool]) -> None:
        self._shared_state = shared_state
        self._by_hand = by_hand
        # Replaced as a whole, so that other threads see a whole one.
        self._told = _NOTHING

    @property
    def is_by_hand(self) -> bool:
        """Whether partitions are assigned by hand."""
        return self._by_hand()

    @property
    def partitions(self) -> Mapping[TopicPartition, SharedPartition]:
        """The shared partition of each. Nobody changes this mapping."""
        return self._shared_state.assignment if self._by_hand() else self._told

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
        return " before the next poll tells of it" if partition in self._shared_state.assignment else ""

    def assigned(self, partitions: Mapping[TopicPartition, SharedPartition]) -> None:
        """The program is about to be told that these are assigned."""
        self._told = MappingProxyType({**self._told, **partitions})

    def gone(self, partitions: Iterable[TopicPartition]) -> None:
        """The program was told that these are revoked, or lost."""
        left = dict(self._told)
        for partition in partitions:
            left.pop(partition, None)
        self._told = MappingProxyType(left)

    def forget(self) -> None:
        """The group is left."""
        self._told = _NOTHING
