"""Records by timestamp: the indexes name batches, whose records are read. Nothing below the log start is found."""

from __future__ import annotations

from typing import NamedTuple

from kadence.records import FetchedRecords, Record
from kadence_broker.storage.log import Log
from kadence_broker.storage.producers import as_data
from kadence_broker.storage.segment import Found, Segment

__all__ = ["TimedOffset", "newest_record", "record_since"]


class TimedOffset(NamedTuple):
    """A record that was looked for. ``leader_epoch`` is -1 if it is not known."""

    offset: int
    timestamp: int
    leader_epoch: int


def record_since(log: Log, timestamp: int) -> TimedOffset | None:
    """The first record dated ``timestamp`` or later."""
    for segment, found in log.since_timestamp(timestamp):
        for record in _records(log, segment, found):
            if record.timestamp >= timestamp:
                return _timed(log, record)
    return None


def newest_record(log: Log) -> TimedOffset | None:
    """The first of the records with the largest date."""
    newest: Record | None = None
    whole = log.start_offset
    # The values of batch headers hold for whole batches; the one at the log start may be partly deleted.
    first = next(log.batches(log.start_offset), None)
    if first is not None and first[1].base_offset < log.start_offset:
        newest = _newest(log, *first)
        whole = first[1].last_offset + 1
    limit = log.newest(whole)
    if newest is None or limit > newest.timestamp:
        for segment, found in log.since_timestamp(limit):
            if found.base_offset >= whole:
                newest = _newest(log, segment, found) or newest
                break
    return None if newest is None else _timed(log, newest)


def _newest(log: Log, segment: Segment, found: Found) -> Record | None:
    return max(_records(log, segment, found), key=lambda each: each.timestamp, default=None)


def _records(log: Log, segment: Segment, found: Found) -> list[Record]:
    """Markers of transactions are records with a date too, as in Kafka."""
    batch = segment.views(found.position, found.position + found.size)[0]
    records = FetchedRecords(as_data(batch), "", 0, log.start_offset, check_crcs=False)
    try:
        return records.take()
    finally:
        records.close()


def _timed(log: Log, record: Record) -> TimedOffset:
    return TimedOffset(record.offset, record.timestamp, log.epochs.of(record.offset))
