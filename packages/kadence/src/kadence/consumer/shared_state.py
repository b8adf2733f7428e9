"""State shared by both threads of a consumer: the client state, and fetched bytes (C1, C2, C6).

A fetch results in one `CompletedFetch` for each partition with records in its response. A response takes one of two
ways. Usually the network thread decodes it, and `fetch.manager.answers` evaluates it. When the compiled poller
continues a session by itself, it passes small plain responses on without the interpreter, wakes the application, and
sends the next fetch (`kadence.net`, following.h). `SessionFollow` reads such a response once, on the thread that takes
it first. Either way a `CompletedFetch` reads its batches' headers, and the network thread counts the result
(`FetchAnswers`): before it puts it into `SharedState.completed_fetches`, or in its next turn if the poller continued
the session.

The bytes are in the arena of their response, or they are a copy. The compiled poller copies the bytes that it passes
on. The application copies the bytes of paused partitions out of an arena when they keep much more memory of it than
their own size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from kadence.clock import Clock, wall_ms
from kadence.connection.request import Arrivals, Loan, Part
from kadence.consumer.client_state import Asked, ClientState
from kadence.consumer.events import Commit
from kadence.consumer.measures import Measures
from kadence.consumer.shared_partition import SharedPartition, Unfetched
from kadence.records import scan
from kadence.types import TopicPartition

__all__ = [
    "CommitForm",
    "CompletedFetch",
    "Copies",
    "DirectCommits",
    "SessionFollow",
    "SharedState",
    "Wanted",
    "frees",
]


class CompletedFetch:
    """Whole batches of one partition in one response, still framed.

    Args:
        records: as received; an incomplete batch at the end is left out.

    Attributes:
        shared_partition: their partition. fetch_epoch, offset: the stretch of reading (see `SharedPartition`) and the
            offset of the request.
        next_offset: the offset after them, or ``offset`` if their headers do not contain it. count: how many records
            the headers announce.
        data: the batches. arena: their loan, released by their last user.
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
"""The approximate size of the objects that belong to one copy."""


class Copies:
    """All copies of one consumer. Each number has one writer.

    Attributes:
        arrived: bytes of copies made by the poller, ever, as far as counted (network). copied: of those made by the
            application, ever. released: bytes released, ever (application).
    """

    __slots__ = ("arrived", "copied", "released")

    def __init__(self) -> None:
        self.arrived = self.copied = self.released = 0

    @property
    def held(self) -> int:
        """Bytes that copies take. Any thread."""
        # Copies from the poller may be released before they are counted.
        return max(self.arrived + self.copied - self.released, 0)

    def count_arrived(self, sizes: Collection[int]) -> None:
        """`SessionFollow` passed copies of these sizes to the application. Network thread."""
        self.arrived += _taken(sizes)

    def copy(self, data: memoryview | bytes) -> tuple[bytes, Loan]:
        """A copy and its loan. Application thread."""
        loan = _Copy(self, len(data))
        self.copied += loan.size
        return bytes(data), loan


class _Copy:
    """The loan of one copy. The application releases it."""

    __slots__ = ("_copies", "size")

    holds = 1

    def __init__(self, copies: Copies, size: int) -> None:
        self._copies = copies
        self.size = size + _OBJECTS

    def retain(self) -> None:
        raise NotImplementedError("a copy has one holder")

    def release(self) -> None:
        self._copies.released += self.size


def frees(sizes: Collection[int], arena: Loan) -> bool:
    """Whether copies of all parts of an arena take at most half of its size."""
    return 2 * _taken(sizes) <= arena.size


def _taken(sizes: Collection[int]) -> int:
    return sum(sizes) + _OBJECTS * len(sizes)


class Wanted(NamedTuple):
    """A fetch's request for one partition."""

    fetch_epoch: int
    """The stretch of reading; not part of the request."""
    offset: int
    leader_epoch: int
    """−1: not known."""
    topic_id: bytes
    max_bytes: int
    last_epoch: int = -1
    """Leader epoch of the last record before ``offset``; the broker reports if its log diverged before it (KIP-320)."""


class SessionFollow:
    """One fetch of a session, and those that the poller sends after it.

    Args:
        table: the poller's data of each partition of the session. asked: the fetch's partitions. names: the topics of
            the ids in it. shared: its partitions. room: how many bytes may come before the network thread counts them.

    Attributes:
        asked: the request of the next response to be read; None: an earlier response did not match, so no more are
            read. Replaced by the thread that takes the response out.
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
        # Plain tuples find the keys of type TopicPartition, without a call to create one.
        self._shared: Mapping[Any, SharedPartition] = shared
        self._copies = copies
        self.room = room

    def read(
        self, parts: list[Part]
    ) -> tuple[list[CompletedFetch] | None, dict[TopicPartition, Wanted] | None]:
        """The data of the next response, and ``asked`` after it; (None, None): it does not match. Any thread.

        A response that does not match its request is neither taken nor counted, nor are those after it, and the network
        thread ends the connection. The state read here does not change before the network thread has counted the
        response.
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
            # As `_replace` does it, but without three calls for each awaited record.
            fetch_epoch, _, leader_epoch, *rest = wanted
            asked[partition] = tuple.__new__(Wanted, (fetch_epoch, fetched.next_offset, leader_epoch, *rest))
            fetches.append(fetched)
        return fetches, asked


