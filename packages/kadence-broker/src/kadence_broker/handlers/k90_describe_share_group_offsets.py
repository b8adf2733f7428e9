"""DescribeShareGroupOffsets (90) of several groups. v0 flexible  v1 lag (KIP-1226).

The rules are in `kadence_broker.coordinator.share.offsets`; here groups that other nodes coordinate are refused.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    request: DescribeShareGroupOffsetsRequest = call.message
    errors = [(each, services.coordination.coordinator_error(call, each.group_id)) for each in request.groups]
    request.groups = [group for group, code in errors if code == codes.NONE]
    elsewhere = [
        DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=code)
        for group, code in errors
        if code != codes.NONE
    ]
    services.coordination.serve(call, lambda response: response.groups.extend(elsewhere))


def refuse(call: Call, code: int) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id, error_code=code)
            for each in call.message.groups
        ]
    )


HANDLER = Handler(DescribeShareGroupOffsetsRequest, handle, refuse)
