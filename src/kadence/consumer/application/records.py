"""`Records`, the result of `Consumer.poll`. Application side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from kadence.idioms import missing
from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.typevars import K_co, V_co

__all__ = ["Records"]

K = TypeVar("K")
V = TypeVar("V")


class Records(Generic[K_co, V_co]):
    """Records of one poll, grouped by partition, in offset order within each.

    Iterating gives the records one after the other; `by_partition` gives them grouped. It is false when there are
    no records, and immutable.
    """

    __slots__ = ("_chunks",)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name)

    def __init__(self, chunks: Sequence[tuple[TopicPartition, list[Record[K_co, V_co]]]] = ()) -> None:
        self._chunks = chunks

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
        """The offset after the last record of each partition: what to commit when all are processed (KIP-1094)."""
        return {
            partition: OffsetAndMetadata(records[-1].offset + 1, records[-1].leader_epoch)
            for partition, records in self._chunks
        }

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{partition}: {len(records)}" for partition, records in self.by_partition().items()
        )
        return f"<Records {len(self)} [{parts}]>"
