"""The state of share-partitions, remembered: what the group coordinator asks of the leaders' side (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.share.state import NO_STATE, StateAction, StateRequest

__all__ = ["Remembered", "RememberedShares"]


@dataclass
class Remembered:
    """What is stored of one share-partition."""

    start_offset: int = NO_STATE
    delivery_complete_count: int = -1
    leader_epoch: int = 0
    state_epoch: int = 0


@dataclass
class RememberedShares:
    """All that is stored, by group, topic id and partition.

    Attributes:
        ends: of logs, by topic id and partition; None without a leader. code: for every change from now on.
        is_slow: changes wait until the test lets them happen.
    """

    known: dict[tuple[str, bytes, int], Remembered] = field(default_factory=dict)
    ends: dict[tuple[bytes, int], int | None] = field(default_factory=dict)
    code: int = codes.NONE
    is_slow: bool = False

    def summary(self, group_id: str, topic_id: bytes, partition: int) -> Remembered | None:
        return self.known.get((group_id, topic_id, partition))

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        return self.ends.get((topic_id, partition), 0)

    def change(self, request: StateRequest) -> dict[tuple[bytes, int], int]:
        """Do what is asked; the results."""
        asked = [
            (topic, number, offset)
            for topic, numbers in request.partitions.items()
            for number, offset in numbers.items()
        ]
        for topic, number, offset in asked if self.code == codes.NONE else ():
            key = (request.group_id, topic, number)
            if request.action is StateAction.DELETE:
                self.known.pop(key, None)
            else:
                self.known[key] = Remembered(offset, state_epoch=request.state_epoch)
        return {(topic, number): self.code for topic, number, _ in asked}
