"""Manual assignment: the events for the network thread. Application side.

An event takes effect even when the wait for its answer is interrupted. The application sees the change when the call
returns, or by the next poll (C16).
"""

from __future__ import annotations

from collections.abc import Mapping

from kadence.client.waits import Waits
from kadence.consumer import events as m
from kadence.consumer.application.core import Core
from kadence.types import TopicPartition

__all__ = ["add", "assign", "follow", "remove"]


def assign(
    core: Core,
    partitions: tuple[TopicPartition, ...],
    starts: Mapping[TopicPartition, tuple[int, int | None]],
    ends: Mapping[TopicPartition, int | None],
    deadline: int,
) -> Waits[None]:
    """Read exactly these, as `events.Assign` says."""
    _choose(core, frozenset())
    yield from core.hand_over(m.Assign, deadline, partitions=partitions, starts=starts, ends=ends)
    core.known.look()


def add(
    core: Core,
    partitions: tuple[TopicPartition, ...],
    starts: Mapping[TopicPartition, tuple[int, int | None]],
    ends: Mapping[TopicPartition, int | None],
    deadline: int,
) -> Waits[None]:
    """Read these, too."""
    _choose(core, frozenset())
    yield from core.hand_over(m.AddPartitions, deadline, partitions=partitions, starts=starts, ends=ends)
    core.known.look()


def remove(core: Core, partitions: tuple[TopicPartition, ...], deadline: int) -> Waits[None]:
    """Stop reading these, and keep reading the others."""
    yield from core.hand_over(m.RemovePartitions, deadline, partitions=partitions)
    core.known.look()


def follow(core: Core, topics: frozenset[str], timestamp: int | None, deadline: int) -> Waits[None]:
    """Read all partitions of these, as `events.AssignTopics` says."""
    _choose(core, topics)
    yield from core.hand_over(m.AssignTopics, deadline, topics=topics, timestamp=timestamp)
    core.known.look()


def _choose(core: Core, followed: frozenset[str]) -> None:
    core.chosen.times += 1
    core.chosen.by_hand, core.chosen.followed = True, followed
