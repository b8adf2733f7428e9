"""`Records`, the result of `Consumer.poll`. Application side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from kadence.idioms import advised
from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.typevars import K_co, V_co

__all__ = ["Records"]

K = TypeVar("K")
V = TypeVar("V")

_NOWHERE: Final[Mapping[TopicPartition, OffsetAndMetadata]] = MappingProxyType({})


@advised
class Records(Generic[K_co, V_co]):
    """Records of one poll, grouped by partition, in offset order within each.

    Iterating gives the records one after the other; `by_partition` gives them grouped. It is false when there are
    no records, and immutable.
    """

    __slots__ = ("_chunks", "_moved")

    def __init__(
        self,
        chunks: Sequence[tuple[TopicPartition, list[Record[K_co, V_co]]]] = (),
        moved: Mapping[TopicPartition, OffsetAndMetadata] = _NOWHERE,
    ) -> None:
        self._chunks = chunks
        # Where partitions stand of which the poll passed over something behind the records, or instead of any.
        self._moved = moved

    @classmethod
    def of(cls, records: Iterable[Record[K, V]]) -> Records[K, V]:
        """Make `Records` of these records, grouped by partition in the order given; for interceptors and tests."""
        grouped: dict[TopicPartition, list[Record[K, V]]] = {}
        for record in records:
            grouped.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return Records(tuple(grouped.items()))

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        chunks = self._chunks
        if len(chunks) == 1:
            return iter(chunks[0][1])
        return chain.from_iterable(records for _, records in chunks)

    def __len__(self) -> int:
        return sum(len(records) for _, records in self._chunks)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def by_partition(self) -> dict[TopicPartition, list[Record[K_co, V_co]]]:
        """The records of each partition, in offset order."""
        grouped: dict[TopicPartition, list[Record[K_co, V_co]]] = {}
        for partition, records in self._chunks:
            grouped.setdefault(partition, []).extend(records)
        return grouped

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that records came from."""
        return frozenset(partition for partition, _ in self._chunks)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit when all records are processed: for each partition the next offset to read (KIP-1094).

        A partition of which the poll passed over bad, aborted or control records is named, too, though no record of it
        was returned. So the result may hold offsets where there are no records.
        """
        found = {
            partition: OffsetAndMetadata(records[-1].offset + 1, records[-1].leader_epoch)
            for partition, records in self._chunks
        }
        found.update(self._moved)
        return found

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{partition}: {len(records)}" for partition, records in self.by_partition().items()
        )
        return f"<Records {len(self)} [{parts}]>"
