"""OffsetFetch (9). v2 all topics  v5 leader epoch  v7 require stable  v8 several groups  v9 member  v10 topic ids.

The rules are in `kadence_broker.coordinator.offsets.fetch`; here groups that other nodes coordinate are refused.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> OffsetFetchResponse | None:
    request: OffsetFetchRequest = call.message
    if call.version < 8:
        code = services.coordination.coordinator_error(call, request.group_id)
        if code != codes.NONE:
            return refuse(call, code)
        services.coordination.serve(call)
        return None
    errors = [(each, services.coordination.coordinator_error(call, each.group_id)) for each in request.groups]
    request.groups = [group for group, code in errors if code == codes.NONE]
    elsewhere = [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
        for group, code in errors
        if code != codes.NONE
    ]
    services.coordination.serve(call, lambda response: response.groups.extend(elsewhere))
    return None


def refuse(call: Call, code: int) -> OffsetFetchResponse:
    if call.version >= 8:
        groups = [
            OffsetFetchResponseGroup(group_id=each.group_id, error_code=code) for each in call.message.groups
        ]
        return OffsetFetchResponse(groups=groups)
    return OffsetFetchResponse(error_code=code)


HANDLER = Handler(OffsetFetchRequest, handle, refuse)
