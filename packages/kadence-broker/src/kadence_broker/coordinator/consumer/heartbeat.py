"""ConsumerGroupHeartbeat: a member joins, stays, reports its partitions, and gets its assignment (KIP-848).

v0  the coordinator makes the member's id, if the member has none
v1  subscribed_topic_regex; the member makes its id (KIP-1082)

One heartbeat takes the group one step: the member's fields, the group's epoch, the target, the member's own progress.
"""

from __future__ import annotations

from collections.abc import Mapping

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence_broker.coordinator.consumer import leaving, migration, patterns, writing
from kadence_broker.coordinator.consumer.epochs import (
    bump,
    bump_if_topics_changed,
    make_target_if_due,
    target_of,
)
from kadence_broker.coordinator.consumer.expressions import forget_unread, resolve_if_due
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import consumer_group, find_group
from kadence_broker.coordinator.consumer.member import Member
from kadence_broker.coordinator.consumer.membership import (
    arm_session,
    check_instance,
    find,
    put_in_place_of,
    refuse_if_full,
    write_progress,
)
from kadence_broker.coordinator.consumer.reconciliation import reconcile
from kadence_broker.coordinator.consumer.validation import refuse_nonsense
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.group_settings import heartbeat_interval
from kadence_broker.coordinator.partitions import Epochs, of_topics
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard

__all__ = ["heartbeat"]


def heartbeat(shard: Shard, now: int, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> None:
    """Answer at once; a refused heartbeat changes nothing."""
    try:
        refuse_nonsense(shard.config, caller, request)
        if request.member_epoch < 0:
            response = leaving.leave(shard, now, request)
        else:
            response = _live(shard, now, caller, request)
    except RefusedError as problem:
        response = ConsumerGroupHeartbeatResponse(error_code=problem.code, error_message=problem.message)
    shard.answer(caller, response)
    group = find_group(shard, request.group_id)
    if group is not None and not response.error_code:
        resolve_if_due(shard, now, group)


def _live(
    shard: Shard, now: int, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    if request.member_epoch == 0:
        group, before = _join(shard, now, request)
    else:
        if request.group_id not in shard.groups:
            raise RefusedError(codes.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        group = consumer_group(shard, request.group_id)
        before = find(group, request.member_id, request.instance_id)
        _check_epoch(before, request)
        _check_pattern(group, request)
    member = _hear(shard, caller, group, before, request)
    group = consumer_group(shard, request.group_id)
    bump_if_topics_changed(shard, group)
    make_target_if_due(shard, now, group, member)
    if request.member_epoch == 0 or member is not before or not member.is_reconciled_to(group.target_epoch):
        after = reconcile(member, target_of(shard, group, member), _owned(request), group.is_taken)
        if after != member:
            write_progress(shard, now, group, after)
            member = after
    arm_session(shard, now, group, member)
    # A full report asks for a full response: the member may have lost one.
    is_whole = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    changed = member.assigned is not before.assigned and _numbers(member.assigned) != _numbers(
        before.assigned
    )
    has_assignment = request.member_epoch == 0 or is_whole or changed
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval(shard, group.group_id),
        assignment=_assignment(member.assigned) if has_assignment else None,
    )


def _join(shard: Shard, now: int, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, Member]:
    """The group and the member of a first heartbeat. Epoch 0 of a known member repeats its join (KAFKA-19233)."""
    known = find_group(shard, request.group_id)
    limit = shard.config.consumer_max_size
    if known is None:
        # Everything that could fail is checked before a classic group is upgraded.
        _check_syntax(request.subscribed_topic_regex)
        group = migration.upgraded(shard, now, request.group_id, limit)
    else:
        refuse_if_full(known, request.member_id, limit)
        _check_pattern(known, request)
        group = known
    member_id = request.member_id or shard.new_id()
    if request.instance_id is None:
        return group, group.members.get(member_id) or Member(member_id)
    before = group.static_member(request.instance_id)
    check_instance(before, member_id)
    if before is None:
        return group, group.members.get(member_id) or Member(member_id)
    return group, put_in_place_of(shard, group, before, member_id)


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """The previous epoch is valid if the member reports no other partitions than it has: its response was lost.

    Raises:
        RefusedError: FENCED_MEMBER_EPOCH.
    """
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    if epoch == member.previous_epoch and epoch < member.epoch:
        owned = _owned(request)
        if owned is not None and all(
            numbers <= member.assigned.get(topic, {}).keys() for topic, numbers in owned.items()
        ):
            return
    size = "greater" if epoch > member.epoch else "smaller"
    raise RefusedError(
        codes.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_pattern(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> None:
    pattern = request.subscribed_topic_regex
    if pattern and not group.readers_of_pattern(pattern):
        _check_syntax(pattern)


def _check_syntax(pattern: str | None) -> None:
    """Refuse an expression that RE2 cannot compile.

    Raises:
        RefusedError: INVALID_REGULAR_EXPRESSION.
    """
    if pattern:
        try:
            patterns.validate(pattern)
        except patterns.InvalidPatternError as problem:
            raise RefusedError(codes.INVALID_REGULAR_EXPRESSION, str(problem)) from None


def _hear(
    shard: Shard, caller: Caller, group: ConsumerGroup, before: Member, request: ConsumerGroupHeartbeatRequest
) -> Member:
    """Apply the fields of the request to the member; absent ones stay. The group's epoch follows."""
    member = before if _says_nothing(caller, before, request) else _said(caller, before, request)
    if member == before and before.member_id in group.members:
        return before
    default = shard.config.consumer_assignors[0]
    assignor = group.preferred_assignor(default, before.assignor)
    writing.write_member(shard, group.group_id, member)
    group = consumer_group(shard, group.group_id)
    if member.regex != before.regex:
        forget_unread(shard, group)
    # An expression that has not been matched changes nothing yet: the epoch rises when it is.
    regex_counts = member.regex != before.regex and (not member.regex or member.regex in group.resolved)
    # Since Kafka 4.4 another assignor makes a new target; in 4.3 it waited for the next change of the group.
    reassigned = group.preferred_assignor(default, member.assignor) != assignor
    if member.topics != before.topics or regex_counts or reassigned:
        bump(shard, group)
    return member


def _says_nothing(caller: Caller, before: Member, request: ConsumerGroupHeartbeatRequest) -> bool:
    """True for most heartbeats, which are only a sign of life."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, before.instance_id)
        and before.classic is None
        and (caller.client_id, caller.client_host) == (before.client_id, before.client_host)
    )


def _said(caller: Caller, before: Member, request: ConsumerGroupHeartbeatRequest) -> Member:
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    return before.evolved(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=before.topics if names is None else frozenset(names),
        regex=before.regex if pattern is None else pattern,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Mapping[bytes, frozenset[int]] | None:
    return None if request.topic_partitions is None else of_topics(request.topic_partitions)


def _numbers(partitions: Epochs) -> dict[bytes, set[int]]:
    return {topic: set(epochs) for topic, epochs in partitions.items()}


def _assignment(partitions: Epochs) -> Assignment:
    return Assignment(
        [TopicPartitions(topic, sorted(epochs)) for topic, epochs in sorted(partitions.items())]
    )
