"""Configurations, clusters and what brokers tell of them, for tests under virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worlds.hand import BackgroundEvents

from kadence.config import ConsumerConfig
from kadence.connection.cluster import Cluster, Topic
from kadence.connection.request import Completed, Request
from kadence.consumer.positions.metadata import MetadataManager
from kadence.errors import DisconnectedError
from kadence.layered import Layered
from kadence.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.types import PartitionInfo, TopicPartition

TOPIC_ID = b"i" * 16
NODE = 7
"""Who coordinates groups, and leads what `cluster_of` makes."""


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def id_of(name: str) -> bytes:
    """The topic id of a topic of this name."""
    return name.encode().ljust(16, b"\1")[:16]


def name_of(topic_id: bytes) -> str:
    """The name of the topic of this id."""
    return topic_id.rstrip(b"\1").decode()


def cluster_of(topics: Mapping[str, int]) -> Cluster:
    """A cluster whose topics have so many partitions."""
    return Cluster(
        topics=Layered(
            {
                name: Topic(
                    name,
                    topic_id=id_of(name),
                    partitions=tuple(PartitionInfo(name, n, NODE, 0, (NODE,), (NODE,)) for n in range(count)),
                )
                for name, count in topics.items()
            }
        )
    )


class FakeMetadata:
    """What managers see of the cluster."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self.cluster = cluster_of(topics or {})
        self.wanted: frozenset[str] = frozenset()
        self.nameless: frozenset[bytes] = frozenset()
        self.updates = 0

    def want(self, topics: frozenset[str]) -> None:
        self.wanted = topics

    def identify(self, topic_ids: frozenset[bytes]) -> None:
        self.nameless = topic_ids

    def request_update(self, now: int) -> None:
        del now
        self.updates += 1


def config(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig.parse(
        **{"bootstrap_servers": "localhost:9092", "auto_offset_reset": "earliest", **settings}
    )


def told(
    leaders: Mapping[TopicPartition, int], *, epoch: int = 0, errors: Mapping[str, int] | None = None
) -> MetadataResponse:
    """Metadata in which these brokers lead these partitions."""
    topics: dict[str, MetadataResponseTopic] = {}
    for (name, number), leader in leaders.items():
        topic = topics.setdefault(name, MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=[]))
        topic.partitions.append(
            MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[], isr_nodes=[]
            )
        )
    for name, code in (errors or {}).items():
        topics[name] = MetadataResponseTopic(name=name, error_code=code, partitions=[])
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=list(topics.values()), controller_id=1)


def answer(request: Request, response: object, now: int, *, loan: Any = None, version: int = 13) -> Completed:
    return Completed(request, response, None, version, now, loan)


def lost(request: Request, now: int) -> Completed:
    return Completed(request, None, DisconnectedError("gone"), -1, now, None)


def knowing(
    leaders: Mapping[TopicPartition, int], background_events: BackgroundEvents, now: int = 0, **settings: Any
) -> MetadataManager:
    """A metadata manager that has been told."""
    manager = MetadataManager(config(**settings), background_events)
    manager.need("test", frozenset(partition.topic for partition in leaders))
    (request,) = manager.poll(now).requests
    manager.on_response(now, answer(request, told(leaders), now))
    return manager
