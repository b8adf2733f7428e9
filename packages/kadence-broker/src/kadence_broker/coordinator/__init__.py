"""The broker side of groups. Sans-IO: no sockets, threads or clocks; ``now`` is a parameter, answers are data.

`GroupCoordinator` is the class to use. Its owner (the embedded broker, a simulation) passes it requests with
``handle(now, caller, request)``, lets it fire its timers with ``poll(now)`` no later than ``next_deadline()``,
stores the records of the `GroupOutcome` that either of them returns, and then delivers its answers and carries out its
requests for share-partitions.
"""

from __future__ import annotations

from kadence_broker.coordinator.classic.group import ClassicGroup, GroupState
from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.coordinator import GroupCoordinator
from kadence_broker.coordinator.effects import Answer, Caller, GroupOutcome, Outcome
from kadence_broker.coordinator.groups import Group
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.topics import TopicImage, TopicImages, TopicTable

__all__ = [
    "Answer",
    "Caller",
    "ClassicGroup",
    "CoordinatorConfig",
    "Group",
    "GroupCoordinator",
    "GroupOutcome",
    "GroupState",
    "Outcome",
    "Record",
    "TopicImage",
    "TopicImages",
    "TopicTable",
]
