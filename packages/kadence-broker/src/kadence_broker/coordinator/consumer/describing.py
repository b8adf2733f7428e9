"""ConsumerGroupDescribe: a KIP-848 group as an administrator sees it.

v1  member type: whether a member speaks the classic protocol (KIP-1099)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kadence.protocol import consumer_group_describe as api
from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import consumer_group
from kadence_broker.coordinator.consumer.member import Member
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard

__all__ = ["describe"]


def describe(shard: Shard, now: int, caller: Caller, request: api.ConsumerGroupDescribeRequest) -> None:
    """Describe each group named, or return its error code."""
    groups = [_describe(shard, group_id) for group_id in request.group_ids]
    shard.answer(caller, api.ConsumerGroupDescribeResponse(groups=groups))


def _describe(shard: Shard, group_id: str) -> api.DescribedGroup:
    if not group_id:
        return api.DescribedGroup(error_code=codes.INVALID_GROUP_ID, group_id=group_id)
    try:
        group = consumer_group(shard, group_id)
    except RefusedError as problem:
        return api.DescribedGroup(error_code=problem.code, error_message=problem.message, group_id=group_id)
    return api.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(shard.config.consumer_assignors[0]),
        members=[_member(shard, group, member) for member in group.members.values()],
    )


def _member(shard: Shard, group: ConsumerGroup, member: Member) -> api.Member:
    return api.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(shard, _held(member)),
        target_assignment=_assignment(shard, group.target.get(member.member_id, {})),
        member_type=1 if member.classic is None else 0,
    )


def _held(member: Member) -> dict[bytes, set[int]]:
    """The member's assigned partitions, and those that it has not revoked yet."""
    held: dict[bytes, set[int]] = {}
    for partitions in (member.assigned, member.revoking):
        for topic_id, epochs in partitions.items():
            held.setdefault(topic_id, set()).update(epochs)
    return held


def _assignment(shard: Shard, partitions: Mapping[bytes, Iterable[int]]) -> api.Assignment:
    """Partitions as the response has them; deleted topics, which have no name, are left out."""
    return api.Assignment(
        [
            api.TopicPartitions(topic_id, image.name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (image := shard.topics.by_id(topic_id)) is not None
        ]
    )
