"""The metadata of a cluster, as one immutable value, and a pure function that updates it with an answer.

Consumer, producer and admin client each keep their own. Any broker may have answered, so a later answer can hold
older metadata: for the same topic id a leader epoch never goes back (KIP-320). A changed topic id means another
topic of the same name (KIP-516), for which nothing is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from kadence.layered import Layered
from kadence.lazy_dataclasses import dataclass, field, replace
from kadence.protocol import error_codes
from kadence.protocol.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.types import Node, PartitionInfo, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Cluster", "Topic", "apply", "follow", "forget_brokers", "forget_epochs"]

_PASSING = error_codes.RETRIABLE - {error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.UNKNOWN_TOPIC_ID}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. ``partitions`` in the order of their numbers; empty with an ``error_code``.

    ``topic_id`` is `ZERO_UUID` if the broker reports none (metadata below v10).
    """

    name: str
    topic_id: bytes = ZERO_UUID
    error_code: int = error_codes.NONE
    is_internal: bool = False
    partitions: tuple[PartitionInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers and topics as of the last responses. A newer cluster shares the topics that did not change."""

    nodes: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    topics: Layered[str, Topic] = field(default_factory=Layered)
    cluster_id: str | None = None
    controller_id: int | None = None

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """The metadata of one partition; None if it, or its topic, is not known."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            return None
        number, partitions = partition.partition, topic.partitions
        if number < len(partitions) and partitions[number].partition == number:
            return partitions[number]
        return next((info for info in partitions if info.partition == number), None)

    def leader(self, partition: TopicPartition) -> int | None:
        """The id of the broker that leads it; None while no leader is known."""
        info = self.partition(partition)
        return None if info is None else info.leader

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """A topic's partitions; empty when it is not known."""
        known = self.topics.get(topic)
        return () if known is None else known.partitions

    def names_of(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        """The topics with these ids, as far as they are known. All topics are looked at, once."""
        wanted = frozenset(topic_ids) - {ZERO_UUID}
        if not wanted:
            return {}
        return {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id in wanted}

    def is_made_anew(self, name: str, topic_id: bytes) -> bool:
        """True if the name belongs to a topic with another id now."""
        known = self.topics.get(name)
        return known is not None and known.topic_id not in (ZERO_UUID, topic_id)

    def says_as(self, other: Cluster) -> bool:
        """True if it equals ``other``, from which it was made. No topic is compared for it."""
        return self.topics is other.topics and (self.nodes, self.cluster_id, self.controller_id) == (
            other.nodes,
            other.cluster_id,
            other.controller_id,
        )


def apply(cluster: Cluster, response: MetadataResponse, requested: Iterable[str] | None) -> Cluster:
    """The cluster after a response without an error for the whole.

    It costs as much as the answer is long, however many topics are known: `Topic` objects, and the mapping of them, are
    the very same as before where the answer says nothing new.

    Args:
        requested: the topics that were requested, which the response replaces; None if it was about all
            topics, so those that it does not contain are gone.
    """
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    known = cluster.topics
    listed = {
        each.name: _topic(known.get(each.name), each) for each in response.topics if each.name is not None
    }
    news = {name: topic for name, topic in listed.items() if known.get(name) is not topic}
    if requested is None and not known.keys() <= listed.keys():
        topics = Layered(listed)
    else:
        topics = known.changed(news) if news else known
    return Cluster(
        MappingProxyType(nodes),
        topics,
        response.cluster_id if response.cluster_id is not None else cluster.cluster_id,
        response.controller_id if response.controller_id >= 0 else None,
    )


def forget_brokers(cluster: Cluster) -> Cluster:
    """The cluster that remains when brokers are looked up again at the bootstrap addresses (KIP-899, KIP-1102).

    Topics stay known, so that they are not taken for deleted. Leaders and epochs go: the next broker may be of another
    cluster, or of the same one restored from a copy, and its metadata count.
    """
    known = [(name, each.partition) for name, topic in cluster.topics.items() for each in topic.partitions]
    return Cluster(topics=forget_epochs(cluster, known).topics, cluster_id=cluster.cluster_id)


def forget_epochs(cluster: Cluster, partitions: Iterable[tuple[str, int]]) -> Cluster:
    """The cluster without what is known of these partitions' leaders: who answers next is believed."""
    gone = set(partitions)
    topics = {
        name: replace(
            topic,
            partitions=tuple(
                replace(each, leader=None, leader_epoch=None) if (name, each.partition) in gone else each
                for each in topic.partitions
            ),
        )
        for name in {name for name, _ in gone}
        if (topic := cluster.topics.get(name)) is not None
    }
    return replace(cluster, topics=cluster.topics.changed(topics))


def follow(
    cluster: Cluster, partition: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]
) -> Cluster:
    """The cluster after a broker that lost ``partition`` has reported the present leader (KIP-951).

    The same cluster if that is not news (KIP-320: an epoch that is not newer), or if the address of that
    leader is not known.
    """
    topic, known = cluster.topics.get(partition.topic), cluster.partition(partition)
    node = endpoints.get(leader) or cluster.nodes.get(leader)
    if topic is None or known is None or node is None or leader < 0:
        return cluster
    if known.leader_epoch is None or epoch <= known.leader_epoch:
        return cluster
    moved = replace(known, leader=leader, leader_epoch=epoch)
    partitions = tuple(moved if each is known else each for each in topic.partitions)
    return replace(
        cluster,
        nodes=MappingProxyType({**cluster.nodes, leader: node}),
        topics=cluster.topics.changed({topic.name: replace(topic, partitions=partitions)}),
    )


def _topic(before: Topic | None, answer: MetadataResponseTopic) -> Topic:
    """The topic after a response: the same object as before if nothing changed."""
    assert answer.name is not None
    name = answer.name
    known: dict[int, PartitionInfo] = {}
    if before is not None and (
        before.topic_id == answer.topic_id or ZERO_UUID in (before.topic_id, answer.topic_id)
    ):
        known = {info.partition: info for info in before.partitions}
        if known and answer.error_code in _PASSING:
            # One broker's trouble is no reason to forget where the leaders are.
            return before
    partitions = sorted(
        (_partition(answer, known.get(p.partition_index), p) for p in answer.partitions),
        key=lambda p: p.partition,
    )
    topic = Topic(name, answer.topic_id, answer.error_code, answer.is_internal, tuple(partitions))
    return before if before == topic else topic


def _partition(
    topic: MetadataResponseTopic, before: PartitionInfo | None, answer: MetadataResponsePartition
) -> PartitionInfo:
    epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
    if (
        before is not None
        and epoch is not None
        and before.leader_epoch is not None
        and epoch < before.leader_epoch
    ):
        return before
    return PartitionInfo(
        topic.name or "",
        answer.partition_index,
        answer.leader_id if answer.leader_id >= 0 else None,
        epoch,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
        topic.topic_id,
    )
