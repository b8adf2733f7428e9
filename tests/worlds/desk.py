"""One classic member, and across the desk the real coordinator of its group. There is no network between them.

Every request and response goes through the generated protocol code in the version under test. A test refuses a
request, or loses it, by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.worlds.cluster import NODE, id_of
from tests.worlds.hand import Hand
from tests.worlds.members import Member

from kadence.connection.request import Request
from kadence.errors import DisconnectedError
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kadence.protocol.registry import decode_request, decode_response, encode_request, encode_response
from kadence_broker.coordinator import Caller, CoordinatorConfig, GroupCoordinator, TopicImage, TopicTable

__all__ = ["Desk"]


class Desk(Hand):
    """A member and its coordinator.

    Args:
        has_joined: whether the member has read topics in the group for a moment when the test begins.

    Attributes:
        member: the one that speaks; a test may let another one speak. answers_after_ms: how long the coordinator takes.
        versions: the highest version of an API (by key) that is offered. sent: every request's message.
        refuse: the response that a request gets instead of the coordinator's, or None.
        loses: whether the connection is lost with a request.
    """

    def __init__(
        self,
        topics: dict[str, int],
        member: Member | None = None,
        *,
        versions: dict[int, int] | None = None,
        has_joined: bool = True,
        **config: Any,
    ) -> None:
        self.member = member or Member("a", topics, subscribe=("t",) if has_joined else ())
        super().__init__(self.member)
        ids = itertools.count(1)
        self.coordinator = GroupCoordinator(
            CoordinatorConfig(min_session_timeout_ms=100, **config),
            topics=TopicTable(TopicImage(name, id_of(name), count) for name, count in topics.items()),
            new_id=lambda: f"{next(ids):04d}",
        )
        self.answers_after_ms = 2
        self.versions = versions or {}
        self.refuse: Callable[[Request], Any] = lambda request: None
        self.loses: Callable[[Request], bool] = lambda request: False
        self._sent: list[Any] = []
        self._tickets: dict[int, tuple[Request, int]] = {}
        self._numbers = itertools.count()
        if has_joined:
            self.member.poll(self.now)
            self.run(50)
            assert self.member.membership.state.name == "STABLE"

    def sent(self, kind: type[Any]) -> list[Any]:
        """What the member has sent of a kind."""
        return [message for message in self._sent if isinstance(message, kind)]

    def look(self) -> tuple[list[Request], int]:
        self.member.serve(self.now)
        requests, wake_at = self.member.turn(self.now)
        return requests, self.now if self.member.unread and not self.member.busy else wake_at

    def run(self, duration_ms: int) -> None:
        """Let time pass, and the coordinator answer."""
        self.pass_time(duration_ms, self._send)

    def due(self) -> int:
        return min(super().due(), self.coordinator.next_deadline())

    def elapse(self) -> None:
        super().elapse()
        for answer in self.coordinator.poll(self.now).answers:
            self._respond(*self._tickets.pop(answer.caller.ticket), answer.response)

    def _send(self, request: Request) -> None:
        message = request.message
        self._sent.append(message)
        version = min(request.max_version or 99, self.versions.get(message.API_KEY, 99), message.MAX_VERSION)
        if self.loses(request):
            self.later(1, lambda: self.fail(request, DisconnectedError("the connection was lost")))
            return
        header, read = decode_request(encode_request(message, version, 1, self.member.name))
        instead = self.refuse(request)
        if instead is not None:
            self._respond(request, version, instead)
        elif isinstance(read, FindCoordinatorRequest):
            self._respond(request, version, _found(read, version))
        else:
            ticket = next(self._numbers)
            self._tickets[ticket] = (request, version)
            caller = Caller(ticket, version, header.client_id or "")
            for answer in self.coordinator.handle(self.now, caller, read).answers:
                self._respond(*self._tickets.pop(answer.caller.ticket), answer.response)

    def _respond(self, request: Request, version: int, response: Any) -> None:
        _, read = decode_response(type(request.message), version, encode_response(response, version, 1))
        self.later(self.answers_after_ms, lambda: self.answer(request, read, version=version))


def _found(message: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(node_id=NODE, host="b7", port=9092)
    keys = message.coordinator_keys
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=NODE, host="b7", port=9092) for key in keys]
    )
