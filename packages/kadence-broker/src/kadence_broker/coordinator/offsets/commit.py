"""OffsetCommit: the members and partitions that offsets may be committed for.

v2-4  the client's own retention time    v6  leader epoch (KIP-320)    v7  group.instance.id
v9    KIP-848's errors                   v10 topic ids
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequestPartition
from kadence_broker.coordinator.classic.group import ClassicGroup
from kadence_broker.coordinator.classic.parking import rearm_session
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.topics import TopicImage

__all__ = ["commit", "size_code"]

_FIRST_TOPIC_ID_VERSION = 10
_BATCH_HEADER = 61
_SHORTEST_RECORD = 62
"""Bytes of an offset without metadata, in a group and a topic with empty names: key 10, value 42, 10 around them."""


def commit(shard: Shard, now: int, caller: Caller, request: OffsetCommitRequest) -> None:
    """Keep the offsets of a member, or of a client that assigns partitions by hand (generation < 0).

    Each partition is checked alone: one that does not exist is refused whatever the group's code is. The group is
    asked, and created, only if some partition exists.
    """
    by_id = caller.version >= _FIRST_TOPIC_ID_VERSION
    images = [
        shard.topics.by_id(topic.topic_id) if by_id else shard.topics.by_name(topic.name)
        for topic in request.topics
    ]
    code = codes.NONE
    if any(_exists(image, each) for each, image in _partitions(request.topics, images)):
        code = _ask_group(shard, now, caller, request) or _ask_for_partitions(shard, request, images)
    sizes = (
        (image.name, topic.partitions)
        for topic, image in zip(request.topics, images, strict=True)
        if image is not None
    )
    code = code or size_code(shard, request.group_id, sizes)
    missing = codes.UNKNOWN_TOPIC_ID if by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
    topics: list[OffsetCommitResponseTopic] = []
    for topic, image in zip(request.topics, images, strict=True):
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=(
                    _commit(shard, now, request, image, each, code)
                    if image is not None and _exists(image, each)
                    else missing
                    if image is None
                    else codes.UNKNOWN_TOPIC_OR_PARTITION
                ),
            )
            for each in topic.partitions
        ]
        if partitions:  # as in Kafka: topics without partitions are left out
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
    shard.answer(caller, OffsetCommitResponse(topics=topics))


def _partitions(
    topics: list[OffsetCommitRequestTopic], images: list[TopicImage | None]
) -> Iterable[tuple[OffsetCommitRequestPartition, TopicImage | None]]:
    for topic, image in zip(topics, images, strict=True):
        for each in topic.partitions:
            yield each, image


def _exists(image: TopicImage | None, each: OffsetCommitRequestPartition) -> bool:
    return image is not None and 0 <= each.partition_index < image.partitions


def _ask_group(shard: Shard, now: int, caller: Caller, request: OffsetCommitRequest) -> int:
    """The code for a commit by this member. A commit of a classic group's member is a sign of life."""
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation >= 0:
            return codes.GROUP_ID_NOT_FOUND if caller.version >= 9 else codes.ILLEGAL_GENERATION
        return codes.NONE
    code = group.commit_code(
        request.member_id, request.group_instance_id, generation, caller.version, transactional=False
    )
    if code == codes.NONE and isinstance(group, ClassicGroup):
        member = group.members.get(request.member_id)
        if member is not None:
            rearm_session(shard, now, group, member)
    return code


def _ask_for_partitions(shard: Shard, request: OffsetCommitRequest, images: list[TopicImage | None]) -> int:
    """The code for a commit of these partitions: one refused partition refuses all, as in Kafka."""
    group, epoch = shard.groups.get(request.group_id), request.generation_id_or_member_epoch
    for each, image in _partitions(request.topics, images) if group is not None else ():
        if image is not None and _exists(image, each):
            assert group is not None
            code = group.partition_code(request.member_id, epoch, image.topic_id, each.partition_index)
            if code != codes.NONE:
                return code
    return codes.NONE


def size_code(
    shard: Shard,
    group_id: str,
    topics: Iterable[tuple[str, Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition]]],
) -> int:
    """The code for the size: UNKNOWN_SERVER_ERROR if the coordinator's topic does not take so much at once.

    Args:
        topics: names of topics, with the offsets to commit.
    """
    size = _BATCH_HEADER
    for name, partitions in topics:
        each_bytes = _SHORTEST_RECORD + _utf8_bytes(group_id) + _utf8_bytes(name)
        for each in partitions:
            note_bytes = _utf8_bytes(each.committed_metadata or "")
            # The length field of longer metadata takes a byte more.
            size += each_bytes + note_bytes + (note_bytes >= 127)
    return codes.UNKNOWN_SERVER_ERROR if size > shard.config.max_batch_bytes else codes.NONE


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _commit(
    shard: Shard,
    now: int,
    request: OffsetCommitRequest,
    image: TopicImage,
    each: OffsetCommitRequestPartition,
    code: int,
) -> int:
    """Keep one offset, unless the group's ``code`` or the length of its metadata forbids it."""
    metadata = each.committed_metadata or ""
    if code != codes.NONE:
        return code
    if len(metadata) > shard.config.offset_metadata_max_bytes:
        return codes.OFFSET_METADATA_TOO_LARGE
    committed_at, retention = shard.wall(now), request.retention_time_ms
    value = OffsetCommitValue(
        offset=each.committed_offset,
        leader_epoch=each.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp=committed_at,
        expire_timestamp=add_ms(committed_at, retention) if retention >= 0 else -1,
        topic_id=image.topic_id,
    )
    shard.write(OffsetCommitKey(request.group_id, image.name, each.partition_index), value)
    return codes.NONE
