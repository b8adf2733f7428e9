"""What both threads of a consumer use: the client state, and fetched bytes on their way (C1, C2, C6).

All that comes of a fetch is `CompletedFetch`, one for each partition with records in an answer. An answer comes one of
two ways. Mostly the network thread decodes it, and `fetch.manager.answers` says what it means. Where a session goes on
by itself, the compiled poller passes small plain answers on without the interpreter, wakes the application, and sends
the fetch that follows (`kadence.net`, following.h). `SessionFollow` reads such an answer once, on whichever thread
takes it first. Either way a `CompletedFetch` reads what its batches say by their headers, and the network thread counts
that (`FetchAnswers`): before it puts it into `SharedState.completed_fetches`, or of a session that goes on by itself
when it comes by.

The bytes lie in the arena of their answer, or they are a copy. The compiled poller copies what it passes on. The
application copies what paused partitions leave of an arena, where they keep much more memory of it than their own size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kadence.clock import Clock, wall_ms
from kadence.connection.request import Arrivals, Loan, Part
from kadence.consumer.client_state import ClientState
from kadence.consumer.measures import Measures
from kadence.consumer.shared_partition import SharedPartition, Unfetched
from kadence.records import scan
from kadence.types import TopicPartition

__all__ = [
    "CompletedFetch",
    "Copies",
    "SessionFollow",
    "SharedState",
    "Wanted",
    "frees",
]


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


class SharedState(ClientState):
    """The whole shared state of one consumer: the client state, and what is fetched. Every attribute names its writer.

    Attributes:
        completed_fetches: network → application; they raise the attention and the signal, too. arrivals: see there;
            None: all records come by `put`.
        shared_partitions: of each partition that is assigned, replaced as a whole (network). Polls may not have told
            the application of all of them: it is shown `KnownAssignment.partitions` as its assignment.
        missing: topics that the application reads and the cluster does not have, or does not show (network).
        topics: what is subscribed to by name, or matches a pattern that is matched here (network).
        starts: how many places ``auto.offset.reset`` has chosen (network).
        changed: shared partitions that the network thread is to look at again: paused, resumed, drained to a mark
            (application).
        wake_held: a fetch waits for memory: when no more than this is taken (`fetched_bytes`) the network thread wants
            to know; -1: none waits. The network thread sets it, the application takes it away when it tells.
        moves: how many positions were ever set (network).
        decompressed_bytes: held by batches being read (application). copies: what was copied out of arenas.
            decoded_bytes: of records decoded ahead (application).
            largest_batch: what the largest batch of late decompressed to (application).
        pressing: a fetch waits for memory while paused partitions hold some (network). pressed: the application is to
            look whether it can give some of that back, and clears it; raised again with each fetch that is done with,
            for it may have shared its memory with a paused partition.
    """

    measures: Measures

    def __init__(
        self,
        wake: Callable[[], None],
        measures: Measures | None = None,
        clock: Clock | None = None,
        wall: Callable[[], int] = wall_ms,
        arrivals: Arrivals | None = None,
    ) -> None:
        super().__init__(
            wake, measures or Measures(), clock, wall, None if arrivals is None else arrivals.flag()
        )
        self.arrivals = arrivals
        self.completed_fetches: deque[CompletedFetch] = deque()
        self.shared_partitions: Mapping[TopicPartition, SharedPartition] = MappingProxyType({})
        self.moves = 0
        self.missing: Mapping[str, Unfetched] = MappingProxyType({})
        self.topics: frozenset[str] = frozenset()
        self.starts = 0
        self.changed: deque[SharedPartition] = deque()
        self.wake_held = -1
        self.decompressed_bytes = 0
        self.copies = Copies()
        self.decoded_bytes = 0
        self.largest_batch = 0
        self.pressing = False
        self.pressed = False

    # -- application thread

    def made_room(self, shared_partition: SharedPartition) -> None:
        """Bytes of a partition were handed out or dropped, and are counted in its shared partition already.

        Called for each fetch that is done with: it alone decides whether the network thread is woken for it. A mark is
        noted as told last, so an interruption tells it twice at worst.
        """
        # Read once: while we wake it the network thread may set another.
        wake_bytes = shared_partition.wake_bytes
        if shared_partition.drained_bytes >= wake_bytes != shared_partition.told_bytes:
            self.changed.append(shared_partition)
            self.wake()
            shared_partition.told_bytes = wake_bytes
        if self.wake_held >= 0:
            if self.fetched_bytes() <= self.wake_held:
                self.ask_for_memory_again()
            elif self.pressing:
                self.pressed = True

    def ask_for_memory_again(self) -> None:
        """Wake the network thread if a fetch waits for memory: there may be more of it."""
        if self.wake_held >= 0:
            try:
                # First: the network thread sets it again when it still has to wait.
                self.wake_held = -1
            finally:
                self.wake()

    def look_at(self, shared_partition: SharedPartition) -> None:
        """The application, or `process`, paused or resumed a partition. Any thread.

        The network thread sees a pause with its next turn; a resume wakes it, and so does a pause while a fetch waits
        for memory, for what paused partitions hold of it may be given back.
        """
        self.changed.append(shared_partition)
        if not shared_partition.is_paused:
            self.wake()
        if shared_partition.is_paused:
            self.ask_for_memory_again()

    def fetched_bytes(self) -> int:
        """What fetched bytes take of `buffer.memory`, wherever they lie. Any thread."""
        return self.measures.held_bytes() + self.copied_bytes

    def held_bytes(self) -> int:
        """What is held of `buffer.memory`. Any thread."""
        return self.fetched_bytes() + self.decompressed_bytes + self.decoded_bytes

    @property
    def copied_bytes(self) -> int:
        """What copies of fetched bytes take. Any thread."""
        return self.copies.held

    # -- network thread

    def press(self) -> None:
        self.pressing = self.pressed = True
        self.alert()

    def put(self, fetched: CompletedFetch) -> None:
        self.completed_fetches.append(fetched)
        self.alert()

    # -- any thread

    def take_arrivals(self) -> None:
        """Put what arrived without the network thread into `completed_fetches`. Before anything that came later."""
        if self.arrivals is not None:
            self.arrivals.take(self.completed_fetches)
