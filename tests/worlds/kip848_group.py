"""A whole KIP-848 group in one process under virtual time: real members and the real coordinator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from tests.worlds.cluster import id_of
from tests.worlds.members import Member
from tests.worlds.network import Network, found

from kadence.connection.request import Request
from kadence.coordinator import Caller, CoordinatorConfig, GroupCoordinator, TopicImage, TopicTable
from kadence.coordinator.consumer.group import ConsumerGroup
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.registry import decode_request
from kadence.types import TopicPartition

INTERVAL = 5_000
SESSION = 45_000


class World(Network):
    """KIP-848 members and one coordinator.

    Attributes:
        lose: what becomes of the next request: "request" or "answer" is lost with the connection; None.
        refuse: an error code that the next heartbeat is answered with instead, or 0.
    """

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        ids = itertools.count(1)
        self.coordinator = GroupCoordinator(
            CoordinatorConfig(consumer_heartbeat_interval_ms=INTERVAL, consumer_session_timeout_ms=SESSION),
            topics=TopicTable(TopicImage(name, id_of(name), count) for name, count in topics.items()),
            new_id=lambda: f"{next(ids):04d}",
            # A day that has begun already: 0 means "never" in a record.
            wall=lambda now: 1_000_000 + now,
        )
        self.lose: Callable[[], str | None] = lambda: None
        self.refuse: Callable[[], int] = lambda: 0

    @property
    def group(self) -> ConsumerGroup:
        """The group; an empty one while nobody has joined."""
        for group in self.coordinator.groups.values():
            assert isinstance(group, ConsumerGroup)
            return group
        return ConsumerGroup("")

    def member(self, name: str, subscribe: Iterable[str] = ("t",), **config: Any) -> Member:
        member = Member(name, self.topics, protocol="consumer", subscribe=subscribe, **config)
        member.poll(self.now)
        self.members.append(member)
        return member

    @property
    def settled(self) -> bool:
        """Everybody is stable, and between them they own everything."""
        living = [member for member in self.members if not member.dead and member.membership.managed]
        states = {member.membership.state.name for member in living}
        flowing = sum(len(member.flowing) for member in living)
        whole = states <= {"STABLE"} and flowing == sum(self.topics.values())
        return whole and self.group.state_name == "Stable"

    def deadline(self) -> int:
        return self.coordinator.next_deadline()

    def elapse(self) -> None:
        self.coordinator.poll(self.now)

    def check(self) -> None:
        """No partition is ever in two hands, as far as the coordinator has both for members."""
        owners: dict[TopicPartition, str] = {}
        for member in self.members:
            if member.dead or member.membership.group.member_id not in self.group.members:
                continue
            for partition in member.owned:
                other = owners.setdefault(partition, member.name)
                assert other == member.name, f"{partition} is owned by {other} and {member.name}"

    def deliver(self, member: Member, request: Request, version: int, frame: bytes) -> None:
        fate = self.lose()
        if fate == "request":
            self.lost(member, request)
            return
        answered = fate != "answer"
        self.at(
            self.arrival(member, request), lambda: self._arrive(member, request, version, frame, answered)
        )

    def _arrive(self, member: Member, request: Request, version: int, frame: bytes, answered: bool) -> None:
        header, message = decode_request(frame)
        response: Any
        if isinstance(message, FindCoordinatorRequest):
            response = found(message, version)
        elif code := self.refuse():
            response = ConsumerGroupHeartbeatResponse(error_code=code)
        else:
            caller = Caller(None, version, header.client_id or "")
            (answer,) = self.coordinator.handle(self.now, caller, message).answers
            response = answer.response
        if answered:
            self.answer(member, request, version, response)
        else:
            self.lost(member, request, back=True)
