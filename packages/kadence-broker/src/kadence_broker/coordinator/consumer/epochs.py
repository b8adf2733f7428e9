"""The rules for raising a group's epoch and for making its target assignment (KIP-848, KIP-1101, KIP-1263).

The epoch rises when a subscription or the membership changes, or when the topics' hash differs. The target follows
with the next heartbeat, but not sooner than the assignment interval after the last one: so a hundred joins cost two
assignments. Until then the group is Assigning.
"""

from __future__ import annotations

from kadence_broker.coordinator.consumer import writing
from kadence_broker.coordinator.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.member import Member
from kadence_broker.coordinator.consumer.reconciliation import Target
from kadence_broker.coordinator.group_settings import is_assignment_due
from kadence_broker.coordinator.metadata_hash import metadata_hash
from kadence_broker.coordinator.shard import Shard

__all__ = ["bump", "bump_if_topics_changed", "make_target_if_due", "target_of"]


def bump(shard: Shard, group: ConsumerGroup) -> None:
    """Raise the epoch: the group has changed."""
    _bump(shard, group, metadata_hash(group.subscribed_topics(), shard.topics))


def bump_if_topics_changed(shard: Shard, group: ConsumerGroup) -> None:
    """Raise the epoch if the topics have changed since the last check."""
    if group.topics_version != shard.topics.version:
        now_hash = metadata_hash(group.subscribed_topics(), shard.topics)
        group.topics_version = shard.topics.version
        if now_hash != group.metadata_hash:
            _bump(shard, group, now_hash)


def _bump(shard: Shard, group: ConsumerGroup, now_hash: int) -> None:
    writing.write_epoch(shard, group.group_id, group.epoch + 1, now_hash)
    group.topics_version = shard.topics.version


def make_target_if_due(shard: Shard, now: int, group: ConsumerGroup, present: Member) -> None:
    """Make a new target if the group has changed since the last one and the interval is over.

    Args:
        present: the member whose heartbeat is handled.
    """
    if group.epoch <= group.target_epoch:
        return
    time_of_day = shard.wall(now)
    if is_assignment_due(shard, group, time_of_day):
        _make_target(shard, time_of_day, group, present)


def _make_target(shard: Shard, time_of_day: int, group: ConsumerGroup, present: Member) -> None:
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    counts: dict[bytes, int] = {}
    members: dict[str, MemberSpec] = {}
    # Not in the order of joining: the same members get the same partitions in any order.
    for member_id, member in sorted(group.members.items()):
        subscription = (member.topics, member.regex)
        if subscription not in ids:
            ids[subscription] = topics = _topic_ids(shard, group, member)
            for topic_id in topics:
                image = shard.topics.by_id(topic_id)
                counts[topic_id] = 0 if image is None else image.partitions
        had = group.target.get(member_id, {})
        members[member_id] = MemberSpec(member.instance_id, ids[subscription], had)
    default = shard.config.consumer_assignors[0]
    # A stored member may name an assignor that this broker does not have.
    assign = ASSIGNORS.get(group.preferred_assignor(default, present.assignor), ASSIGNORS[default])
    for member_id, partitions in assign(GroupSpec(members, counts)).items():
        if partitions != group.target.get(member_id):
            writing.write_target(shard, group.group_id, member_id, partitions)
    writing.write_target_epoch(shard, group.group_id, group.epoch, time_of_day)


def target_of(shard: Shard, group: ConsumerGroup, member: Member) -> Target:
    """The member's target, and the topics of it that it still subscribes to."""
    partitions = group.target.get(member.member_id, {})
    return Target(group.target_epoch, partitions, _topic_ids(shard, group, member))


def _topic_ids(shard: Shard, group: ConsumerGroup, member: Member) -> frozenset[bytes]:
    images = (shard.topics.by_name(name) for name in group.topics_of(member))
    return frozenset(image.topic_id for image in images if image is not None)
