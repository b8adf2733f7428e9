"""From a frame to its answer: decode, let the faults have their say, hand to the handler of the API.

Bytes that are no request end their connection, with one line in the log. ApiVersions in a version that is
not known here is the exception: it is answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kadence.broker.faults import Faults
from kadence.broker.handlers import HANDLERS, offer
from kadence.broker.server.connection import Connection
from kadence.broker.service import Call, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.registry import UnsupportedRequestError, decode_request
from kadence.wire import WireError
from kadence.wire.reader import Buffer

__all__ = ["Dispatcher"]

_log = logging.getLogger("kadence.broker")


class Dispatcher:
    """Knows the call that each connection is busy with."""

    __slots__ = ("_calls", "_faults", "_services")

    def __init__(self, services: Services, faults: Faults) -> None:
        self._services = services
        self._faults = faults
        self._calls: dict[Connection, Call] = {}

    def on_frame(self, connection: Connection, frame: Buffer) -> None:
        """Serve one request."""
        try:
            header, message = decode_request(frame)
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
            self._services.loop.clock.now_ms(),
        )
        self._calls[connection] = call
        self._guarded(call, self._intercept)

    def on_close(self, connection: Connection) -> None:
        """The client is gone; what it waits for need not be answered."""
        call = self._calls.pop(connection, None)
        if call is not None:
            call.abandon()

    def _intercept(self, call: Call) -> None:
        if not self._faults.intercept(
            self._services.loop, call, lambda later: self._guarded(later, self._handle)
        ):
            self._handle(call)

    def _handle(self, call: Call) -> None:
        if call.is_done:
            return
        response = call.handler.handle(self._services, call)
        if response is not None:
            call.reply(response)

    def _guarded(self, call: Call, serve: Callable[[Call], None]) -> None:
        try:
            serve(call)
        except Exception:  # noqa: BLE001 - a bug costs the one connection that met it
            _log.exception("a bug in serving %r", call)
            call.connection.close(f"a bug in serving {type(call.message).__name__}")

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
        self._calls[connection] = call
        call.reply(offer(HANDLERS.values(), codes.UNSUPPORTED_VERSION))
