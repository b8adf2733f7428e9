"""Compares the group coordinator's state before a crash with the state that the next broker has loaded.

* A committed offset that was acknowledged exists: the last acknowledged one, or that of a later commit whose response
  was lost in the crash. It may be missing if it was deleted, or has expired.
* A group with members exists, with the same type. Its generation or epoch, and its members' epochs, have not gone back.
  The generation of a classic group counts once its assignment is stored, as in Kafka: before that no member has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kadence.types import TopicPartition
from kadence_broker.coordinator import ClassicGroup
from kadence_broker.coordinator.classic.group import GroupState
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_testing.simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from kadence_broker.core import BrokerCore

__all__ = ["Restarts"]


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    """A commit that was acknowledged to a client.

    Attributes:
        topic_id: of the topic at that time. expires_at: the scheduler's ms, at the earliest.
    """

    offset: int
    topic_id: bytes
    expires_at: int


@dataclass(slots=True)
class _Group:
    """The stored state of a group. ``epoch``: its generation or epoch. ``members``: the epochs of its members."""

    kind: type[Any]
    epoch: int
    members: dict[str, int] = field(default_factory=dict)


class Restarts:
    """Compares the coordinator's state before a crash with the state that the next broker has loaded.

    Args:
        object_to: called with each state that a restart has lost.
    """

    def __init__(self, scheduler: Scheduler, object_to: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._object_to = object_to
        self._acknowledged: dict[tuple[str, TopicPartition], _Acknowledged] = {}
        self._at_crash: dict[tuple[str, TopicPartition], int | None] = {}
        self._groups: dict[str, _Group] = {}

    def has_committed(
        self, core: BrokerCore, group_id: str, partition: TopicPartition, offset: int, retention_ms: int = -1
    ) -> None:
        """A commit was acknowledged. ``retention_ms``: the retention time of an old client's request; -1: none."""
        keeps_ms = retention_ms if retention_ms >= 0 else core.coordinator_config.offsets_retention_ms
        self._acknowledged[group_id, partition] = _Acknowledged(
            offset, _topic_id(core, partition.topic), self._scheduler.now_ms() + keeps_ms
        )

    def may_forget_offsets(self, group_id: str) -> None:
        """A client asks to delete the group, or offsets of it."""
        for key in [key for key in self._acknowledged if key[0] == group_id]:
            del self._acknowledged[key]

    def turned(self, core: BrokerCore) -> None:
        """The broker's loop has run a turn: note the stored state of its groups."""
        groups = core.coordination.coordinator.groups
        for group_id in self._groups.keys() - groups.keys():
            del self._groups[group_id]
        for group_id, group in groups.items():
            if not isinstance(group, ClassicGroup | ConsumerGroup) or not group.members:
                # It may be deleted, and another one of its name created.
                self._groups.pop(group_id, None)
            elif isinstance(group, ConsumerGroup):
                members = {member_id: member.epoch for member_id, member in group.members.items()}
                self._groups[group_id] = _Group(ConsumerGroup, group.epoch, members)
            elif group.state is GroupState.STABLE:
                self._groups[group_id] = _Group(ClassicGroup, group.generation_id)

    def crashed(self, core: BrokerCore) -> None:
        """The broker crashes now."""
        self._at_crash = {
            (group_id, partition): _offset(core, group_id, partition)
            for group_id, partition in self._acknowledged
        }

    def restarted(self, core: BrokerCore) -> None:
        """Another broker has loaded the files of the one before it."""
        now = self._scheduler.now_ms()
        for (group_id, partition), told in list(self._acknowledged.items()):
            if core.coordination.node_of(group_id) is None:
                continue
            if now >= told.expires_at or _topic_id(core, partition.topic) != told.topic_id:
                del self._acknowledged[group_id, partition]
                continue
            found = _offset(core, group_id, partition)
            if found is None or found not in (told.offset, self._at_crash.get((group_id, partition))):
                self._object_to(
                    f"group {group_id!r} had {partition} committed up to {told.offset}, acknowledged, and after the "
                    f"restart it is {'not committed' if found is None else found}"
                )
        for group_id, known in self._groups.items():
            if core.coordination.node_of(group_id) is not None:
                self._compare(group_id, known, core.coordination.coordinator.groups.get(group_id))

    def _compare(self, group_id: str, known: _Group, group: Any) -> None:
        if not isinstance(group, known.kind):
            self._object_to(
                f"group {group_id!r} had members in generation or epoch {known.epoch}, and after the restart there is "
                f"{group!r}"
            )
            return
        epoch = group.generation_id if isinstance(group, ClassicGroup) else group.epoch
        if epoch < known.epoch:
            self._object_to(f"the restart took {group!r} back from generation or epoch {known.epoch}")
        for member_id, member_epoch in known.members.items():
            member = group.members.get(member_id)
            if member is None:
                self._object_to(f"the restart took member {member_id!r} from {group!r}")
            elif 0 <= member.epoch < member_epoch:
                self._object_to(
                    f"the restart took member {member_id!r} of {group!r} back from epoch {member_epoch} to "
                    f"{member.epoch}"
                )


def _topic_id(core: BrokerCore, topic: str) -> bytes:
    """Another topic of the same name has another id."""
    known = core.cluster.topics.get(topic)
    return b"" if known is None else known.topic_id


def _offset(core: BrokerCore, group_id: str, partition: TopicPartition) -> int | None:
    """The group's committed offset in the coordinator."""
    found = core.coordination.coordinator.offsets.get(group_id, *partition)
    return None if found is None else found.offset
