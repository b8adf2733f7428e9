"""One connection to one broker, from its first byte to its loss, without a socket.

    OPENING ──ApiVersions answered──▶ AUTHENTICATING ──accepted──▶ READY ──lost──▶ CLOSED
       │               └─────────────────no SASL────────────────────▲                 ▲
       └─────────────────────────────────lost─────────────────────────────────────────┘

The broker answers in the order of the requests, so what is in flight is a queue and every answer belongs to
its head; a correlation id that says otherwise means that the stream can no longer be trusted. ApiVersions is
asked first in the version that the broker had the last time, or in our highest: a broker that does not know it
answers UNSUPPORTED_VERSION in the format of version 0, with its own range since KIP-511 (2.4), and is asked again in a
version that it knows. It also says which node of which cluster is meant, which any other refuses (KIP-1242). Throttling
is the client's duty since KIP-219: nothing more is sent until the time named by an answer has passed.

With SASL the broker may end a session after some time (KIP-368). Well before that the connection authenticates again:
requests sent before are answered before, those that come meanwhile wait until it is done.

The shell owns the bytes: it writes `outgoing`, cuts the incoming stream into frames and passes them to
`receive`. An exception of `receive` ends the connection; the shell passes it to `lose`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import ANY_NODE, Completed, Loan, Ranges, Request, choose, ranges_of
from kadence.connection.sent import FIRST_WITH_IDS, Again, Sent, again, can_go_again
from kadence.errors import (
    ConnectError,
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
    RequestTimedOutError,
    TransportError,
    UnsupportedVersionError,
    for_code,
)
from kadence.protocol import error_codes
from kadence.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.client_frames import encode_frame
from kadence.protocol.fetch import FetchRequest
from kadence.wire import VersionError, WireError, unreadable

if TYPE_CHECKING:
    from kadence.connection.authentication import Authentication, SaslMessage
    from kadence.connection.sasl.exchange import Login

__all__ = ["BrokerConnection", "Phase", "WrongNodeError"]

_BRING_RECORDS: Final = frozenset({FetchRequest.API_KEY, 78})
"""Fetch, and ShareFetch: consumers load none of it."""

_MAX_CORRELATION_ID: Final = 2**31 - 1
_LAST_TO_REPEAT: Final = _MAX_CORRELATION_ID - 10_000
"""The last id of a request that may be repeated, or that others write: they count ids by themselves, which must not
wrap."""
_PRODUCE: Final = 0
"""The key of the API of which a request may go without an answer, and lies in several pieces."""
_FIRST_NATIVE_ID: Final = -2
_LAST_NATIVE_ID: Final = -(2**31)
"""Correlation ids of the native thread: downwards, so that they never meet the others."""


class WrongNodeError(TransportError):
    """The broker is not the node of the cluster that the connection is for (KIP-1242)."""


class Phase(Enum):
    """The state of a connection; the picture is at the top of the file."""

    OPENING = "opening"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


class BrokerConnection:
    """Requests to bytes, frames to answers.

    Attributes:
        address: how messages name the broker.
        encoded_bytes: of all requests so far. own_sizes: bytes of each of its own requests (ApiVersions, SASL) that
            were not counted yet.
        logins: how often the broker accepted us. login_ms: how long it took the last time.
    """

    __slots__ = (
        "_authentication",
        "_client_id",
        "_correlation_id",
        "_host",
        "_in_flight",
        "_login",
        "_login_began",
        "_meant",
        "_native_id",
        "_out",
        "_renew_at",
        "_request_timeout_ms",
        "_software",
        "_wants_login",
        "address",
        "encoded_bytes",
        "held_until",
        "login_ms",
        "logins",
        "own_sizes",
        "phase",
        "ranges",
    )

    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        request_timeout_ms: int,
        software: tuple[str, str] = ("kadence", "0"),
        login: Login | None = None,
        host: str = "",
        meant: tuple[str, int] | None = None,
        ranges: Ranges | None = None,
    ) -> None:
        self.address = address
        self._host = host
        self.phase = Phase.OPENING
        self.ranges: Ranges = ranges or {}
        self._meant = meant
        self.held_until = 0
        self.encoded_bytes = 0
        self.own_sizes: list[int] = []
        self.logins = self.login_ms = 0
        self._login_began = 0
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._software = software
        self._login = login
        # The authentication in progress; credentials may have to be fetched before it can begin.
        self._authentication: Authentication | None = None
        self._wants_login = False
        self._renew_at = FOREVER
        self._correlation_id = -1
        self._native_id = _FIRST_NATIVE_ID
        self._in_flight: deque[Sent] = deque()
        # The pieces of each frame with the request that ends once they are written (acks=0 has no answer), in order.
        self._out: deque[tuple[list[memoryview], Request | None, int]] = deque()

    # -- sending

    def open(self, now: int) -> None:
        """Put the first ApiVersions on its way."""
        known = self.ranges.get(ApiVersionsRequest.API_KEY, (0, ApiVersionsRequest.MAX_VERSION))
        self._ask_versions(min(ApiVersionsRequest.MAX_VERSION, known[1]), now)

    def send(self, request: Request, now: int) -> Completed | None:
        """Encode one request behind the others. Returns its end at once when it cannot be sent at all."""
        try:
            version = choose(request, self.ranges, self.address)
            self._put(request, request.message, version, now)
        except UnsupportedVersionError as error:
            return Completed(request, None, error, -1, now)
        except VersionError as error:
            unsupported = UnsupportedVersionError(
                f"broker {self.address}: {request.name} v{version}: {error}"
            )
            return Completed(request, None, unsupported, version, now)
        except WireError as error:
            malformed = MalformedMessageError(f"{request.name} v{version} cannot be encoded: {error}")
            return Completed(request, None, malformed, version, now)
        return None

    def frame(self, request: Request) -> tuple[bytes, int]:
        """A request as bytes for the native thread, which puts the correlation ids in, and its version.

        Raises:
            UnsupportedVersionError: the broker does not take it.
        """
        version = choose(request, self.ranges, self.address)
        return b"".join(encode_frame(request.message, version, _FIRST_NATIVE_ID, self._client_id)), version

    def native_heartbeats_sent(self, requests: Sequence[Request], version: int, now: int) -> None:
        """The native thread has sent these: before what is not written yet, and after everything else."""
        unwritten = sum(unanswered is None for _, unanswered, _ in self._out)
        place = len(self._in_flight) - unwritten
        deadline = add_ms(now, self._request_timeout_ms)
        for number, request in enumerate(requests):
            sent = Sent(request, request.message, version, self._native_id, deadline, now)
            self._in_flight.insert(place + number, sent)
            self._native_id = self._native_id - 1 if self._native_id > _LAST_NATIVE_ID else _FIRST_NATIVE_ID

    def repeating(self, now: int) -> Request | None:
        """The fetch that was just sent, if it may go out again by itself; nothing else is under way then."""
        if len(self._in_flight) != 1 or self._out or not self.can_send(now):
            return None
        sent = self._in_flight[0]
        return sent.request if sent.frame is not None and can_go_again(sent.message, sent.version) else None

    def again(self) -> Again:
        """The bytes of `repeating`."""
        sent = self._in_flight[0]
        assert sent.frame is not None
        assert sent.request is not None
        assert sent.request.repeat is not None
        empty = sent.request.repeat.empty
        return again(sent.frame, sent.message, sent.version, sent.correlation_id, self._client_id, empty)

    def follows(self) -> bool:
        """True if the answers to `repeating` may have records: those that name topics by id."""
        return self._in_flight[0].version >= FIRST_WITH_IDS

    def repeated(self, count: int, sent_at: int, size: int) -> None:
        """`repeating` went out ``count`` times more, the last time at ``sent_at`` (ms), with ``size`` bytes in all."""
        sent = self._in_flight[0]
        self._correlation_id += count
        sent.correlation_id = self._correlation_id
        sent.sent_at = sent_at
        sent.deadline = add_ms(sent_at, self._request_timeout_ms)
        self.encoded_bytes += size

    @property
    def next_id(self) -> int:
        """The correlation id of the next request that others write; below 0: they may not."""
        return self._correlation_id + 1 if self._correlation_id < _LAST_TO_REPEAT else -1

    def sent_directly(self, count: int, size: int) -> None:
        """Threads of the application have written ``count`` requests of ``size`` bytes in all, with the next ids."""
        self._correlation_id += count
        self.encoded_bytes += size

    def took_over(self, request: Request, correlation_id: int, sent_at: int) -> None:
        """The last of these has no answer yet."""
        version = choose(request, self.ranges, self.address)
        deadline = add_ms(sent_at, self._request_timeout_ms)
        self._in_flight.append(Sent(request, request.message, version, correlation_id, deadline, sent_at))

    def read(self, request: Request, version: int, body: bytes) -> Any:
        """The answer to one of these, of which ``body`` is what follows the correlation id. Any thread.

        Raises:
            MalformedMessageError: these bytes are no such answer, or a parser cannot cope with them.
        """
        sent = Sent(request, request.message, version, -1, FOREVER, -1)
        try:
            return sent.decode(version, body, self.address, 0)
        except KafkaError:
            raise
        except Exception as error:
            raise self._unreadable(sent.name, body, error) from error

    def outgoing(self) -> list[memoryview]:
        """The next bytes to write, in pieces: the rest of one frame. Empty when there are none.

        A request without an answer is one piece, because `sent` must be called when its last byte is written.
        """
        if not self._out:
            return []
        pieces, unanswered, _ = self._out[0]
        return pieces if unanswered is None else pieces[:1]

    def sent(self, count: int, now: int) -> Completed | None:
        """``count`` bytes of `outgoing` were written. Returns the end of a request that has no answer."""
        pieces, unanswered, version = self._out[0]
        written = 0
        while written < len(pieces) and count >= len(pieces[written]):
            count -= len(pieces[written])
            written += 1
        del pieces[:written]
        if pieces:
            pieces[0] = pieces[0][count:]
            return None
        self._out.popleft()
        if unanswered is None:
            return None
        return Completed(unanswered, None, None, version, now)

    # -- receiving

    def fetch_due(self) -> Request | None:
        """The fetch whose answer begins to arrive, to be stored in an arena; None: it is the answer to something else.

        Raises:
            MalformedMessageError: nothing was asked, so nothing is due.
        """
        head = self._head()
        return head.request if head.message.API_KEY in _BRING_RECORDS else None

    def receive(self, frame: Any, loan: Loan | None, now: int) -> Completed | None:
        """One whole frame without its length. Returns the answer, None for the connection's own exchange.

        Raises:
            MalformedMessageError: bytes that do not belong here, or with which a parser cannot cope, whatever it
            raises. ConnectError: ApiVersions was refused. WrongNodeError: since another node was meant.
            AuthenticationError: SASL was refused.
        """
        try:
            return self._received(frame, loan, now)
        except KafkaError:
            raise
        except Exception as error:
            name = self._in_flight[0].name if self._in_flight else "a request"
            raise self._unreadable(name, frame, error) from error

    def _unreadable(self, name: str, frame: Any, error: Exception) -> MalformedMessageError:
        return MalformedMessageError(
            f"{self.address} answered {name} with {len(frame)} bytes that cannot be read: {unreadable(error)}"
        )

    def _received(self, frame: Any, loan: Loan | None, now: int) -> Completed | None:
        head = self._head()
        correlation_id = int.from_bytes(frame[:4], signed=True)
        if correlation_id != head.correlation_id:
            raise MalformedMessageError(
                f"{self.address} answered with correlation id {correlation_id} where {head.correlation_id} "
                f"({head.name}) was expected; the connection can no longer be used"
            )
        if head.request is None:
            if isinstance(head.message, ApiVersionsRequest):
                self._versions_answered(frame, head, now)
            else:
                self._sasl_answered(frame, head, now)
            return None
        response = head.decode(head.version, frame, self.address)
        self._in_flight.popleft()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.held_until = max(self.held_until, now + throttle_ms)
            # The broker reads nothing of a connection that it throttles: waiting requests have so much more time.
            for sent in self._in_flight:
                sent.deadline = add_ms(sent.deadline, throttle_ms)
        return Completed(head.request, response, None, head.version, now, loan, head.sent_at)

    # -- authenticating

    def tick(self, now: int) -> None:
        """Authenticate again when the session nears its end.

        Raises:
            AuthenticationError, ConnectError: there are no credentials.
        """
        if now >= self._renew_at:
            self._renew_at = FOREVER
            self._authenticate(now)

    def resume(self, now: int) -> None:
        """Credentials that had to be fetched may be there now.

        Raises:
            AuthenticationError, ConnectError: they cannot be had.
        """
        if self._wants_login:
            self._authenticate(now)

    # -- ending

    def lose(self, error: KafkaError, now: int) -> list[Completed]:
        """The connection is gone; returns how the requests on it ended.

        Overdue requests have timed out, an error about bytes belongs to the request that they answered, and the
        rest was lost on the way: it may or may not have been served.
        """
        self.phase = Phase.CLOSED
        completed = []
        waiting = [(sent.request, sent.version, sent.name, sent.deadline) for sent in self._in_flight]
        waiting += [(request, version, "Produce", FOREVER) for _, request, version in self._out if request]
        for place, (request, version, name, deadline) in enumerate(waiting):
            if request is None:
                continue
            failure: KafkaError
            if deadline <= now:
                failure = RequestTimedOutError(
                    f"{self.address} did not answer {name} in time; the connection was closed"
                )
            elif place == 0 and isinstance(error, MalformedMessageError):
                failure = error
            else:
                failure = DisconnectedError(f"lost the connection with {name} in flight: {error}")
                failure.__cause__ = error
            completed.append(Completed(request, None, failure, version, now))
        self._in_flight.clear()
        self._out.clear()
        return completed

    # -- the state, for the shell

    @property
    def in_flight(self) -> int:
        """Requests of others that were handed to this connection and have not ended."""
        unanswered = sum(request is not None for _, request, _ in self._out)
        return unanswered + sum(sent.request is not None for sent in self._in_flight)

    @property
    def owed(self) -> int:
        """Those of them that no other broker can answer."""
        requests = chain((request for _, request, _ in self._out), (sent.request for sent in self._in_flight))
        return sum(request is not None and request.node_id != ANY_NODE for request in requests)

    @property
    def idle(self) -> bool:
        """Nothing in flight and nothing to write."""
        return not self._in_flight and not self._out

    @property
    def owes_since(self) -> int:
        """The time (ms) at which the oldest request in flight was sent; `FOREVER`: none is in flight."""
        return self._in_flight[0].sent_at if self._in_flight else FOREVER

    def can_send(self, now: int) -> bool:
        """Ready, not throttled, and not in the middle of another authentication."""
        return self.is_steady and now >= self.held_until

    @property
    def is_steady(self) -> bool:
        """Ready, and not in the middle of another authentication."""
        return self.phase is Phase.READY and self._authentication is None

    def next_deadline(self) -> int:
        """The time at which the first request in flight is overdue, or the session nears its end."""
        deadline = self._renew_at
        for sent in self._in_flight:
            if sent.deadline < deadline:  # noqa: PLR1730 - min() costs more, in each turn
                deadline = sent.deadline
        return deadline

    def overdue(self, now: int) -> RequestTimedOutError | None:
        """The error to close with when a request in flight is overdue."""
        for sent in self._in_flight:
            if sent.deadline <= now:
                return RequestTimedOutError(f"{self.address} did not answer {sent.name} in time")
        return None

    def __repr__(self) -> str:
        return f"<connection to {self.address} {self.phase.value} in_flight={self.in_flight}>"

    # -- inside

    def _head(self) -> Sent:
        """The request whose answer is due."""
        if not self._in_flight:
            raise MalformedMessageError(
                f"{self.address} sent bytes that answer no request; is it a Kafka listener?"
            )
        return self._in_flight[0]

    def _put(self, request: Request | None, message: Any, version: int, now: int) -> None:
        next_id = self._correlation_id + 1 if self._correlation_id < _MAX_CORRELATION_ID else 0
        pieces = encode_frame(message, version, next_id, self._client_id)
        if len(pieces) > 1 and message.API_KEY != _PRODUCE:
            # The native thread may write between two pieces, where it writes.
            pieces = [b"".join(pieces)]
        # Only now: a request that cannot be encoded must not use up an id.
        self._correlation_id = next_id
        size = sum(map(len, pieces))
        self.encoded_bytes += size
        if request is None:
            self.own_sizes.append(size)
        unwritten = [memoryview(piece) for piece in pieces]
        if message.API_KEY == _PRODUCE and message.acks == 0:
            self._out.append((unwritten, request, version))
            return
        deadline = add_ms(now, self._request_timeout_ms)
        if request is not None and deadline < request.deadline < FOREVER:
            deadline = request.deadline
        self._out.append((unwritten, None, version))
        sent = Sent(request, message, version, next_id, deadline, now)
        if request is not None and request.repeat is not None and next_id < _LAST_TO_REPEAT:
            (sent.frame,) = unwritten
        self._in_flight.append(sent)

    def _ask_versions(self, version: int, now: int) -> None:
        name, number = self._software
        message = ApiVersionsRequest(name, number, *(self._meant or (None, -1)))
        self._put(None, message, version, now)

    def _versions_answered(self, frame: Any, head: Sent, now: int) -> None:
        if int.from_bytes(frame[4:6], signed=True) == error_codes.UNSUPPORTED_VERSION and head.version > 0:
            self._in_flight.popleft()
            self._ask_versions(head.lower_version(frame, self.address), now)
            return
        response: ApiVersionsResponse = head.decode(head.version, frame, self.address)
        self._in_flight.popleft()
        if response.error_code == error_codes.REBOOTSTRAP_REQUIRED and self._meant is not None:
            cluster_id, node_id = self._meant
            raise WrongNodeError(f"{self.address} is not node {node_id} of cluster {cluster_id}")
        if response.error_code != error_codes.NONE:
            cause = for_code(response.error_code)
            raise ConnectError(f"{self.address} refused ApiVersions v{head.version}: {cause}") from cause
        self.ranges = ranges_of(response.api_keys)
        self.held_until = now + max(0, response.throttle_time_ms)
        if self._login is None:
            self.phase = Phase.READY
            return
        self.phase = Phase.AUTHENTICATING
        self._authenticate(now)

    def _authenticate(self, now: int) -> None:
        assert self._login is not None
        from kadence.connection.authentication import Authentication, exchanging

        with exchanging(self._login, self.address):
            exchange = self._login.begin(now, self._host)
        self._wants_login = exchange is None
        if exchange is not None:
            self._login_began = now
            self._authentication = Authentication(self._login, exchange, self.address, self.ranges)
            self._say(self._authentication, self._authentication.start(), now)

    def _say(self, authentication: Authentication, message: SaslMessage, now: int) -> None:
        version = authentication.version(message)
        assert version is not None
        # It waits behind what is in flight: a parked JoinGroup may take longer than a request of ours.
        patience = max([now, *(sent.deadline for sent in self._in_flight)])
        self._put(None, message, version, now)
        self._in_flight[-1].deadline = add_ms(patience, self._request_timeout_ms)

    def _sasl_answered(self, frame: Any, head: Sent, now: int) -> None:
        authentication = self._authentication
        assert authentication is not None
        response = head.decode(head.version, frame, self.address)
        self._in_flight.popleft()
        message = authentication.answered(response)
        if message is not None:
            self._say(authentication, message, now)
            return
        self._authentication = None
        self.logins += 1
        self.login_ms = now - self._login_began
        self.phase = Phase.READY
        if authentication.lifetime_ms > 0:
            self._renew_at = add_ms(now, authentication.renew_after_ms)
