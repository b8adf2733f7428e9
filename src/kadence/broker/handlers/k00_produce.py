"""Produce (0).

v3 record batches (magic 2)  v5 log start offset  v7 zstd  v8 error messages  v9 flexible
v10 the new leader (KIP-951)  v13 topic ids
v0-2 are offered and not served: librdkafka leaves compression off unless 0 is in the range (KAFKA-18659)
"""

from __future__ import annotations

from kadence.broker.cluster import Partition, Topic
from kadence.broker.fetching import check_leader, wake
from kadence.broker.incoming import BatchError, stamp_append_time, validate_produced
from kadence.broker.service import Call, Handler, Services
from kadence.clock import wall_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kadence.records import BatchHeader

__all__ = ["HANDLER"]

_FIRST_LEADER_HINT_VERSION = 10
_FIRST_TOPIC_ID_VERSION = 13


def handle(services: Services, call: Call) -> None:
    request: ProduceRequest = call.message
    appended: list[Partition] = []
    leaders: set[int] = set()
    responses: list[TopicProduceResponse] = []
    for data in request.topic_data:
        topic, missing = _topic(services, call, data)
        results = [
            _partition(services, call, topic, missing, each, appended, leaders)
            for each in data.partition_data
        ]
        responses.append(
            TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=results)
        )
    nodes = services.cluster.nodes
    if request.acks == 0:
        _end_silently(call, responses)
    else:
        call.reply(
            ProduceResponse(
                responses=responses,
                node_endpoints=[
                    NodeEndpoint(node_id=each, host=nodes[each].host, port=nodes[each].port)
                    for each in sorted(leaders)
                ],
            )
        )
    for partition in appended:
        wake(partition)


def _end_silently(call: Call, responses: list[TopicProduceResponse]) -> None:
    """A client that wants no answer learns of an error only by losing its connection."""
    for topic in responses:
        for each in topic.partition_responses:
            if each.error_code != codes.NONE:
                name = codes.name(each.error_code)
                call.connection.close(f"produce with acks=0 to {topic.name}-{each.index} failed: {name}")
                return
    call.finish()


def _topic(services: Services, call: Call, data: TopicProduceData) -> tuple[Topic | None, int]:
    if call.version >= _FIRST_TOPIC_ID_VERSION:
        return services.cluster.topic_by_id(data.topic_id), codes.UNKNOWN_TOPIC_ID
    return services.cluster.topics.get(data.name), codes.UNKNOWN_TOPIC_OR_PARTITION


def _partition(
    services: Services,
    call: Call,
    topic: Topic | None,
    missing: int,
    data: PartitionProduceData,
    appended: list[Partition],
    leaders: set[int],
) -> PartitionProduceResponse:
    result = PartitionProduceResponse(index=data.index, base_offset=-1)
    partition = None if topic is None else topic.partition(data.index)
    result.error_code = missing if topic is None else check_leader(partition, call.node_id, -1)
    if call.message.acks not in (-1, 0, 1):
        result.error_code = codes.INVALID_REQUIRED_ACKS
    moved = result.error_code == codes.NOT_LEADER_OR_FOLLOWER
    if moved and partition is not None and call.version >= _FIRST_LEADER_HINT_VERSION:
        result.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
        )
        leaders.add(partition.leader_id)
    if result.error_code != codes.NONE or partition is None:
        return result
    try:
        batch, header = _receive(services, partition, data)
        known = partition.producers.check(header)
    except BatchError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    result.log_start_offset = partition.log.start_offset
    if known is not None:
        # A retry of what is there already: the same answer again (KIP-98).
        result.base_offset = known
        return result
    if partition.topic.config.get("message.timestamp.type") == "LogAppendTime":
        result.log_append_time_ms = wall_ms()
        batch = stamp_append_time(batch, result.log_append_time_ms)
        header = BatchHeader.parse(batch)
    result.base_offset = partition.log.append(batch, header, partition.leader_epoch)
    partition.producers.appended(header, result.base_offset)
    retention = services.topic_setting(partition.topic, "retention.bytes", services.settings.retention_bytes)
    if retention >= 0:
        partition.log.retain(retention)
    appended.append(partition)
    return result


def _receive(
    services: Services, partition: Partition, data: PartitionProduceData
) -> tuple[memoryview, BatchHeader]:
    batch = memoryview(b"" if data.records is None else data.records)
    limit = services.topic_setting(partition.topic, "max.message.bytes", services.settings.message_max_bytes)
    return batch, validate_produced(batch, limit)


def refuse(call: Call, code: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in call.message.topic_data
        ]
    )


HANDLER = Handler(ProduceRequest, handle, refuse, offered=(0, ProduceRequest.MAX_VERSION))
