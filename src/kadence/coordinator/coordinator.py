"""The coordinator's front door: requests in, answers out, timers fired by whoever holds the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from kadence.clock import add_ms
from kadence.coordinator import admin, joining, leaving, offset_fetch, offsets, rebalance, syncing
from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.effects import Answer, Caller
from kadence.coordinator.group import ClassicGroup
from kadence.coordinator.shard import Shard
from kadence.coordinator.timers import TimerKey, TimerKind
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_delete import OffsetDeleteRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.sync_group import SyncGroupRequest

__all__ = ["GroupCoordinator"]


class GroupCoordinator:
    """Owner of groups and committed offsets. One caller at a time; ``now`` never goes back.

    Args:
        config: bounds and delays.
        new_id: makes the random part of member ids; a simulation passes its own.
    """

    __slots__ = ("_shard",)

    def __init__(
        self, config: CoordinatorConfig | None = None, *, new_id: Callable[[], str] = lambda: str(uuid4())
    ) -> None:
        self._shard = Shard(config or CoordinatorConfig(), new_id)

    def __repr__(self) -> str:
        return f"<GroupCoordinator {len(self._shard.groups)} groups, {len(self._shard.timers)} timers>"

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The groups as they are, to look at."""
        return self._shard.groups

    def handle(self, now: int, caller: Caller, request: Any) -> list[Answer]:
        """Take one request; answers may be to this caller, to parked ones, to both or to nobody yet.

        Raises:
            TypeError: a request that is not the coordinator's.
        """
        shard = self._shard
        if TimerKey(TimerKind.EXPIRY) not in shard.timers:
            interval = shard.config.offsets_retention_check_interval_ms
            shard.timers.schedule(TimerKey(TimerKind.EXPIRY), add_ms(now, interval))
        match request:
            case HeartbeatRequest():
                syncing.heartbeat(shard, now, caller, request)
            case OffsetCommitRequest():
                offsets.commit(shard, now, caller, request)
            case OffsetFetchRequest():
                offset_fetch.fetch(shard, caller, request)
            case JoinGroupRequest():
                joining.join(shard, now, caller, request)
            case SyncGroupRequest():
                syncing.sync(shard, now, caller, request)
            case LeaveGroupRequest():
                leaving.leave(shard, now, caller, request)
            case ListGroupsRequest():
                admin.list_groups(shard, caller, request)
            case DescribeGroupsRequest():
                admin.describe_groups(shard, caller, request)
            case DeleteGroupsRequest():
                admin.delete_groups(shard, caller, request)
            case OffsetDeleteRequest():
                offsets.delete(shard, caller, request)
            case _:
                raise TypeError(f"a group coordinator does not serve {type(request).__name__}")
        return shard.take_answers()

    def poll(self, now: int) -> list[Answer]:
        """Fire every timer that is due."""
        shard = self._shard
        while (key := shard.timers.pop_due(now)) is not None:
            self._fire(now, key)
        return shard.take_answers()

    def next_deadline(self) -> int:
        """When `poll` must be called next, at the latest; FOREVER if nothing is under way."""
        return self._shard.timers.next_deadline()

    def topic_deleted(self, topic: str) -> None:
        """Forget every group's offsets in ``topic``."""
        self._shard.offsets.remove_topic(topic)

    def _fire(self, now: int, key: TimerKey) -> None:
        shard = self._shard
        if key.kind is TimerKind.EXPIRY:
            offsets.expire(shard, now)
            if shard.groups:
                shard.timers.schedule(key, add_ms(now, shard.config.offsets_retention_check_interval_ms))
            return
        group = shard.groups.get(key.group_id)
        if group is None:
            return
        if key.kind is TimerKind.SESSION:
            rebalance.on_session_timer(shard, now, group, key.member_id)
        elif key.kind is TimerKind.JOIN:
            rebalance.on_join_timer(shard, now, group)
        else:
            rebalance.on_sync_timer(shard, now, group)
