"""A KIP-848 group under virtual time: members that report honestly, or say just what a test wants them to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.worlds.coordinator import Sent, World, id_of

from kadence.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence_broker.coordinator import GroupCoordinator, TopicImage
from kadence_broker.coordinator.consumer.group import ConsumerGroup

SESSION = 45_000
REBALANCE = 60_000


def topic(name: str, partitions: int) -> TopicImage:
    return TopicImage(name, id_of(name), partitions)


class ConsumerHeartbeats:
    """One member of KIP-848's protocol: what it was told last, and what it holds.

    Attributes:
        said: its last answer. owned: what it holds, by topic name.
    """

    def __init__(self, world: ConsumerWorld, member_id: str, **options: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.options = options
        self.epoch = 0
        self.owned: dict[str, frozenset[int]] = {}
        self.said = ConsumerGroupHeartbeatResponse()

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with nothing to say, or with ``changes``; what it is told it obeys at once."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.world.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if "instance_id" in self.options:
            request.instance_id = self.options["instance_id"]
        if self.epoch == 0:
            request.rebalance_timeout_ms = REBALANCE
            request.topic_partitions = []
            for name, value in self.options.items():
                setattr(request, name, value)
        for name, value in changes.items():
            setattr(request, name, value)
        self.said = self.world.send(request, changes.pop("version", 1), self.member_id).response
        if not self.said.error_code:
            self.epoch = self.said.member_epoch
            if self.said.assignment is not None:
                self.owned = {
                    each.topic_id.decode().rstrip("\1"): frozenset(each.partitions)
                    for each in self.said.assignment.topic_partitions
                }
        return self.said

    def report(self) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that says what the member holds."""
        return self.beat(topic_partitions=owned(self.owned))


def owned(partitions: Mapping[str, Iterable[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(id_of(name), sorted(numbers)) for name, numbers in partitions.items()]


class ConsumerWorld(World):
    """One coordinator with topics; members come by `member`."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        super().__init__(**config)
        for name, partitions in ({"t": 4} if topics is None else topics).items():
            self.topics.put(topic(name, partitions))

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.coordinator.groups[self.group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def member(
        self, member_id: str, topics: Iterable[str] | None = ("t",), **options: Any
    ) -> ConsumerHeartbeats:
        """A member that has sent its first heartbeat."""
        names = None if topics is None else list(topics)
        member = ConsumerHeartbeats(self, member_id, subscribed_topic_names=names, **options)
        member.beat()
        return member

    def settle(self, *members: ConsumerHeartbeats) -> None:  # type: ignore[override]
        """Let everybody report, second for second, until nothing changes any more."""
        for _ in range(8):
            self.advance(1_000)
            for member in members:
                member.report()
        assert self.consumer_group.state_name == "Stable", self.consumer_group

    def replayed(self) -> GroupCoordinator:
        """A coordinator that has seen nothing but the records (E0)."""
        other = GroupCoordinator(topics=self.topics)
        for record in self.log:
            other.replay(record)
        return other

    def check_replay(self) -> None:
        """What is stored is all there is."""
        assert list(self.replayed().snapshot(lambda _: True)) == list(
            self.coordinator.snapshot(lambda _: True)
        )

    def raw(self, version: int = 1, **fields: Any) -> Sent:
        return self.send(ConsumerGroupHeartbeatRequest(group_id=self.group_id, **fields), version)
