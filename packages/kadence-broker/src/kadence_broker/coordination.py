"""Connects the group coordinator to this broker: passes it topics, groups' settings and ended transactions.

`kadence_broker.coordinator_runtime` serves its requests and stores its records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence_broker.cluster import OFFSETS_TOPIC
from kadence_broker.coordinator import (
    Answer,
    CoordinatorConfig,
    GroupCoordinator,
    Outcome,
    Record,
    TopicImage,
)
from kadence_broker.coordinator.records import decode, group_of
from kadence_broker.coordinator_runtime import CoordinatorRuntime, Owns, kept_in
from kadence_broker.state_topic import Ended, StateTopic

if TYPE_CHECKING:
    from kadence_broker.cluster import Cluster, Topic
    from kadence_broker.server.loop import Loop
    from kadence_broker.storage import Partition

__all__ = ["ClusterTopics", "Coordination"]


class Coordination(CoordinatorRuntime[Outcome]):
    """The shell of `GroupCoordinator`. The broker's thread owns it.

    Args:
        new_id: as for `GroupCoordinator`; None: its default.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        cluster: Cluster,
        loop: Loop,
        *,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._cluster = cluster
        self.coordinator = GroupCoordinator(
            config, topics=ClusterTopics(cluster), new_id=new_id, wall=lambda _now: loop.wall_ms()
        )
        super().__init__(self.coordinator, StateTopic(cluster, loop.wall_ms, OFFSETS_TOPIC, decode), loop)

    def _key_of(self, record: Record) -> str:
        return group_of(record)

    def _asked_for(self, request: Any) -> Collection[str] | None:
        if isinstance(request, OffsetFetchRequest) and not request.group_id:
            return [each.group_id for each in request.groups]
        group_id = getattr(request, "group_id", None)
        return (group_id,) if group_id else None

    def _is_free(self, answer: Answer) -> bool:
        """A heartbeat that says only that the member is alive, and hears only that it is known, or is to join again."""
        request, response = answer.caller.ticket.message, answer.response
        if isinstance(request, HeartbeatRequest):
            return response.error_code in (codes.NONE, codes.REBALANCE_IN_PROGRESS)
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


def _image(topic: Topic | None) -> TopicImage | None:
    return None if topic is None else TopicImage(topic.name, topic.topic_id, len(topic.partitions))
