"""One classic member whose coordinator is played by hand, and members for it to lead."""

from __future__ import annotations

from typing import Any

from tests.consumer.managers.driver import NODE, START, Member, partitions

from kadence.connection.request import Completed, Request
from kadence.consumer.assignors import MemberSubscription
from kadence.consumer.assignors.embedded import encode_assignment, encode_subscription
from kadence.consumer.border import messages as m
from kadence.consumer.managers.membership import Verdict
from kadence.consumer.managers.states import State
from kadence.errors import (
    KafkaError,
)
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence.types import GroupMetadata, Node

NOW = START


class Bench:
    """One member whose requests are answered by hand; its coordinator is known."""

    def __init__(self, topics: tuple[str, ...] = ("t",), **kwargs: Any) -> None:
        self.member = Member("m", {"t": 4, "u": 2}, subscribe=topics, **kwargs)
        self.ship = self.member.membership
        self.now = NOW
        self.find(NODE)
        self.member.poll(NOW)

    def find(self, node_id: int) -> None:
        self.member.coordinator.node = Node(node_id, "b", 9092)
        self.member.coordinator.found_at = self.now

    def turn(self, after_ms: int = 0) -> list[Request]:
        self.now += after_ms
        self.member.serve(self.now)
        requests, _ = self.member.turn(self.now)
        return requests

    def expect(self, kind: type[Any], after_ms: int = 0) -> Request:
        requests = [r for r in self.turn(after_ms) if isinstance(r.message, kind)]
        assert len(requests) == 1, f"expected one {kind.__name__}, got {requests}; {self.ship}"
        return requests[0]

    def answer(self, request: Request, response: Any = None, error: KafkaError | None = None) -> None:
        self.member.complete(self.now, Completed(request, response, error, 9 if response else -1, self.now))

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

    def stable(self, *numbers: int, generation: int = 1) -> None:
        """Join as a follower and get these partitions."""
        self.joined(self.expect(JoinGroupRequest), generation)
        self.synced(self.expect(SyncGroupRequest), *numbers)
        assert self.ship.state is State.STABLE

    def heartbeat(self, code: int, group: GroupMetadata | None = None) -> Verdict:
        sent = group or self.ship.group
        message = HeartbeatRequest("g", sent.generation_id, sent.member_id)
        completed = Completed(
            Request(message, NODE, 0), HeartbeatResponse(error_code=code), None, 4, self.now
        )
        return self.ship.on_heartbeat(self.now, completed)

    @property
    def failed(self) -> KafkaError:
        (fact,) = self.member.of(m.Failed)
        assert isinstance(fact.error, KafkaError)
        return fact.error

    @property
    def callbacks(self) -> list[str]:
        return [type(fact).__name__ for fact in self.member.of(m.CallbackNeeded)]


def member_of(name: str, *topics: str) -> JoinGroupResponseMember:
    """A member that reads these topics, as its leader is told of it."""
    return JoinGroupResponseMember(
        member_id=name, metadata=encode_subscription(MemberSubscription(frozenset(topics)))
    )


def lead(bench: Bench, *members: JoinGroupResponseMember, **kwargs: Any) -> None:
    """Join as the leader of these members."""
    bench.joined(bench.expect(JoinGroupRequest), leader="m-1", members=list(members), **kwargs)
