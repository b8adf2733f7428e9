"""TxnOffsetCommit: offsets that count once their transaction is committed.

v3  the group's member (KIP-447); older producers do not name it, and are not checked for it

The shell has asked the transaction coordinator whether the producer may write here. The offsets are kept beside the
committed ones until `GroupCoordinator.end_transaction`. They are stored without a topic id, as by
Kafka 4.3.1.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.offsets.commit import size_code
from kadence_broker.coordinator.shard import Shard

__all__ = ["commit"]


def commit(shard: Shard, now: int, caller: Caller, request: TxnOffsetCommitRequest) -> None:
    """Keep the offsets as pending ones of the producer. Each partition is checked alone, the group once for all."""
    sizes = ((topic.name, topic.partitions) for topic in request.topics)
    group_code = (
        _ask_group(shard, caller, request)
        or _ask_for_partitions(shard, request)
        or size_code(shard, request.group_id, sizes)
    )
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        image = shard.topics.by_name(topic.name)
        partitions: list[TxnOffsetCommitResponsePartition] = []
        for each in topic.partitions:
            code = codes.UNKNOWN_TOPIC_OR_PARTITION
            if image is not None and 0 <= each.partition_index < image.partitions:
                code = group_code or _commit(shard, now, request, topic.name, each)
            partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        if partitions:  # as in Kafka: topics without partitions are left out
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    shard.answer(caller, TxnOffsetCommitResponse(topics=topics))


def _ask_group(shard: Shard, caller: Caller, request: TxnOffsetCommitRequest) -> int:
    group = shard.groups.get(request.group_id)
    if group is None:
        return codes.ILLEGAL_GENERATION if request.generation_id >= 0 else codes.NONE
    return group.commit_code(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        caller.version,
        transactional=True,
    )


def _ask_for_partitions(shard: Shard, request: TxnOffsetCommitRequest) -> int:
    """The code for a commit of these partitions: one refused partition refuses all, as in Kafka."""
    group = shard.groups.get(request.group_id)
    if group is None:
        return codes.NONE
    for topic in request.topics:
        image = shard.topics.by_name(topic.name)
        for each in topic.partitions:
            if image is None or not 0 <= each.partition_index < image.partitions:
                continue
            code = group.partition_code(
                request.member_id,
                request.generation_id,
                image.topic_id,
                each.partition_index,
                transactional=True,
            )
            if code != codes.NONE:
                return code
    return codes.NONE


def _commit(
    shard: Shard,
    now: int,
    request: TxnOffsetCommitRequest,
    topic: str,
    each: TxnOffsetCommitRequestPartition,
) -> int:
    metadata = each.committed_metadata or ""
    if len(metadata) > shard.config.offset_metadata_max_bytes:
        return codes.OFFSET_METADATA_TOO_LARGE
    shard.write(
        OffsetCommitKey(request.group_id, topic, each.partition_index),
        OffsetCommitValue(
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=shard.wall(now),
            expire_timestamp=-1,
        ),
        producer=(request.producer_id, request.producer_epoch),
    )
    return codes.NONE
