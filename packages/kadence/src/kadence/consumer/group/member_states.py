"""The states of a member whose identity is a member id and an epoch (KIP-848, KIP-932).

    UNSUBSCRIBED ─polled─> JOINING ─accepted─> RECONCILING ─owns its target─> ACKNOWLEDGING ─heartbeat─> STABLE
                              ▲                     ▲                              └──── new target ────┘
                            FENCED                  └──────────────── new target ───────────────────────┘

The whole table is `TRANSITIONS`. States and table are Kafka's, with two differences. A member that failed permanently
(FATAL) tries again when the application polls after the poll that raised the reason, as after every refusal (B6). And
UNSUBSCRIBED cannot begin to leave: a member that is not in the group has nothing to leave.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

__all__ = ["HEARTBEATING", "OUT", "TRANSITIONS", "State"]


class State(enum.Enum):
    """Kafka's names."""

    UNSUBSCRIBED = "not in the group"
    JOINING = "the broker has not accepted its first heartbeat, with epoch 0, yet"
    RECONCILING = "gives up or takes partitions, until it owns its assignment"
    ACKNOWLEDGING = "owns the assigned partitions of the topics that it knows; its next heartbeat says so"
    STABLE = "owns its assignment, and the broker knows it"
    FENCED = "the broker no longer accepts this member: its partitions are lost"
    PREPARE_LEAVING = "must give up partitions before it leaves"
    LEAVING = "is leaving: its last heartbeat has epoch -1 or -2"
    FATAL = "the broker refused it, and the application gets the error"
    STALE = "left, because the application did not poll"


OUT: Final = frozenset({State.UNSUBSCRIBED, State.FATAL, State.STALE})
"""Not in the group, and neither joining nor leaving."""

# A tuple: searching it does not call the state's hash.
HEARTBEATING: Final = (State.STABLE, State.RECONCILING, State.ACKNOWLEDGING, State.PREPARE_LEAVING)
"""In the group with an epoch that heartbeats keep alive."""

_ENDS: Final = frozenset({State.FENCED, State.PREPARE_LEAVING, State.FATAL})

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNSUBSCRIBED: frozenset({State.JOINING}),
    State.JOINING: _ENDS | {State.RECONCILING, State.STABLE},
    State.RECONCILING: _ENDS | {State.ACKNOWLEDGING},
    State.ACKNOWLEDGING: _ENDS | {State.RECONCILING, State.STABLE},
    State.STABLE: _ENDS | {State.RECONCILING},
    State.FENCED: frozenset({State.JOINING, State.UNSUBSCRIBED}),
    State.PREPARE_LEAVING: frozenset({State.LEAVING, State.FENCED, State.FATAL}),
    State.LEAVING: frozenset({State.UNSUBSCRIBED, State.STALE}),
    State.FATAL: frozenset({State.JOINING, State.UNSUBSCRIBED}),
    State.STALE: frozenset({State.JOINING, State.UNSUBSCRIBED}),
}
