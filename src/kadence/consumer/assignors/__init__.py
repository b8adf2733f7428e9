"""Client-side assignors of the classic protocol, and the messages in which members speak of them."""

from __future__ import annotations

from collections.abc import Iterable

from kadence.consumer.assignors.base import Assignment, Assignor, MemberSubscription, RebalanceProtocol
from kadence.consumer.assignors.cooperative_sticky import CooperativeStickyAssignor
from kadence.consumer.assignors.range import RangeAssignor
from kadence.errors import ConfigError

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "common_protocol",
    "named",
]

_BY_NAME: dict[str, type[RangeAssignor | CooperativeStickyAssignor]] = {
    cls.name: cls for cls in (RangeAssignor, CooperativeStickyAssignor)
}


def named(names: Iterable[str]) -> tuple[Assignor, ...]:
    """The assignors of these names, in their order.

    Raises:
        ConfigError: there is none of that name.
    """
    chosen: list[Assignor] = []
    for name in names:
        if name not in _BY_NAME:
            raise ConfigError(f"partition.assignment.strategy: {name!r} is none of {', '.join(_BY_NAME)}")
        chosen.append(_BY_NAME[name]())
    return tuple(chosen)


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
