"""Acquired fetches → records of one poll (KIP-41, KIP-932). Application side.

Fetches are read in the order in which they came, which is the broker's: it takes partitions in turns. What a poll took
and did not return is put back, and comes with the next one. A fetch whose locks have ended is dropped, for its records
may be with another member by now (Q4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kadence.errors import KafkaError
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType
from kadence.share.acquired_reader import AcquiredReader
from kadence.share.application.holding import Chunk, Holding
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import TopicPartition

__all__ = ["Buffer", "Taken"]

_AHEAD: Final = 128
"""Records that are read at once for small polls."""


class Reading:
    """One fetch, and records that were read of it and not returned.

    Attributes:
        fetch, partition: whose they are. records: what was read. index: how many of these were returned.
    """

    __slots__ = ("_measures", "_reader", "fetch", "index", "partition", "records")

    def __init__(self, fetch: AcquiredFetch, reader: AcquiredReader, measures: Any) -> None:
        self.fetch = fetch
        self.partition = fetch.partition.topic_partition
        self.records: list[Record[Any, Any]] = []
        self.index = 0
        self._reader = reader
        self._measures = measures

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is left to return."""
        return self.index >= len(self.records) and self._reader.exhausted

    def look(self, limit: int, settle: Callable[[AcquiredFetch, list[Acknowledged]], None]) -> list[Record[Any, Any]]:
        """The next records, at most ``limit``.

        Args:
            settle: takes what is to be said of offsets without a record.

        Raises:
            KafkaError: what comes next cannot be read. It is settled, and the next call goes on behind it.
        """
        if self.index >= len(self.records):
            self.records, self.index = [], 0
            try:
                while not (self.records or self._reader.exhausted):
                    self.records = self._reader.take(max(limit, _AHEAD))
            finally:
                if settled := self._reader.settled():
                    settle(self.fetch, settled)
                if self._reader.exhausted:
                    # Records are copies.
                    self.close()
        return self.records[self.index : self.index + limit]

    def put_back(self, records: Sequence[Record[Any, Any]]) -> None:
        """These were taken, and are the next ones again."""
        self.records, self.index = [*records, *self.records[self.index :]], 0

    def left(self) -> list[Acknowledged]:
        """What was not returned, as to be released."""
        found = [
            Acknowledged(each.offset, each.offset, AcknowledgeType.RELEASE) for each in self.records[self.index :]
        ]
        return found + self._reader.rest()

    def close(self) -> None:
        """Give its bytes back."""
        self._reader.close()


class Taken:
    """What a poll took of one fetch: the chunk that it returns, and the records as they came, to put them back."""

    __slots__ = ("chunk", "raw", "reading")

    def __init__(self, reading: Reading, raw: list[Record[Any, Any]], chunk: Chunk) -> None:
        self.reading = reading
        self.raw = raw
        self.chunk = chunk
