"""What is known of one broker that leads partitions of a queue, and what one request to it says (KIP-932).

One request is under way at a time. Acknowledgements of one partition in one request succeed or fail together, so what
was refused together with others is said again alone (`Piece.alone`), and longer locks are asked for in requests that
acknowledge nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from kadence.connection.request import Backoff, Request
from kadence.lazy_dataclasses import dataclass, field
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, TopicIdPartition, joined
from kadence.share.network.held import Held, Piece
from kadence.share.network.offsets import Range, without
from kadence.share.network.session import ShareSession
from kadence.share.share_state import AcquiredFetch

__all__ = ["Sent", "ShareNode", "carried", "released"]


@dataclass(slots=True, eq=False)
class Sent:
    """A request that is on its way.

    Attributes:
        member_id: in whose session. fetched: the partitions that a fetch reads; None: it is no fetch.
        pieces: what it acknowledges, or renews because the application says so. renewals: what it renews because we do.
        sent_at: when it left. asked, max_bytes: how many records it asked for, and bytes; 0: none.
        wait_ms: for how long the broker may hold it, at least. closes: it is the session's last.
    """

    node: ShareNode
    member_id: str
    sent_at: int
    fetched: tuple[TopicIdPartition, ...] | None = None
    pieces: list[Piece] = field(default_factory=list)
    renewals: dict[Held, list[Range]] = field(default_factory=dict)
    asked: int = 0
    wait_ms: int = 0
    max_bytes: int = 0
    closes: bool = False


class ShareNode:
    """One broker.

    Attributes:
        session: with it. wants: partitions to fetch of it. held: fetches that it has locked for us.
        pieces: what is to be said, in order. sent: the request under way.
        backoff: after failures. quiet: after fetches ahead that brought nothing. early: fetches in a row that brought
            nothing although they might have waited. short_polls: how many of these have had their fetch.
        redelivers: some of the records that it brought last had been delivered before.
        closing: the session is to be closed, with what is still to be said. only_closes: by the next request, since
            its epoch is wrong: the broker does not look at the epoch of the last request. can_renew: whether it knows
            renewals.
        abandoned: what was held when the consumer left.
        native: renewals of the native thread that are not answered yet, with when they were sent.
        changed: something of what is held, or of the session, since `NativeRenewals` has looked.
    """

    def __init__(self, node_id: int, backoff: Backoff, quiet: Backoff) -> None:
        self.node_id = node_id
        self.session = ShareSession()
        self.wants: tuple[TopicIdPartition, ...] = ()
        self.held: dict[AcquiredFetch, Held] = {}
        self.pieces: list[Piece] = []
        self.sent: Sent | None = None
        self.backoff = backoff
        self.quiet = quiet
        self.early = self.short_polls = 0
        self.fetched_at = -1
        self.redelivers = False
        self.closing = self.only_closes = False
        self.abandoned: list[Held] = []
        self.can_renew = True
        self.native: dict[Request, int] = {}
        self.changed = False

    @property
    def is_busy(self) -> bool:
        """Whether an answer is awaited."""
        return self.sent is not None or bool(self.native)

    @property
    def owes(self) -> bool:
        """Whether a member that leaves has to wait for this broker.

        A long poll that has brought nothing is waited for, too: a fetch of a closed connection still waits in Kafka,
        and what it acquires then is locked for a member that has gone, and counts as a delivery (Q3).
        """
        return self.is_busy or bool(self.pieces) or self.session.is_open

    @property
    def next_epoch(self) -> int | None:
        """The epoch of a request behind those that are under way, if they succeed; None: there will be no session."""
        if self.closing or (self.sent is not None and self.sent.closes):
            return None
        if not self.session.is_open and self.sent is None:
            return None
        return self.session.epoch + len(self.native) + (self.sent is not None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be done with it."""
        return not (self.is_busy or self.wants or self.held or self.pieces or self.session.is_open)

    def ready(self, now: int, *, renews: bool) -> list[Piece]:
        """What the next request says of it: see the top of the file."""
        chosen: list[Piece] = []
        lone: dict[TopicIdPartition, Piece | None] = {}
        for piece in self.pieces:
            if piece.renews is not renews or (piece.backoff is not None and not piece.backoff.ready(now)):
                continue
            wanted = piece if piece.alone else None
            if lone.setdefault(piece.partition, wanted) is wanted:
                chosen.append(piece)
        return chosen

    def outside(self, now: int) -> list[Held]:
        """What was held when the consumer left, as far as the end of the session does not release it.

        A partition that the group gave to another member has left the session, and its records may still be held.
        """
        return [
            each
            for each in self.abandoned
            if each.open
            and each.fetch.partition not in self.session.members
            and each.is_locked(now, each.open)
        ]

    def due_for_renewal(self, now: int, lock_ms: int) -> dict[Held, list[Range]]:
        """Of what is held, the offsets whose locks are to be renewed now, since half of some lock is over.

        Those of which a quarter is over are renewed with them, for that costs no request.
        """
        held = [each for each in self.held.values() if each.renewable and each.open and now < each.ends]
        if not any(each.ends - now <= lock_ms // 2 for each in held):
            return {}
        due: dict[Held, list[Range]] = {}
        lone: dict[TopicIdPartition, Held | None] = {}
        for each in held:
            wanted = each if each.alone else None
            if each.ends - now <= lock_ms * 3 // 4 and (
                lone.setdefault(each.fetch.partition, wanted) is wanted
            ):
                due[each] = each.open
        return due

    def renews_at(self, lock_ms: int) -> int | None:
        """When `due_for_renewal` finds the first; None: never."""
        ends = [each.ends for each in self.held.values() if each.renewable and each.open]
        return min(ends) - lock_ms // 2 if ends else None

    def __repr__(self) -> str:
        return (
            f"<ShareNode {self.node_id} epoch={self.session.epoch} held={len(self.held)} pieces={len(self.pieces)} "
            f"sent={self.sent is not None}>"
        )


def released(held: Iterable[Held]) -> dict[TopicIdPartition, list[Acknowledged]]:
    """What a request says that gives these back."""
    said: dict[TopicIdPartition, list[Acknowledged]] = {}
    for each in held:
        said.setdefault(each.fetch.partition, []).extend(
            Acknowledged(first, last, AcknowledgeType.RELEASE) for first, last in each.open
        )
    return {partition: joined(ranges) for partition, ranges in said.items()}


def carried(
    pieces: Iterable[Piece], renewals: dict[Held, list[Range]]
) -> dict[TopicIdPartition, list[Acknowledged]]:
    """What one request says of each partition."""
    said: dict[TopicIdPartition, list[Acknowledged]] = {}
    for piece in pieces:
        said.setdefault(piece.partition, []).extend(piece.ranges)
    for held, ranges in renewals.items():
        # The application may ask for some of them itself.
        already = sorted(said.get(held.fetch.partition, ()))
        said.setdefault(held.fetch.partition, []).extend(
            Acknowledged(first, last, AcknowledgeType.RENEW) for first, last in without(ranges, already)
        )
    return {partition: joined(ranges) for partition, ranges in said.items()}
