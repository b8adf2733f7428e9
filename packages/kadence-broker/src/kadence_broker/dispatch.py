"""Turns a frame into its answer: decodes it, applies injected faults, and calls the handler of the API.

If the bytes are no request, the connection is closed, with one line in the log. The exception is ApiVersions in an
unknown version, which is answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.registry import UnsupportedRequestError, decode_request_body, decode_request_header
from kadence.wire import WireError
from kadence.wire.reader import BoundedReader, Buffer
from kadence_broker.faults import Faults
from kadence_broker.handlers import HANDLERS, offer
from kadence_broker.server.connection import Connection
from kadence_broker.server.sasl import LoginError
from kadence_broker.service import Call, Services, guarded

__all__ = ["Dispatcher"]

_log = logger("kadence.broker")


class Dispatcher:
    """Takes the frames of all connections.

    Attributes:
        watch: called with each call before it is served.
    """

    __slots__ = ("_faults", "_services", "watch")

    def __init__(self, services: Services, faults: Faults) -> None:
        self._services = services
        self._faults = faults
        self.watch: Callable[[Call], None] | None = None

    def on_frame(self, connection: Connection, frame: Buffer) -> None:
        """Serve one request, or one step of a login that comes without a request (SaslHandshake v0)."""
        session = connection.session
        if session.takes_tokens:
            self._step_login(connection, frame)
            return
        now = self._services.loop.clock.now_ms()
        try:
            header, reader = decode_request_header(frame, BoundedReader)
            # Before the body is read: strangers get nothing of the more complex schemas.
            refusal = session.check(header.request_api_key, now)
            if refusal is not None and refusal.code == codes.NONE:
                connection.close(refusal.reason)
                return
            message = decode_request_body(header, reader)
        except UnsupportedRequestError as error:
            self._unsupported(connection, error)
            return
        except WireError as error:
            connection.close(f"no Kafka request: {error}")
            return
        handler = HANDLERS.get(message.API_KEY)
        if handler is None:
            connection.close(f"{type(message).__name__} is not served here")
            return
        call = Call(
            connection,
            handler,
            header.request_api_version,
            header.correlation_id,
            header.client_id or "",
            message,
            now,
        )
        if refusal is not None:
            _log.warning("connection of %s refused: %s", connection.peer, refusal.reason)
            call.end(handler.refuse(call, refusal.code), self._services.settings.failed_login_delay_ms)
            return
        if not session.is_open and message.API_KEY == ApiVersionsRequest.API_KEY:
            session.offered()
        if not handler.keeps_frame:
            connection.let_request_go()
        connection.on_gone = call.abandon
        if self.watch is not None:
            self.watch(call)
        guarded(call, self._intercept if self._faults.in_force else self._handle)

    def _step_login(self, connection: Connection, token: Buffer) -> None:
        session = connection.session
        try:
            answer = session.token(bytes(token), self._services.loop.clock.now_ms())
        except LoginError as error:
            connection.close(f"login refused: {error}")
            return
        if session.is_open:
            connection.allow_frames_of(self._services.settings.socket_request_max_bytes)
            connection.expect_tokens(False)
        connection.send([len(answer).to_bytes(4, "big"), answer])
        connection.finish()

    def _intercept(self, call: Call) -> None:
        if not self._faults.intercept(self._services.loop, call, lambda later: guarded(later, self._handle)):
            self._handle(call)

    def _handle(self, call: Call) -> None:
        if not call.is_done:
            self._services.serve(call)

    def _unsupported(self, connection: Connection, error: UnsupportedRequestError) -> None:
        header = error.header
        if header.request_api_key != ApiVersionsRequest.API_KEY:
            connection.close(str(error))
            return
        call = Call(
            connection,
            HANDLERS[ApiVersionsRequest.API_KEY],
            0,
            header.correlation_id,
            header.client_id or "",
            ApiVersionsRequest(),
            self._services.loop.clock.now_ms(),
        )
        call.reply(offer(HANDLERS.values(), codes.UNSUPPORTED_VERSION))
