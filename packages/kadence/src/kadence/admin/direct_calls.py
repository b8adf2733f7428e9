"""Requests that the thread of a call sends by itself, while nothing else is under way on the connection.

A program that makes one call after the other waits for nearly nothing but round trips then: the network thread sleeps
on, and no other thread needs the interpreter (`kadence.net.direct`). The plain answer to a request is one that comes
soon and does not throttle this client. Its call decodes it. If it says what the network thread has to know, such as
other brokers, or cannot be read, that thread gets it. Any other answer is the network thread's from the start.
"""

from __future__ import annotations

from typing import Any, Final

from kadence.admin.manager import AdminManager, Brokers, OpenRequests, brokers_of
from kadence.admin.values import TopicDescription
from kadence.client.metadata import fault_of
from kadence.client.network_thread import NetworkClientDelegate
from kadence.clock import Clock
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.errors import KafkaError, MalformedMessageError, UnsupportedVersionError
from kadence.net.direct import Asked, DirectWay
from kadence.protocol.client_frames import answer_header_version
from kadence.protocol.metadata import MetadataRequest, MetadataResponse
from kadence.wire import WireError, Writer

__all__ = ["SOON_MS", "AskedDirectly", "DirectCalls", "KnownTopics"]

SOON_MS: Final = 100
"""A call waits so long for a plain answer before the network thread takes the request over."""

_THROTTLED: Final = 0x5EED_F00D
"""A time that shows where it stands in an answer."""


class KnownTopics:
    """A plain answer of Metadata that has no fault, and names the brokers that the network thread knows.

    An answer with the same bytes says the same: a program that lists topics again and again pays for one reading.

    Attributes:
        described: what `list_topics` has made of it; None: nothing yet.
    """

    __slots__ = ("body", "brokers", "described", "response", "version")

    def __init__(self, body: bytes, version: int, response: MetadataResponse, brokers: Brokers) -> None:
        self.body = body
        self.version = version
        self.response = response
        self.brokers = brokers
        self.described: dict[str, TopicDescription] | None = None


class _Form:
    """A request as bytes, and the beginning of its plain answer. No request is changed once it was sent."""

    __slots__ = ("begin", "frame", "message", "version", "versions", "way")

    def __init__(self, way: DirectWay, request: Request, frame: bytes, version: int, begin: bytes) -> None:
        self.way = way
        self.message = request.message
        self.versions = request.min_version, request.max_version
        self.frame = frame
        self.version = version
        self.begin = begin


class AskedDirectly:
    """A request that a call has written by itself."""

    __slots__ = ("asked", "request", "sent_at", "version", "way")

    def __init__(self, way: DirectWay, request: Request, asked: Asked, version: int, sent_at: int) -> None:
        self.way = way
        self.request = request
        self.asked = asked
        self.version = version
        self.sent_at = sent_at

    def ended(self, clock: Clock, response: Any, error: KafkaError | None = None) -> Completed:
        """It has been answered."""
        return Completed(self.request, response, error, self.version, clock.now_ms(), None, self.sent_at)


class DirectCalls:
    """See the top of the file. `ask` and `take` are for the threads of calls, the rest for the network thread.

    Attributes:
        known: the latest such answer; None: there is none.
    """

    def __init__(self, manager: AdminManager, delegate: NetworkClientDelegate, clock: Clock) -> None:
        # The call finds out that its answer is late.
        self.is_watched = False
        self.known: KnownTopics | None = None
        self._manager = manager
        self._delegate = delegate
        self._clock = clock
        self._ways: dict[int, DirectWay] = {}
        self._begins: dict[tuple[type, int], bytes | None] = {}
        self._latest: _Form | None = None

    # -- threads of calls

    def ask(self, asked: OpenRequests) -> AskedDirectly | None:
        """Send the only request of a call. None: nothing was sent, and the network thread has to."""
        (request,) = asked.requests
        way, turn = self._way(request.node_id)
        if way is None:
            return None
        form = self._latest
        if (
            form is None
            or form.way is not way
            or form.message is not request.message
            or form.versions != (request.min_version, request.max_version)
        ):
            form = self._form(way, request)
            if form is None:
                return None
            self._latest = form
        request.queued_at = sent_at = self._clock.now_ms()
        out = way.ask_for(turn, bytearray(form.frame), form.begin, request)
        return None if out is None else AskedDirectly(way, request, out, form.version, sent_at)

    def _form(self, way: DirectWay, request: Request) -> _Form | None:
        """The bytes of a request; None: it cannot be sent directly."""
        try:
            frame, version = way.frame(request)
        except (UnsupportedVersionError, WireError):
            # The network thread meets the same error, and reports it.
            return None
        key = type(request.message), version
        begin = self._begins[key] if key in self._begins else self._begins.setdefault(key, _begin(*key))
        return None if begin is None else _Form(way, request, frame, version, begin)

    def _way(self, node_id: int) -> tuple[DirectWay | None, int]:
        """An open way to a broker, and its turn."""
        if node_id != ANY_NODE:
            way = self._ways.get(node_id)
            return (None, 0) if way is None or not (turn := way.turn()) else (way, turn)
        for way in tuple(self._ways.values()):
            if turn := way.turn():
                return way, turn
        return None, 0

    def take(self, sent: AskedDirectly) -> Completed | None:
        """Read the plain answer, which has come. None: the network thread has to see it first, and gives it then."""
        request, version, body = sent.request, sent.version, sent.asked.kept()
        is_metadata = isinstance(request.message, MetadataRequest)
        known, brokers = self.known, self._manager.known
        if (
            is_metadata
            and known is not None
            and known.brokers is brokers
            and known.version == version
            and known.body == body
        ):
            return sent.ended(self._clock, known.response)
        try:
            response = sent.way.read(request, version, body)
        except MalformedMessageError as error:
            self._manager.hand_in(sent.way.node_id, sent.ended(self._clock, None, error))
            return None
        ended = sent.ended(self._clock, response)
        if is_metadata:
            if brokers is None or fault_of(response, rebootstraps=True) or brokers_of(response) != brokers:
                self._manager.hand_in(sent.way.node_id, ended)
                return None
            self.known = KnownTopics(body, version, response, brokers)
        return ended

    # -- network thread

    def may(self, way: DirectWay) -> bool:
        if not self._manager.is_settled or not way.is_free(self._clock.now_ms()):
            return False
        self._ways[way.node_id] = way
        return True

    def took_over(self, way: DirectWay, request: Request, now: int) -> Request:
        del way, now
        self._delegate.sent_by_others(self._manager, [request])
        return request

    def answered(self, now: int, count: int, waited_ms: int) -> None:
        """The calls have their answers."""


def _begin(request: type[Any], version: int) -> bytes | None:
    """How answers begin that do not throttle this client: with any length and correlation id.

    None: the time for which they throttle stands elsewhere.
    """
    body = Writer()
    try:
        request.RESPONSE(throttle_time_ms=_THROTTLED).write(body, version)
    except (TypeError, WireError):
        return None
    mark, begun = _THROTTLED.to_bytes(4), bytes(8) + bytes(answer_header_version(request, version))
    return begun + bytes(4) if body.getvalue().startswith(mark) else None
