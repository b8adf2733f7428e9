"""Client-side assignors of the classic protocol, and the messages with subscriptions and assignments."""

from __future__ import annotations

from collections.abc import Iterable

from kadence.consumer.assignors.base import (
    Assignment,
    Assignor,
    LastAssignment,
    MemberSubscription,
    RebalanceProtocol,
    Topics,
)
from kadence.consumer.assignors.stateless import RangeAssignor, RoundRobinAssignor
from kadence.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kadence.errors import ConfigError

__all__ = [
    "BUILT_IN",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "LastAssignment",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
    "chosen",
    "common_protocol",
]

BUILT_IN: dict[str, type[Assignor]] = {
    cls.name: cls for cls in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def chosen(strategy: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors of ``partition.assignment.strategy``, in its order; each item is a name or an object."""
    return tuple(BUILT_IN[each]() if isinstance(each, str) else each for each in strategy)


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The most cooperative way that every assignor supports: any of them may be chosen by the group.

    Raises:
        ConfigError: there is none.
    """
    offered = list(assignors)
    common = frozenset(RebalanceProtocol).intersection(*(a.protocols for a in offered))
    if not common:
        raise ConfigError(
            f"partition.assignment.strategy: {', '.join(a.name for a in offered)} share no rebalance protocol"
        )
    return max(common)
