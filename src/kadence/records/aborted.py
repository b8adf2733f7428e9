"""Which producers' transactions are aborted at the present place in a partition (read_committed, KIP-98).

The broker sends the aborted transactions that touch a response as (producer id, first offset). One is entered
when the walk reaches its first offset, and left at the producer's abort marker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = ["AbortedTransactions"]

_MARKER = struct.Struct(">hh")
_ABORT = 0


def _skip_varint(data: memoryview, pos: int) -> int:
    while data[pos] & 0x80:
        pos += 1
    return pos + 1


def _is_abort(records: memoryview) -> bool:
    """Whether a control batch's record is an abort marker: its key is (version, type), type 0.

    Unreadable markers count as commits of nothing: they end no transaction.
    """
    try:
        pos = _skip_varint(records, 0) + 1
        pos = _skip_varint(records, pos)
        pos = _skip_varint(records, pos)
        pos = _skip_varint(records, pos)
        _, kind = _MARKER.unpack_from(records, pos)
    except (IndexError, struct.error):
        return False
    return bool(kind == _ABORT)


class AbortedTransactions:
    """The aborted transactions ahead, and those open at the present offset."""

    __slots__ = ("_ahead", "_open")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def enter(self, last_offset: int) -> None:
        """A batch that ends at ``last_offset`` is next: open the transactions that begin in it or before."""
        while self._ahead and self._ahead[-1][0] <= last_offset:
            self._open.add(self._ahead.pop()[1])

    def covers(self, producer_id: int) -> bool:
        """Whether the producer's transaction at this place is aborted."""
        return producer_id in self._open

    def marker(self, producer_id: int, records: memoryview) -> None:
        """A producer's control batch: an abort marker ends its aborted transaction."""
        if _is_abort(records):
            self._open.discard(producer_id)
