"""What the fetch manager knows of one broker. Network thread, plain data."""

from __future__ import annotations

from typing import Final

from kadence.clock import FOREVER
from kadence.consumer.fetch.manager.requests import Sent
from kadence.consumer.fetch.manager.session import FetchSession
from kadence.consumer.not_fetched import NotFetchedReason
from kadence.consumer.subscription import PartitionState

__all__ = ["Broker", "PartitionBucket"]

_LEAST_PATIENCE_MS: Final = 5
_MOST_PATIENCE_MS: Final = 100
_SIDE_WAIT_MS: Final = 10
"""The first wait of a side fetch after one that brought nothing."""


class PartitionBucket:
    """Partitions that stand alike, in the order in which they came. ``broker``: whose they are, if anybody's."""

    __slots__ = ("broker", "states")

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker
        self.states: dict[PartitionState, None] = {}


class Broker:
    """One broker, its partitions and the fetches on their way to it.

    Attributes:
        wanted: partitions to ask it for. full: those of which enough is buffered.
        session, parked: its fetch session, and the session's fetch under way. side: the fetch outside the session.
        late: of ``wanted``, those that no fetch under way asks for; only kept while ``parked`` is.
        urgent: whether one of them has not just been drained (it was moved, resumed, assigned).
        changed: partitions that may stand otherwise than the session knows.
        noted: the reason that was noted for partitions of ``wanted`` that wait for the whole broker.
        blocked: what stood against the latest fetch. stirred: something changed since then.
        again_at: when to try again (ms). least: bytes that the next fetch needs at the least.
        served_at: when the latest fetch left.
        side_wait_ms: how long the broker may hold the next side fetch back when it has nothing.
    """

    __slots__ = (
        "_answer_ms",
        "again_at",
        "blocked",
        "changed",
        "full",
        "late",
        "least",
        "node_id",
        "noted",
        "parked",
        "served_at",
        "session",
        "side",
        "side_wait_ms",
        "stirred",
        "urgent",
        "wanted",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.wanted = PartitionBucket(self)
        self.full = PartitionBucket(self)
        self.session = FetchSession()
        self.parked: Sent | None = None
        self.side: Sent | None = None
        self.late: dict[PartitionState, None] = {}
        self.urgent = False
        self.changed: dict[PartitionState, None] = {}
        self.noted: dict[PartitionState, NotFetchedReason] = {}
        self.blocked: NotFetchedReason | None = None
        self.stirred = False
        self.again_at = FOREVER
        self.least = 0
        self.served_at = -1
        self.side_wait_ms = 0
        self._answer_ms = 0

    @property
    def candidates(self) -> dict[PartitionState, None]:
        """Partitions that the next fetch may ask for."""
        return self.wanted.states if self.parked is None else self.late

    def add_late(self, state: PartitionState, *, drained: bool) -> None:
        """A partition is to be fetched, and no fetch under way asks for it."""
        self.late[state] = None
        self.urgent = self.urgent or not drained
        if not isinstance(state.flight, Sent) or state.in_flight != state.shared_partition.fetch_epoch:
            # It has not been asked for by a side fetch: the next one is not to hang on those that were.
            self.side_wait_ms = 0

    def parked_at(self, sent: Sent) -> int:
        """When a fetch that has no answer yet must have been parked: with data it would have been answered before."""
        patience = max(2 * self._answer_ms, _LEAST_PATIENCE_MS)
        return sent.sent_at + min(patience, _MOST_PATIENCE_MS)

    def answered(self, now: int, sent: Sent, size: int, enough: int) -> None:
        """A fetch brought ``size`` bytes of records; ``enough``: fetch.min.bytes."""
        if sent.session is None:
            if size < enough:
                self.side_wait_ms = max(2 * self.side_wait_ms, _SIDE_WAIT_MS)
        elif size:
            # The shortest of late: a fetch that waited for its data says nothing.
            self._answer_ms = min(now - sent.sent_at, self._answer_ms + (self._answer_ms >> 2) + 1)

    def __repr__(self) -> str:
        return (
            f"<Broker {self.node_id} wanted={len(self.wanted.states)} full={len(self.full.states)} "
            f"late={len(self.late)} parked={self.parked is not None} side={self.side is not None}>"
        )
