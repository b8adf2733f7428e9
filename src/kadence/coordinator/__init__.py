"""The broker side of groups. Sans-IO: no sockets, threads or clocks; ``now`` is a parameter, answers are data.

`GroupCoordinator` is the front door. A shell (the embedded broker, a simulation) hands it requests with
``handle(now, caller, request)``, lets it fire its timers with ``poll(now)`` no later than
``next_deadline()``, and delivers the `Answer` values that either of them returns.
"""

from __future__ import annotations

from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.coordinator import GroupCoordinator
from kadence.coordinator.effects import Answer, Caller
from kadence.coordinator.group import ClassicGroup, State

__all__ = ["Answer", "Caller", "ClassicGroup", "CoordinatorConfig", "GroupCoordinator", "State"]
