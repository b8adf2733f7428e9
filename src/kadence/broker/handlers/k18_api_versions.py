"""ApiVersions (18): which APIs and versions there are. v3 flexible, with the client's name  v4 features from 0.

A version above ours is answered too, in the format of v0 with UNSUPPORTED_VERSION, so that any client
can find out what to speak. `dispatch` sees to that; the header of the answer is v0 in every version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

__all__ = ["make_handler", "offer"]

_NAMED_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""What a client may call itself (KIP-511)."""


def offer(handlers: Iterable[Handler], error_code: int = codes.NONE) -> ApiVersionsResponse:
    """What these handlers serve."""
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersion(api_key=each.api_key, min_version=each.versions[0], max_version=each.versions[1])
            for each in sorted(handlers, key=lambda each: each.api_key)
        ],
    )


def make_handler(others: Iterable[Handler]) -> Handler:
    """The handler, knowing all others."""
    known: list[Handler] = list(others)

    def handle(_services: Services, call: Call) -> ApiVersionsResponse:
        message: ApiVersionsRequest = call.message
        names = (message.client_software_name, message.client_software_version)
        if call.version >= _NAMED_FROM and not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=codes.INVALID_REQUEST)
        return offer(known)

    def refuse(_call: Call, code: int) -> ApiVersionsResponse:
        return offer(known, code)

    handler = Handler(ApiVersionsRequest, handle, refuse)
    known.append(handler)
    return handler
