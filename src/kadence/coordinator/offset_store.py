"""Committed offsets of all groups, and when they may go.

A value per group, topic and partition. Which commits are accepted is decided in `offsets`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Committed", "OffsetStore"]


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset. ``expires_at`` is set only by clients that sent a retention time (v2-v4)."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int | None = None


class OffsetStore:
    """Group -> (topic, partition) -> `Committed`."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], Committed]] = {}

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._groups.setdefault(group_id, {})[topic, partition] = committed

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self._groups.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[tuple[str, int], Committed]:
        """A copy, so that it may be walked while offsets go."""
        return dict(self._groups.get(group_id, {}))

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        offsets = self._groups.get(group_id, {})
        offsets.pop((topic, partition), None)
        if not offsets:
            self._groups.pop(group_id, None)

    def remove_group(self, group_id: str) -> None:
        self._groups.pop(group_id, None)

    def remove_topic(self, topic: str) -> None:
        """The topic is gone, and with it every position in it."""
        for group_id, offsets in list(self._groups.items()):
            for name, partition in list(offsets):
                if name == topic:
                    self.remove(group_id, name, partition)

    def has(self, group_id: str) -> bool:
        return group_id in self._groups
