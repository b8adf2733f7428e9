"""JoinGroup (11). The rules and their versions are in `kadence.coordinator.classic.joining`."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> JoinGroupResponse | None:
    code = services.coordination.coordinator_error(call, call.message.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.coordination.serve(call)
    return None


def refuse(call: Call, code: int) -> JoinGroupResponse:
    name = None if call.version >= 7 else ""
    return JoinGroupResponse(
        error_code=code, member_id=call.message.member_id, protocol_name=name, generation_id=-1
    )


HANDLER = Handler(JoinGroupRequest, handle, refuse)
