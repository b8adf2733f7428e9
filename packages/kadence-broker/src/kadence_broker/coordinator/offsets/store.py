"""Committed offsets of all groups, and those of transactions that are not decided yet.

Only records change it: `put` and `remove` are called when one is replayed, `end_transaction` for a marker. Each
offset has a serial number, its place in the log: when a transaction commits, its offset counts unless a later one
was committed meanwhile. `commit` decides which commits are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

__all__ = ["Committed", "OffsetStore"]

_Partition = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset.

    Attributes:
        committed_at: time of day in ms. expires_at: likewise; only for clients that sent a retention time (v2-v4).
        topic_id: of the topic it was committed for; zeros if the client named the topic only.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int | None
    topic_id: bytes
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """An offset of an open transaction. ``producer`` is id and epoch."""

    producer: tuple[int, int]
    committed: Committed


class OffsetStore:
    """Group -> (topic, partition) -> `Committed`."""

    __slots__ = ("_groups", "_pending", "_serial")

    def __init__(self) -> None:
        self._groups: dict[str, dict[_Partition, Committed]] = {}
        self._pending: dict[str, dict[int, dict[_Partition, Pending]]] = {}
        """By group and producer id."""
        self._serial = 0

    def next_serial(self) -> int:
        """The place in the log of the record that is being replayed."""
        self._serial += 1
        return self._serial

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._groups.setdefault(group_id, {})[topic, partition] = committed

    def put_pending(
        self, group_id: str, topic: str, partition: int, producer: tuple[int, int], committed: Committed
    ) -> None:
        """Keep an offset until its transaction is decided."""
        producers = self._pending.setdefault(group_id, {})
        producers.setdefault(producer[0], {})[topic, partition] = Pending(producer, committed)

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self._groups.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[_Partition, Committed]:
        """A copy, so that the caller may remove offsets while iterating."""
        return dict(self._groups.get(group_id, {}))

    def partitions(self, group_id: str) -> set[_Partition]:
        """The partitions with an offset, committed or pending."""
        pending = self._pending.get(group_id, {}).values()
        return set(self._groups.get(group_id, {})).union(*pending)

    def groups(self) -> set[str]:
        """All groups that have an offset, committed or pending."""
        return self._groups.keys() | self._pending.keys()

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction may move this offset."""
        producers = self._pending.get(group_id)
        return producers is not None and any((topic, partition) in each for each in producers.values())

    def is_in_transaction(self, group_id: str) -> bool:
        return group_id in self._pending

    def has(self, group_id: str) -> bool:
        return group_id in self._groups or group_id in self._pending

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget an offset, also a pending one."""
        offsets = self._groups.get(group_id, {})
        offsets.pop((topic, partition), None)
        if not offsets:
            self._groups.pop(group_id, None)
        for producer_id, pending in list(self._pending.get(group_id, {}).items()):
            pending.pop((topic, partition), None)
            if not pending:
                self._end(group_id, producer_id)

    def remove_group(self, group_id: str) -> None:
        """Drop the group's offsets: it has another coordinator now."""
        self._groups.pop(group_id, None)
        self._pending.pop(group_id, None)

    def end_transaction(self, producer_id: int, owns: Callable[[str], bool], *, committed: bool) -> None:
        """Commit or drop the producer's pending offsets in the groups that ``owns`` selects."""
        for group_id in [each for each in self._pending if owns(each)]:
            for (topic, partition), pending in self._end(group_id, producer_id).items():
                present = self.get(group_id, topic, partition)
                if committed and (present is None or present.serial < pending.committed.serial):
                    self.put(group_id, topic, partition, pending.committed)

    def _end(self, group_id: str, producer_id: int) -> dict[_Partition, Pending]:
        producers = self._pending.get(group_id, {})
        ended = producers.pop(producer_id, {})
        if not producers:
            self._pending.pop(group_id, None)
        return ended

    def in_order(self, group_id: str) -> Iterator[tuple[_Partition, Committed, tuple[int, int] | None]]:
        """All offsets of the group in log order: partition, offset, and the producer if it is pending."""
        everything: list[tuple[_Partition, Committed, tuple[int, int] | None]] = [
            (partition, each, None) for partition, each in self._groups.get(group_id, {}).items()
        ]
        for offsets in self._pending.get(group_id, {}).values():
            everything += [(partition, each.committed, each.producer) for partition, each in offsets.items()]
        by_serial = attrgetter("serial")
        yield from sorted(everything, key=lambda row: int(by_serial(row[1])))
