"""Requests that coordinators serve. This node passes them on, or answers that it is not the coordinator.

Their meaning, and the differences between versions, are in `kadence_broker.coordinator`: JoinGroup (11), SyncGroup
(14), Heartbeat (12) and LeaveGroup (13) in `classic`, ConsumerGroupHeartbeat (68, KIP-848) in `consumer`, OffsetDelete
(47) in `offsets`, DescribeGroups (15) and ConsumerGroupDescribe (69) in `admin`, and InitProducerId (22, KIP-98),
AddOffsetsToTxn (25) and EndTxn (26) in `transactions`; ShareGroupHeartbeat (76, KIP-932), ShareGroupDescribe (77),
AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92) in `share`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kadence.protocol import consumer_group_describe, describe_groups, share_group_describe
from kadence.protocol import error_codes as codes
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kadence.protocol.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kadence.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kadence.protocol.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kadence.protocol.end_txn import EndTxnRequest, EndTxnResponse
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kadence.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence_broker.operations import GROUP_OPERATIONS
from kadence_broker.service import Call, Handler, Services

__all__ = ["BY_COORDINATOR", "of_group"]

_Refuse = Callable[[Call, int], Any]


def of_group(request: type[Any], refuse: _Refuse) -> Handler:
    """The handler of a request that names one group.

    Args:
        refuse: makes the answer that has nothing but an error code.
    """

    def handle(services: Services, call: Call) -> Any:
        code = services.coordination.coordinator_error(call, call.message.group_id)
        if code != codes.NONE:
            return refuse(call, code)
        services.coordination.serve(call)
        return None

    return Handler(request, handle, refuse)


def _of_transactional_id(request: type[Any], refuse: _Refuse) -> Handler:
    """As `of_group`. Without an id (InitProducerId of a producer without transactions) any node serves the request."""

    def handle(services: Services, call: Call) -> Any:
        code = services.transactions.coordinator_error(call, call.message.transactional_id)
        if code != codes.NONE:
            return refuse(call, code)
        services.transactions.serve(call)
        return None

    return Handler(request, handle, refuse)


def _of_groups(request: type[Any], names: str, response: type[Any], described: type[Any]) -> Handler:
    """The handler of a request that describes several groups: those of other nodes are refused one by one.

    Args:
        names: the request's field.
    """

    def handle(services: Services, call: Call) -> None:
        asked: list[str] = getattr(call.message, names)
        errors = {name: services.coordination.coordinator_error(call, name) for name in asked}
        setattr(call.message, names, [name for name in asked if errors[name] == codes.NONE])
        elsewhere = [name for name in asked if errors[name] != codes.NONE]

        def amend(answer: Any) -> None:
            if call.message.include_authorized_operations:
                for each in answer.groups:
                    if each.error_code == codes.NONE:
                        each.authorized_operations = GROUP_OPERATIONS
            answer.groups.extend(described(error_code=errors[name], group_id=name) for name in elsewhere)

        services.coordination.serve(call, amend)

    def refuse(call: Call, code: int) -> Any:
        return response(
            groups=[described(error_code=code, group_id=name) for name in getattr(call.message, names)]
        )

    return Handler(request, handle, refuse)


def _refused(response: type[Any], **fields: Any) -> _Refuse:
    return lambda _call, code: response(error_code=code, **fields)


def _refused_join(call: Call, code: int) -> JoinGroupResponse:
    name = None if call.version >= 7 else ""
    return JoinGroupResponse(
        error_code=code, member_id=call.message.member_id, protocol_name=name, generation_id=-1
    )


BY_COORDINATOR: Final = (
    of_group(JoinGroupRequest, _refused_join),
    of_group(HeartbeatRequest, _refused(HeartbeatResponse)),
    of_group(LeaveGroupRequest, _refused(LeaveGroupResponse)),
    of_group(SyncGroupRequest, _refused(SyncGroupResponse)),
    of_group(OffsetDeleteRequest, _refused(OffsetDeleteResponse)),
    of_group(ConsumerGroupHeartbeatRequest, _refused(ConsumerGroupHeartbeatResponse)),
    of_group(ShareGroupHeartbeatRequest, _refused(ShareGroupHeartbeatResponse)),
    of_group(AlterShareGroupOffsetsRequest, _refused(AlterShareGroupOffsetsResponse)),
    of_group(DeleteShareGroupOffsetsRequest, _refused(DeleteShareGroupOffsetsResponse)),
    _of_groups(
        describe_groups.DescribeGroupsRequest,
        "groups",
        describe_groups.DescribeGroupsResponse,
        describe_groups.DescribedGroup,
    ),
    _of_groups(
        consumer_group_describe.ConsumerGroupDescribeRequest,
        "group_ids",
        consumer_group_describe.ConsumerGroupDescribeResponse,
        consumer_group_describe.DescribedGroup,
    ),
    _of_groups(
        share_group_describe.ShareGroupDescribeRequest,
        "group_ids",
        share_group_describe.ShareGroupDescribeResponse,
        share_group_describe.DescribedGroup,
    ),
    _of_transactional_id(
        InitProducerIdRequest, _refused(InitProducerIdResponse, producer_id=-1, producer_epoch=-1)
    ),
    _of_transactional_id(AddOffsetsToTxnRequest, _refused(AddOffsetsToTxnResponse)),
    _of_transactional_id(EndTxnRequest, _refused(EndTxnResponse)),
)
