"""The requests to which a fault applies."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any, TypedDict

from kadence.errors import ConfigError
from kadence.forked import ThisProcess
from kadence_broker.service import Call

__all__ = ["Choice", "Only", "Where"]

Where = Callable[[Call], bool]


class Only(TypedDict, total=False):
    """The keywords of every fault. A fault applies to a request that fits all of them."""

    where: Where | None
    """A function that gets the `Call`, on the broker's thread, and returns whether the request fits."""
    times: int | None
    """Only this many requests, the first ones that fit."""
    client_id: str | None
    """The client's `client.id`."""
    group: str | None
    """The id of the group that the request names; for FindCoordinator, its key."""
    topic: str | None
    """A topic that the request names, or that its fetch or share session holds."""
    node_id: int | None
    """The node that the request was sent to."""
    probability: float
    """The probability with which each request fits, 0 to 1."""
    seed: int | None
    """The seed for ``probability``, to repeat a run. None: a different one each time."""


class Choice:
    """`Only`, checked, with the state of its dice.

    Args:
        here: entered around each call of ``where``.
    """

    __slots__ = (
        "_client_id",
        "_dice",
        "_group",
        "_here",
        "_node_id",
        "_probability",
        "_times",
        "_topic",
        "_where",
    )

    def __init__(
        self,
        here: ThisProcess,
        where: Where | None = None,
        times: int | None = None,
        client_id: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        node_id: int | None = None,
        probability: float = 1.0,
        seed: int | None = None,
    ) -> None:
        if not 0 <= probability <= 1:
            raise ConfigError(f"the probability of a fault is 0 to 1, not {probability}")
        self._here = here
        self._where = where
        self._times = times
        self._client_id = client_id
        self._group = group
        self._topic = topic
        self._node_id = node_id
        self._probability = probability
        self._dice = random.Random(seed)

    def wants(self, call: Call, hits: int, topics_of: Callable[[Call], Collection[str]]) -> bool:
        """True if the fault applies to this request, after ``hits`` others."""
        return (
            (self._times is None or hits < self._times)
            and self._node_id in (None, call.node_id)
            and self._client_id in (None, call.client_id)
            and (self._group is None or self._group in _groups(call.message))
            and (self._topic is None or self._topic in topics_of(call))
            and (self._where is None or self._here.call(self._where, call))
            and (self._probability >= 1 or self._dice.random() < self._probability)
        )


def _groups(message: Any) -> set[str]:
    """Groups that a request names, wherever its schema has them."""
    found = {
        getattr(message, name)
        for name in ("group_id", "key")
        if isinstance(getattr(message, name, None), str)
    }
    for name in ("groups", "groups_names", "group_ids", "coordinator_keys"):
        for each in getattr(message, name, None) or ():
            found.add(each if isinstance(each, str) else getattr(each, "group_id", ""))
    return found
