"""DeleteGroups (42). v2 flexible  v3 a message for each group, null for the usual errors, as in Kafka."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    asked: list[str] = call.message.groups_names
    errors = {name: services.coordination.coordinator_error(call, name) for name in asked}
    call.message.groups_names = [name for name in asked if errors[name] == codes.NONE]
    elsewhere = [
        DeletableGroupResult(group_id=name, error_code=errors[name])
        for name in asked
        if errors[name] != codes.NONE
    ]
    services.coordination.serve(call, lambda response: response.results.extend(elsewhere))


def refuse(call: Call, code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name in call.message.groups_names]
    )


HANDLER = Handler(DeleteGroupsRequest, handle, refuse)
