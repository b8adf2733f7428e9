"""The requests of a classic member: JoinGroup, SyncGroup and Heartbeat, and their timeouts.

LeaveGroup is `LeaveGroupDepartures`. The state machine in `classic_member` decides when; this file knows the messages'
fields.

Kafka moved the same data from single fields into lists (KIP-345), and a field that a version does not know may not be
set. The version is known only when the bytes are written, so these messages hold the newest form and write the older
one where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Self

from kadence.clock import add_ms
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.consumer.assignors.base import MemberSubscription
from kadence.consumer.assignors.embedded import encode_subscription
from kadence.consumer.group.leaving import Departure, Departures
from kadence.consumer.group.membership import GroupConfig
from kadence.lazy_dataclasses import replace
from kadence.protocol import error_codes, leave_group, sync_group
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import MemberIdentity
from kadence.protocol.sync_group import SyncGroupRequestAssignment
from kadence.types import GroupMetadata, TopicPartition
from kadence.wire import Reader, WireError, Writer

__all__ = [
    "PROTOCOL_TYPE",
    "ClassicRequests",
    "LeaveGroupDepartures",
    "SyncGroupRequest",
    "SyncGroupResponse",
]

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups of consumers (Kafka Connect's is "connect")."""

_JOIN_MARGIN_MS: Final = 5_000
"""A JoinGroup is parked for up to the rebalance timeout; its response may take this much longer (ms) to arrive."""
_REASON_MAX: Final = 255
_MEMBER_LIST: Final = 3
_THROTTLED: Final = 1


class SyncGroupResponse(sync_group.SyncGroupResponse):
    """Reads the error code even if the rest of the response is unreadable.

    librdkafka's mock cluster sends a null assignment with an error, which the protocol does not allow; only the error
    matters, and rejoining resolves it.
    """

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        start = r.pos
        try:
            return super().read(r, version)
        except WireError:
            r.pos = start
            throttle_time_ms = r.int32() if version >= _THROTTLED else 0
            error_code = r.int16()
            if error_code == error_codes.NONE:
                raise
            return cls(throttle_time_ms=throttle_time_ms, error_code=error_code)


class SyncGroupRequest(sync_group.SyncGroupRequest):
    """Answered by the `SyncGroupResponse` above."""

    RESPONSE: ClassVar[type] = SyncGroupResponse


class LeaveGroupRequest(leave_group.LeaveGroupRequest):
    """Holds ``members`` (v3+, KIP-345); writes ``member_id`` below."""

    def write(self, w: Writer, version: int) -> None:
        if version >= _MEMBER_LIST:
            super().write(w, version)
        else:
            (member,) = self.members
            leave_group.LeaveGroupRequest(group_id=self.group_id, member_id=member.member_id).write(
                w, version
            )


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
            group: the identity it joins with. topics: those to read. owned: its current partitions, as reported to
                every assignor. reason: why it joins (KIP-800).
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
                    name=name, metadata=encode_subscription(replace(said, user_data=data))
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
        """SyncGroup: the leader's contains each member's assignment, other members' contain none."""
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
        """The heartbeat that the native thread may send: the same object as long as the identity is the same."""
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


class LeaveGroupDepartures(Departures):
    """Sends LeaveGroup.

    A static member sends nothing: its place is kept until its session ends (KIP-345).
    """

    def add(
        self, now: int, group: GroupMetadata, joining: Request | None, reason: str, *, awaited: bool = False
    ) -> None:
        says_so = group.group_instance_id is None if self.goodbye is None else self.goodbye
        if says_so and (group.member_id or joining):
            super().add(now, group, joining, reason, awaited=awaited)

    def joined(self, completed: Completed) -> None:
        """The response to a JoinGroup that no other part waits for."""
        for departure in self._waiting:
            if departure.joining is completed.request:
                answer = completed.response
                if answer is not None and answer.error_code in (
                    error_codes.NONE,
                    error_codes.MEMBER_ID_REQUIRED,
                ):
                    departure.member_id, departure.joining = answer.member_id, None
                else:
                    self._waiting.remove(departure)
                return

    def _goodbye(self, departure: Departure) -> Any:
        member = MemberIdentity(
            member_id=departure.member_id,
            group_instance_id=departure.instance_id,
            reason=departure.reason,
        )
        return LeaveGroupRequest(group_id=self._config.group_id or "", members=[member])

    def _code(self, answer: Any) -> int:
        code: int = answer.error_code
        if code == error_codes.NONE:
            code = next((member.error_code for member in answer.members), code)
        return code
