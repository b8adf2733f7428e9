"""Metadata (3).

v0 an empty list means all topics  v1 null means all, none means none; controller  v4 auto creation
v5 offline replicas  v7 leader epochs  v9 flexible  v10 topic ids  v12 topics by id  v13 top-level error
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.wire import ZERO_UUID
from kadence_broker.cluster import Topic, is_valid_topic_name
from kadence_broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]

_FIRST_ID_VERSION = 12
"""Versions 10 and 11 have room for ids, and may only ask for names."""
_MOST_CREATED: Final = 1_000
"""Partitions that one request makes by asking for topics; clients ask for the others again."""
_TOPIC_US: Final = 20
_PARTITION_US: Final = 10


def handle(services: Services, call: Call) -> Steps:
    cluster = services.cluster
    asked: list[MetadataRequestTopic] | None = call.message.topics
    if call.version < _FIRST_ID_VERSION and any(
        each.name is None or each.topic_id != ZERO_UUID for each in asked or ()
    ):
        return refuse(call, codes.INVALID_REQUEST)
    if asked is None or (call.version == 0 and not asked):
        found: Iterator[MetadataResponseTopic] = map(_describe, list(cluster.topics.values()))
    else:
        by_id = [each for each in asked if each.topic_id != ZERO_UUID]
        # Names beside ids are ignored, and a repeated name is answered once, as in Kafka.
        wanted = {(each.name, each.topic_id): each for each in by_id or asked}
        most = len(cluster.topics) + max(_MOST_CREATED // services.settings.num_partitions, 1)
        found = (_find(services, call, each, most) for each in wanted.values())
    topics: list[Any] = []
    for topic in found:
        if call.message.include_topic_authorized_operations and topic.error_code == codes.NONE:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
        topics.append(call.element(topic))
        yield _TOPIC_US + len(topic.partitions) * _PARTITION_US
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port)
            for each in cluster.nodes.values()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )
    if call.message.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _find(
    services: Services, call: Call, asked: MetadataRequestTopic, most_topics: int
) -> MetadataResponseTopic:
    cluster = services.cluster
    if asked.topic_id != ZERO_UUID:
        topic = cluster.topic_by_id(asked.topic_id)
        if topic is not None:
            return _describe(topic)
        return MetadataResponseTopic(error_code=codes.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
    name = asked.name or ""
    known = cluster.topics.get(name)
    if known is not None:
        return _describe(known)
    if not is_valid_topic_name(name):
        return MetadataResponseTopic(error_code=codes.INVALID_TOPIC_EXCEPTION, name=name)
    may_create = call.version < 4 or call.message.allow_auto_topic_creation
    may_create = may_create and services.settings.auto_create_topics and len(cluster.topics) < most_topics
    if may_create and not cluster.collides(name):
        try:
            return _describe(cluster.create_topic(name, services.settings.num_partitions))
        except OSError:
            return MetadataResponseTopic(error_code=codes.KAFKA_STORAGE_ERROR, name=name)
    return MetadataResponseTopic(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _describe(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=codes.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=codes.NONE if each.leader_id >= 0 else codes.LEADER_NOT_AVAILABLE,
                partition_index=each.index,
                leader_id=each.leader_id,
                leader_epoch=each.leader_epoch,
                replica_nodes=[each.replica_id],
                isr_nodes=[each.replica_id],
                offline_replicas=[] if each.leader_id >= 0 else [each.replica_id],
            )
            for each in topic.partitions
        ],
    )


def refuse(call: Call, code: int) -> MetadataResponse:
    """Errors stand beside topics, and from v13 on the whole."""
    topics = [
        MetadataResponseTopic(error_code=code, name=each.name or "", topic_id=each.topic_id)
        for each in call.message.topics or []
    ]
    return MetadataResponse(topics=topics, error_code=code)


HANDLER = Handler(MetadataRequest, handle, refuse)
