"""Builds batches from records: `BatchBuilder` for the producer, and one function for everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kadence._native.builder import RecordEncoder
from kadence.errors import IllegalStateError
from kadence.records import FetchedRecords, Record
from kadence.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from kadence.records.codecs import codec_id, compress

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BatchBuilder", "encode_batch", "largest_record_size"]


def largest_record_size(
    key: Buffer | None, value: Buffer | None, headers: Iterable[tuple[str, Buffer | None]] = ()
) -> int:
    """Upper bound of the bytes that one more record adds to an uncompressed batch (at most 31 too many)."""
    size = 5 + 1 + 10 + 5 + 5 + 5 + 5
    for part in (key, value):
        if part is not None:
            size += len(part) if isinstance(part, bytes) else memoryview(part).nbytes
    for name, content in headers:
        size += 10 + len(name.encode()) + (0 if content is None else memoryview(content).nbytes)
    return size


class BatchBuilder(RecordEncoder):
    """Records appended one by one, then built into a batch, as often as retries need.

    ``append(timestamp, key, value, headers=()) -> size`` adds a record; ``size`` is what the batch would be without
    compression. `build` may be called again with another producer epoch or sequence: the records stay.
    """

    __slots__ = ()

    def build(
        self,
        *,
        base_offset: int = 0,
        compression: str = "none",
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        leader_epoch: int = -1,
        transactional: bool = False,
        control: bool = False,
        append_time: int | None = None,
    ) -> bytes:
        """The batch of all records so far.

        Args:
            base_offset: offset of the first record; a producer leaves 0, the broker writes its own.
            compression: none, gzip, snappy, lz4 or zstd. level: the codec's level, None for a good default.
            producer_id: for idempotence, with producer_epoch and base_sequence (of the first record).
            leader_epoch: as stamped by a broker.
            transactional: mark as part of a transaction. control: mark as control batch.
            append_time: every record gets this timestamp of the broker (ms); None keeps their own.

        Raises:
            IllegalStateError: no record was appended. ConfigError: an unknown compression.
        """
        attributes = (
            (TRANSACTIONAL if transactional else 0)
            | (CONTROL if control else 0)
            | (TIMESTAMP_TYPE if append_time is not None else 0)
        )
        body = self._compressed(compression, level)
        header = self._header(
            attributes | codec_id(compression),
            body,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            latest=self.max_timestamp if append_time is None else append_time,
            identity=(producer_id, producer_epoch, base_sequence),
        )
        return self.seal(header, body)

    def build_in_place(
        self,
        *,
        compression: str,
        level: int | None,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
    ) -> bytes | memoryview:
        """The batch for a producer's request, without a copy of the records where they are not compressed.

        No record can be added from then on. Calling it again invalidates the result of an earlier call.

        Args:
            compression: and the others as for `build`.

        Raises:
            IllegalStateError, ConfigError: as `build`.
        """
        body = self._compressed(compression, level)
        attributes = codec_id(compression) | (TRANSACTIONAL if transactional else 0)
        header = self._header(attributes, body, identity=(producer_id, producer_epoch, base_sequence))
        return self.seal_in_place(header) if body is None else self.seal(header, body)

    def _compressed(self, compression: str, level: int | None) -> bytes | None:
        """The records, compressed once; None if they stay uncompressed."""
        if self.count == 0:
            raise IllegalStateError("a batch needs at least one record")
        codec = codec_id(compression)
        if not codec:
            return None
        packed = self.packed
        if packed is None or packed[:3] != (compression, level, self.count):
            packed = (compression, level, self.count, compress(codec, self.records(), level))
            self.packed = packed
        return packed[3]

    def _header(
        self,
        attributes: int,
        body: bytes | None,
        *,
        identity: tuple[int, int, int],
        base_offset: int = 0,
        leader_epoch: int = -1,
        latest: int | None = None,
    ) -> bytes:
        size = self.size if body is None else HEADER_SIZE + len(body)
        return HEADER.pack(
            base_offset,
            size - LOG_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp if latest is None else latest,
            *identity,
            self.count,
        )

    def records_between(
        self, first: int, last: int
    ) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """The records from index ``first`` up to ``last``, decoded: what `extend` takes.

        Raises:
            CorruptRecordError: timestamps too far apart for a reader; Kafka accepts such a batch, but no client can
                read it.
        """
        fetched = FetchedRecords(self.build(), "", 0, first)
        records: list[Record] = []
        while len(records) < last - first:
            # It raises once no record is left to return.
            records += fetched.take(last - first - len(records))
        return [(each.timestamp, each.key, each.value, list(each.headers)) for each in records]


def encode_batch(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, Iterable[tuple[str, Buffer | None]]]],
    *,
    base_offset: int = 0,
    compression: str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    append_time: int | None = None,
) -> bytes:
    """One batch of (timestamp ms, key, value, headers); the arguments are those of `BatchBuilder.build`.

    Raises:
        IllegalStateError: no records. ConfigError: an unknown compression. RecordTooLargeError: over 2 GiB.
    """
    builder = BatchBuilder()
    builder.extend(records)
    return builder.build(
        base_offset=base_offset,
        compression=compression,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        transactional=transactional,
        control=control,
        append_time=append_time,
    )
