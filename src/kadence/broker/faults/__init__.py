"""Faults on purpose: delay, refuse, drop, cut or disconnect chosen requests, freeze nodes, be an older broker, watch.

    with broker.faults.error(HeartbeatRequest, error_codes.NOT_COORDINATOR, times=1): ...
    with broker.faults.delay(FetchRequest, 0.2, topic="orders", probability=0.1, seed=7): ...
    with broker.faults.limit(JoinGroupRequest, 0): ...
    with broker.faults.freeze(2): ...
    with broker.faults.observe(JoinGroupRequest) as joins: ...; assert len(joins) == 2

A fault is in force while its ``with`` block runs, or until `Injected.remove`. It takes the requests of one message
class (None: all), and of those what the keywords of `Only` choose. The newest fault that wants a request has it;
observers see it all the same.
"""

from __future__ import annotations

from kadence.broker.faults.choice import Only
from kadence.broker.faults.faults import Faults, Frozen
from kadence.broker.faults.injected import Injected, Observed

__all__ = ["Faults", "Frozen", "Injected", "Observed", "Only"]
