"""What both threads of a share consumer use: the client state, and acquired records on their way (KIP-932; C1, C2).

All that one answer acquired of one partition is an `AcquiredFetch`, with its locks. The application reads its bytes
with `acquired_reader.AcquiredReader`, which knows what was acquired, and which of that has no record.

Locks are kept by our clock, from when the request was sent, so they end here before they end at the broker. What lies
in the buffer with its lock ended is dropped by the application, not returned (Q4). The network thread renews the locks
of all that is not acknowledged (``share.lock.renewal``) while the application makes progress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from kadence.clock import Clock, wall_ms
from kadence.connection.request import Loan, PlainPollWait, PollWait
from kadence.consumer.client_state import ClientState
from kadence.errors import KafkaError
from kadence.share.acknowledgements import Acknowledged, Acquired, TopicIdPartition
from kadence.share.measures import ShareMeasures
from kadence.types import TopicPartition

__all__ = ["AcquiredFetch", "Said", "ShareState"]


SHORT_MS: Final = 100
"""A poll of less is over before a fetch that was sent for it can wait for records."""

_MOST: Final = 2**31 - 1
"""No fetch can ask for more records."""

_FOLLOWED_MS: Final = 1_000
"""So long after a short poll the fetch that it has left may still be sent."""


class AcquiredFetch:
    """What one answer acquired of one partition. Compared by identity. Each attribute names its one writer.

    Args:
        partition: whose records. node_id: who acquired them for us, and so where they are acknowledged.
        acquired: the offsets that are ours, ascending; others in the bytes are not. data: the batches as they came.
        arena: the loan of these; whoever is done with them releases it. lock_ends: see there.

    Attributes:
        lock_ends: when (ms) the locks end by our clock; renewals move it (network).
        apart: offsets whose locks end at another time, and when (ms): they were renewed apart from others, and no
            buffer has them (network).
        void: why the locks are gone before their time: the connection, the leader, the session; None: they are not.
            What is buffered of it is dropped, and what is acknowledged fails with it (network).
        kept_until: until when (ms) the native thread renews the locks should the network thread not run; 0: it does not
            (network).
        left: how many of the acquired offsets the application has not taken yet (application).
        taken_at: when (ms) it took some last; -1: never (application).
    """

    __slots__ = (
        "acquired",
        "apart",
        "arena",
        "count",
        "data",
        "kept_until",
        "left",
        "lock_ends",
        "node_id",
        "partition",
        "taken_at",
        "void",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        node_id: int,
        acquired: tuple[Acquired, ...],
        data: memoryview | bytes,
        arena: Loan | None,
        lock_ends: int,
    ) -> None:
        self.partition = partition
        self.node_id = node_id
        self.acquired = acquired
        self.data = data
        self.arena = arena
        self.lock_ends = lock_ends
        self.apart: tuple[tuple[Sequence[tuple[int, int]], int], ...] = ()
        self.kept_until = 0
        self.count = self.left = sum(each.last - each.first + 1 for each in acquired)
        self.void: KafkaError | None = None
        self.taken_at = -1

    def is_locked(self, now: int) -> bool:
        """Whether its records are this member's alone, as far as is known."""
        return self.void is None and (now < self.lock_ends or now < self.kept_until)

    def is_locked_at(self, now: int, offset: int) -> bool:
        """Whether one of them is, whose lock may have been renewed apart from others."""
        for ranges, ends in self.apart:
            if any(first <= offset <= last for first, last in ranges):
                return self.void is None and (now < ends or now < self.kept_until)
        return self.is_locked(now)

    def __repr__(self) -> str:
        offsets = ", ".join(f"{each.first}..{each.last}" for each in self.acquired[:5])
        return f"<AcquiredFetch {self.partition.topic}-{self.partition.partition} {offsets} left={self.left}>"


class Said(Protocol):
    """What is said of records."""

    def items(self) -> Iterable[tuple[AcquiredFetch, Sequence[Acknowledged]]]:
        """Of the offsets of each fetch. Called once, by the network thread."""
        ...


