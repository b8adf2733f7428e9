"""OffsetDelete (47)."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> OffsetDeleteResponse | None:
    code = services.coordination.coordinator_error(call, call.message.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.coordination.serve(call)
    return None


def refuse(_call: Call, code: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


HANDLER = Handler(OffsetDeleteRequest, handle, refuse)
