"""The records of one acquired fetch (KIP-932, "Fetching and acknowledging records"). Application side.

An answer has whole batches, of which only the acquired offsets are ours. Acquired offsets without a record (compaction,
control batches, aborted transactions that the leader did not cut out) are gaps. They are acknowledged, too, or the
group's window on the partition never moves past them. A damaged batch is rejected: it is as damaged for every other
member, and the records behind it go on.

The bytes are read by `FetchedRecords`, as a consumer's are.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Collection
from operator import attrgetter
from typing import Any, NamedTuple

from kadence._native.records import set_delivery_count
from kadence._native.shared import BinaryColumn, HeaderColumn
from kadence.errors import CorruptRecordError, KafkaError, UnsupportedRecordFormatError
from kadence.records import Columns, FetchedRecords, Record, iter_batches
from kadence.share.acknowledgements import GAP, Acknowledged, AcknowledgeType
from kadence.share.share_state import AcquiredFetch

__all__ = ["AcquiredReader", "Rows"]

_offset = attrgetter("offset")
_first = attrgetter("first")


def _is_damage(error: KafkaError) -> bool:
    """Whether nobody can read it: another client may know the format."""
    return isinstance(error, CorruptRecordError) and not isinstance(error, UnsupportedRecordFormatError)


class Rows(NamedTuple):
    """Records as columns: all offsets from ``first`` to ``last``, delivered equally often."""

    columns: Columns
    first: int
    last: int
    deliveries: int

    def record(self, place: int) -> Record[Any, Any]:
        """One of them, if all columns were made. The epoch of its leader is not known any more."""
        columns = self.columns
        assert columns.timestamps is not None
        assert columns.timestamp_types is not None
        return Record(
            columns.topic,
            columns.partition,
            self.first + place,
            memoryview(columns.timestamps).cast("B").cast("q")[place] // 1_000,
            memoryview(columns.timestamp_types).cast("B").cast("i")[place],
            _cell(columns.key, place),
            _cell(columns.value, place),
            _headers(columns.headers, place),
            None,
            self.deliveries,
        )


def _cell(column: BinaryColumn | None, place: int) -> bytes | None:
    assert column is not None
    if column.validity is not None and not _bit(column.validity, place):
        return None
    start, end = _ends(column.ends, place)
    return bytes(memoryview(column.data).cast("B")[start:end])


def _headers(column: HeaderColumn | None, place: int) -> tuple[tuple[str, bytes | None], ...]:
    assert column is not None
    start, end = _ends(column.ends, place)
    keys = [_cell(column.key, at) or b"" for at in range(start, end)]
    return tuple((key.decode(), _cell(column.value, start + at)) for at, key in enumerate(keys))


def _ends(ends: Any, place: int) -> tuple[int, int]:
    view = memoryview(ends).cast("B").cast("i")
    return view[place], view[place + 1]


def _bit(bits: Any, place: int) -> int:
    return memoryview(bits).cast("B")[place >> 3] >> (place & 7) & 1


class AcquiredReader:
    """Reads one acquired fetch in order of its offsets.

    Args:
        check_crcs, max_batch_bytes: as of `FetchedRecords`.

    Attributes:
        fetch: what it reads. taken: how many acquired offsets the last `take` passed, with or without a record.
        settled: what is to be acknowledged of what was passed, and the application never sees. Whoever says it removes
            it from here.
        begun: where the call began that read last, until its caller has kept what it returned, and sets this to None.
            Else that was lost, by Ctrl-C: `undo`.
    """

    def __init__(self, fetch: AcquiredFetch, *, check_crcs: bool, max_batch_bytes: int) -> None:
        self.fetch = fetch
        self.taken = 0
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._acquired = fetch.acquired
        self._range = 0
        # The first acquired offset that was not passed yet.
        self._at = fetch.acquired[0].first if fetch.acquired else 0
        # Records that were read, and lie behind the range that they were read for.
        self._ahead: list[Record[Any, Any]] = []
        self.settled: list[Acknowledged] = []
        self.begun: tuple[int, int, int] | None = None
        # Columns are not tried any more.
        self._has_gaps = False
        self._records = self._reader(fetch.data, self._at)

    @property
    def exhausted(self) -> bool:
        """Whether all acquired offsets were passed."""
        return self._range >= len(self._acquired)

    def take(self, limit: int) -> list[Record[Any, Any]]:
        """Up to ``limit`` records; none: there are none left, or what was passed had none (`exhausted` tells).

        Raises:
            KafkaError: a batch cannot be read by this client (its format, its size). Its offsets are settled as
                released, and the next call goes on behind it.
        """
        self.undo()
        self.begun = self._at, self._range, len(self.settled)
        try:
            return self._take(limit)
        except KafkaError:
            self.begun = None
            raise

    def take_rows(self, limit: int, columns: Collection[str]) -> Rows | None:
        """As `take`, as columns, of one range without a gap. None: what comes next is for `take`.

        That are gaps, what cannot be read, and records that were read ahead.

        Args:
            columns: as of `FetchedRecords.take_columns`.
        """
        self.undo()
        if self._has_gaps or self._ahead or self.exhausted or self._records.next_offset != self._at:
            return None
        self.begun = self._at, self._range, len(self.settled)
        rows = self._take_rows(limit, columns)
        if rows is None:
            # To go back there again and again would take long.
            self._has_gaps = True
            self.undo()
        return rows

    def _take_rows(self, limit: int, columns: Collection[str]) -> Rows | None:
        at, (_, last, deliveries) = self._at, self._acquired[self._range]
        with contextlib.suppress(KafkaError):
            parts = self._records.take_columns(min(limit, last - at + 1), columns=columns)
            if len(parts) == 1 and parts[0].is_dense_from(at):
                behind = at + len(parts[0])
                self._advance(behind)
                return Rows(parts[0], at, behind - 1, deliveries)
        return None

    def untake(self, rows: Rows) -> None:
        """These, which were taken last, are the next ones again."""
        place = bisect_right(self._acquired, rows.first, key=_first) - 1
        self._go_back(rows.first, place)

    def undo(self) -> None:
        """What the last call read is lost, if nobody has kept it. Read it again: it would be taken for gaps."""
        if self.begun is not None:
            at, place, settled = self.begun
            del self.settled[settled:]
            self._go_back(at, place)

    def _go_back(self, at: int, place: int) -> None:
        before, records = self._records, self._reader(self.fetch.data, at)
        # Nothing comes between these, not even Ctrl-C.
        self._at, self._range, self._ahead, self._records, self.begun = at, place, [], records, None
        before.close()

    def _take(self, limit: int) -> list[Record[Any, Any]]:
        self.taken = 0
        out: list[Record[Any, Any]] = []
        while len(out) < limit and not self.exhausted:
            try:
                records = self._ahead or self._next(limit - len(out))
            except KafkaError as error:
                if _is_damage(error):
                    self._skip_batch(AcknowledgeType.REJECT)
                    continue
                if out:
                    # It is raised again by the next call.
                    break
                self._skip_batch(AcknowledgeType.RELEASE)
                raise
            self._ahead = []
            if not records:
                self._pass_all()
                break
            out += self._ours(records, limit - len(out))
        if not self._ahead and not self.exhausted and self._records.exhausted:
            self._pass_all()
        return out

    def rest(self) -> list[Acknowledged]:
        """What was not passed, to be released."""
        left = self._acquired[self._range :]
        return [Acknowledged(max(each.first, self._at), each.last, AcknowledgeType.RELEASE) for each in left]

    def close(self) -> None:
        """Let go of the bytes, and give their loan back."""
        self._records.close()
        self._ahead, self.begun = [], None
        arena, self.fetch.arena = self.fetch.arena, None
        if arena is not None:
            arena.release()

    # ------------------------------------------------------------ the walk

    def _reader(self, data: memoryview | bytes, offset: int) -> FetchedRecords:
        partition = self.fetch.partition
        return FetchedRecords(
            data,
            partition.topic,
            partition.partition,
            offset,
            check_crcs=self._check_crcs,
            max_batch_bytes=self._max_batch_bytes,
        )

    def _next(self, limit: int) -> list[Record[Any, Any]]:
        """The next records from the present range on, perhaps some beyond it."""
        reader, at = self._records, self._at
        reader.next_offset = max(reader.next_offset, at)
        return reader.take(min(limit, self._acquired[self._range].last - at + 1))

    def _ours(self, records: list[Record[Any, Any]], limit: int) -> list[Record[Any, Any]]:
        """The first of them that were acquired, of one range. What lies behind it is kept."""
        _, last, deliveries = self._acquired[self._range]
        if records[0].offset > last:
            self._pass(last + 1)
            self._ahead = records
            return []
        end = len(records)
        if end > limit or records[-1].offset > last:
            end = min(limit, bisect_right(records, last, key=_offset))
        start = (
            bisect_right(records, self._at - 1, 0, end, key=_offset) if records[0].offset < self._at else 0
        )
        self._ahead = records[end:]
        ours = records if start == 0 and end == len(records) else records[start:end]
        if not ours:
            return []
        if ours[0].offset != self._at or ours[-1].offset - self._at >= len(ours):
            self._note_gaps(ours)
        set_delivery_count(ours, deliveries)
        self._advance(ours[-1].offset + 1)
        return ours

    def _note_gaps(self, records: list[Record[Any, Any]]) -> None:
        """Settle what lies between these records of the present range."""
        at = self._at
        for record in records:
            offset: int = record.offset
            if offset > at:
                self.settled.append(Acknowledged(at, offset - 1, GAP))
            at = offset + 1

    def _pass(self, until: int, kind: int = GAP) -> None:
        """Settle the acquired offsets below ``until`` that were not passed yet."""
        while not self.exhausted and self._at < until:
            last = min(self._acquired[self._range].last, until - 1)
            self.settled.append(Acknowledged(self._at, last, kind))
            self._advance(last + 1)

    def _pass_all(self) -> None:
        """There is no record any more: what is left are gaps."""
        self._pass(self._acquired[-1].last + 1)

    def _advance(self, offset: int) -> None:
        """All acquired offsets below this one are passed."""
        self.taken += offset - self._at
        self._at = offset
        if offset > self._acquired[self._range].last:
            self._range += 1
            if not self.exhausted:
                self._at = self._acquired[self._range].first

    def _skip_batch(self, kind: int) -> None:
        """Settle the batch that cannot be read, and go on behind it. Where its end is not known, all is settled."""
        bad = max(self._records.next_offset, self._at)
        data = self.fetch.data
        until, start, place = self._acquired[-1].last + 1, len(data), 0
        with contextlib.suppress(KafkaError):
            for header, _ in iter_batches(data):
                place += header.size
                if header.next_offset > bad:
                    until, start = header.next_offset, place
                    break
        self._pass(bad)
        self._pass(until, kind)
        self._records.close()
        self._records = self._reader(data[start:], until)

    def __repr__(self) -> str:
        return f"<AcquiredReader of {self.fetch!r} at {self._at}>"
