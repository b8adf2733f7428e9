"""What both threads of a consumer use: fetched bytes and events on their way, and the signal for waits (C1, C2, C6).

Two deques and one flag: the network thread appends, the application thread takes. Appending to a deque is
atomic in CPython and costs 0.03 µs, a wake byte 3 µs, a blocking round trip 15 µs; so neither side locks,
and each wakes the other only when it could do something new.

`Progress` knows when the application polled last, for the poll timer (B4). The application thread writes it. Waiting
inside poll() is progress. A user callback inside it is not: a callback that hangs is processing that hangs.

`Lateness` knows how late the network thread is (B9): each turn of its loop has a time by which it must run. A turn that
comes later was kept from running: an extension held the interpreter, the machine was paused, or the turn before had too
much to do. Heartbeats are late by as much, unless the native thread sends them. The network thread writes it.

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

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kadence.clock import FOREVER, Clock, SystemClock, wall_ms
from kadence.connection.request import Arrivals, Loan, Part
from kadence.consumer.decoded_records import Attention
from kadence.consumer.events import ApplicationEvent, BackgroundEvent, Close, Stalled
from kadence.consumer.measures import Measures
from kadence.consumer.shared_partition import SharedPartition, Unfetched
from kadence.metrics.sensors import Meter
from kadence.records import scan
from kadence.types import TopicPartition

__all__ = [
    "FAREWELL_MS",
    "CompletedFetch",
    "Copies",
    "Lateness",
    "NetworkLateness",
    "Progress",
    "SessionFollow",
    "SharedState",
    "Signal",
    "Wanted",
    "frees",
]

FAREWELL_MS: Final = 2_000
"""How long the network thread may take to leave the group for a consumer that nobody closes."""


class Progress:
    """Keeps when the application polled last.

    ``_since``: since when (ms) nothing was polled; None while the application waits in poll().

    Attributes:
        by_turns: waiting in poll() counts only as long as `turned` is called: under asyncio a loop that
            something blocks makes no progress, though a task waits in poll().
    """

    __slots__ = ("_callbacks", "_depth", "_since", "by_turns")

    def __init__(self) -> None:
        self._since: int | None = None
        self._depth = 0
        # Those under way: one may run inside another, or in another task. A poll begins to count anew, so one that
        # Ctrl-C ended untold is not believed to run for ever.
        self._callbacks = 0
        self.by_turns = False

    # -- application thread

    def polled(self, now: int) -> None:
        """A poll that returned at once, from the buffer."""
        self._since = now

    def enter_poll(self, now: int) -> None:
        self._depth += 1
        self._callbacks = 0
        self._since = now if self.by_turns else None

    def leave_poll(self, now: int) -> None:
        self._depth -= 1
        self._since = now

    def enter_callback(self, now: int) -> None:
        self._callbacks += 1
        self._since = now

    def leave_callback(self, now: int) -> None:
        """The callback returned; if it ran inside poll() and no other callback, the application waits there again."""
        self._callbacks = max(self._callbacks - 1, 0)
        self._since = None if self._depth and not self._callbacks and not self.by_turns else now

    def turned(self, now: int) -> None:
        """The event loop turns; if a task waits in poll(), that is progress."""
        if self._depth and not self._callbacks:
            self._since = now

    # -- network thread

    def processing_since(self, now: int) -> int | None:
        """Since when (ms) nothing was polled; None while the application waits in poll() or never polled."""
        since = self._since
        return since if since is None else min(since, now)


class NetworkLateness(NamedTuple):
    """How late the network thread was, in seconds.

    Attributes:
        last: how late its latest turn was. longest: the longest delay since the consumer was made. longest_ago: how
            many seconds ago that was; None: never.
        fallback_heartbeats: how many heartbeats the native thread has sent because the network thread was late.
    """

    last: float
    longest: float
    longest_ago: float | None
    fallback_heartbeats: int = 0


class Lateness:
    """Lateness of one network thread.

    Attributes:
        last_ms: of the latest turn. longest_ms: the longest, ever, and longest_at: when (monotonic ms).
        turns: those that were late, for the metrics' windows.
        fallback_heartbeats: heartbeats that the native thread has sent.
    """

    __slots__ = ("_due", "_told_ms", "fallback_heartbeats", "last_ms", "longest_at", "longest_ms", "turns")

    def __init__(self) -> None:
        self.last_ms = 0
        self.longest_ms = 0
        self.fallback_heartbeats = 0
        self.longest_at: int | None = None
        self.turns = Meter()
        self._due = FOREVER
        self._told_ms = 0

    def due(self, now: int, wake_at: int) -> None:
        """The next turn is to begin at ``wake_at`` at the latest, and not in the past."""
        self._due = wake_at if wake_at > now else now

    def turned(self, now: int) -> int:
        """A turn begins. Returns how late (ms)."""
        late = now - self._due
        if late <= 0:
            self.last_ms = 0
            return 0
        self.last_ms = late
        self.turns.record(now, late)
        if late > self.longest_ms:
            self.longest_ms, self.longest_at = late, now
        return late

    def worth_telling(self, late_ms: int) -> bool:
        """Whether this is news: once, and again when it is twice as long."""
        if late_ms < 2 * self._told_ms:
            return False
        self._told_ms = late_ms
        return True

    def seen(self, now: int) -> NetworkLateness:
        """For people."""
        at = self.longest_at
        return NetworkLateness(
            self.last_ms / 1000,
            self.longest_ms / 1000,
            None if at is None else (now - at) / 1000,
            self.fallback_heartbeats,
        )


class Signal:
    """A flag that one thread waits for and others set.

    ``waiting`` keeps the setter's cost at one attribute read while nobody waits. The waiter looks at what it waits for
    after `enter`, and after each `wait`, which both leave the flag down: what changes after its look raises the flag.

    One bare lock, held while the flag is down. `threading.Event` will not do: it takes two locks in Python code, and a
    signal handler that raises in between (Ctrl-C) leaves one of them taken, for the network thread to hang on.
    """

    __slots__ = ("_down", "on_set", "waiting")

    def __init__(self) -> None:
        self._down = threading.Lock()
        self.waiting = False
        self.on_set: Callable[[], None] | None = None
        """Called instead of raising the flag by shells that do not block a thread (asyncio)."""

    def enter(self) -> None:
        # Mostly it is down, which costs less to see than to try.
        if not self._down.locked():
            self._down.acquire(blocking=False)
        self.waiting = True

    def wait(self, seconds: float | None) -> None:
        self._down.acquire(timeout=-1 if seconds is None else seconds)

    def leave(self, *, interrupts: bool = False) -> None:
        """Nobody waits any more, but a call that this one interrupted: end its wait."""
        self.waiting = interrupts
        if interrupts:
            self.set()

    def set(self) -> None:
        if self.waiting:
            if self.on_set is not None:
                self.on_set()
            else:
                # The flag is up already.
                with contextlib.suppress(RuntimeError):
                    self._down.release()

    def show(self) -> int:
        """A descriptor that becomes readable when the flag is raised, from now on; below 0: that is not possible."""
        return -1

    def seen(self) -> None:
        """The descriptor was readable: lower the flag. Whoever looks after this misses nothing."""

    def hide(self) -> None:
        """Nobody watches the descriptor any more."""


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


class SharedState:
    """The whole shared state of one consumer. Every attribute names its one writer.

    Attributes:
        application_events: application → network. background_events: network → application. completed_fetches: network
            → application.
        attention: up when the next poll has more to do than to take the next record: a background event, fetched bytes,
            the end.
        signal: what the application waits on; set after background events or fetched bytes were appended. arrivals: see
            there; None: all records come by `put`.
        assignment: shared partitions of the assigned partitions, replaced as a whole (network).
        missing: topics that the application reads and the cluster does not have, or does not show (network).
        topics: what is subscribed to by name, or matches a pattern that is matched here (network).
        starts: how many places ``auto.offset.reset`` has chosen (network).
        changed: shared partitions that the network thread is to look at again: paused, resumed, drained to a mark
            (application).
        wake_held: a fetch waits for memory: when no more than this is taken (`fetched_bytes`) the network thread wants
            to know; -1: none waits. The network thread sets it, the application takes it away when it tells.
        moves: how many positions were ever set (network). wants_polled: membership waits for a `Polled` (network).
        ended: the network thread has ended. dead: by this bug, if it was one (network).
        progress: when the application polled last (application).
        decompressed_bytes: held by batches being read (application). copies: what was copied out of arenas.
            decoded_bytes: of records decoded ahead (application).
            largest_batch: what the largest batch of late decompressed to (application).
        pressing: a fetch waits for memory while paused partitions hold some (network). pressed: the application is to
            look whether it can give some of that back, and clears it; raised again with each fetch that is done with,
            for it may have shared its memory with a paused partition.
        lateness: how late the network thread is (network).
        on_stall: told of a stall at once, on the network thread, while the application is busy (application).
        wakes: how often the application woke the network thread (application).
        measures: for `Consumer.metrics`; each part has one writer. clock: what both sides go by. wall: ms since 1970.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        measures: Measures | None = None,
        clock: Clock | None = None,
        wall: Callable[[], int] = wall_ms,
        arrivals: Arrivals | None = None,
    ) -> None:
        self._wake = wake
        self.arrivals = arrivals
        self.clock = clock or SystemClock()
        self.wall = wall
        self.measures = measures or Measures()
        self.lateness = Lateness()
        self.on_stall: Callable[[Stalled], None] = lambda event: None
        self.application_events: deque[ApplicationEvent] = deque()
        self.background_events: deque[BackgroundEvent] = deque()
        self.completed_fetches: deque[CompletedFetch] = deque()
        self.attention = Attention()
        self.signal: Signal = Signal() if arrivals is None else arrivals.flag()
        self.assignment: Mapping[TopicPartition, SharedPartition] = MappingProxyType({})
        self.moves = 0
        self.missing: Mapping[str, Unfetched] = MappingProxyType({})
        self.topics: frozenset[str] = frozenset()
        self.starts = 0
        self.changed: deque[SharedPartition] = deque()
        self.wake_held = -1
        self.wants_polled = False
        self.dead: BaseException | None = None
        self.ended = False
        self.progress = Progress()
        self.decompressed_bytes = 0
        self.copies = Copies()
        self.decoded_bytes = 0
        self.largest_batch = 0
        self.pressing = False
        self.pressed = False
        self.wakes = 0

    # -- application thread

    def send(self, event: ApplicationEvent) -> None:
        self.measures.application_events.put(self.clock.now_ms())
        try:
            self.application_events.append(event)
        finally:
            # Ctrl-C in between must not leave it there until something else wakes the network thread.
            self.wake()

    def begin_close(self, deadline: int) -> None:
        """Have the network side leave the group, and end, until ``deadline``. Any thread; waits for nothing."""
        if not self.ended:
            self.send(Close(0, deadline, leave=None))

    def wake(self) -> None:
        self.wakes += 1
        self._wake()

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
    def is_closing(self) -> bool:
        """Whether the network side has ended, as far as calls are concerned. Any thread."""
        return self.ended

    def left_behind(self) -> None:
        """The process ends before the network side: the group goes on once the session has timed out."""

    @property
    def copied_bytes(self) -> int:
        """What copies of fetched bytes take. Any thread."""
        return self.copies.held

    # -- network thread

    def tell(self, event: BackgroundEvent) -> None:
        self.measures.background_events.put(self.clock.now_ms())
        self.background_events.append(event)
        self.alert()

    def press(self) -> None:
        self.pressing = self.pressed = True
        self.alert()

    def refuse(self, cause: BaseException | None) -> None:
        """The network side ends, by ``cause`` if that was a bug: every call raises from now on."""
        self.dead = cause
        self.ended = True

    def dismiss(self) -> None:
        """It has ended: whoever still waits is to look again."""
        self.alert()

    def put(self, fetched: CompletedFetch) -> None:
        self.completed_fetches.append(fetched)
        self.alert()

    # -- any thread

    def take_arrivals(self) -> None:
        """Put what arrived without the network thread into `completed_fetches`. Before anything that came later."""
        if self.arrivals is not None:
            self.arrivals.take(self.completed_fetches)

    def wall_offset_ms(self) -> int:
        """What is to be added to the clock's time for ms since 1970, as both clocks stand now."""
        return self.wall() - self.clock.now_ms()

    def alert(self) -> None:
        """Something changed: the next poll looks at it, and one that waits is woken. Called after the change."""
        self.attention.up = True
        self.signal.set()
