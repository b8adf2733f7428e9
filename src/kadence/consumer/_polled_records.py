"""`Records`, what a poll returns, and how interceptors see it. Application side. One source, compiled and plain.

See `uncompiled` for the two forms. A small poll costs less than half a microsecond, of which a Python object with
Python methods would be half. The types of the fields are in the .pxd file, those for callers in `polled_records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import GenericAlias, MappingProxyType
from typing import Any

import kadence.uncompiled as cython
from kadence.idioms import elsewhere, own_names
from kadence.types import OffsetAndMetadata, TopicPartition

if cython.compiled:
    import cython

__all__ = ["Records", "intercept", "one_chunk"]

_NOWHERE: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})


@cython.freelist(8)
@cython.cclass
class Records:
    """Records of one poll, grouped by partition, in offset order within each.

    Iterating gives the records one after the other; `by_partition` gives them grouped. It is false when there are
    no records, and immutable.
    """

    def __init__(
        self,
        chunks: Sequence[tuple[TopicPartition, list[Any]]] = (),
        moved: Mapping[TopicPartition, OffsetAndMetadata] = _NOWHERE,
    ) -> None:
        # Most polls return records of one partition: these need no sequence of chunks.
        self._partition: TopicPartition | None = None
        self._records: list[Any] | None = None
        self._chunks = chunks
        # Where partitions stand of which the poll passed over something behind the records, or instead of any.
        self._moved = moved
        if len(chunks) == 1:
            self._partition, self._records = chunks[0]

    __class_getitem__ = classmethod(GenericAlias)  # type: ignore[var-annotated]

    items = elsewhere("Records", "items")
    keys = elsewhere("Records", "keys")
    values = elsewhere("Records", "values")
    get = elsewhere("Records", "get")
    error = elsewhere("Records", "error")
    value = elsewhere("Records", "value")
    key = elsewhere("Records", "key")
    topic = elsewhere("Records", "topic")
    partition = elsewhere("Records", "partition")
    offset = elsewhere("Records", "offset")

    @classmethod
    def of(cls, records: Iterable[Any]) -> Records:
        """Make `Records` of these records, grouped by partition in the order given; for interceptors and tests."""
        grouped: dict[TopicPartition, list[Any]] = {}
        for record in records:
            grouped.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return Records(tuple(grouped.items()))

    def __iter__(self) -> Iterator[Any]:
        if self._records is not None:
            return iter(self._records)
        return chain.from_iterable([records for _, records in self._chunks])

    def __len__(self) -> int:
        if self._records is not None:
            return len(self._records)
        return sum([len(records) for _, records in self._chunks])

    def __bool__(self) -> bool:
        return self._records is not None or bool(self._chunks)

    def by_partition(self) -> dict[TopicPartition, list[Any]]:
        """The records of each partition, in offset order."""
        grouped: dict[TopicPartition, list[Any]] = {}
        for partition, records in self._pairs():
            grouped.setdefault(partition, []).extend(records)
        return grouped

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that records came from."""
        return frozenset([partition for partition, _ in self._pairs()])

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit when all records are processed: for each partition the next offset to read (KIP-1094).

        A partition of which the poll passed over bad, aborted or control records is named, too, though no record of it
        was returned. So the result may hold offsets where there are no records.
        """
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, records in self._pairs():
            last = records[len(records) - 1]
            found[partition] = OffsetAndMetadata(last.offset + 1, last.leader_epoch)
        if self._moved is not None:
            found.update(self._moved)
        return found

    @cython.cfunc
    def _pairs(self) -> Any:
        """The partitions and their records."""
        return self._chunks if self._records is None else ((self._partition, self._records),)

    def __reduce__(self) -> tuple[type[Records], tuple[Any, ...]]:
        """For copies, and for other processes."""
        return Records, (tuple(self._pairs()), dict(self._moved or ()))

    def __dir__(self) -> list[str]:
        return own_names(self, "Records")

    def __repr__(self) -> str:
        parts = ", ".join(
            [f"{partition}: {len(records)}" for partition, records in self.by_partition().items()]
        )
        return f"<Records {len(self)} [{parts}]>"


@cython.cfunc
def one_chunk(partition: Any, records: list[Any]) -> Records:
    """Records of one partition."""
    made: Records = Records.__new__(Records)
    made._partition = partition
    made._records = records
    if not cython.compiled:
        made._chunks, made._moved = (), _NOWHERE
    return made


@cython.ccall
def intercept(interceptors: Any, consuming: tuple[Any, ...], given: Records) -> Records:
    """What ``consuming`` make of the records, one after the other; ``interceptors`` is told of what goes wrong."""
    records: Records = given
    for each in consuming:
        try:
            result = each.on_consume(records)
        except Exception as error:  # noqa: BLE001 - logged, as in Kafka's client
            interceptors.failed(each, "on_consume", error)
            continue
        if result is None or result is records:
            continue
        if isinstance(result, Records):
            records = result
        else:
            interceptors.refused(each, result)
    if records is given:
        return given
    # What they left out is consumed, too: committing what is returned commits it.
    return Records(tuple(records.by_partition().items()), given.next_offsets())
