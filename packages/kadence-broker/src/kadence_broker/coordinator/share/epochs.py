"""The rules for raising a share group's epoch, and for making its target assignment (KIP-932, KIP-1263).

The epoch rises when a subscription, the membership, the topics or the initialised partitions change. The target follows
with the next heartbeat, but not sooner than the assignment interval after the last one. Until then members keep the
old target.
"""

from __future__ import annotations

from kadence_broker.coordinator.group_settings import is_assignment_due
from kadence_broker.coordinator.java_tables import in_set, in_table, string_hash, timeline_order
from kadence_broker.coordinator.metadata_hash import metadata_hash
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.assignor import ShareSpec, assign
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.member import ShareMember
from kadence_broker.coordinator.share.recording import epoch_record, target_epoch_record, target_record

__all__ = ["bump", "bump_if_changed", "has_new_partitions", "make_target_if_due", "reconciled"]


def bump(shard: Shard, group: ShareGroup) -> None:
    """Raise the epoch: the group has changed."""
    _bump(shard, group, metadata_hash(group.subscribed_topics(), shard.topics))


def bump_if_changed(shard: Shard, group: ShareGroup, *, is_changed: bool) -> bool:
    """Raise the epoch if ``is_changed``, or if the topics have changed since the last check; return whether."""
    if not is_changed and group.topics_version == shard.topics.version:
        return False
    now_hash = metadata_hash(group.subscribed_topics(), shard.topics)
    group.topics_version = shard.topics.version
    if not is_changed and now_hash == group.metadata_hash:
        return False
    _bump(shard, group, now_hash)
    return True


def _bump(shard: Shard, group: ShareGroup, now_hash: int) -> None:
    shard.write(*epoch_record(group.group_id, group.epoch + 1, now_hash))
    group.topics_version = shard.topics.version


def has_new_partitions(shard: Shard, group: ShareGroup) -> bool:
    """True if the target does not have just the partitions that are initialised: they are assignable since then."""
    assigned: dict[bytes, set[int]] = {}
    for partitions in group.target.values():
        for topic, numbers in partitions.items():
            assigned.setdefault(topic, set()).update(numbers)
    names = group.subscribed_topics()
    return any(
        assigned.get(topic, set()) ^ _existing(shard, group, topic)
        for topic, state in group.initialised.items()
        if state.name in names and shard.topics.by_id(topic) is not None
    )


def make_target_if_due(shard: Shard, now: int, group: ShareGroup) -> None:
    """Make a new target if the group has changed since the last one and the interval is over."""
    if group.epoch <= group.target_epoch:
        return
    time_of_day = shard.wall(now)
    if not is_assignment_due(shard, group, time_of_day):
        return
    shares = assign(_specification(shard, group))
    for member_id, partitions in shares.items():
        wanted = {topic: frozenset(numbers) for topic, numbers in partitions.items() if numbers}
        if wanted != group.target.get(member_id):
            shard.write(*target_record(group.group_id, member_id, wanted))
    shard.write(*target_epoch_record(group.group_id, group.epoch, time_of_day))


def _specification(shard: Shard, group: ShareGroup) -> ShareSpec:
    topics: list[bytes] | None = None
    if group.is_homogeneous:
        # In the order of the first member's subscription, as Kafka goes through it.
        first = in_table(string_hash, timeline_order(group.members))[0]
        names = group.members[first].topics
        images = {name: image for name in names if (image := shard.topics.by_name(name)) is not None}
        topics = [images[name].topic_id for name in in_set(string_hash, sorted(images), len(names))]
    return ShareSpec(
        subscriptions={
            member_id: topic_ids(shard, member.topics) for member_id, member in group.members.items()
        },
        had=group.target,
        assignable={topic: sorted(_existing(shard, group, topic)) for topic in group.initialised},
        topics=topics,
    )


def _existing(shard: Shard, group: ShareGroup, topic: bytes) -> frozenset[int]:
    image = shard.topics.by_id(topic)
    return (
        frozenset() if image is None else group.initialised[topic].partitions & set(range(image.partitions))
    )


def topic_ids(shard: Shard, names: frozenset[str]) -> frozenset[bytes]:
    """The ids of the topics that exist."""
    images = (shard.topics.by_name(name) for name in names)
    return frozenset(image.topic_id for image in images if image is not None)


def reconciled(shard: Shard, group: ShareGroup, member: ShareMember, *, is_changed: bool) -> ShareMember:
    """The member with its part of the target, at once: no member has to give anything back first."""
    if member.epoch == group.target_epoch and not is_changed:
        return member
    subscribed = topic_ids(shard, member.topics)
    target = group.target.get(member.member_id, {})
    assigned = {topic: numbers for topic, numbers in target.items() if topic in subscribed}
    if member.epoch == group.target_epoch:
        return member.evolved(assigned=assigned)
    return member.evolved(assigned=assigned, epoch=group.target_epoch, previous_epoch=member.epoch)
