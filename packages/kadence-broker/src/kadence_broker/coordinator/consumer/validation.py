"""Refuses heartbeats that are invalid for every group (GroupCoordinatorService of Kafka 4.3)."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.consumer.member import LEFT_FOR_A_WHILE
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.subscriptions import nonsense_of_names

__all__ = ["refuse_nonsense"]


def refuse_nonsense(
    config: CoordinatorConfig, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> None:
    """Check the request without the group, in Kafka's order.

    Raises:
        RefusedError: UNSUPPORTED_VERSION, INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    if "consumer" not in config.rebalance_protocols:
        raise RefusedError(codes.UNSUPPORTED_VERSION)
    problem = _nonsense(caller, request) or nonsense_of_names(request.subscribed_topic_names)
    if problem is not None:
        raise RefusedError(codes.INVALID_REQUEST, problem)
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.consumer_assignors:
        raise RefusedError(
            codes.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(config.consumer_assignors)}.",
        )


def _nonsense(caller: Caller, request: ConsumerGroupHeartbeatRequest) -> str | None:
    epoch = request.member_epoch
    if not request.member_id.strip() and (caller.version >= 1 or epoch > 0 or epoch == -1):
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.instance_id is not None and not request.instance_id.strip():
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if epoch == 0:
        return _nonsense_of_join(request)
    if epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEFT_FOR_A_WHILE:
        return "MemberEpoch is invalid."
    return None


def _nonsense_of_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None
