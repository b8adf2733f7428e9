"""A share group under virtual time: members that obey what they are told, or say just what a test wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.worlds.consumer_group import topic
from tests.worlds.coordinator import Sent, World

from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kadence_broker.coordinator import CoordinatorConfig, GroupCoordinator
from kadence_broker.coordinator.share.config import ShareGroupConfig
from kadence_broker.coordinator.share.group import ShareGroup

__all__ = ["SESSION", "ShareHeartbeats", "ShareWorld", "topic"]

SESSION = 45_000


class ShareHeartbeats:
    """One member: what it was told last, and what it reads.

    Attributes:
        said: its last answer. reads: partitions by topic name.
    """

    def __init__(self, world: ShareWorld, member_id: str, topics: Iterable[str]) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0
        self.reads: dict[str, frozenset[int]] = {}
        self.said = ShareGroupHeartbeatResponse()

    def beat(self, **changes: Any) -> ShareGroupHeartbeatResponse:
        """A heartbeat with nothing to say, or with ``changes``."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.world.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.subscribed_topic_names = self.topics
        for name, value in changes.items():
            setattr(request, name, value)
        self.said = self.world.send(request, 1, self.member_id).response
        if not self.said.error_code:
            self.epoch = max(self.said.member_epoch, 0)
            if self.said.assignment is not None:
                self.reads = {
                    each.topic_id.decode().rstrip("\1"): frozenset(each.partitions)
                    for each in self.said.assignment.topic_partitions
                }
        return self.said

    def leave(self) -> ShareGroupHeartbeatResponse:
        return self.beat(member_epoch=-1)


class ShareWorld(World):
    """One coordinator with topics; members come by `member`."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        super().__init__(share=ShareGroupConfig(**config))
        for name, partitions in ({"t": 4} if topics is None else topics).items():
            self.topics.put(topic(name, partitions))

    @property
    def share_group(self) -> ShareGroup:
        group = self.coordinator.groups[self.group_id]
        assert isinstance(group, ShareGroup)
        return group

    def member(self, member_id: str, topics: Iterable[str] = ("t",)) -> ShareHeartbeats:
        """A member that has sent its first heartbeat."""
        member = ShareHeartbeats(self, member_id, topics)
        member.beat()
        return member

    def settle(self, *members: ShareHeartbeats) -> None:  # type: ignore[override]
        """Let everybody send heartbeats, second for second, until all have heard of the last target."""
        for _ in range(4):
            self.advance(1_000)
            for member in members:
                member.beat()
        assert self.share_group.target_epoch == self.share_group.epoch, self.share_group

    def raw(self, **fields: Any) -> Sent:
        fields = {"group_id": self.group_id, **fields}
        return self.send(ShareGroupHeartbeatRequest(**fields), 1)

    def replayed(self) -> GroupCoordinator:
        """A coordinator that has seen nothing but the records."""
        other = GroupCoordinator(CoordinatorConfig(), topics=self.topics)
        for record in self.log:
            other.replay(record)
        return other

    def check_replay(self) -> None:
        """What is stored is all there is."""
        assert list(self.replayed().snapshot(lambda _: True)) == list(
            self.coordinator.snapshot(lambda _: True)
        )
