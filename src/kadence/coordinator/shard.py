"""The state that the rules of this room work on: groups, offsets, timers; and what a step leads to, on its way out.

Kafka's word: one shard of the coordinator is the owner of some groups, and runs one request at a time. A rule changes
what must outlive the process only by `Shard.write`, which replays the record at once: so what is loaded from the log is
what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kadence.clock import add_ms
from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.effects import Answer, Caller, Outcome
from kadence.coordinator.group import ClassicGroup, Member, State
from kadence.coordinator.offset_store import OffsetStore
from kadence.coordinator.records import Record
from kadence.coordinator.timers import TimerKey, TimerKind, Timers
from kadence.coordinator.topics import Topics
from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupResponse
from kadence.protocol.sync_group import SyncGroupResponse

__all__ = ["Shard", "join_key", "session_key", "sync_key"]


class Shard:
    """Groups with their timers. The rules add records and answers; `GroupCoordinator` takes them out."""

    __slots__ = (
        "_answers",
        "_records",
        "_replay",
        "config",
        "groups",
        "new_id",
        "offsets",
        "timers",
        "topics",
    )

    def __init__(
        self,
        config: CoordinatorConfig,
        new_id: Callable[[], str],
        topics: Topics,
        replay: Callable[[Shard, Record], None],
    ) -> None:
        self.config = config
        self.new_id = new_id
        self.topics = topics
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self.timers = Timers()
        self._replay = replay
        self._records: list[Record] = []
        self._answers: list[Answer] = []

    def write(self, key: Any, value: Any | None, *, producer: tuple[int, int] | None = None) -> None:
        """Change the state by a record: it takes effect now, and goes out with this step's answers."""
        record = Record(key, value, producer)
        self._replay(self, record)
        self._records.append(record)

    def answer(self, caller: Caller, response: Any) -> None:
        self._answers.append(Answer(caller, response))

    def take(self) -> Outcome:
        """What this step has led to."""
        outcome = Outcome(self._records, self._answers)
        self._records, self._answers = [], []
        return outcome

    # Answers with an error, in the form that each version expects.

    def refuse_join(self, caller: Caller, code: int, member_id: str = "") -> None:
        """Before v7 the protocol's name cannot be null."""
        name = None if caller.version >= 7 else ""
        self.answer(
            caller,
            JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name, generation_id=-1),
        )

    def refuse_sync(self, caller: Caller, code: int) -> None:
        self.answer(caller, SyncGroupResponse(error_code=code))

    # Parked requests. A member has at most one of each; parking cancels its session timer, since a member
    # must not expire while it waits for our answer. The answer starts the timer again.

    def park_join(self, now: int, group: ClassicGroup, member: Member, caller: Caller) -> None:
        if member.joining is not None:
            # The client gave up on its earlier request and sent another; the old one must not hang.
            self.refuse_join(member.joining, codes.REBALANCE_IN_PROGRESS, member.member_id)
        member.joining = caller
        if member.is_new:
            limit = self.config.new_member_join_timeout_ms
            self.timers.schedule(session_key(group, member.member_id), add_ms(now, limit))
        else:
            self.timers.cancel(session_key(group, member.member_id))

    def park_sync(self, group: ClassicGroup, member: Member, caller: Caller) -> None:
        if member.syncing is not None:
            self.refuse_sync(member.syncing, codes.REBALANCE_IN_PROGRESS)
        member.syncing = caller
        self.timers.cancel(session_key(group, member.member_id))

    def answer_join(self, now: int, group: ClassicGroup, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's parked join; its session starts anew."""
        caller, member.joining, member.is_new = member.joining, None, False
        if caller is not None:
            self.answer(caller, response)
            self.rearm_session(now, group, member)

    def answer_sync(self, now: int, group: ClassicGroup, member: Member, response: SyncGroupResponse) -> None:
        """Answer the member's parked sync; its session starts anew."""
        caller, member.syncing = member.syncing, None
        if caller is not None:
            self.answer(caller, response)
            self.rearm_session(now, group, member)

    def rearm_session(self, now: int, group: ClassicGroup, member: Member) -> None:
        """The member has shown that it lives."""
        if not member.is_parked:
            self.timers.schedule(session_key(group, member.member_id), add_ms(now, member.session_timeout_ms))

    def remove_group(self, group: ClassicGroup) -> None:
        """An empty group goes, with its offsets and with ids that were given out for it."""
        group.transition(State.DEAD)
        for member_id in group.pending_joins:
            self.timers.cancel(session_key(group, member_id))
        self.offsets.remove_group(group.group_id)
        self.groups.pop(group.group_id)

    def forget_member(self, group: ClassicGroup, member_id: str, code: int) -> None:
        """Take a member out of its group; its parked requests end with ``code``."""
        self.timers.cancel(session_key(group, member_id))
        member = group.remove(member_id)
        if member is None:
            return
        joining, member.joining = member.joining, None
        syncing, member.syncing = member.syncing, None
        if joining is not None:
            self.refuse_join(joining, code)
        if syncing is not None:
            self.refuse_sync(syncing, code)


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    """The member's, or the pending member's, heartbeats."""
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    """The end of the group's join phase."""
    return TimerKey(TimerKind.JOIN, group.group_id)


def sync_key(group: ClassicGroup) -> TimerKey:
    """The end of the group's wait for syncs."""
    return TimerKey(TimerKind.SYNC, group.group_id)
