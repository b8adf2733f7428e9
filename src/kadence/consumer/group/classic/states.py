"""The classic member's states and the ways between them, as a table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

__all__ = ["OUT", "TRANSITIONS", "State"]


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
