"""What tests of the managers of metadata, offsets and fetches share: a cluster told by hand, answers made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.border.messages import Fact
from kadence.consumer.managers.metadata import MetadataManager
from kadence.errors import DisconnectedError
from kadence.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.types import TopicPartition

TOPIC_ID = b"i" * 16


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


def answer(
    request: Request, response: object, now: int, *, lease: Any = None, version: int = 13
) -> Completed:
    return Completed(request, response, None, version, now, lease)


def lost(request: Request, now: int) -> Completed:
    return Completed(request, None, DisconnectedError("gone"), -1, now, None)


class Facts(list[Fact]):
    """An outbox that keeps."""

    def __call__(self, fact: Fact) -> None:
        self.append(fact)


def knowing(
    leaders: Mapping[TopicPartition, int], facts: Facts, now: int = 0, **settings: Any
) -> MetadataManager:
    """A metadata manager that has been told."""
    manager = MetadataManager(config(**settings), facts)
    manager.need("test", frozenset(partition.topic for partition in leaders))
    (request,) = manager.poll(now).requests
    manager.on_response(now, answer(request, told(leaders), now))
    return manager
