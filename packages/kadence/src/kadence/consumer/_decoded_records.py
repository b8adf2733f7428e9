"""Decoded records of one partition: whether they may be returned, deserialising them, and the `Records` of a poll.

It is compiled: a small poll costs less than half a microsecond, of which a Python object with Python methods would be
half.

Both threads look at these objects, so each field has one writer, as in `shared_partition`. A method here runs no
Python code, so no other thread and no signal handler comes between. Without the interpreter's lock, numbers that one
thread writes while others look are atomic (_native/shared.h). Other fields are written in critical sections of their
objects, and other threads read them in these, too: Cython does so for public fields. The C types of the
fields are in the .pxd file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import GenericAlias, MappingProxyType
from typing import Any

import cython

from kadence._native import refuse
from kadence.errors.local import AnswerPendingError
from kadence.idioms import elsewhere, own_names
from kadence.types import OffsetAndMetadata, TopicPartition

if not cython.compiled:
    refuse(__name__)
    from kadence.records import Record

    with_content: Callable[[Record, Any, Any], Record]

__all__ = ["Attention", "DecodedRecords", "Decoder", "DeliveryState", "Records", "intercept", "one_chunk"]

_NOWHERE: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})


@cython.final
@cython.cclass
class Attention:
    """Whether the application's next poll has more to do than to take the next record.

    Any thread raises it, after making the change in question. Only a poll lowers it, before it looks for changes. So a
    change is seen by the poll under way or by the next one, and is never missed.
    """

    def __init__(self) -> None:
        self.up = True


@cython.final
@cython.cclass
class DecodedRecords:
    """Records of one partition that were decoded ahead, and how many of them were returned.

    The position of a partition is an index in them. Putting back what a poll took is setting ``index`` to ``began``.
    They are replaced as a whole when the next records are decoded, so other threads may read them.

    Where rows were returned as columns, where the records were released (`Steps.let_go`), and where the position moved
    over control batches only, ``records`` is empty: then index 1 means "behind them" and 0 "before them".

    Attributes:
        fetch_epoch: the stretch of reading (see `SharedPartition`) that the records belong to.
        records: the records, in the order of their offsets. count: how many there are.
        index: how many were returned (application).
        began: the index at which the present poll began: records below it are known to be processed (application).
        counted: the index up to which `Consumer.metrics` has counted them (application).
        is_last: the fetch holds nothing behind it. A step does not take its last record, because taking that also
            releases the fetch.
        is_processed: all records before index 0 were known to be processed when these were decoded.
        start, start_epoch: the position at index 0. end, end_epoch: the position behind the last of them.
    """

    def __init__(
        self,
        fetch_epoch: cython.longlong,
        records: list[Record],
        start: int,
        start_epoch: int | None,
        end: int,
        end_epoch: int | None,
    ) -> None:
        self.fetch_epoch = fetch_epoch
        self.records = records
        self.count = len(records)
        self.index = self.began = self.counted = 0
        self.is_last = self.is_processed = False
        self.start = start
        self.start_epoch = start_epoch
        self.end = end
        self.end_epoch = end_epoch

    @property
    def left(self) -> int:
        """How many records can still be returned."""
        return self.count - self.index if self.index < self.count else 0

    def position(self) -> tuple[int, int | None]:
        """The offset after the returned records, and the epoch of the last record before it."""
        with cython.critical_section(self):
            offset, epoch = self.place(self.index)
        return offset, epoch

    def processed(self) -> tuple[int, int | None] | None:
        """As `position`, after the records that are known to be processed; None: none is known yet."""
        with cython.critical_section(self):
            if not self.began and not self.is_processed:
                return None
            offset, epoch = self.place(self.began)
        return offset, epoch

    def has_news(self, offset: cython.longlong) -> bool:
        """Whether offset lies after what `processed` gives, and not after `position`."""
        with cython.critical_section(self):
            if not self.began and not self.is_processed:
                return False
            is_after: cython.bint = self.place(self.began)[0] < offset
            is_returned: cython.bint = offset <= self.place(self.index)[0]
        return is_after and is_returned

    @cython.cfunc
    def place(self, index: cython.Py_ssize_t) -> Any:
        """The position behind the first ``index`` of them."""
        if index == 0:
            return self.start, self.start_epoch
        if index >= self.count:
            return self.end, self.end_epoch
        record = self.records[index - 1]
        return record.offset + 1, record.leader_epoch


@cython.cclass
class DeliveryState:
    """The fields that decide whether records of a partition may be returned.

    It is the part of a shared partition that a step looks at for each record. `SharedPartition` names the writer of
    each field.
    """

    def __init__(self, fetch_epoch: cython.longlong) -> None:
        self.fetch_epoch = fetch_epoch
        self.paused = False
        self.work_paused = False
        self.revoking = False
        self.held = False
        self._end: int | None = None
        self.decoded: DecodedRecords | None = None

    @property
    def end(self) -> int | None:
        """End (exclusive) of the range to read (C11); None: it has no end."""
        # Not public: compiled modules would read it without a lock while the network thread writes it.
        with cython.critical_section(self):
            return self._end

    @end.setter
    def end(self, end: int | None) -> None:
        with cython.critical_section(self):
            self._end = end

    @cython.cfunc
    def decoded_now(self) -> DecodedRecords | None:
        """As ``decoded``, for compiled code that runs on any thread."""
        with cython.critical_section(self):
            return self.decoded


@cython.final
@cython.cclass
class Decoder:
    """Makes keys and values out of their bytes.

    Args:
        key, value: a function of the bytes, or an object with ``deserialize(topic, headers, data)``; None leaves bytes.

    Attributes:
        failed: where the last `run` stopped, if it did: the record, the part (``key`` or ``value``) that its
            deserialiser refused or could not decode yet, and the error.
    """

    def __init__(self, key: Any, value: Any) -> None:
        self.key_in_full = getattr(key, "deserialize", None)
        self.key = key if self.key_in_full is None else None
        self.value_in_full = getattr(value, "deserialize", None)
        self.value = value if self.value_in_full is None else None
        self.is_at_value = False
        self.failed: tuple[Any, str, BaseException] | None = None

    @cython.cfunc
    def decode(self, raw: Record) -> Record:
        """The record with its key and value deserialised."""
        key: Any = raw.key
        value: Any = raw.value
        self.is_at_value = False
        if key is not None:
            if self.key is not None:
                key = self.key(key)
            elif self.key_in_full is not None:
                key = self.key_in_full(raw.topic, raw.headers, key)
        self.is_at_value = True
        if value is not None:
            if self.value is not None:
                value = self.value(value)
            elif self.value_in_full is not None:
                value = self.value_in_full(raw.topic, raw.headers, value)
        return with_content(raw, key, value)

    def run(
        self, records: list[Record], at: cython.Py_ssize_t, end: cython.Py_ssize_t, out: list[Record]
    ) -> int:
        """Append ``records[at:end]``, deserialised, to ``out``, up to the first record that a deserialiser refuses.

        A run that begins at the record where the previous one stopped stops there again without calling a deserialiser.

        Returns:
            where it stopped: ``end``, or the place of the record in ``failed``.

        Raises:
            MemoryError: it does not count as a refused record.
        """
        failed = self.failed
        self.failed = None
        if failed is not None and at < end and failed[0] is records[at]:
            self.failed = failed
            return at
        try:
            while at < end:
                out.append(self.decode(cython.cast(Record, records[at])))
                at += 1
        except MemoryError:
            raise
        except (Exception, AnswerPendingError) as error:  # noqa: BLE001 - `deserialization.errors` says what it means
            self.failed = (records[at], self.field(), error)
        return at

    @cython.cfunc
    def field(self) -> str:
        """The part (key or value) whose deserialiser was called last."""
        return "value" if self.is_at_value else "key"


@cython.freelist(8)
@cython.cclass
class Records:
    """Records of one poll, grouped by partition, in offset order within each.

    Iterating gives the records one after the other, and an index one of them; `by_partition` gives them grouped. It
    is false when there are no records, and immutable.
    """

    def __init__(
        self,
        chunks: Sequence[tuple[TopicPartition, list[Any]]] = (),
        moved: Mapping[TopicPartition, OffsetAndMetadata] = _NOWHERE,
    ) -> None:
        # Interceptors also create these, and may leave a partition without records.
        for chunk in chunks:
            if not chunk[1]:
                chunks = [each for each in chunks if each[1]]
                break
        # Most polls return records of one partition: these need no sequence of chunks.
        self._partition: TopicPartition | None = None
        self._records: list[Any] | None = None
        self._chunks = chunks
        # Positions of partitions in which the poll skipped batches after the records, or returned no record.
        self._moved = moved
        if len(chunks) == 1:
            partition, records = chunks[0]
            self._partition = partition
            self._records = records if type(records) is list else list(records)

    __class_getitem__ = classmethod(GenericAlias)  # type: ignore[var-annotated]

    items = elsewhere("Records", "items")
    error = elsewhere("Records", "error")
    value = elsewhere("Records", "value")

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

    def __getitem__(self, index: Any) -> Any:
        records = list(self) if self._records is None else self._records
        return records[index]

    def __len__(self) -> int:
        if self._records is not None:
            return len(self._records)
        return sum([len(records) for _, records in self._chunks])

    def __bool__(self) -> bool:
        return self._records is not None or bool(self._chunks)

    def by_partition(self) -> dict[TopicPartition, list[Any]]:
        """The records of each partition that has some, in offset order."""
        grouped: dict[TopicPartition, list[Any]] = {}
        for partition, records in self._pairs():
            if records:
                grouped.setdefault(partition, []).extend(records)
        return grouped

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that records came from."""
        return frozenset([partition for partition, records in self._pairs() if records])

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit when all records are processed: for each partition the next offset to read (KIP-1094).

        A partition in which the poll skipped bad, aborted or control records is included even if none of its records
        was returned. So the result may hold offsets where there are no records.
        """
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, records in self._pairs():
            # The code that created this may have emptied the list since.
            if records:
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
        """For copying and pickling."""
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
    return made


@cython.ccall
def intercept(interceptors: Any, consuming: tuple[Any, ...], given: Records) -> Records:
    """Pass the records through each of ``consuming`` in turn; errors are reported to ``interceptors``."""
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
    # Records that they leave out also count as consumed: a commit of the returned records covers them.
    return Records(tuple(records.by_partition().items()), given.next_offsets())
