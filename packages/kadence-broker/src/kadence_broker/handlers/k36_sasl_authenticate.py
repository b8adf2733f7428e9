"""SaslAuthenticate (36): one step of a login. v1 session lifetime (KIP-368)  v2 flexible.

A refused client gets the error after `connection.failed.authentication.delay.ms`; then the connection ends (KIP-306).
"""

from __future__ import annotations

from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> SaslAuthenticateResponse | None:
    session = call.connection.session
    response, is_refused = session.authenticate(call.message.auth_bytes, call.now)
    if is_refused:
        call.end(response, services.settings.failed_login_delay_ms)
        return None
    if session.is_open:
        call.connection.allow_frames_of(services.settings.socket_request_max_bytes)
    return response


def refuse(call: Call, code: int) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code)


HANDLER = Handler(SaslAuthenticateRequest, handle, refuse)
