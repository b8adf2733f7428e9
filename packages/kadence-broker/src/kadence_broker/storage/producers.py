"""Producers of one partition (KIP-98): what each appended last, its open transaction, and how transactions ended.

A retry must not be appended twice, so the last five batches of a producer are remembered (it may have five requests in
flight). The rules and codes are those of Kafka's ProducerStateManager. All of it follows from the batches of the log:
`replay` rebuilds it after a restart or a truncation.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kadence.errors import LocalError
from kadence.protocol import error_codes as codes
from kadence.records import BatchHeader, FetchedRecords, encode_batch
from kadence.records.batch import CONTROL
from kadence_broker.storage.aborted import Aborted, AbortedIndex
from kadence_broker.storage.errors import BatchError

__all__ = ["Appended", "Marker", "Producer", "Producers", "as_data", "marker_batch", "read_marker"]

_REMEMBERED_BATCHES: Final = 5
_LAST_SEQUENCE: Final = 2**31 - 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21


class Appended(NamedTuple):
    """A batch of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Marker(NamedTuple):
    """The end of a transaction, as a control batch says it."""

    committed: bool
    coordinator_epoch: int


@dataclass(slots=True)
class Producer:
    """One producer id.

    Attributes:
        batches: the newest, at most five, of ``epoch``.
        transaction_from: offset of the first record of its open transaction; None without one.
        coordinator_epoch: of the last marker, -1 without one.
        used_at: when it appended last (ms since 1970).
    """

    producer_id: int
    epoch: int
    batches: deque[Appended] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))
    transaction_from: int | None = None
    coordinator_epoch: int = -1
    used_at: int = 0

    @property
    def last_sequence(self) -> int:
        """-1 if nothing was appended in its epoch."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class Producers:
    """By producer id, with the index of aborted transactions."""

    __slots__ = ("_open", "aborted", "known")

    def __init__(self) -> None:
        self.known: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """First offset of each open transaction, by producer id; in the order in which they began."""
        self.aborted = AbortedIndex()

    def __len__(self) -> int:
        return len(self.known)

    @property
    def first_open(self) -> int | None:
        """The start of the oldest open transaction; no record from there on is stable."""
        return next(iter(self._open.values()), None)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """True if the producer has a transaction open here."""
        return producer_id in self._open and self.known[producer_id].epoch == epoch

    def open_transactions(self) -> list[tuple[int, int]]:
        """Id and epoch of each producer that has a transaction open here."""
        return [(producer_id, self.known[producer_id].epoch) for producer_id in self._open]

    def check(self, header: BatchHeader, *, from_zero: bool = False) -> Appended | None:
        """Check that a client's batch may be appended.

        Args:
            from_zero: a producer that is not known here must begin with sequence 0.

        Returns:
            None to append it; the earlier result, if it is a duplicate.

        Raises:
            BatchError: its epoch is old, a batch before it is missing, or it leaves the open transaction out.
        """
        known = self.known.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            if from_zero and header.base_sequence != 0:
                raise _out_of_order(header, 0)
            return None
        self._check_epoch(known, header.producer_epoch)
        if header.producer_epoch == known.epoch:
            for each in known.batches:
                if each[:2] == (header.base_sequence, header.last_sequence):
                    return each
            last = known.last_sequence
            expected = 0 if last == _LAST_SEQUENCE else last + 1
        else:
            expected = 0
        if header.base_sequence != expected:
            raise _out_of_order(header, expected)
        if known.transaction_from is not None and not header.is_transactional:
            raise BatchError(
                codes.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, and sent a batch outside of it",
            )
        return None

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Check that a transaction coordinator may end the transaction.

        Raises:
            BatchError: the epoch of the producer or of the coordinator is old.
        """
        known = self.known.get(producer_id)
        if known is None:
            return
        self._check_epoch(known, producer_epoch)
        if coordinator_epoch < known.coordinator_epoch:
            raise BatchError(
                codes.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {known.coordinator_epoch} has ended a transaction of producer "
                f"{producer_id}; this one has epoch {coordinator_epoch}",
            )

    @staticmethod
    def _check_epoch(known: Producer, epoch: int) -> None:
        if epoch < known.epoch:
            raise BatchError(
                codes.INVALID_PRODUCER_EPOCH,
                f"producer {known.producer_id} has epoch {known.epoch}; the batch has {epoch}",
            )

    # After an append

    def appended(self, header: BatchHeader, base_offset: int, now: int) -> None:
        """Remember a batch of records at ``base_offset``."""
        if header.producer_id < 0:
            return
        known = self._at_epoch(header.producer_id, header.producer_epoch)
        known.used_at = now
        last_offset = base_offset + header.last_offset_delta
        known.batches.append(Appended(header.base_sequence, header.last_sequence, base_offset, last_offset))
        if header.is_transactional and known.transaction_from is None:
            known.transaction_from = base_offset
            self._open[header.producer_id] = base_offset

    def ended(self, header: BatchHeader, marker: Marker, offset: int, now: int) -> Aborted | None:
        """Remember the marker at ``offset``; return the transaction that it aborted, if any."""
        known = self._at_epoch(header.producer_id, header.producer_epoch)
        known.used_at = now
        known.coordinator_epoch = marker.coordinator_epoch
        first, known.transaction_from = known.transaction_from, None
        self._open.pop(header.producer_id, None)
        if first is None or marker.committed:
            return None
        stable = self.first_open
        aborted = Aborted(header.producer_id, first, offset, offset + 1 if stable is None else stable)
        self.aborted.add(aborted)
        return aborted

    def _at_epoch(self, producer_id: int, epoch: int) -> Producer:
        known = self.known.get(producer_id)
        if known is None:
            known = self.known[producer_id] = Producer(producer_id, epoch)
        elif known.epoch != epoch:
            known.epoch = epoch
            known.batches.clear()
        return known

    def replay(self, batches: Iterable[memoryview], now: int) -> Iterator[Aborted]:
        """Take batches of the log in again, from the oldest to the newest; yields what was aborted."""
        for batch in batches:
            header = BatchHeader.parse(batch)
            if header.producer_id < 0:
                continue
            if not header.is_control:
                self.appended(header, header.base_offset, now)
            elif (marker := read_marker(batch, header)) is not None:
                aborted = self.ended(header, marker, header.base_offset, now)
                if aborted is not None:
                    yield aborted

    def restore(self, producers: Iterable[Producer]) -> None:
        """Take in what a snapshot says."""
        for each in producers:
            self.known[each.producer_id] = each
        opened = [each for each in self.known.values() if each.transaction_from is not None]
        opened.sort(key=lambda each: each.transaction_from or 0)
        self._open = {each.producer_id: each.transaction_from or 0 for each in opened}

    # Removal

    def expire(self, older_than: int) -> int:
        """Forget producers without an open transaction that appended last before ``older_than`` (ms since 1970).

        Returns their number.
        """
        gone = [
            each.producer_id
            for each in self.known.values()
            if each.transaction_from is None and each.used_at <= older_than
        ]
        for producer_id in gone:
            del self.known[producer_id]
        return len(gone)

    def rebuilt(self, batches: Iterable[memoryview], end_offset: int, now: int) -> Producers:
        """The state after the log lost what lay from ``end_offset`` on, from the ``batches`` that are left.

        Producers without records in the lost part are kept, although retention may have deleted their batches.
        """
        rebuilt = Producers()
        for _ in rebuilt.replay(batches, now):
            pass
        for producer_id, known in self.known.items():
            if known.last_offset < end_offset and known.transaction_from is None:
                rebuilt.known.setdefault(producer_id, known)
        rebuilt.aborted = self.aborted
        rebuilt.aborted.truncate(end_offset)
        return rebuilt


