"""The broker's side of SASL: one file per mechanism. Bytes in, bytes out; no socket, no clock.

A mechanism is an object for one exchange: `step(data)` takes the client's message and returns the server's. When
`login` is set the exchange is over, and the client is authenticated.
"""

from __future__ import annotations

from kadence_broker.server.sasl.exchange import Login, LoginError, Mechanism
from kadence_broker.server.sasl.oauthbearer import (
    OAuthBearerServer,
    TokenValidator,
    ValidToken,
    unsecured_token,
)
from kadence_broker.server.sasl.plain import PlainServer
from kadence_broker.server.sasl.scram import ScramServer, ScramUser, scram_user

__all__ = [
    "Login",
    "LoginError",
    "Mechanism",
    "OAuthBearerServer",
    "PlainServer",
    "ScramServer",
    "ScramUser",
    "TokenValidator",
    "ValidToken",
    "scram_user",
    "unsecured_token",
]
