"""The arguments of handlers: the request to answer (`Call`), and the broker's state (`Services`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.wire import WireError
from kadence.wire.reader import Buffer
from kadence_broker.coordinator import Caller
from kadence_broker.scatter import Encoded, encode_scattered

if TYPE_CHECKING:
    from kadence_broker.cluster import Cluster
    from kadence_broker.coordination import Coordination
    from kadence_broker.server.connection import Connection
    from kadence_broker.server.loop import Loop
    from kadence_broker.sessions import SessionCache
    from kadence_broker.settings import Settings
    from kadence_broker.share.leader import ShareLeader
    from kadence_broker.storage import Partition
    from kadence_broker.transactions import Transactions

__all__ = ["Call", "Handler", "Services", "Steps", "guarded"]

_log = logger("kadence.broker")

Steps = Generator[int, None, Any]
"""A request that is served step by step. It yields about how many µs a step took at most, and returns the response, or
None as a handler does."""

_PIECE_US: Final = 10_000
"""The time for which other requests wait for the steps of one, as these count it."""

_HALF: Final = -1
"""Stands for half of the size of an answer."""


class Call:
    """One request on its way to its answer. Exactly one of `reply` and `finish` ends it.

    Attributes:
        message: the decoded request. node_id: the node it was sent to. version: the version of its API.
        now: when it came (monotonic ms). on_abandoned: a callback for when the client disconnects before the
            answer.
        on_reply: called with the answer, before it is sent (a simulation's watch).
        answer_bytes: what `element` has made so far.
    """

    __slots__ = (
        "_cut_to",
        "_is_muted",
        "answer_bytes",
        "client_id",
        "connection",
        "correlation_id",
        "handler",
        "is_done",
        "message",
        "node_id",
        "now",
        "on_abandoned",
        "on_reply",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        handler: Handler,
        version: int,
        correlation_id: int,
        client_id: str,
        message: Any,
        now: int,
    ) -> None:
        self.connection = connection
        self.node_id = connection.node_id
        self.handler = handler
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.message = message
        self.now = now
        self.is_done = False
        self._is_muted = False
        self._cut_to: int | None = None
        self.answer_bytes = 0
        self.on_abandoned: Callable[[], None] | None = None
        self.on_reply: Callable[[Any], None] | None = None

    def __repr__(self) -> str:
        return f"<call {type(self.message).__name__} v{self.version} of {self.connection.peer}>"

    @property
    def principal(self) -> str:
        """The client: "User:" with the name of the login or the certificate's subject; "User:ANONYMOUS" if neither."""
        return self.connection.principal

    def caller(self) -> Caller:
        """This call as the argument of a coordinator."""
        return Caller(self, self.version, self.client_id, f"/{self.connection.host}")

    def element(self, result: Any) -> Any:
        """Encode ``result`` now, to save memory: it may be one of thousands in an array of the answer."""
        if self.on_reply is not None:
            return result  # The watch reads its fields.
        encoded = Encoded(result, self.version)
        self.answer_bytes += len(encoded.data)
        return encoded

    def reply(self, response: Any) -> None:
        """Send the answer; the connection's next request may be served then. A second answer is dropped."""
        if self.is_done:
            return
        self.is_done = True
        if self.on_reply is not None:
            self.on_reply(response)
        if self.connection.is_closed or self._is_muted:
            return
        buffers = self._encode(response)
        if buffers is None:
            return
        if self._cut_to is not None:
            whole = b"".join(buffers)
            size = len(whole) // 2 if self._cut_to == _HALF else self._cut_to
            self.connection.end([whole[:size]])
            return
        self.connection.send(buffers)
        self.connection.finish()

    def end(self, response: Any, delay_ms: int) -> None:
        """Send the answer after ``delay_ms``, and close the connection with it (a refused login)."""
        if self.is_done:
            return
        self.is_done = True
        buffers = self._encode(response)
        if buffers is not None:
            self.connection.end(buffers, delay_ms)

    def _encode(self, response: Any) -> list[Buffer] | None:
        try:
            return encode_scattered(response, self.version, self.correlation_id)
        except WireError:
            _log.exception("a bug: no answer can be made for %r", self)
            self.connection.close(f"a bug in answering {type(self.message).__name__} v{self.version}")
            return None

    def cut_answer(self, size: int | None) -> None:
        """Let the connection end after ``size`` bytes of the answer; None: after half of it (a fault)."""
        self._cut_to = _HALF if size is None else size

    def mute(self) -> None:
        """Let the call take effect without its answer ever being sent (a fault)."""
        self._is_muted = True

    def finish(self) -> None:
        """End the call without an answer (a produce with acks=0)."""
        if not self.is_done:
            self.is_done = True
            if not self._is_muted:
                self.connection.finish()

    def abandon(self) -> None:
        """The connection is gone."""
        if not self.is_done:
            self.is_done = True
            if self.on_abandoned is not None:
                self.on_abandoned()


def guarded(call: Call, serve: Callable[[Call], None]) -> None:
    """Do something for a call; a bug costs the one connection that met it."""
    try:
        serve(call)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a bug in serving %r", call)
        call.connection.close(f"a bug in serving {type(call.message).__name__}")


class _Paced:
    """Requests that have more to do than others may wait for: a piece of one of them in each turn of the loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Call, Steps]] = deque()

    def begin(self, call: Call, steps: Steps) -> None:
        """Do the first piece now: most requests have no other."""
        self._run(call, steps)

    def _wait(self, call: Call, steps: Steps) -> None:
        if not self._waiting:
            self._loop.soon(self._go_on)
        self._waiting.append((call, steps))

    def _go_on(self) -> None:
        call, steps = self._waiting.popleft()
        if self._waiting:
            self._loop.soon(self._go_on)
        self._run(call, steps)

    def _run(self, call: Call, steps: Steps) -> None:
        """Do a piece. Timers and other requests get here, too: a bug must not cost them, nor hang this one."""
        is_over = True

        def serve(call: Call) -> None:
            nonlocal is_over
            is_over = self._piece(call, steps)

        guarded(call, serve)
        if not is_over:
            self._wait(call, steps)

    @staticmethod
    def _piece(call: Call, steps: Steps) -> bool:
        """Run steps for a while; return whether all are done."""
        if call.is_done and not call.handler.changes:
            steps.close()  # The answer is no longer awaited.
            return True
        spent = 0
        try:
            while spent < _PIECE_US:
                spent += next(steps)
        except StopIteration as end:
            if end.value is not None:
                call.reply(end.value)
            return True
        return False


@dataclass(slots=True)
class Services:
    """The state of one broker, shared by its nodes. Its thread owns it."""

    settings: Settings
    cluster: Cluster
    coordination: Coordination
    transactions: Transactions
    sessions: SessionCache
    shares: ShareLeader
    loop: Loop
    _paced: _Paced = field(init=False)

    def __post_init__(self) -> None:
        self._paced = _Paced(self.loop)

    def serve(self, call: Call) -> None:
        """Let its handler answer a call, now or later."""
        response = call.handler.handle(self, call)
        if isinstance(response, GeneratorType):
            self.in_pieces(call, response)
        elif response is not None:
            call.reply(response)

    def leaders_changed(self, partitions: Iterable[Partition]) -> None:
        """Partitions have other leaders (`Cluster.lead`): the keys that they store have other coordinators."""
        for each in partitions:
            self.coordination.on_new_leader(each)
            self.transactions.on_new_leader(each)
            self.shares.on_new_leader(each)

    def in_pieces(self, call: Call, steps: Steps) -> None:
        """Run the steps of a call; if there are many, serve other calls in between."""
        self._paced.begin(call, steps)

    def reply_durably(self, call: Call, response: Any) -> None:
        """Answer a call that has changed topics, once that is durable."""

        def answer(error: OSError | None) -> None:
            call.reply(response if error is None else call.handler.refuse(call, codes.KAFKA_STORAGE_ERROR))

        self.cluster.on_durable(answer)

    def soon(self, call: Call, serve: Callable[[Call], None]) -> None:
        """Go on with a call after other connections had their turn."""
        self.loop.soon(lambda: guarded(call, serve))

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the loop's clock: what records are dated and kept by."""
        return self.loop.wall_ms()


class _Handle(Protocol):
    def __call__(self, services: Services, call: Call, /) -> Any: ...


class _Refuse(Protocol):
    def __call__(self, call: Call, code: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """One API: its versions and its function.

    Attributes:
        request: the message class; its versions are the ones offered, unless ``offered`` says otherwise.
        handle: returns the response; or `Steps`, where it may have thousands of things to do; or None if the call is
            answered (or will be) in another way.
        refuse: makes a response that says ``code`` everywhere an error can stand (for faults).
        keeps_frame: the decoded request has views of its frame, which is held until the answer.
        changes: its steps are done to the end, though the client has gone.
    """

    request: type[Any]
    handle: _Handle
    refuse: _Refuse
    offered: tuple[int, int] | None = None
    keeps_frame: bool = False
    changes: bool = False

    @property
    def api_key(self) -> int:
        return int(self.request.API_KEY)

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last version in ApiVersions."""
        return self.offered or (self.request.MIN_VERSION, self.request.MAX_VERSION)
