"""DescribeLogDirs (35): how large the partitions of this node are. v2 flexible  v3 error  v4 size of the disk."""

from __future__ import annotations

from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kadence_broker.service import Call, Handler, Services, Steps
from kadence_broker.storage import Partition

__all__ = ["HANDLER"]
_TOPIC_US: Final = 5
_PARTITION_US: Final = 10


def handle(services: Services, call: Call) -> Steps:
    asked: list[DescribableLogDirTopic] | None = call.message.topics
    wanted: dict[str, set[int]] | None = None
    if asked is not None:
        wanted = {}
        for each in asked:
            wanted.setdefault(each.topic, set()).update(each.partitions)
    topics: list[Any] = []
    for topic in list(services.cluster.topics.values()):
        if wanted is not None and topic.name not in wanted:
            continue
        partitions = [
            _describe(each)
            for each in topic.partitions
            if each.replica_id == call.node_id and (wanted is None or each.index in wanted[topic.name])
        ]
        if partitions:
            topics.append(call.element(DescribeLogDirsTopic(name=topic.name, partitions=partitions)))
        yield _TOPIC_US + len(partitions) * _PARTITION_US
    result = DescribeLogDirsResult(error_code=codes.NONE, log_dir=services.cluster.log_dir, topics=topics)
    return DescribeLogDirsResponse(error_code=codes.NONE, results=[result])


def _describe(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size_bytes)


def refuse(_call: Call, code: int) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=code)


HANDLER = Handler(DescribeLogDirsRequest, handle, refuse)
