"""ConsumerGroupDescribe (69), KIP-848. v1 says which protocol each member speaks."""

from __future__ import annotations

from kadence.broker.operations import GROUP_OPERATIONS
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    asked: list[str] = call.message.group_ids
    errors = {name: services.coordination.coordinator_error(call, name) for name in asked}
    call.message.group_ids = [name for name in asked if errors[name] == codes.NONE]
    elsewhere = [
        DescribedGroup(error_code=errors[name], group_id=name) for name in asked if errors[name] != codes.NONE
    ]

    def amend(response: ConsumerGroupDescribeResponse) -> None:
        if call.message.include_authorized_operations:
            for each in response.groups:
                if each.error_code == codes.NONE:
                    each.authorized_operations = GROUP_OPERATIONS
        response.groups.extend(elsewhere)

    services.coordination.serve(call, amend)


def refuse(call: Call, code: int) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(error_code=code, group_id=name) for name in call.message.group_ids]
    )


HANDLER = Handler(ConsumerGroupDescribeRequest, handle, refuse)
