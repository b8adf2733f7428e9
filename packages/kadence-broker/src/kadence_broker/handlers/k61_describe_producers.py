"""DescribeProducers (61): the producers that a partition remembers, and their open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kadence_broker.cluster import is_valid_topic_name
from kadence_broker.fetching import check_leader
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]
_PARTITION_US: Final = 20
_PRODUCER_US: Final = 5
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Once an answer is so long, further partitions are refused: four bytes of a request ask for thousands."""


def handle(services: Services, call: Call) -> Steps:
    topics: list[TopicResponse] = []
    for topic in call.message.topics:
        partitions: list[Any] = []
        for index in topic.partition_indexes:
            if call.answer_bytes < _MOST_BYTES:
                result = _describe(services, call, topic.name, index)
            else:
                words = f"One answer has {_MOST_BYTES} bytes at most; ask again for this."
                result = PartitionResponse(
                    partition_index=index, error_code=codes.POLICY_VIOLATION, error_message=words
                )
            partitions.append(call.element(result))
            yield _PARTITION_US + len(result.active_producers) * _PRODUCER_US
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(services: Services, call: Call, topic: str, index: int) -> PartitionResponse:
    if not is_valid_topic_name(topic):
        code, words = codes.INVALID_TOPIC_EXCEPTION, "No topic can have this name."
        return PartitionResponse(partition_index=index, error_code=code, error_message=words)
    partition = services.cluster.partition(topic, index)
    code = check_leader(partition, call.node_id, -1)
    if partition is None or code != codes.NONE:
        missing = None if topic in services.cluster.topics else "This topic does not exist."
        return PartitionResponse(partition_index=index, error_code=code, error_message=missing)
    return PartitionResponse(
        partition_index=index,
        error_code=codes.NONE,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.used_at,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=-1 if each.transaction_from is None else each.transaction_from,
            )
            for each in partition.producers.known.values()
        ],
    )


def _for_each(call: Call, describe: Callable[[str, int], PartitionResponse]) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[describe(topic.name, index) for index in topic.partition_indexes]
            )
            for topic in call.message.topics
        ]
    )


def refuse(call: Call, code: int) -> DescribeProducersResponse:
    return _for_each(call, lambda _topic, index: PartitionResponse(partition_index=index, error_code=code))


HANDLER = Handler(DescribeProducersRequest, handle, refuse)
