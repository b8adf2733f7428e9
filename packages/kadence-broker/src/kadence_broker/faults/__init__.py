"""Fault injection: delay, refuse, drop, truncate or disconnect requests, freeze nodes, act as an older broker.

    with broker.faults.error(HeartbeatRequest, error_codes.NOT_COORDINATOR, times=1): ...
    with broker.faults.delay(FetchRequest, 0.2, topic="orders", probability=0.1, seed=7): ...
    with broker.faults.limit(JoinGroupRequest, 0): ...
    with broker.faults.freeze(2): ...
    with broker.faults.observe(JoinGroupRequest) as joins: ...; assert len(joins) == 2

A fault is in force during its ``with`` block, or until `Injected.remove`. It applies to the requests of one message
class (None: all) that fit the keywords of `Only`. If several faults apply to a request, the newest one is used.
Observers see every request.
"""

from __future__ import annotations

from kadence_broker.faults.choice import Only
from kadence_broker.faults.faults import Faults, Frozen
from kadence_broker.faults.injected import Injected, Observed

__all__ = ["Faults", "Frozen", "Injected", "Observed", "Only"]
