"""ShareGroupDescribe: a share group as an administrator sees it."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol import share_group_describe as api
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.partitions import Partitions
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.lookup import share_group
from kadence_broker.coordinator.share.member import ShareMember

__all__ = ["describe"]

_ASSIGNOR = "simple"


def describe(shard: Shard, now: int, caller: Caller, request: api.ShareGroupDescribeRequest) -> None:
    """Describe each group named, or return its error code."""
    groups = [_describe(shard, group_id) for group_id in request.group_ids]
    shard.answer(caller, api.ShareGroupDescribeResponse(groups=groups))


def _describe(shard: Shard, group_id: str) -> api.DescribedGroup:
    if shard.config.share.version < 1:
        return api.DescribedGroup(error_code=codes.UNSUPPORTED_VERSION, group_id=group_id)
    if not group_id:
        return api.DescribedGroup(error_code=codes.INVALID_GROUP_ID, group_id=group_id)
    try:
        group = share_group(shard, group_id)
    except RefusedError as problem:
        return api.DescribedGroup(error_code=problem.code, error_message=problem.message, group_id=group_id)
    return api.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=_ASSIGNOR,
        members=[_member(shard, member) for member in group.members.values()],
    )


def _member(shard: Shard, member: ShareMember) -> api.Member:
    return api.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(shard, member.assigned),
    )


def _assignment(shard: Shard, partitions: Partitions) -> api.Assignment:
    """Partitions as the response has them; deleted topics, which have no name, are left out."""
    return api.Assignment(
        [
            api.TopicPartitions(topic_id, image.name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (image := shard.topics.by_id(topic_id)) is not None
        ]
    )
