"""From an answer of a broker to what the application takes of it: one `CompletedFetch` for each partition with records.

An answer comes one of two ways. Mostly the network thread decodes it, and `fetch.manager.answers` says what it means.
Where a session goes on by itself, the compiled poller passes small plain answers on without the interpreter, wakes the
application, and sends the fetch that follows (`kadence.net`, following.h). `SessionFollow` reads such an answer once,
on whichever thread takes it first.

Either way a `CompletedFetch` is made of the records of one partition and of what was asked of it, and reads what its
batches say by their headers. The application takes it out of `SharedState.completed_fetches`, and the network thread
counts it (`FetchAnswers`): before it is put there, or of a session that goes on by itself when it comes by.

The bytes lie in the arena of their answer, or they are a copy. The compiled poller copies what it passes on. The
application copies what paused partitions leave of an arena, where they keep much more memory of it than their own size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from kadence.connection.request import Loan, Part
from kadence.consumer.shared_partition import SharedPartition
from kadence.records import scan
from kadence.types import TopicPartition

__all__ = ["CompletedFetch", "Copies", "SessionFollow", "Wanted", "frees"]


class CompletedFetch:
    """Whole batches of one partition in one answer, still framed.

    Args:
        records: as they came; a batch that is cut off at their end is left out.

    Attributes:
        shared_partition: whose they are. fetch_epoch, offset: the stretch of reading (see `SharedPartition`) and the
            offset that they were asked for.
        next_offset: the offset behind them; ``offset``: their headers do not say it. count: how many records they
            announce.
        data: the batches. arena: their loan, released by whoever is done with them.
        aborted: (producer id, first offset) of aborted transactions, for read_committed; None: all records count.
    """

    __slots__ = (
        "aborted",
        "arena",
        "count",
        "data",
        "fetch_epoch",
        "next_offset",
        "offset",
        "shared_partition",
    )

    def __init__(
        self,
        shared_partition: SharedPartition,
        fetch_epoch: int,
        offset: int,
        records: memoryview | bytes,
        arena: Loan,
        aborted: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        self.shared_partition = shared_partition
        self.fetch_epoch = fetch_epoch
        self.offset = offset
        self.next_offset, self.count, complete = scan(records, offset)
        self.data = records if complete == len(records) else records[:complete]
        self.arena = arena
        self.aborted = aborted


_OBJECTS: Final = 256
"""About what the objects take that belong to one copy."""


class Copies:
    """All copies of one consumer. Each number has one writer.

    Attributes:
        arrived: bytes of copies that the poller made, ever, as far as they are counted (network). copied: of those that
            the application made, ever. released: bytes that were given back, ever (application).
    """

    __slots__ = ("arrived", "copied", "released")

    def __init__(self) -> None:
        self.arrived = self.copied = self.released = 0

    @property
    def held(self) -> int:
        """Bytes that copies take. Any thread."""
        # What arrived may be given back before it is counted.
        return max(self.arrived + self.copied - self.released, 0)

    def count_arrived(self, sizes: Collection[int]) -> None:
        """Copies of such sizes went to the application by `SessionFollow`. Network thread."""
        self.arrived += _taken(sizes)

    def copy(self, data: memoryview | bytes) -> tuple[bytes, Loan]:
        """A copy and its loan. Application thread."""
        loan = _Copy(self, len(data))
        self.copied += loan.size
        return bytes(data), loan


class _Copy:
    """The loan of one copy. The application gives it back."""

    __slots__ = ("_copies", "size")

    holds = 1

    def __init__(self, copies: Copies, size: int) -> None:
        self._copies = copies
        self.size = size + _OBJECTS

    def retain(self) -> None:
        raise NotImplementedError("nobody shares a copy")

    def release(self) -> None:
        self._copies.released += self.size


def frees(sizes: Collection[int], arena: Loan) -> bool:
    """Whether copies of all parts of an arena take at most half as much as it does."""
    return 2 * _taken(sizes) <= arena.size


def _taken(sizes: Collection[int]) -> int:
    return sum(sizes) + _OBJECTS * len(sizes)


class Wanted(NamedTuple):
    """What a fetch asks of one partition."""

    fetch_epoch: int
    """The stretch of reading that it is asked for; the broker is not told."""
    offset: int
    leader_epoch: int
    """−1: not known."""
    topic_id: bytes
    max_bytes: int
    last_epoch: int = -1
    """Leader epoch of the last record before ``offset``; the broker tells when its log parted before it (KIP-320)."""


class SessionFollow:
    """One fetch of a session, and those that follow it by themselves.

    Args:
        table: of each partition of the session what the poller needs. asked: what the fetch asked for. names: the
            topics of the ids in it. shared: its partitions. room: how many bytes may come before the network thread
            counts them.

    Attributes:
        asked: what the next answer that is read was asked for; None: one before it did not fit, so none is read any
            more. Replaced by whoever takes the answer out.
    """

    __slots__ = ("_copies", "_names", "_shared", "asked", "room", "table")

    def __init__(
        self,
        table: bytes,
        asked: dict[TopicPartition, Wanted],
        names: Mapping[bytes, str],
        shared: Mapping[TopicPartition, SharedPartition],
        copies: Copies,
        room: Callable[[], int],
    ) -> None:
        self.table = table
        self.asked: dict[TopicPartition, Wanted] | None = asked
        self._names = names
        # Plain tuples find what a TopicPartition is the key of, without the call that makes one.
        self._shared: Mapping[Any, SharedPartition] = shared
        self._copies = copies
        self.room = room

    def read(
        self, parts: list[Part]
    ) -> tuple[list[CompletedFetch] | None, dict[TopicPartition, Wanted] | None]:
        """What the next answer brought, and ``asked`` after it; two times None: it does not fit. Any thread.

        An answer that does not fit to what was asked for is neither taken nor counted, nor are those after it, and the
        network thread ends the connection. Nothing that this reads changes before the network thread has counted it.
        """
        if self.asked is None:
            return None, None
        asked = self.asked.copy()
        fetches: list[CompletedFetch] = []
        for topic_id, number, high_watermark, last_stable, log_start, records in parts:
            shared_partition = self._shared[self._names[topic_id], number]
            partition = shared_partition.partition
            wanted = asked[partition]
            if shared_partition.fetch_epoch == wanted.fetch_epoch:
                shared_partition.high_watermark = high_watermark
                shared_partition.last_stable_offset = last_stable
                shared_partition.log_start = log_start
            if records is None:
                continue
            loan = _Copy(self._copies, len(records))
            fetched = CompletedFetch(shared_partition, wanted.fetch_epoch, wanted.offset, records, loan)
            if fetched.next_offset == fetched.offset or fetched.data is not records:
                return None, None
            # As `_replace` does it, but without three calls for each record that is awaited.
            fetch_epoch, _, leader_epoch, *rest = wanted
            asked[partition] = tuple.__new__(Wanted, (fetch_epoch, fetched.next_offset, leader_epoch, *rest))
            fetches.append(fetched)
        return fetches, asked