class CommitForm(Protocol):
    """Commits of one partition that the application's thread can send with nothing but an offset. That thread alone.

    In the wait of the network thread with the number ``turn`` such a commit was found to be in order. It is again, as
    long as that wait lasts, if the program knows this assignment of the partition, an offset is not below
    ``least_offset``, and polls have returned its records under ``least_epoch`` or later: all else that counts belongs
    to the network thread. ``turn`` is read first: then the rest is of the same wait or `ask` sends nothing.

    Attributes:
        turn: 0: none was found to be in order.
    """

    turn: int
    partition: TopicPartition
    shared_partition: SharedPartition
    least_offset: int
    least_epoch: int

    @property
    def ask(self) -> Callable[[int, int, int | None, Callable[[], Commit]], Asked | None]:
        """Sends a commit: ``ask(turn, offset, leader_epoch, make)``; None: nothing is sent.

        ``make()`` is the same commit, for the network thread if it takes the request over.
        """
        ...


class DirectCommits(Protocol):
    """Sends commits on the application's thread (`kadence.consumer.group.direct_commits`).

    Attributes:
        forms: by partition, or by the pair of topic and number. given_at: when (ms) the application has given an offset
            of each partition last: noted before that is sent.
    """

    given_at: dict[TopicPartition, int]

    @property
    def forms(self) -> Mapping[Any, CommitForm | None]: ...

    def ask(self, call: Commit) -> Asked | None:
        """Send a commit of one offset. None: nothing is sent, and the network thread has to."""
        ...


class SharedState(ClientState):
    """The whole shared state of one consumer: the client state, and fetched data. Every attribute names its writer.

    Attributes:
        completed_fetches: network → application; they also raise the attention and the signal. arrivals: see there;
            None: all records come by `put`.
        shared_partitions: those of the assigned partitions, replaced as a whole (network). The application may not have
            seen all of them yet: its view is `KnownAssignment.partitions`.
        missing: topics that the application reads and the cluster does not have, or does not show (network).
        topics: topics subscribed to by name, or matching a pattern of the client (network).
        starts: how many offsets ``auto.offset.reset`` has chosen (network).
        changed: shared partitions that the network thread is to look at again: paused, resumed, drained to a mark
            (application).
        wake_held: a fetch waits for memory: the network thread wants to be woken when `fetched_bytes` is no more than
            this; -1: none waits. The network thread sets it, the application clears it when it wakes the thread.
        moves: how many positions were ever set (network).
        is_transactional: whether the program commits in transactions, too, of which nothing is known here; None: it has
            committed nothing yet (application).
        decompressed_bytes: bytes of batches being read (application). copies: bytes copied out of arenas.
            decoded_bytes: bytes of records decoded ahead (application). largest_batch: decompressed size of the largest
            recent batch (application).
        direct_commits: None: the network thread sends all commits (network).
        pressing: a fetch waits for memory while paused partitions hold some (network). pressed: the application must
            check whether it can release some of that, and clears it; raised again with each finished fetch, which may
            have shared its memory with a paused partition.
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
        self.is_transactional: bool | None = None
        self.missing: Mapping[str, Unfetched] = MappingProxyType({})
        self.topics: frozenset[str] = frozenset()
        self.starts = 0
        self.changed: deque[SharedPartition] = deque()
        self.wake_held = -1
        self.decompressed_bytes = 0
        self.copies = Copies()
        self.decoded_bytes = 0
        self.largest_batch = 0
        self.direct_commits: DirectCommits | None = None
        self.pressing = False
        self.pressed = False

    # -- application thread

    def made_room(self, shared_partition: SharedPartition) -> None:
        """Bytes of a partition were returned or dropped, and are counted in its shared partition already.

        Called for each finished fetch: only this decides whether the network thread is woken for it. The mark is
        recorded last, so an interruption wakes the thread twice at worst.
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
        for memory, because memory of paused partitions may be released.
        """
        self.changed.append(shared_partition)
        if not shared_partition.is_paused:
            self.wake()
        if shared_partition.is_paused:
            self.ask_for_memory_again()

    def fetched_bytes(self) -> int:
        """Bytes of `buffer.memory` taken by fetched data, wherever it is. Any thread."""
        return self.measures.held_bytes() + self.copied_bytes

    def held_bytes(self) -> int:
        """Bytes of `buffer.memory` that are held. Any thread."""
        return self.fetched_bytes() + self.decompressed_bytes + self.decoded_bytes

    @property
    def copied_bytes(self) -> int:
        """Bytes of copies of fetched data. Any thread."""
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
        """Move responses that arrived without the network thread into `completed_fetches`, before any later ones."""
        if self.arrivals is not None:
            self.arrivals.take(self.completed_fetches)