def _out_of_order(header: BatchHeader, expected: int) -> BatchError:
    return BatchError(
        codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} should send sequence {expected} next, not {header.base_sequence}",
    )


def marker_batch(
    producer_id: int, producer_epoch: int, marker: Marker, timestamp: int
) -> tuple[memoryview, BatchHeader]:
    """The control batch that ends a transaction."""
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    batch = encode_batch(
        [(timestamp, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return memoryview(batch), BatchHeader.parse(batch)


def as_data(batch: memoryview) -> memoryview:
    """A control batch as a copy that is marked as data, for what reads records steps over control batches."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    if not attributes & CONTROL:
        return batch
    copy = bytearray(batch)
    _ATTRIBUTES.pack_into(copy, _ATTRIBUTES_AT, attributes & ~CONTROL)
    return memoryview(copy)


def read_marker(batch: memoryview, header: BatchHeader) -> Marker | None:
    """The marker in a control batch; None if it does not end a transaction."""
    try:
        records = FetchedRecords(as_data(batch), "", 0, header.base_offset, check_crcs=False).take(2)
    except LocalError:
        return None
    if len(records) != 1:
        return None
    (record,) = records
    if record.key is None or len(record.key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT) or record.value is None or len(record.value) < _VALUE.size:
        return None
    return Marker(kind == _COMMIT, _VALUE.unpack_from(record.value)[1])
