"""Which share-partitions of a group are initialised, and what this room asks of those that keep their state.

A share-partition may be assigned to members once it is initialised (`kadence_broker.share`, in Kafka a share
coordinator). To the coordinator that is a call to somebody else: the step that needs it returns a `StateRequest`, and
its owner carries it out once the records of the step are stored, and passes the results to `then`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kadence_broker.coordinator.effects import Caller
    from kadence_broker.coordinator.shard import Shard

__all__ = [
    "NO_STATE",
    "NoState",
    "Results",
    "ShareState",
    "StateAction",
    "StateRequest",
    "StateSummary",
    "TopicState",
]

NO_STATE = -1
"""The start offset of a share-partition that begins where ``share.auto.offset.reset`` says: nothing is stored of it."""

Results = Mapping[tuple[bytes, int], int]
"""(topic id, partition) -> error code."""


class TopicState(NamedTuple):
    """The partitions of a topic that are initialised, or are being initialised."""

    name: str
    partitions: frozenset[int]


class StateAction(Enum):
    """What is to be done with share-partitions."""

    INITIALISE = "initialise"
    ALTER = "alter"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, eq=False)
class StateRequest:
    """Something to do with the state of share-partitions after this step is stored.

    Attributes:
        partitions: topic id -> partition -> start offset, which a deletion has no use for.
        state_epoch: the group epoch.
        then: what the coordinator does with the results; see `GroupCoordinator.state_answered`.
        caller: who waits for the answer that ``then`` makes; None: nobody.
    """

    action: StateAction
    group_id: str
    partitions: Mapping[bytes, Mapping[int, int]]
    state_epoch: int
    then: Callable[[Shard, int, Results], None]
    caller: Caller | None = None


class StateSummary(Protocol):
    """What is stored of a share-partition."""

    @property
    def start_offset(self) -> int: ...

    @property
    def delivery_complete_count(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...


class ShareState(Protocol):
    """What may be read at any time; its owner implements it."""

    def summary(self, group_id: str, topic_id: bytes, partition: int) -> StateSummary | None:
        """None: it is not initialised."""

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        """The end of the log; None: nobody leads it now."""


class NoState:
    """`ShareState` of a coordinator without leaders."""

    def summary(self, group_id: str, topic_id: bytes, partition: int) -> StateSummary | None:
        return None

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        return None
