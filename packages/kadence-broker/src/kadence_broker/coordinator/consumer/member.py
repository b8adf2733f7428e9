"""One member of a KIP-848 group, as a value with the fields of its records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kadence_broker.coordinator.partitions import Epochs

__all__ = ["LEFT_FOR_A_WHILE", "ClassicMetadata", "Member", "MemberState"]

_NOTHING: Final[Epochs] = MappingProxyType({})

LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that left and will come back."""


class MemberState(IntEnum):
    """A member's progress towards the target; the numbers are those of Kafka's records."""

    STABLE = 0
    """It has all partitions of its epoch's target."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions first, and has not reported that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not revoked."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The fields of a member's JoinGroup: it speaks the classic protocol inside this group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    """A member; `evolved` makes its next version.

    A tuple, because each heartbeat with a change makes several: 1 µs for each, where a frozen dataclass takes 4.

    Attributes:
        assigned: partitions it may use now, with the epoch at which each was assigned to it.
        revoking: partitions it must revoke.
        classic: of a member that speaks the classic protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Epochs = _NOTHING
    revoking: Epochs = _NOTHING

    def evolved(self, **changes: Any) -> Member:
        """A copy with changes."""
        return self._replace(**changes)

    def at_epoch(self, epoch: int) -> Member:
        """A copy at ``epoch`` that remembers the epoch before: the response with the new one may be lost."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic: bytes, partition: int) -> int | None:
        """The epoch since which the partition is this member's; None if it is not."""
        epoch = self.assigned.get(topic, {}).get(partition)
        return self.revoking.get(topic, {}).get(partition) if epoch is None else epoch
