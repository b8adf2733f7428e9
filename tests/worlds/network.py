"""Members of a group, a network with delays and losses, and time: what both protocols' worlds of whole groups share.

Every request and response goes through the generated protocol code in the version under test, so what a coordinator
sees is what a broker would see. Nothing happens but by `Network.advance`, and in one order.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.worlds.cluster import NODE
from tests.worlds.hand import START
from tests.worlds.members import Member

from kadence.clock import FOREVER
from kadence.connection.request import Completed, Lane, Request
from kadence.errors import DisconnectedError, KafkaError, UnsupportedVersionError
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kadence.protocol.registry import decode_response, encode_request, encode_response

__all__ = ["Network", "found"]


@dataclass(order=True)
class _Event:
    at: int
    order: int
    act: Callable[[], None] = field(compare=False)


class Network(ABC):
    """Members and the way between them and one coordinator, which is a subclass's.

    Attributes:
        delay: how long (ms) the next request or answer travels.
        versions: the highest version of an API (by key) that the broker offers.
        log: (time, member, message) of everything that was sent.
    """

    def __init__(self, topics: Mapping[str, int], *, delay_ms: int = 1) -> None:
        self.now = START
        self.topics = dict(topics)
        self.members: list[Member] = []
        self.delay: Callable[[], int] = lambda: delay_ms
        self.versions: dict[int, int] = {}
        self.log: list[tuple[int, str, Any]] = []
        self._events: list[_Event] = []
        self._order = itertools.count()
        self._lanes: dict[tuple[str, Lane, bool], int] = {}

    # -- the other end

    @abstractmethod
    def deadline(self) -> int:
        """When the coordinator must be asked again."""

    @abstractmethod
    def elapse(self) -> None:
        """The coordinator does what is due."""

    @abstractmethod
    def check(self) -> None:
        """What must hold at every step."""

    @abstractmethod
    def deliver(self, member: Member, request: Request, version: int, frame: bytes) -> None:
        """A request was sent; it may be lost, or arrives later."""

    # -- time

    def advance(self, duration_ms: int) -> None:
        """Let time pass; everything that is due in it happens, in order."""
        end, quiet = self.now + duration_ms, 0
        while True:
            wake_at = min(self._turns(), self.deadline())
            at = min(wake_at, self._events[0].at if self._events else FOREVER)
            if at > end:
                self.now = end
                return
            quiet = quiet + 1 if at <= self.now else 0
            assert quiet < 1_000, "the group spins without time passing"
            self.now = max(self.now, at)
            while self._events and self._events[0].at <= self.now:
                heapq.heappop(self._events).act()
            self.elapse()

    def until(self, done: Callable[[], bool], limit_ms: int = 120_000, step_ms: int = 10) -> int:
        """Advance until it is so; how long (ms) that took."""
        start = self.now
        while not done():
            assert self.now < start + limit_ms, [repr(member.membership) for member in self.members]
            self.advance(step_ms)
        return self.now - start

    def sent(self, kind: type[Any], name: str | None = None) -> list[Any]:
        """What was sent of a kind, by everybody or by one member."""
        return [message for _, who, message in self.log if isinstance(message, kind) and name in (None, who)]

    # -- the way

    def at(self, at: int, act: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._events, _Event(at, next(self._order), act))

    def arrival(self, member: Member, request: Request, *, back: bool = False) -> int:
        """When what is sent now arrives: in order on each connection, in any order between two of them."""
        connection = (member.name, request.lane, back)
        self._lanes[connection] = max(self.now + self.delay(), self._lanes.get(connection, 0))
        return self._lanes[connection]

    def lost(self, member: Member, request: Request, *, back: bool = False) -> None:
        """The member hears that the connection was lost with the request, or with its answer."""
        error = DisconnectedError("the connection was lost")
        self.at(self.arrival(member, request, back=back), lambda: self._fail(member, request, error))

    def answer(self, member: Member, request: Request, version: int, response: Any) -> None:
        """The coordinator's answer goes its way."""
        frame = encode_response(response, version, 1)

        def act() -> None:
            if not member.dead and request in member.owners:
                _, decoded = decode_response(type(request.message), version, frame)
                member.complete(self.now, Completed(request, decoded, None, version, self.now))

        self.at(self.arrival(member, request, back=True), act)

    def _turns(self) -> int:
        wake_at = FOREVER
        for member in self.members:
            if not member.dead:
                wake_at = min(wake_at, self._turn(member))
        self.check()
        return wake_at

    def _turn(self, member: Member) -> int:
        for _ in range(1_000):
            member.serve(self.now)
            requests, wake_at = member.turn(self.now)
            for request in requests:
                self._send(member, request)
            if not requests and (member.busy or not member.unread):
                return wake_at
        raise AssertionError(f"{member.membership!r} spins")

    def _send(self, member: Member, request: Request) -> None:
        message = request.message
        top = min(request.max_version or 99, self.versions.get(message.API_KEY, 99), message.MAX_VERSION)
        self.log.append((self.now, member.name, message))
        try:
            frame = encode_request(message, top, 1, member.name)
        except Exception as error:  # noqa: BLE001 - what the connection room does
            unsupported = UnsupportedVersionError(str(error))
            self.at(self.now, lambda: self._fail(member, request, unsupported))
        else:
            self.deliver(member, request, top, frame)

    def _fail(self, member: Member, request: Request, error: KafkaError) -> None:
        if not member.dead and request in member.owners:
            member.complete(self.now, Completed(request, None, error, -1, self.now))


def found(message: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    """The coordinator of everything is `NODE`."""
    if version < 4:
        return FindCoordinatorResponse(node_id=NODE, host="b7", port=9092)
    keys = message.coordinator_keys
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=NODE, host="b7", port=9092) for key in keys]
    )
