"""ListGroups (16): the groups that the asked node coordinates. v3 flexible  v4 states  v5 types."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    def amend(response: ListGroupsResponse) -> None:
        response.groups = [
            each
            for each in response.groups
            if services.coordination.coordinator_error(call, each.group_id) == codes.NONE
        ]

    services.coordination.serve(call, amend)


def refuse(_call: Call, code: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)


HANDLER = Handler(ListGroupsRequest, handle, refuse)
