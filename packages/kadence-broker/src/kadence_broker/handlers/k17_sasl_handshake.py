"""SaslHandshake (17): the client chooses a mechanism. v0 the mechanism's bytes follow bare  v1 in SaslAuthenticate."""

from __future__ import annotations

from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> SaslHandshakeResponse | None:
    session = call.connection.session
    response, is_refused = session.handshake(call.message.mechanism, call.version, call.now)
    if is_refused:
        call.end(response, services.settings.failed_login_delay_ms)
        return None
    call.connection.expect_tokens(session.takes_tokens)
    return response


def refuse(call: Call, code: int) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code)


HANDLER = Handler(SaslHandshakeRequest, handle, refuse)
