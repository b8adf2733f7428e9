"""DescribeShareGroupOffsets: where a group's share-partitions begin, and how much of them is left.

v1  lag (KIP-1226)
"""

from __future__ import annotations

from collections.abc import Iterable

from kadence.protocol import describe_share_group_offsets as api
from kadence.protocol import error_codes as codes
from kadence.wire import ZERO_UUID
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.lookup import find_group
from kadence_broker.coordinator.share.state import NO_STATE
from kadence_broker.coordinator.topics import TopicImage

__all__ = ["describe_offsets"]

_UNKNOWN = -1
_MOST = 2**63 - 1
_NO_LEADER = "There is no leader for this topic-partition as we are in the middle of a leadership election."


def describe_offsets(
    shard: Shard, now: int, caller: Caller, request: api.DescribeShareGroupOffsetsRequest
) -> None:
    """Null topics: all that are initialised. Of a group that does not exist there are none: that is no error."""
    groups = [_describe(shard, group) for group in request.groups]
    shard.answer(caller, api.DescribeShareGroupOffsetsResponse(groups=groups))


def _describe(
    shard: Shard, asked: api.DescribeShareGroupOffsetsRequestGroup
) -> api.DescribeShareGroupOffsetsResponseGroup:
    if shard.config.share.version < 1:
        return api.DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, error_code=codes.UNSUPPORTED_VERSION
        )
    if asked.topics is None:
        topics = _all_topics(shard, asked.group_id)
    else:
        existing = [topic for topic in asked.topics if shard.topics.by_name(topic.topic_name) is not None]
        missing = [topic for topic in asked.topics if shard.topics.by_name(topic.topic_name) is None]
        topics = [
            _topic(shard, asked.group_id, image, topic.partitions)
            for topic in existing
            if (image := shard.topics.by_name(topic.topic_name)) is not None
        ]
        topics.extend(_missing(topic) for topic in missing)
    return api.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=topics)


def _all_topics(shard: Shard, group_id: str) -> list[api.DescribeShareGroupOffsetsResponseTopic]:
    group = find_group(shard, group_id)
    if group is None:
        return []
    return [
        _topic(shard, group_id, image, sorted(state.partitions))
        for topic, state in group.initialised.items()
        if (image := shard.topics.by_id(topic)) is not None
    ]


def _topic(
    shard: Shard, group_id: str, image: TopicImage, partitions: Iterable[int]
) -> api.DescribeShareGroupOffsetsResponseTopic:
    return api.DescribeShareGroupOffsetsResponseTopic(
        topic_name=image.name,
        topic_id=image.topic_id,
        partitions=[_partition(shard, group_id, image.topic_id, number) for number in partitions],
    )


def _partition(
    shard: Shard, group_id: str, topic_id: bytes, number: int
) -> api.DescribeShareGroupOffsetsResponsePartition:
    """The lag is the end of the log − start offset − offsets that are done, if all three are known."""
    told = api.DescribeShareGroupOffsetsResponsePartition(
        partition_index=number, start_offset=NO_STATE, leader_epoch=0, lag=_UNKNOWN
    )
    summary = shard.share_state.summary(group_id, topic_id, number)
    if summary is None:
        return told
    told.leader_epoch = summary.leader_epoch
    told.start_offset = summary.start_offset
    if summary.start_offset == NO_STATE or summary.delivery_complete_count == _UNKNOWN:
        return told
    end = shard.share_state.end_offset(topic_id, number)
    if end is None:
        return api.DescribeShareGroupOffsetsResponsePartition(
            partition_index=number,
            error_code=codes.LEADER_NOT_AVAILABLE,
            error_message=_NO_LEADER,
        )
    # An alteration may have set any offset, also one so far below zero that the lag has no place in its field.
    told.lag = min(end - summary.start_offset - summary.delivery_complete_count, _MOST)
    return told


def _missing(
    asked: api.DescribeShareGroupOffsetsRequestTopic,
) -> api.DescribeShareGroupOffsetsResponseTopic:
    """A topic that does not exist: as in Kafka no error, and a lag that nobody has set."""
    return api.DescribeShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            api.DescribeShareGroupOffsetsResponsePartition(partition_index=number, start_offset=NO_STATE)
            for number in asked.partitions
        ],
    )
