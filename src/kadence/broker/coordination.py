"""The group coordinator of this broker: what carries requests to it, stores what it records, and delivers its answers.

One coordinator serves the groups of all nodes; a node answers for those whose partition of `__consumer_offsets` it
leads. An answer goes out when all that was appended to its group's partition before it is stored for good, so nothing
that a client was told is lost in a crash. What could not be stored did not happen: its groups are loaded again from
the log, and whoever waited is told to look for the coordinator, as Kafka does when an append fails.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kadence.broker.cluster import OFFSETS_TOPIC, BrokerNode, coordinator_partition
from kadence.broker.settling import Settling, deliver
from kadence.broker.state_topic import Ended, StateTopic
from kadence.broker.storage import BatchError, Partition
from kadence.coordinator import CoordinatorConfig, GroupCoordinator, Outcome, Record, TopicImage
from kadence.coordinator.records import decode, group_of
from kadence.protocol import error_codes as codes
from kadence.wire import WireError

if TYPE_CHECKING:
    from kadence.broker.cluster import Cluster, Topic
    from kadence.broker.server.loop import Loop
    from kadence.broker.service import Call

__all__ = ["ClusterTopics", "Coordination"]

_log = logging.getLogger("kadence.broker")


class Coordination:
    """The shell of `GroupCoordinator`. The broker's thread owns it.

    Args:
        new_id: as for `GroupCoordinator`; None: its own.
    """

    __slots__ = ("_cluster", "_loop", "_topics_version", "_unsettled", "coordinator", "offsets_topic")

    def __init__(
        self,
        config: CoordinatorConfig,
        cluster: Cluster,
        loop: Loop,
        *,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._loop = loop
        self.offsets_topic = StateTopic(cluster, loop.wall_ms, OFFSETS_TOPIC, decode)
        self.coordinator = GroupCoordinator(
            config, topics=ClusterTopics(cluster), new_id=new_id, wall=lambda _now: loop.wall_ms()
        )
        self._unsettled: Counter[int] = Counter()
        """By partition: how many steps wait for their records to be stored for good."""
        self._topics_version = cluster.topics_version

    def start(self) -> None:
        """Load what an earlier broker has stored."""
        for group_id, config in self._cluster.group_configs.items():
            self.coordinator.set_group_configs(group_id, config)
        if self.offsets_topic.exists:
            for partition in self.offsets_topic.partitions():
                self._load(partition.index)

    # Requests and timers

    def node_of(self, group_id: str) -> BrokerNode | None:
        """The node that coordinates the group; None while its partition has no leader."""
        return self.offsets_topic.node_of(group_id)

    def is_coordinated_by(self, node_id: int, group_id: str) -> bool:
        node = self.node_of(group_id)
        return node is not None and node.node_id == node_id

    def serve(self, call: Call, amend: Callable[[Any], None] | None = None) -> None:
        """Let the coordinator serve the call, and whoever else it has an answer for.

        Args:
            amend: what the broker adds to this call's answer, if it is answered at once.
        """
        self._tell_topics(call.now)
        outcome = self.coordinator.handle(call.now, call.caller(), call.message)
        if amend is not None:
            for answer in outcome.answers:
                if answer.caller.ticket is call:
                    amend(answer.response)
        self._settle(outcome)

    def poll(self, now: int) -> None:
        """Fire the coordinator's timers that are due."""
        self._tell_topics(now)
        if self.coordinator.next_deadline() <= now:
            self._settle(self.coordinator.poll(now))

    def next_deadline(self) -> int:
        return self.coordinator.next_deadline()

    def configure_group(self, group_id: str, config: Mapping[str, int]) -> None:
        """Let a group have just these settings of its own. Raises `OSError`: the disk takes no more."""
        self._cluster.configure_group(group_id, config)
        self.coordinator.set_group_configs(group_id, config)

    def _tell_topics(self, now: int) -> None:
        if self._topics_version != self._cluster.topics_version:
            self._topics_version = self._cluster.topics_version
            self._settle(self.coordinator.topics_changed(now))

    def topic_deleted(self, now: int, topic: str) -> None:
        """Offsets in ``topic`` go; with the topic of the coordinator itself, everything does."""
        if topic == OFFSETS_TOPIC:
            deliver(self.coordinator.unload(now, lambda _: True).answers)
        else:
            self._settle(self.coordinator.topic_deleted(now, topic))

    # Storing

    def _settle(self, outcome: Outcome) -> None:
        """Store the records, and deliver the answers once that is for good."""
        if not outcome.records and not self._unsettled:
            deliver(outcome.answers)
            return
        by_partition: dict[int, list[Record]] = {}
        for record in outcome.records:
            by_partition.setdefault(coordinator_partition(group_of(record)), []).append(record)
        step = Settling(outcome.answers)
        for index, records in by_partition.items():
            self._store(index, records, step)
        for index in self._waited_for(outcome) - by_partition.keys():
            self._await(index, step)
        step.done(codes.NONE)
        for index in by_partition:
            if self.offsets_topic.exists and self.offsets_topic.is_grown(index):
                self._rewrite(index)

    def _store(self, index: int, records: Iterable[Record], step: Settling) -> None:
        try:
            self.offsets_topic.append(index, records)
        except (BatchError, OSError, WireError) as error:
            # A WireError: some client's name is too long for a record. Nobody else's step may suffer.
            _log.error("groups of %s-%d could not be stored: %s", OFFSETS_TOPIC, index, error)
            step.fail()
            self.reload(index)
            return
        self._await(index, step)

    def _await(self, index: int, step: Settling) -> None:
        """Let the step wait until everything in the partition is stored for good."""
        step.begin()
        self._unsettled[index] += 1
        self.offsets_topic.partition(index).on_durable(partial(self._stored, index, step))

    def _stored(self, index: int, step: Settling, code: int) -> None:
        self._unsettled[index] -= 1
        if not self._unsettled[index]:
            del self._unsettled[index]
        if code != codes.NONE:
            _log.error("groups of %s-%d could not be stored: %s", OFFSETS_TOPIC, index, codes.name(code))
            self.reload(index)
        step.done(code)

    def _waited_for(self, outcome: Outcome) -> set[int]:
        """The partitions that answers without records of their own must wait for: what they tell may lie there."""
        if not self._unsettled or not outcome.answers:
            return set()
        waiting: set[int] = set()
        for answer in outcome.answers:
            group_id = getattr(answer.caller.ticket.message, "group_id", "")
            if not group_id:
                return set(self._unsettled)
            waiting.add(coordinator_partition(group_id))
        return waiting & self._unsettled.keys()

    def _rewrite(self, index: int) -> None:
        try:
            self.offsets_topic.rewrite(index, self.coordinator.snapshot(_owns(index)))
        except (BatchError, OSError) as error:
            # What is stored already stands; the next step that grows the partition tries again.
            _log.warning("%s-%d could not be written anew: %s", OFFSETS_TOPIC, index, error)

    # Transactions

    def end_transaction(
        self, index: int, producer_id: int, epoch: int, coordinator_epoch: int, *, committed: bool
    ) -> None:
        """Write a marker into one partition: the producer's offsets there count now, or never.

        Raises:
            BatchError: the epoch of the producer or of the coordinator is old, or the marker could not be stored.
        """
        self.offsets_topic.partition(index).append_marker(
            self._loop.wall_ms(), producer_id, epoch, coordinator_epoch, committed=committed
        )
        now = self._loop.clock.now_ms()
        self._settle(self.coordinator.end_transaction(now, producer_id, epoch, committed, _owns(index)))

    # Moving

    def reload(self, index: int) -> None:
        """Forget the groups of one partition and load them from the log, as a node does that takes it over."""
        deliver(self.coordinator.unload(self._loop.clock.now_ms(), _owns(index)).answers)
        self._load(index)

    def on_new_leader(self, partition: Partition) -> None:
        """A partition has another leader, or none: if it keeps groups, they have another coordinator."""
        if partition.topic.name == OFFSETS_TOPIC:
            self.reload(partition.index)

    def _load(self, index: int) -> None:
        """A partition without a leader has no coordinator: its groups are loaded when it gets one."""
        if not self.offsets_topic.exists or self.offsets_topic.partition(index).leader_id < 0:
            return
        now, owns = self._loop.clock.now_ms(), _owns(index)
        for each in self.offsets_topic.read(index):
            if isinstance(each, Ended):
                self.coordinator.end_transaction(now, each.producer_id, each.epoch, each.committed, owns)
            else:
                self.coordinator.replay(each)
        self.coordinator.loaded(now, owns)


def _owns(index: int) -> Callable[[str], bool]:
    """Whether a group belongs to one partition of the topic."""
    return lambda group_id: coordinator_partition(group_id) == index


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
