"""The classic member's states and the ways between them, as a table; and how one rebalance after another went."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from kadence.consumer.events import Rebalance, RebalanceFailed, RebalanceFinished
from kadence.consumer.request_manager import AddBackgroundEvent
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["OUT", "TRANSITIONS", "RebalanceHistory", "State"]


class State(enum.Enum):
    """Kafka's names where Kafka has them."""

    UNJOINED = "not in the group"
    REVOKING = "partitions must be given up before it joins"
    PREPARING_REBALANCE = "joining"
    COMPLETING_REBALANCE = "joined, waiting for the assignment"
    STABLE = "in the group"
    STALE = "left because nothing was polled"
    LEAVING = "partitions must be given up before it leaves"


OUT: Final = frozenset({State.UNJOINED, State.STALE})
_REJOIN: Final = frozenset({State.REVOKING, State.PREPARING_REBALANCE})

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNJOINED: frozenset({State.PREPARING_REBALANCE}),
    State.REVOKING: OUT | _REJOIN | {State.LEAVING},
    State.PREPARING_REBALANCE: OUT | _REJOIN | {State.LEAVING, State.COMPLETING_REBALANCE},
    State.COMPLETING_REBALANCE: OUT | _REJOIN | {State.LEAVING, State.STABLE},
    State.STABLE: OUT | _REJOIN | {State.LEAVING},
    State.STALE: frozenset({State.PREPARING_REBALANCE, State.UNJOINED}),
    State.LEAVING: OUT,
}


class RebalanceHistory:
    """Which rebalance is under way, and what the one before it ended with.

    A rebalance that is started again before it ends is one rebalance: its first cause stays.

    Attributes:
        cause: of the rebalance under way, or of the last one.
    """

    def __init__(self, add_event: AddBackgroundEvent) -> None:
        self.cause = ""
        self._add_event = add_event
        self._started_at: int | None = None
        self._before: frozenset[TopicPartition] = frozenset()
        self._lost: frozenset[TopicPartition] = frozenset()
        self._detail = ""

    def begin(self, now: int, cause: str) -> bool:
        """It starts, or starts again. Returns whether it is a new one."""
        if self._started_at is not None:
            return False
        self._started_at, self.cause, self._detail = now, cause, ""
        return True

    def found(self, detail: str) -> None:
        """What is known of its cause since: who came and who went, to the member that leads."""
        self._detail = detail

    def finish(self, now: int, group: GroupMetadata, assigned: frozenset[TopicPartition]) -> None:
        """It ended with this assignment: tell the application."""
        before, self._before = self._before, assigned
        rebalance = Rebalance(
            cause=f"{self.cause}; {self._detail}" if self._detail else self.cause,
            started_monotonic_ms=now if self._started_at is None else self._started_at,
            ended_monotonic_ms=now,
            generation=group.generation_id,
            assigned=tuple(sorted(assigned)),
            added=tuple(sorted(assigned - before)),
            removed=tuple(sorted((before - assigned) | self._lost)),
        )
        self._started_at, self._lost = None, frozenset()
        self._add_event(RebalanceFinished(rebalance, group))

    def abandon(self) -> None:
        """The identity is gone, and everything owned with it; what comes next is another rebalance, with its own cause.

        The next one tells what was lost here, also of partitions that come back in it: others may have read them.
        """
        if self._started_at is not None:
            self._add_event(RebalanceFailed())
        self._started_at = None
        self._lost |= self._before
        self._before = frozenset()

    def give_up(self, now: int, cause: str, group: GroupMetadata) -> None:
        """Nothing comes next: what was lost is an entry of its own, of no generation."""
        if self._lost:
            self.cause, self._detail = cause, ""
            self.finish(now, group, frozenset())

    def forget(self) -> None:
        """Out of the group by our own will: the next membership starts from nothing."""
        self._started_at = None
        self._before = self._lost = frozenset()
