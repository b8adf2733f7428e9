"""What this member holds locked, and acknowledgements on their way (KIP-932). Network thread.

`Held` is one fetch as far as it is not acknowledged. `Piece` is what one call of the application says of one fetch,
from when it is given until it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kadence.clock import FOREVER
from kadence.connection.request import Backoff
from kadence.errors import KafkaError
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, TopicIdPartition
from kadence.share.events import Acknowledge, Ended, Sending
from kadence.share.network.offsets import Range, count, without
from kadence.share.share_state import AcquiredFetch

__all__ = ["Call", "Held", "Piece"]


class Held:
    """The locks of one fetch.

    Attributes:
        fetch: it. sent_at: when (ms) it was asked for. open: acquired offsets of which nothing was said yet.
        renewable: whether the broker has not refused to renew it. alone: it is renewed in a request that renews nothing
            else of its partition, since one with others was refused.
        has_lost: some with the lock of the fetch were forgotten since that had ended. The application may still have
            these in its buffer.
    """

    __slots__ = ("alone", "fetch", "has_lost", "open", "renewable", "sent_at")

    def __init__(self, fetch: AcquiredFetch, sent_at: int = 0) -> None:
        self.fetch = fetch
        self.sent_at = sent_at
        self.open: list[Range] = [(each.first, each.last) for each in fetch.acquired]
        self.renewable = True
        self.alone = self.has_lost = False

    def says(self, ranges: Iterable[Acknowledged]) -> None:
        """Something final is said of these offsets."""
        self.open = without(self.open, ranges)

    def has(self, ranges: Iterable[Acknowledged]) -> bool:
        """Whether nothing was said of these, nor forgotten since its lock had ended."""
        return not without([(each.first, each.last) for each in ranges], self.open)

    def is_locked(self, now: int, ranges: Iterable[Range | Acknowledged]) -> bool:
        """Whether the locks of all these hold by our clock."""
        return now < self.locked_until(ranges)

    def locked_until(self, ranges: Iterable[Range | Acknowledged]) -> int:
        """When (ms) the first of their locks ends by our clock."""
        left: list[Range] = [(each[0], each[1]) for each in ranges]
        until = FOREVER
        for apart, ends in self.fetch.apart:
            rest = without(left, apart)
            if rest != left:
                left, until = rest, min(until, ends)
        return min(until, self.fetch.lock_ends) if left else until

    @property
    def ends(self) -> int:
        """When (ms) the first of the locks of what is open ends by our clock."""
        return self.locked_until(self.open) if self.fetch.apart else self.fetch.lock_ends

    def expire(self, now: int) -> None:
        """Forget the offsets whose locks have ended by our clock."""
        fetch = self.fetch
        if now >= fetch.lock_ends:
            lost = without(self.open, sorted(each for ranges, _ in fetch.apart for each in ranges))
            self.has_lost = self.has_lost or bool(lost)
            self.open = without(self.open, lost)
        ended = sorted(each for ranges, ends in fetch.apart if now >= ends for each in ranges)
        if ended:
            self.open = without(self.open, ended)

    def renewed(self, ranges: Sequence[Range], ends: int) -> None:
        """The locks of these offsets end then: sooner than before if the group's locks became shorter meanwhile."""
        fetch = self.fetch
        apart = [(rest, until) for each, until in fetch.apart if (rest := without(each, ranges))]
        if self.has_lost or without(self.open, ranges):
            apart.append((list(ranges), ends))
        else:
            # First: the application looks at both.
            fetch.lock_ends = ends
        fetch.apart = tuple(apart)

    def __repr__(self) -> str:
        return f"<Held {self.fetch!r} open={count(self.open)}>"


class Call:
    """One `Acknowledge` until all of it has ended.

    Attributes:
        waiting: pieces that have not, its own and those of earlier calls that it waits for.
        results: of each partition that has: the first error, or None.
    """

    __slots__ = ("event", "results", "waiting")

    def __init__(self, event: Acknowledge) -> None:
        self.event = event
        self.waiting: set[Piece] = set()
        self.results: dict[TopicIdPartition, KafkaError | None] = {}

    def ended(self, piece: Piece, error: KafkaError | None) -> None:
        if piece not in self.waiting:
            return
        self.waiting.discard(piece)
        partition = piece.held.fetch.partition
        self.results[partition] = self.results.get(partition) or error


class Piece:
    """What one call says of one fetch: either all of it renews, or nothing.

    Attributes:
        alone: it is sent in a request that has nothing else of its partition, since one with others was refused.
        backoff: of retriable errors; None: there was none. kind: the type of its first range.
        awaited_by: later calls that wait for its end, too.
        locked_until: when (ms) the first of its locks ends. Those of offsets of which something final is said are not
            renewed any more, though the others of their fetch are.
    """

    __slots__ = ("alone", "awaited_by", "backoff", "call", "held", "kind", "locked_until", "ranges")

    def __init__(self, call: Call, held: Held, ranges: tuple[Acknowledged, ...]) -> None:
        self.call = call
        self.held = held
        self.ranges = ranges
        self.kind = ranges[0].type
        self.alone = False
        self.awaited_by: list[Call] = []
        self.backoff: Backoff | None = None
        self.locked_until = held.locked_until(ranges)

    def is_locked(self, now: int) -> bool:
        """Whether its locks hold by our clock."""
        return self.held.is_locked(now, self.ranges) if self.renews else now < self.locked_until

    def renewed(self, held: Held, ranges: list[Range], ends: int) -> None:
        """The locks of these offsets end then: they were renewed when it was not said yet."""
        if held is not self.held:
            return
        said: list[Range] = [(each.first, each.last) for each in self.ranges]
        left = without(said, ranges)
        if not left:
            self.locked_until = ends
        elif left != said:
            self.locked_until = min(self.locked_until, ends)

    @property
    def deadline(self) -> int:
        return self.call.event.deadline

    @property
    def waits_for_fetch(self) -> bool:
        """Whether it may go with the next fetch."""
        return self.call.event.sending is Sending.WITH_FETCH and not self.awaited_by

    @property
    def renews(self) -> bool:
        """Whether the application asks for longer locks by it, and goes on working."""
        return self.kind == AcknowledgeType.RENEW

    @property
    def partition(self) -> TopicIdPartition:
        return self.held.fetch.partition

    def leaves(self, ranges: Iterable[Range | Acknowledged]) -> bool:
        """Something later is said of these offsets, so this says nothing of them. Returns whether it says anything."""
        left = without([(each.first, each.last) for each in self.ranges], ranges)
        self.ranges = tuple(Acknowledged(first, last, self.kind) for first, last in left)
        return bool(left)

    def ended(self, error: KafkaError | None) -> Ended:
        return Ended(self.partition, self.held.fetch, self.ranges, error)
