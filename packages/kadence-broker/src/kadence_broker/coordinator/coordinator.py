"""The public class of the group coordinator: requests in, records and answers out. Its owner fires the timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

from kadence.protocol.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_delete import OffsetDeleteRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.share_group_describe import ShareGroupDescribeRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence.protocol.sync_group import SyncGroupRequest
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence_broker.coordinator import admin, group_settings
from kadence_broker.coordinator.classic import joining, leaving, rebalance, syncing
from kadence_broker.coordinator.classic import storing as classic
from kadence_broker.coordinator.classic.group import ClassicGroup
from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.consumer import classic_members, describing, expressions, heartbeat
from kadence_broker.coordinator.consumer import leaving as consumer_leaving
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.effects import Caller, GroupOutcome
from kadence_broker.coordinator.groups import Group
from kadence_broker.coordinator.offsets import commit, delete, expiry, fetch, transactional
from kadence_broker.coordinator.offsets import storing as offsets
from kadence_broker.coordinator.offsets.store import OffsetStore
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.replay import replay
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share import altering, initialising
from kadence_broker.coordinator.share import describing as share_describing
from kadence_broker.coordinator.share import heartbeat as share_heartbeat
from kadence_broker.coordinator.share import leaving as share_leaving
from kadence_broker.coordinator.share import offsets as share_offsets
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.state import Results, ShareState, StateRequest
from kadence_broker.coordinator.timers import TimerKey, TimerKind
from kadence_broker.coordinator.topics import TopicImages, TopicTable

__all__ = ["GroupCoordinator"]

_RULES: Final[dict[type[Any], Callable[[Shard, int, Caller, Any], None]]] = {
    HeartbeatRequest: syncing.heartbeat,
    OffsetCommitRequest: commit.commit,
    OffsetFetchRequest: fetch.fetch,
    JoinGroupRequest: joining.join,
    SyncGroupRequest: syncing.sync,
    LeaveGroupRequest: leaving.leave,
    ListGroupsRequest: admin.list_groups,
    DescribeGroupsRequest: admin.describe_groups,
    DeleteGroupsRequest: admin.delete_groups,
    OffsetDeleteRequest: delete.delete,
    TxnOffsetCommitRequest: transactional.commit,
    ConsumerGroupHeartbeatRequest: heartbeat.heartbeat,
    ConsumerGroupDescribeRequest: describing.describe,
    ShareGroupHeartbeatRequest: share_heartbeat.heartbeat,
    ShareGroupDescribeRequest: share_describing.describe,
    DescribeShareGroupOffsetsRequest: share_offsets.describe_offsets,
    AlterShareGroupOffsetsRequest: altering.alter_offsets,
    DeleteShareGroupOffsetsRequest: altering.delete_offsets,
}
"""The handler of each request: called with the shard, the time, the caller and the request."""

_RULES_OF_CONSUMER_GROUPS: Final[dict[type[Any], Callable[[Shard, int, Caller, Any], None]]] = {
    HeartbeatRequest: classic_members.heartbeat,
    JoinGroupRequest: classic_members.join,
    SyncGroupRequest: classic_members.sync,
    LeaveGroupRequest: classic_members.leave,
}
"""Handlers used instead if the group is a KIP-848 group."""

_TIMERS: Final[dict[TimerKind, Callable[[Shard, int, TimerKey], None]]] = {
    TimerKind.SESSION: rebalance.on_session_timer,
    TimerKind.JOIN: rebalance.on_join_timer,
    TimerKind.SYNC: rebalance.on_sync_timer,
    TimerKind.EXPIRY: expiry.on_expiry_timer,
}
"""The action of each kind of timer."""

_TIMERS_OF: Final[dict[type[Any], dict[TimerKind, Callable[[Shard, int, TimerKey], None]]]] = {
    ConsumerGroup: {
        TimerKind.SESSION: consumer_leaving.on_session_timer,
        TimerKind.REBALANCE: consumer_leaving.on_rebalance_timer,
        TimerKind.JOIN: consumer_leaving.on_join_or_sync_timer,
        TimerKind.SYNC: consumer_leaving.on_join_or_sync_timer,
        TimerKind.MATCH: expressions.on_match_timer,
    },
    ShareGroup: {TimerKind.SESSION: share_leaving.on_session_timer},
}
"""Actions used instead if the timer's group is of another kind than the classic one."""


def _random_id() -> str:
    return str(uuid4())


