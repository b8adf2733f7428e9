"""What a member says that has nothing to read, in the classic protocol and in KIP-848's."""

from __future__ import annotations

import uuid
from typing import Any, Final

from harness.crowd import Crowd, Group, Member
from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

__all__ = ["ClassicMember", "ConsumerMember"]

_AGAIN: Final = frozenset(
    {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR}
)
_SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 300_000


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat. A leader gives everybody the same few bytes."""

    def __init__(self, crowd: Crowd, group: Group) -> None:
        super().__init__(crowd, group)
        self._generation = -1
        self._settled: int | None = None

    def start(self) -> None:
        self._settle(None)
        protocols = [JoinGroupRequestProtocol("range", bytes(30))]
        self.ask(
            JoinGroupRequest(
                self.group.name, _SESSION_MS, _REBALANCE_MS, self.member_id, None, "consumer", protocols
            ),
            9,
        )

    def beat(self) -> None:
        self.ask(HeartbeatRequest(self.group.name, self._generation, self.member_id), 4)

    def leave(self) -> None:
        self.is_deaf = True
        self.ask(LeaveGroupRequest(self.group.name, members=[MemberIdentity(self.member_id)]), 5)

    def on_answer(self, response: Any) -> None:
        code = response.error_code
        if isinstance(response, JoinGroupResponse):
            self.member_id = response.member_id or self.member_id
        if code == codes.NONE:
            if isinstance(response, JoinGroupResponse):
                self._sync(response)
                return
            if self._asked[0] is SyncGroupRequest:
                self._settle(self._generation)
            self.beat_in(self.crowd.interval)
        elif code in (codes.MEMBER_ID_REQUIRED, codes.REBALANCE_IN_PROGRESS):
            self.start()
        elif code in _AGAIN:
            self.start_in(0.1)
        else:
            self.crowd.unexpected[codes.name(code)] += 1
            self.member_id = "" if code == codes.UNKNOWN_MEMBER_ID else self.member_id
            self.start()

    def _sync(self, response: JoinGroupResponse) -> None:
        self._generation = response.generation_id
        assignments = [SyncGroupRequestAssignment(each.member_id, bytes(30)) for each in response.members]
        self.ask(
            SyncGroupRequest(
                self.group.name, self._generation, self.member_id, None, "consumer", "range", assignments
            ),
            5,
        )

    def _settle(self, generation: int | None) -> None:
        self.group.tell(self._settled, generation)
        self._settled = generation


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat. The topic has one partition for each member, so whoever has none waits for it."""

    def __init__(self, crowd: Crowd, group: Group, topic: str) -> None:
        super().__init__(crowd, group)
        self.member_id = str(uuid.uuid4())
        self._topic = topic
        self._epoch = 0
        self._owned: list[TopicPartitions] = []
        self._settled: int | None = None

    def start(self) -> None:
        self._epoch, self._owned = 0, []
        self.ask(
            ConsumerGroupHeartbeatRequest(
                self.group.name,
                self.member_id,
                0,
                rebalance_timeout_ms=_REBALANCE_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            ),
            1,
        )

    def beat(self) -> None:
        self.ask(ConsumerGroupHeartbeatRequest(self.group.name, self.member_id, self._epoch), 1)

    def leave(self) -> None:
        self.is_deaf = True
        self.ask(ConsumerGroupHeartbeatRequest(self.group.name, self.member_id, -1), 1)

    def on_answer(self, response: Any) -> None:
        code = response.error_code
        if code in _AGAIN:
            self.start_in(0.1)
            return
        if code != codes.NONE:
            self.crowd.unexpected[codes.name(code)] += 1
            self.start()
            return
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._owned = response.assignment.topic_partitions
        count = sum(len(each.partitions) for each in self._owned)
        settled = self._epoch if count == 1 else None
        self.group.tell(self._settled, settled)
        self._settled = settled
        if response.assignment is not None and self._owned:
            # A consumer that has taken, or given up, what it was told says so at once.
            self.ask(
                ConsumerGroupHeartbeatRequest(
                    self.group.name, self.member_id, self._epoch, topic_partitions=self._owned
                ),
                1,
            )
        else:
            self.beat_in(response.heartbeat_interval_ms / 1000)
