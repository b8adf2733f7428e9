"""Connects the group coordinator to this broker: passes it topics, groups' settings and ended transactions.

`kadence_broker.coordinator_runtime` serves its requests and stores its records. What it asks for share-partitions goes
to `kadence_broker.share`, once the records are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence_broker.cluster import OFFSETS_TOPIC
from kadence_broker.coordinator import (
    Answer,
    Caller,
    CoordinatorConfig,
    GroupCoordinator,
    GroupOutcome,
    Record,
    TopicImage,
)
from kadence_broker.coordinator.records import decode, group_of
from kadence_broker.coordinator.share.state import StateAction, StateRequest
from kadence_broker.coordinator_runtime import CoordinatorRuntime, Owns, kept_in
from kadence_broker.state_topic import Ended, StateTopic

if TYPE_CHECKING:
    from kadence_broker.cluster import Cluster, Topic
    from kadence_broker.server.loop import Loop
    from kadence_broker.share.interface import SharePartitions, Summary
    from kadence_broker.storage import Partition

__all__ = ["ClusterTopics", "Coordination"]


class Coordination(CoordinatorRuntime[GroupOutcome]):
    """The shell of `GroupCoordinator`. The broker's thread owns it.

    Args:
        shares: keeps the state of share-partitions. None: nobody does, so none can be initialised.
        new_id: as for `GroupCoordinator`; None: its default.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        cluster: Cluster,
        loop: Loop,
        *,
        shares: SharePartitions | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._shares = shares
        self.coordinator = GroupCoordinator(
            config,
            topics=ClusterTopics(cluster),
            new_id=new_id,
            wall=lambda _now: loop.wall_ms(),
            share_state=_ClusterShares(cluster, shares),
        )
        super().__init__(self.coordinator, StateTopic(cluster, loop.wall_ms, OFFSETS_TOPIC, decode), loop)

    def _key_of(self, record: Record) -> str:
        return group_of(record)

    def _asked_for(self, request: Any) -> Collection[str] | None:
        if isinstance(request, DescribeShareGroupOffsetsRequest) or (
            isinstance(request, OffsetFetchRequest) and not request.group_id
        ):
            return [each.group_id for each in request.groups]
        group_id = getattr(request, "group_id", None)
        return (group_id,) if group_id else None

    def _is_free(self, answer: Answer) -> bool:
        """A heartbeat that says only that the member is alive, and hears only that it is known, or is to join again."""
        request, response = answer.caller.ticket.message, answer.response
        if isinstance(request, HeartbeatRequest):
            return response.error_code in (codes.NONE, codes.REBALANCE_IN_PROGRESS)
        if isinstance(request, ShareGroupHeartbeatRequest):
            return (
                response.error_code == codes.NONE
                and response.member_epoch == request.member_epoch > 0
                and response.assignment is None
                and request.rack_id is None
            )
        return (
            isinstance(request, ConsumerGroupHeartbeatRequest)
            and response.error_code == codes.NONE
            and response.member_epoch == request.member_epoch > 0
            and response.assignment is None
            and request.rebalance_timeout_ms < 0
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.topic_partitions is None
        )

    def start(self) -> None:
        for group_id, config in self._cluster.group_configs.items():
            self.coordinator.set_group_configs(group_id, config)
        super().start()

    def configure_group(self, group_id: str, config: Mapping[str, str]) -> None:
        """Let a group have just these settings of its own. Raises `OSError`: the disk takes no more."""
        self._cluster.configure_group(group_id, config)
        self.coordinator.set_group_configs(group_id, config)

    def topic_deleted(self, topic: str) -> None:
        """Offsets in ``topic`` go; with the topic of the coordinator itself, everything does."""
        super().topic_deleted(topic)
        self._settle(self.coordinator.topic_deleted(self._now(), topic))

    # Share groups

    def _follow(self, step: GroupOutcome) -> None:
        for request in step.state_requests:
            self._change_state(request)

    def _waits_of(self, step: GroupOutcome) -> Iterable[Caller]:
        waiting = [each.caller for each in step.state_requests if each.caller is not None]
        return dict.fromkeys(waiting)

    def _change_state(self, request: StateRequest) -> None:
        """Change share-partitions, and let the coordinator go on once that is durable."""
        results = {
            (topic, number): self._change(request, topic, number, start_offset)
            for topic, numbers in request.partitions.items()
            for number, start_offset in numbers.items()
        }
        if self._shares is None:
            self._state_changed(request, results, codes.NONE)
        else:
            self._shares.when_durable(partial(self._state_changed, request, results))

    def _change(self, request: StateRequest, topic: bytes, number: int, start_offset: int) -> int:
        if self._shares is None:
            return codes.COORDINATOR_NOT_AVAILABLE
        match request.action:
            case StateAction.INITIALISE:
                return self._shares.initialise(
                    request.group_id, topic, number, start_offset, request.state_epoch
                )
            case StateAction.ALTER:
                return self._shares.alter(request.group_id, topic, number, start_offset)
            case StateAction.DELETE:
                return self._shares.delete(request.group_id, topic, number)

    def _state_changed(self, request: StateRequest, results: dict[tuple[bytes, int], int], code: int) -> None:
        if code != codes.NONE:
            results = dict.fromkeys(results, code)
        self._settle(self.coordinator.state_answered(self._now(), request, results))

    # Transactions

    def end_transaction(
        self, partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int, *, committed: bool
    ) -> None:
        """Write a marker into one partition: the producer's offsets there count now, or never.

        Raises:
            BatchError: the epoch of the producer or of the coordinator is old, or the marker could not be stored.
        """
        partition.append_marker(
            self._loop.wall_ms(), producer_id, epoch, coordinator_epoch, committed=committed
        )
        self._ended(Ended(producer_id, epoch, committed), kept_in(partition.index))

    def _ended(self, marker: Ended, owns: Owns) -> None:
        self._settle(
            self.coordinator.end_transaction(
                self._now(), marker.producer_id, marker.epoch, marker.committed, owns
            )
        )


class ClusterTopics:
    """The broker's topics, as the coordinator asks for them. All nodes are in one place, so there are no racks."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.topics_version

    def by_name(self, name: str) -> TopicImage | None:
        return _image(self._cluster.topics.get(name))

    def by_id(self, topic_id: bytes) -> TopicImage | None:
        return _image(self._cluster.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        return self._cluster.topics.keys()


class _ClusterShares:
    """What the coordinator reads of share-partitions, and of the logs that they are of."""

    __slots__ = ("_cluster", "_shares")

    def __init__(self, cluster: Cluster, shares: SharePartitions | None) -> None:
        self._cluster = cluster
        self._shares = shares

    def summary(self, group_id: str, topic_id: bytes, partition: int) -> Summary | None:
        return None if self._shares is None else self._shares.summary(group_id, topic_id, partition)

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        topic = self._cluster.topic_by_id(topic_id)
        found = None if topic is None else topic.partition(partition)
        return None if found is None or found.leader_id < 0 else found.high_watermark


def _image(topic: Topic | None) -> TopicImage | None:
    return None if topic is None else TopicImage(topic.name, topic.topic_id, len(topic.partitions))
