"""OffsetFetch: what has been committed. An unknown group, topic or partition is offset -1, not an error.

v1-7 one group;  v2 topics null = all;  v7 require_stable;  v8+ several groups;  v9 member id and epoch
v10 topic ids (the shell translates them)
"""

from __future__ import annotations

from kadence.coordinator.effects import Caller
from kadence.coordinator.shard import Shard
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

__all__ = ["fetch"]


def fetch(shard: Shard, now: int, caller: Caller, request: OffsetFetchRequest) -> None:
    """Committed offsets of one group or of several, in the shape of the caller's version."""
    if caller.version >= 8:
        shard.answer(caller, OffsetFetchResponse(groups=[_group(shard, each) for each in request.groups]))
        return
    wanted = (
        None if request.topics is None else [(each.name, each.partition_indexes) for each in request.topics]
    )
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    metadata=metadata,
                    error_code=codes.NONE,
                )
                for index, offset, epoch, metadata in partitions
            ],
        )
        for name, partitions in _committed(shard, request.group_id, wanted)
    ]
    shard.answer(caller, OffsetFetchResponse(error_code=codes.NONE, topics=topics))


def _group(shard: Shard, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    wanted = None if group.topics is None else [(each.name, each.partition_indexes) for each in group.topics]
    ids = {each.name: each.topic_id for each in group.topics or []}
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=codes.NONE,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                topic_id=ids.get(name, ZERO_UUID),
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        metadata=metadata,
                        error_code=codes.NONE,
                    )
                    for index, offset, epoch, metadata in partitions
                ],
            )
            for name, partitions in _committed(shard, group.group_id, wanted)
        ],
    )


_Position = tuple[int, int, int, str]
"""Partition, offset, leader epoch, metadata."""


def _committed(
    shard: Shard, group_id: str, wanted: list[tuple[str, list[int]]] | None
) -> list[tuple[str, list[_Position]]]:
    if wanted is None:
        everything: dict[str, list[int]] = {}
        for topic, partition in shard.offsets.of_group(group_id):
            everything.setdefault(topic, []).append(partition)
        wanted = list(everything.items())
    return [
        (topic, [_position(shard, group_id, topic, partition) for partition in partitions])
        for topic, partitions in wanted
    ]


def _position(shard: Shard, group_id: str, topic: str, partition: int) -> _Position:
    committed = shard.offsets.get(group_id, topic, partition)
    if committed is None:
        return partition, -1, -1, ""
    return partition, committed.offset, committed.leader_epoch, committed.metadata
