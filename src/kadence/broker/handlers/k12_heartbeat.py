"""Heartbeat (12). The rules and their versions are in `kadence.coordinator.classic.syncing`."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> HeartbeatResponse | None:
    code = services.coordination.coordinator_error(call, call.message.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.coordination.serve(call)
    return None


def refuse(_call: Call, code: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


HANDLER = Handler(HeartbeatRequest, handle, refuse)
