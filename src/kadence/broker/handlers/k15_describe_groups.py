"""DescribeGroups (15). v3 authorised operations  v4 instance ids  v5 flexible  v6 unknown groups are errors."""

from __future__ import annotations

from kadence.broker.operations import GROUP_OPERATIONS
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    asked: list[str] = call.message.groups
    errors = {name: services.coordination.coordinator_error(call, name) for name in asked}
    call.message.groups = [name for name in asked if errors[name] == codes.NONE]
    elsewhere = [
        DescribedGroup(error_code=errors[name], group_id=name) for name in asked if errors[name] != codes.NONE
    ]

    def amend(response: DescribeGroupsResponse) -> None:
        if call.message.include_authorized_operations:
            for each in response.groups:
                if each.error_code == codes.NONE:
                    each.authorized_operations = GROUP_OPERATIONS
        response.groups.extend(elsewhere)

    services.coordination.serve(call, amend)


def refuse(call: Call, code: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(error_code=code, group_id=name) for name in call.message.groups]
    )


HANDLER = Handler(DescribeGroupsRequest, handle, refuse)
