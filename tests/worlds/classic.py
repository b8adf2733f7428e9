"""One classic member whose coordinator is played by hand, and members for it to lead."""

from __future__ import annotations

from typing import Any

from tests.worlds.cluster import NODE, partitions
from tests.worlds.hand import START, Hand
from tests.worlds.members import Member

from kadence.connection.request import Completed, Request
from kadence.consumer import events as m
from kadence.consumer.assignors import MemberSubscription
from kadence.consumer.assignors.embedded import encode_assignment, encode_subscription
from kadence.consumer.group.classic_joining import JoiningState
from kadence.consumer.group.membership import HeartbeatOutcome
from kadence.errors import (
    KafkaError,
)
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence.types import GroupMetadata, Node

NOW = START


class Bench(Hand):
    """One member whose requests are answered by hand; its coordinator is known."""

    def __init__(self, topics: tuple[str, ...] = ("t",), **kwargs: Any) -> None:
        self.member = Member("m", {"t": 4, "u": 2}, subscribe=topics, **kwargs)
        super().__init__(self.member, version=9)
        self.ship = self.member.membership
        self.find(NODE)
        self.member.poll(self.now)

    def find(self, node_id: int) -> None:
        self.member.coordinator.node = Node(node_id, "b", 9092)
        self.member.coordinator.found_at = self.now

    def turn(self, later: int = 0) -> list[Request]:
        self.now += later
        self.member.serve(self.now)
        return self.member.turn(self.now)[0]

    def joined(self, request: Request, generation: int = 1, *, leader: str = "boss", **kwargs: Any) -> None:
        response = {
            "protocol_name": "cooperative-sticky",
            "protocol_type": "consumer",
            "member_id": "m-1",
            **kwargs,
        }
        self.answer(request, JoinGroupResponse(generation_id=generation, leader=leader, **response))

    def synced(self, request: Request, *numbers: int, topic: str = "t") -> None:
        self.answer(request, SyncGroupResponse(assignment=encode_assignment(partitions(topic, *numbers))))

    def stable(self, *numbers: int, generation: int = 1, **joined: Any) -> None:
        """Join as a follower and get these partitions."""
        self.joined(self.ask(JoinGroupRequest), generation, **joined)
        self.synced(self.ask(SyncGroupRequest), *numbers)
        assert self.ship.state is JoiningState.STABLE

    def heartbeat(self, code: int, group: GroupMetadata | None = None) -> HeartbeatOutcome:
        sent = group or self.ship.group
        message = HeartbeatRequest("g", sent.generation_id, sent.member_id)
        completed = Completed(
            Request(message, NODE, 0), HeartbeatResponse(error_code=code), None, 4, self.now
        )
        outcome: HeartbeatOutcome = self.ship.on_heartbeat(self.now, completed)
        return outcome

    @property
    def failed(self) -> KafkaError:
        (event,) = self.member.of(m.Failed)
        assert isinstance(event.error, KafkaError)
        return event.error

    @property
    def callbacks(self) -> list[str]:
        return [type(event).__name__ for event in self.member.of(m.CallbackNeeded)]


def member_of(name: str, *topics: str) -> JoinGroupResponseMember:
    """A member that reads these topics, as its leader is told of it."""
    return JoinGroupResponseMember(
        member_id=name, metadata=encode_subscription(MemberSubscription(frozenset(topics)))
    )


def lead(bench: Bench, *members: JoinGroupResponseMember, **kwargs: Any) -> None:
    """Join as the leader of these members."""
    bench.joined(bench.ask(JoinGroupRequest), leader="m-1", members=list(members), **kwargs)