class ShareState(ClientState):
    """The whole shared state of one share consumer. Every attribute names its one writer.

    Attributes:
        acquired_fetches: network → application; they raise the attention and the signal, too.
        wanted: how many records a poll waits for, that found nothing buffered; 0: none waits (application, by `want`).
            Nothing is fetched before a poll waited. limit: the same of the last poll that did.
        wanted_until: when (ms) that poll is over; after it, until when a fetch may be sent that it has left behind
            (application).
        short_polls: how many polls were too short to wait for a fetch. Each leaves one behind, so that a loop of them
            gets records, too (application).
        resting: `stop`, or close(), was called: nothing is fetched until a poll waits again (application).
        said: what polls have said of records, which need not leave at once; `look` follows it (application → network).
        looks_soon: the network thread looks there soon by itself (both).
        poll_wait: the poll that waits, for fetches that go out again and again without the interpreter (application).
        fetches: a fetch is under way at each broker that the next one would go to. A poll wakes nobody for it: what
            becomes of that fetch says whether another one is sent (network).
        lock_timeout_ms: how long the broker locks records; None: no answer has said (network).
        assignment: what the group has assigned (network).
        wants_results: `AcknowledgementsEnded` are wanted of everything, not of failures alone (application).
    """

    measures: ShareMeasures

    def __init__(
        self,
        wake: Callable[[], None],
        measures: ShareMeasures | None = None,
        clock: Clock | None = None,
        wall: Callable[[], int] = wall_ms,
        poll_wait: PollWait | None = None,
    ) -> None:
        super().__init__(wake, measures or ShareMeasures(), clock, wall)
        self.acquired_fetches: deque[AcquiredFetch] = deque()
        self.wanted = self.wanted_until = self.limit = self.short_polls = 0
        self.said: deque[Said] = deque()
        self.resting = self.fetches = self.looks_soon = False
        self.poll_wait = PlainPollWait() if poll_wait is None else poll_wait
        self.lock_timeout_ms: int | None = None
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.wants_results = False

    # -- application thread

    def want(self, count: int, now: int, until: int, *, wakes: bool = True) -> None:
        """A poll waits for up to so many records until then, since nothing is buffered.

        Args:
            count: 0: `process` has no room for any, and only waits. Nothing is fetched for that.
            wakes: wake the network thread, if it has a fetch to send; False: what follows does. So what is said goes
                with the fetch.
        """
        if not count:
            self.limit = 0
        elif not self.wanted:
            self.resting = False
            self.wanted_until, self.limit = until, min(count, _MOST)
            if until - now < SHORT_MS:
                self.short_polls += 1
            self.wanted = count
            self.poll_wait.begin(until, self.limit)
            # Last: a fetch that is answered before this look is followed by one for this poll.
            if wakes and not self.fetches:
                self.wake()

    def unwant(self, now: int, *, found: bool) -> None:
        """The poll that waited is over."""
        if self.wanted:
            self.wanted_until = 0 if found else now + _FOLLOWED_MS
            self.wanted = 0
            # What came later would be acquired for nobody.
            self.poll_wait.end()

    def say(self, said: Said, *, wakes: bool) -> None:
        """Say this of records, none of which is to be renewed. ``wakes``: see `look`."""
        self.said.append(said)
        self.look(wakes=wakes)

    def look(self, *, wakes: bool) -> None:
        """Something was said.

        Args:
            wakes: wake the network thread in any case; False: only if it does not look by itself soon. So a loop with
                polls of one wakes it no more often than one with large polls, and nothing waits for the next poll.
        """
        if wakes or not self.looks_soon:
            self.looks_soon = True
            self.wake()

    def rest(self) -> None:
        """Polls return nothing any more: what is fetched would be acquired for nobody. Any thread."""
        self.resting = True
        self.poll_wait.end()

    def took(self, fetch: AcquiredFetch, now: int, count: int) -> None:
        """So many acquired offsets of a fetch were taken from the buffer, to be returned or because they are gaps."""
        fetch.taken_at = now
        fetch.left -= count
        self.look_for_room(fetch)

    def look_for_room(self, fetch: AcquiredFetch) -> None:
        """Some of a fetch were taken from the buffer. If it was the rest, more may be fetched ahead."""
        if fetch.left <= 0:
            self.wake()

    # -- network thread

    def put(self, fetch: AcquiredFetch) -> None:
        self.acquired_fetches.append(fetch)
        self.alert()
