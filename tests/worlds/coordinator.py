"""A group under virtual time: send requests, let time pass, look at who was answered what."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tests.worlds.hand import Clock
from tests.worlds.share_state import RememberedShares

from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kadence_broker.coordinator import (
    Caller,
    ClassicGroup,
    CoordinatorConfig,
    GroupCoordinator,
    GroupOutcome,
    Record,
    TopicImage,
    TopicTable,
)
from kadence_broker.coordinator.records import decode, encode
from kadence_broker.coordinator.share.state import StateRequest

SESSION = 10_000
REBALANCE = 60_000


class Sent:
    """One request. Whoever looks at it sees what the timers that are due by now have done."""

    def __init__(self, caller: Caller, request: Any, sent_at: int, fire: Callable[[], None]) -> None:
        self.caller = caller
        self.sent_at = sent_at
        self.request = request
        self.answer: Any = None
        self.answered_at: int | None = None
        self._fire = fire

    @property
    def response(self) -> Any:
        """None while it is parked."""
        if self.answer is None:
            self._fire()
        return self.answer

    @property
    def is_parked(self) -> bool:
        return self.response is None

    @property
    def code(self) -> int:
        assert self.response is not None, "still parked"
        return int(self.response.error_code)


TOPICS = ("t", "a", "b", "kept", "dropped", "gone", "other")
"""What exists, with two partitions each."""


def id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\1")


class World(Clock):
    """One coordinator and a clock.

    Attributes:
        log: the records of all steps, in order.
        topics: what exists.
        share_state: of share-partitions. asked: what was asked for them, in order; changed: what was done of it.
    """

    def __init__(self, group: str = "g", **config: Any) -> None:
        super().__init__()
        ids = itertools.count(1)
        self.topics = TopicTable(TopicImage(name, id_of(name), 2) for name in TOPICS)
        self.share_state = RememberedShares()
        self.coordinator = GroupCoordinator(
            CoordinatorConfig(**config),
            topics=self.topics,
            new_id=lambda: str(next(ids)),
            share_state=self.share_state,
        )
        self.log: list[Record] = []
        self.asked: list[StateRequest] = []
        self.changed: list[StateRequest] = []
        self.group_id = group
        self._sent: dict[Caller, Sent] = {}

    @property
    def group(self) -> ClassicGroup:
        group = self.coordinator.groups[self.group_id]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.group.state.value

    def send(self, request: Any, version: int, client_id: str = "c") -> Sent:
        caller = Caller(len(self._sent), version, client_id, "/host")
        sent = self._sent[caller] = Sent(caller, request, self.now, lambda: self.advance(0))
        self.deliver(self.coordinator.handle(self.now, caller, request))
        return sent

    def all_sent(self) -> Iterable[Sent]:
        return self._sent.values()

    def advance(self, ms: int) -> None:
        """Let time pass, firing each timer at its own moment."""
        self.go(ms, self.coordinator.next_deadline, lambda: self.deliver(self.coordinator.poll(self.now)))

    def move(self, *, rewritten: bool = False) -> None:
        """Let another node take the group over, with what was stored, as it came or rewritten as a snapshot."""
        if rewritten:
            self.log = list(self.coordinator.snapshot(lambda _: True))
        self.deliver(self.coordinator.unload(self.now, lambda _: True))
        for record in self.log:
            stored = decode(*encode(record))
            assert stored is not None
            self.coordinator.replay(replace(stored, producer=record.producer))
        self.coordinator.loaded(self.now)

    def snapshot(self) -> list[Record]:
        return list(self.coordinator.snapshot(lambda _: True))

    def deliver(self, outcome: GroupOutcome) -> None:
        self.log += outcome.records
        for answer in outcome.answers:
            sent = self._sent[answer.caller]
            assert sent.answer is None, "answered twice"
            sent.answer = answer.response
            sent.answered_at = self.now
        for request in outcome.state_requests:
            self.asked.append(request)
            if not self.share_state.is_slow:
                self.change_state(request)

    def change_state(self, request: StateRequest) -> None:
        """Do what was asked for share-partitions."""
        self.changed.append(request)
        results = self.share_state.change(request)
        self.deliver(self.coordinator.state_answered(self.now, request, results))

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        session: int = SESSION,
        rebalance: int = REBALANCE,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        instance: str | None = None,
        client_id: str = "c",
    ) -> Sent:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance if version >= 1 else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data)
                for name, data in (protocols or {"range": b"m"}).items()
            ],
        )
        return self.send(request, version, client_id)

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        version: int = 5,
        **changes: Any,
    ) -> Sent:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.send(request, version)

    def heartbeat(self, member_id: str, generation: int | None = None, *, instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.send(request, 4).code

    def leave(self, *members: str | MemberIdentity, version: int = 5) -> Sent:
        identities = [
            each if isinstance(each, MemberIdentity) else MemberIdentity(member_id=each) for each in members
        ]
        if version < 3:
            return self.send(
                LeaveGroupRequest(group_id=self.group_id, member_id=identities[0].member_id), version
            )
        return self.send(LeaveGroupRequest(group_id=self.group_id, members=identities), version)

    # Longer steps

    def new_id(self, **options: Any) -> str:
        """A member id given out with MEMBER_ID_REQUIRED."""
        response = self.join(**options).response
        assert response.error_code == 79, response
        return str(response.member_id)

    def stable(self, count: int, **options: Any) -> list[JoinGroupResponse]:
        """A stable group of ``count`` dynamic members, the leader first."""
        ids = [self.new_id(**options) for _ in range(count)]
        joins = [self.join(each, **options) for each in ids]
        return self.settle(joins)

    def settle(self, joins: list[Sent]) -> list[JoinGroupResponse]:
        """Sync all that joined; the answers to their joins, the leader's first."""
        assert [each.code for each in joins] == [0] * len(joins)
        joined: list[JoinGroupResponse] = [each.response for each in joins]
        joined.sort(key=lambda each: each.member_id != each.leader)
        everyone = {each.member_id: each.member_id.encode() for each in joined}
        syncs = [self.sync(each, everyone if each.member_id == each.leader else None) for each in joined]
        for each, sent in zip(joined, syncs, strict=True):
            response: SyncGroupResponse = sent.response
            assert response.error_code == 0
            assert response.assignment == each.member_id.encode()
        assert self.state == "Stable"
        return joined
