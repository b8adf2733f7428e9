"""What a classic member sends: JoinGroup, SyncGroup and Heartbeat, and how long each may take.

The state machine in `classic` decides when; this file knows the messages' fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from kadence.clock import add_ms
from kadence.connection.request import ConnectionPurpose, Request
from kadence.consumer.assignors.base import MemberSubscription
from kadence.consumer.assignors.embedded import encode_subscription
from kadence.consumer.group.forms import SyncGroupRequest
from kadence.consumer.group.membership import GroupConfig
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.sync_group import SyncGroupRequestAssignment
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["PROTOCOL_TYPE", "ClassicRequests"]

PROTOCOL_TYPE: Final = "consumer"
"""What the groups of consumers are called among all groups (Kafka Connect's are "connect")."""

_JOIN_MARGIN_MS: Final = 5_000
"""A JoinGroup is parked for up to the rebalance timeout; its answer gets so much longer to arrive."""
_REASON_MAX: Final = 255


class ClassicRequests:
    """Requests of one member.

    Args:
        config: the group's keys.
    """

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._native_heartbeat: tuple[GroupMetadata, HeartbeatRequest] | None = None

    def join(
        self,
        now: int,
        node_id: int,
        group: GroupMetadata,
        topics: frozenset[str],
        owned: Iterable[TopicPartition],
        user_data: Mapping[str, bytes | None],
        reason: str,
    ) -> Request:
        """JoinGroup.

        Args:
            group: the identity it joins with. topics: what it wants to read.
            owned: what it holds now, as it tells every assignor. reason: why it joins (KIP-800).
            user_data: each assignor's own bytes, the preferred assignor first.
        """
        said = MemberSubscription(
            topics=topics,
            owned=tuple(sorted(owned)),
            generation=group.generation_id,
            rack=self._config.client_rack or None,
        )
        message = JoinGroupRequest(
            group_id=group.group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.processing_timeout_ms,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name, metadata=encode_subscription(dataclasses.replace(said, user_data=data))
                )
                for name, data in user_data.items()
            ],
            reason=reason[:_REASON_MAX],
        )
        return Request(message, node_id, self._parked_until(now), ConnectionPurpose.JOIN)

    def sync(
        self,
        now: int,
        node_id: int,
        group: GroupMetadata,
        assignor: str | None,
        assignments: Mapping[str, bytes],
    ) -> Request:
        """SyncGroup: the leader's with what each member gets, everybody else's with nothing."""
        message = SyncGroupRequest(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        return Request(message, node_id, self._parked_until(now), ConnectionPurpose.JOIN)

    def heartbeat(self, node_id: int, group: GroupMetadata, deadline: int) -> Request:
        return Request(_heartbeat(group), node_id, deadline, ConnectionPurpose.GROUP)

    def native_heartbeat(self, group: GroupMetadata) -> HeartbeatRequest:
        """The heartbeat that the native thread may send: the same object as long as the identity is."""
        if self._native_heartbeat is None or self._native_heartbeat[0] is not group:
            self._native_heartbeat = group, _heartbeat(group)
        return self._native_heartbeat[1]

    def _parked_until(self, now: int) -> int:
        parked = self._config.processing_timeout_ms + _JOIN_MARGIN_MS
        return add_ms(now, max(self._config.request_timeout_ms, parked))


def _heartbeat(group: GroupMetadata) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
    )
