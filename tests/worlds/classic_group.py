"""A whole classic group in one process under virtual time: real members and the real coordinator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from tests.worlds.cluster import id_of
from tests.worlds.members import Member
from tests.worlds.network import Network, found

from kadence.connection.request import Request
from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.coordinator import GroupCoordinator
from kadence.coordinator.effects import Caller
from kadence.coordinator.topics import TopicImage, TopicTable
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.registry import decode_request
from kadence.types import TopicPartition

__all__ = ["Group", "Member"]


class Group(Network):
    """Members and one coordinator.

    Attributes:
        lose: decides by (member, request) whether a request ends in a lost connection.
        zombies: two processes share an identity, so two may own a partition for a while.
        refuse: (member, request) -> a response that is given instead of the coordinator's, or None.
    """

    def __init__(self, topics: dict[str, int], *, delay_ms: int = 1, **config: Any) -> None:
        super().__init__(topics, delay_ms=delay_ms)
        ids = itertools.count(1)
        self.coordinator = GroupCoordinator(
            CoordinatorConfig(**{"min_session_timeout_ms": 100, **config}),
            topics=TopicTable(TopicImage(name, id_of(name), count) for name, count in topics.items()),
            new_id=lambda: f"{next(ids):04d}",
        )
        self.lose: Callable[[Member, Request], bool] = lambda member, request: False
        self.refuse: Callable[[Member, Request], Any] = lambda member, request: None
        self.zombies = False
        self._tickets: dict[int, tuple[Member, Request, int]] = {}
        self._numbers = itertools.count()

    def member(self, name: str, subscribe: Iterable[str] = ("t",), **kwargs: Any) -> Member:
        member = Member(name, self.topics, **kwargs)
        member.subscribe(self.now, subscribe)
        member.poll(self.now)
        self.members.append(member)
        return member

    def settle(self, limit_ms: int = 30_000) -> None:
        """Advance until every living member is stable and between them they own everything."""
        self.advance(50)
        self.until(lambda: self.stable and self.complete, limit_ms, step_ms=50)

    @property
    def stable(self) -> bool:
        return all(member.membership.state.name == "STABLE" for member in self.members if not member.dead)

    @property
    def complete(self) -> bool:
        owned = sorted(p for member in self.members if not member.dead for p in member.flowing)
        return owned == sorted(TopicPartition(t, n) for t, count in self.topics.items() for n in range(count))

    def kill(self, member: Member) -> None:
        """The process is gone; the coordinator hears nothing of it."""
        member.dead = True

    def deadline(self) -> int:
        return self.coordinator.next_deadline()

    def elapse(self) -> None:
        for answer in self.coordinator.poll(self.now).answers:
            self._answered(answer)

    def check(self) -> None:
        """No partition is ever read by two members of the same generation."""
        owners: dict[tuple[TopicPartition, int], str] = {}
        for member in self.members:
            if member.dead or self.zombies or not member.membership.active:
                continue
            generation = member.membership.group.generation_id
            for partition in member.owned:
                other = owners.setdefault((partition, generation), member.name)
                assert other == member.name, f"{partition} is owned by {other} and {member.name}"

    def deliver(self, member: Member, request: Request, version: int, frame: bytes) -> None:
        if self.lose(member, request):
            self.lost(member, request)
        else:
            self.at(self.arrival(member, request), lambda: self._arrive(member, request, version, frame))

    def _arrive(self, member: Member, request: Request, version: int, frame: bytes) -> None:
        header, message = decode_request(frame)
        instead = self.refuse(member, request)
        if instead is not None:
            self.answer(member, request, version, instead)
        elif isinstance(message, FindCoordinatorRequest):
            self.answer(member, request, version, found(message, version))
        else:
            ticket = next(self._numbers)
            self._tickets[ticket] = (member, request, version)
            caller = Caller(ticket, version, header.client_id or "")
            for answer in self.coordinator.handle(self.now, caller, message).answers:
                self._answered(answer)

    def _answered(self, answer: Any) -> None:
        self.answer(*self._tickets.pop(answer.caller.ticket), answer.response)
