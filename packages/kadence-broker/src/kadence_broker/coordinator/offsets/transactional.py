"""TxnOffsetCommit: offsets that count once their transaction is committed.

v3  the group's member (KIP-447); older producers do not name it, and are not checked for it
v6  topic ids instead of names, and the errors of KIP-848 (KIP-1319)

The shell has asked the transaction coordinator whether the producer may write here. The offsets are kept beside the
committed ones until `GroupCoordinator.end_transaction`.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.offsets.commit import size_code
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.topics import TopicImage

__all__ = ["FIRST_TOPIC_ID_VERSION", "commit"]

FIRST_TOPIC_ID_VERSION = 6

_Asked = list[tuple[TxnOffsetCommitRequestTopic, TopicImage | None]]
"""The topics of a request, as the cluster knows them."""


def commit(shard: Shard, now: int, caller: Caller, request: TxnOffsetCommitRequest) -> None:
    """Keep the offsets as pending ones of the producer. Each partition is checked alone, the group once for all."""
    by_id = caller.version >= FIRST_TOPIC_ID_VERSION
    asked: _Asked = [
        (each, shard.topics.by_id(each.topic_id) if by_id else shard.topics.by_name(each.name))
        for each in request.topics
    ]
    sizes = ((image.name, topic.partitions) for topic, image in asked if image is not None)
    code = _ask_group(shard, caller, request) or _ask_for_partitions(shard, request, asked)
    if code == codes.STALE_MEMBER_EPOCH and not by_id:
        code = codes.ILLEGAL_GENERATION
    code = code or size_code(shard, request.group_id, sizes)
    missing = codes.UNKNOWN_TOPIC_ID if by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic, image in asked:
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=missing if image is None else _commit(shard, now, request, image, each, code),
            )
            for each in topic.partitions
        ]
        if partitions:  # as in Kafka: topics without partitions are left out
            topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
    shard.answer(caller, TxnOffsetCommitResponse(topics=topics))


def _ask_group(shard: Shard, caller: Caller, request: TxnOffsetCommitRequest) -> int:
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation < 0:
            return codes.NONE
        by_id = caller.version >= FIRST_TOPIC_ID_VERSION
        return codes.GROUP_ID_NOT_FOUND if by_id else codes.ILLEGAL_GENERATION
    return group.commit_code(
        request.member_id, request.group_instance_id, generation, caller.version, transactional=True
    )


def _ask_for_partitions(shard: Shard, request: TxnOffsetCommitRequest, asked: _Asked) -> int:
    """The code for a commit of these partitions: one refused partition refuses all, as in Kafka."""
    group, epoch = shard.groups.get(request.group_id), request.generation_id_or_member_epoch
    for topic, image in asked if group is not None else ():
        for each in topic.partitions:
            if image is None or not _exists(image, each):
                continue
            assert group is not None
            code = group.partition_code(request.member_id, epoch, image.topic_id, each.partition_index)
            if code != codes.NONE:
                return code
    return codes.NONE


def _exists(image: TopicImage, each: TxnOffsetCommitRequestPartition) -> bool:
    return 0 <= each.partition_index < image.partitions


def _commit(
    shard: Shard,
    now: int,
    request: TxnOffsetCommitRequest,
    image: TopicImage,
    each: TxnOffsetCommitRequestPartition,
    code: int,
) -> int:
    """Keep one offset, unless the group's ``code`` or the length of its metadata forbids it."""
    metadata = each.committed_metadata or ""
    if not _exists(image, each):
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if code != codes.NONE:
        return code
    if len(metadata) > shard.config.offset_metadata_max_bytes:
        return codes.OFFSET_METADATA_TOO_LARGE
    shard.write(
        OffsetCommitKey(request.group_id, image.name, each.partition_index),
        OffsetCommitValue(
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=shard.wall(now),
            expire_timestamp=-1,
            topic_id=image.topic_id,
        ),
        producer=(request.producer_id, request.producer_epoch),
    )
    return codes.NONE
