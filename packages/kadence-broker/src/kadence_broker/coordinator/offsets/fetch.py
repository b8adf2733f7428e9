"""OffsetFetch: the committed offsets. An unknown group, topic or partition is offset -1, not an error.

v1-7 one group    v2 topics null = all    v7 require_stable (KIP-447)    v8+ several groups
v9 member id and epoch (KIP-848)    v10 topic ids
"""

from __future__ import annotations

from typing import NamedTuple

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kadence.wire import ZERO_UUID
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard

__all__ = ["fetch"]

_FIRST_TOPIC_ID_VERSION = 10


class _Position(NamedTuple):
    """The committed offset of one partition."""

    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = codes.NONE


def fetch(shard: Shard, now: int, caller: Caller, request: OffsetFetchRequest) -> None:
    """Committed offsets of one group or of several, in the shape of the caller's version."""
    if caller.version >= 8:
        groups = [_group(shard, caller.version, each, request.require_stable) for each in request.groups]
        shard.answer(caller, OffsetFetchResponse(groups=groups))
        return
    wanted = (
        _everything(shard, request.group_id)
        if request.topics is None
        else [(each.name, each.partition_indexes) for each in request.topics]
    )
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in _positions(shard, request.group_id, name, indexes, request.require_stable)
            ],
        )
        for name, indexes in wanted
    ]
    shard.answer(caller, OffsetFetchResponse(error_code=codes.NONE, topics=topics))


def _group(
    shard: Shard, version: int, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    group = shard.groups.get(asked.group_id)
    code = codes.NONE if group is None else group.fetch_code(asked.member_id, asked.member_epoch)
    if code != codes.NONE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    by_id = version >= _FIRST_TOPIC_ID_VERSION
    topics: list[OffsetFetchResponseTopics] = []
    if asked.topics is None:
        for name, indexes in _everything(shard, asked.group_id):
            image = shard.topics.by_name(name)
            if image is not None or not by_id:
                topic_id = ZERO_UUID if image is None else image.topic_id
                positions = _positions(shard, asked.group_id, name, indexes, require_stable)
                topics.append(_topic(name, topic_id, positions))
    for topic in asked.topics or ():
        image = shard.topics.by_id(topic.topic_id) if by_id else None
        if by_id and image is None:
            positions = [
                _Position(each, error_code=codes.UNKNOWN_TOPIC_ID) for each in topic.partition_indexes
            ]
        else:
            name = topic.name if image is None else image.name
            positions = _positions(shard, asked.group_id, name, topic.partition_indexes, require_stable)
        topics.append(_topic(topic.name, topic.topic_id, positions))
    return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=codes.NONE, topics=topics)


def _topic(name: str, topic_id: bytes, positions: list[_Position]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=each.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in positions
        ],
    )


def _everything(shard: Shard, group_id: str) -> list[tuple[str, list[int]]]:
    """All partitions that the group has an offset of, by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in shard.offsets.of_group(group_id):
        found.setdefault(topic, []).append(partition)
    return list(found.items())


def _positions(
    shard: Shard, group_id: str, topic: str, indexes: list[int], require_stable: bool
) -> list[_Position]:
    """Offsets of partitions of one topic. ``require_stable``: refuse those that a transaction may still move."""
    positions: list[_Position] = []
    for index in indexes:
        committed = shard.offsets.get(group_id, topic, index)
        if require_stable and shard.offsets.has_pending(group_id, topic, index):
            positions.append(_Position(index, error_code=codes.UNSTABLE_OFFSET_COMMIT))
        elif committed is None:
            positions.append(_Position(index))
        else:
            positions.append(_Position(index, committed.offset, committed.leader_epoch, committed.metadata))
    return positions
