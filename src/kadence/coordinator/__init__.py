"""The broker side of groups. Sans-IO: no sockets, threads or clocks; ``now`` is a parameter, answers are data.

`GroupCoordinator` is the class to use. Its owner (the embedded broker, a simulation) passes it requests with
``handle(now, caller, request)``, lets it fire its timers with ``poll(now)`` no later than ``next_deadline()``,
stores the records of the `Outcome` that either of them returns, and then delivers its answers.
"""

from __future__ import annotations

from kadence.coordinator.classic.group import ClassicGroup, State
from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.coordinator import GroupCoordinator
from kadence.coordinator.effects import Answer, Caller, Outcome
from kadence.coordinator.groups import Group
from kadence.coordinator.records import Record
from kadence.coordinator.topics import TopicImage, Topics, TopicTable

__all__ = [
    "Answer",
    "Caller",
    "ClassicGroup",
    "CoordinatorConfig",
    "Group",
    "GroupCoordinator",
    "Outcome",
    "Record",
    "State",
    "TopicImage",
    "TopicTable",
    "Topics",
]
