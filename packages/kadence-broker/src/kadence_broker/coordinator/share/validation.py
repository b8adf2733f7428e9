"""Refuses heartbeats that are invalid for every group (KafkaApis and GroupCoordinatorService of Kafka 4.4)."""

from __future__ import annotations

from typing import Final

from kadence.protocol import error_codes as codes
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.share.config import ShareGroupConfig
from kadence_broker.coordinator.subscriptions import nonsense_of_names

__all__ = ["refuse_nonsense"]

_LONGEST_MEMBER_ID: Final = 36


def refuse_nonsense(config: ShareGroupConfig, request: ShareGroupHeartbeatRequest) -> None:
    """Check the request without the group, in Kafka's order.

    Raises:
        RefusedError: UNSUPPORTED_VERSION: share groups are switched off; INVALID_REQUEST.
    """
    if config.version < 1:
        raise RefusedError(codes.UNSUPPORTED_VERSION)
    if not 0 < len(request.member_id) <= _LONGEST_MEMBER_ID:
        raise RefusedError(codes.INVALID_REQUEST)
    problem = _nonsense(request) or nonsense_of_names(request.subscribed_topic_names)
    if problem is not None:
        raise RefusedError(codes.INVALID_REQUEST, problem)


def _nonsense(request: ShareGroupHeartbeatRequest) -> str | None:
    if not request.member_id.strip():
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if request.member_epoch == 0:
        return (
            None if request.subscribed_topic_names else "SubscribedTopicNames must be set in first request."
        )
    return "MemberEpoch is invalid." if request.member_epoch < -1 else None
