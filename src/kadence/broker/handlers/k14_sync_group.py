"""SyncGroup (14). The rules and their versions are in `kadence.coordinator.classic.syncing`."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> SyncGroupResponse | None:
    code = services.coordination.coordinator_error(call, call.message.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.coordination.serve(call)
    return None


def refuse(_call: Call, code: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


HANDLER = Handler(SyncGroupRequest, handle, refuse)