class GroupCoordinator:
    """Owner of groups and committed offsets. One caller at a time; ``now`` never goes back.

    A shell stores the records of an `GroupOutcome` and delivers its answers after that. When it cannot store them, it
    takes the groups out with `unload` and loads them again from what is stored: `replay` each record, then `loaded`.

    Args:
        config: bounds and delays.
        topics: of the cluster. Default: no topic exists.
        new_id: makes the random part of member ids; a simulation passes its own. None: UUIDs.
        wall: turns ``now`` into the time of day in ms, which records contain. Default: both are the same.
        share_state: what is stored of share-partitions (KIP-932). Default: nothing.
    """

    __slots__ = ("_shard",)

    def __init__(
        self,
        config: CoordinatorConfig | None = None,
        *,
        topics: TopicImages | None = None,
        new_id: Callable[[], str] | None = None,
        wall: Callable[[int], int] = lambda now: now,
        share_state: ShareState | None = None,
    ) -> None:
        self._shard = Shard(
            config or CoordinatorConfig(),
            new_id or _random_id,
            topics or TopicTable(),
            wall,
            replay,
            share_state,
        )

    def __repr__(self) -> str:
        return f"<GroupCoordinator {len(self._shard.groups)} groups, {len(self._shard.timers)} timers>"

    @property
    def groups(self) -> dict[str, Group]:
        """The groups, for reading only."""
        return self._shard.groups

    @property
    def offsets(self) -> OffsetStore:
        """Committed offsets of all groups, for reading only: records change them."""
        return self._shard.offsets

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace one group's own settings (KIP-848, KIP-932); empty: it uses the broker's.

        Call `kadence_broker.coordinator.group_settings.group_configs_fault` before: it checks that a group may have
        them.
        """
        group_settings.set_group_configs(self._shard, group_id, configs)

    def handle(self, now: int, caller: Caller, request: Any) -> GroupOutcome:
        """Handle one request; the answers may be for this caller, for parked ones, for both or for none.

        Raises:
            TypeError: a request that this coordinator does not serve.
        """
        shard = self._shard
        rule = _RULES.get(type(request))
        if rule is None:
            raise TypeError(f"a group coordinator does not serve {type(request).__name__}")
        expiry.arm(shard, now)
        if isinstance(shard.groups.get(getattr(request, "group_id", "")), ConsumerGroup):
            rule = _RULES_OF_CONSUMER_GROUPS.get(type(request), rule)
        rule(shard, now, caller, request)
        return shard.take()

    def poll(self, now: int) -> GroupOutcome:
        """Fire every timer that is due."""
        shard = self._shard
        while (key := shard.timers.pop_due(now)) is not None:
            fire = _TIMERS_OF.get(type(shard.groups.get(key.group_id)), _TIMERS).get(key.kind)
            if fire is not None:
                fire(shard, now, key)
        return shard.take()

    def abandon(self) -> GroupOutcome:
        """Return the effects of a `handle` or `poll` that raised: do not store them, and load their keys again."""
        return self._shard.take()

    def next_deadline(self) -> int:
        """The latest time of the next `poll`; FOREVER if there are no timers."""
        return self._shard.timers.next_deadline()

    def topic_deleted(self, now: int, topic: str) -> GroupOutcome:
        """Forget every group's offsets in ``topic``, and that share groups read it."""
        offsets.forget_topic(self._shard, topic)
        initialising.topic_gone(self._shard, topic)
        return self._shard.take()

    def state_answered(self, now: int, request: StateRequest, results: Results) -> GroupOutcome:
        """What was asked for share-partitions has been done, or not, and is stored."""
        request.then(self._shard, now, results)
        return self._shard.take()

    # Loading and giving up groups: for a coordinator that starts, moves, or could not store its records.

    def replay(self, record: Record) -> None:
        """Apply a stored record. No request is answered."""
        replay(self._shard, record)

    def loaded(self, now: int, owns: Callable[[str], bool] = lambda _: True) -> GroupOutcome:
        """All records of the groups that ``owns`` selects are replayed: start their timers at ``now``."""
        expiry.arm(self._shard, now)
        for group in self._shard.groups.values():
            if not owns(group.group_id):
                continue
            if isinstance(group, ClassicGroup):
                classic.loaded(self._shard, now, group)
                if len(group.members) > self._shard.config.max_size:
                    # The limit is smaller than before: the members that join last will be refused.
                    rebalance.prepare(self._shard, now, group)
            elif isinstance(group, ConsumerGroup):
                consumer_leaving.loaded(self._shard, now, group)
            elif isinstance(group, ShareGroup):
                for member in group.members.values():
                    share_heartbeat.arm_session(self._shard, now, group, member)
        return self._shard.take()

    def unload(self, now: int, owns: Callable[[str], bool]) -> GroupOutcome:
        """Give up the groups that ``owns`` selects, and their offsets; parked requests end with NOT_COORDINATOR."""
        shard = self._shard
        for group_id in [each for each in shard.groups.keys() | shard.offsets.groups() if owns(each)]:
            group = shard.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                classic.unload(shard, group)
            elif isinstance(group, ConsumerGroup):
                consumer_leaving.unload(shard, group)
            elif isinstance(group, ShareGroup):
                share_leaving.unload(shard, group)
            shard.offsets.remove_group(group_id)
        return shard.take()

    def snapshot(self, owns: Callable[[str], bool]) -> Iterator[Record]:
        """The state of the groups that ``owns`` selects, as the fewest records that make it."""
        shard = self._shard
        for group_id in sorted(filter(owns, shard.groups.keys() | shard.offsets.groups())):
            if (group := shard.groups.get(group_id)) is not None:
                yield from group.records()
            yield from offsets.records(shard, group_id)

    def end_transaction(
        self, now: int, producer_id: int, epoch: int, committed: bool, owns: Callable[[str], bool]
    ) -> GroupOutcome:
        """A producer's transaction is decided: commit or drop its offsets in the groups that ``owns`` selects.

        The shell has stored the marker in the partition of `__consumer_offsets` of these groups, or found it
        there while loading.
        """
        self._shard.offsets.end_transaction(producer_id, owns, committed=committed)
        return self._shard.take()
