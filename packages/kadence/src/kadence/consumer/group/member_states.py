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
    JOINING = "its first heartbeat, with epoch 0, is not accepted yet"
    RECONCILING = "moving from the owned partitions to the assigned ones"
    ACKNOWLEDGING = "owns its assignment, as far as it knows the topics; the next heartbeat acknowledges it"
    STABLE = "owns its assignment, and the broker knows it"
    FENCED = "the broker refused its identity: its partitions are lost, and it joins again"
    PREPARE_LEAVING = "partitions must be given up before it leaves"
    LEAVING = "its last heartbeat, with epoch -1 or -2, must be sent"
    FATAL = "refused until a later poll; the application gets the error"
    STALE = "left because the application did not poll"


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
