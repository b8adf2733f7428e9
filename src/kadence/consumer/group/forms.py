"""Requests whose shape depends on the version that the connection negotiates.

Kafka moved the same facts from single fields into lists (KIP-345, KIP-709), or added a field, and a field that a
version does not know may not be set. The version is known only when the bytes are written, so these subclasses hold the
newest form and write the older one where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

from kadence.protocol import (
    consumer_group_heartbeat,
    error_codes,
    leave_group,
    offset_fetch,
    sync_group,
)
from kadence.types import TopicPartition
from kadence.wire import Reader, WireError, Writer

__all__ = [
    "ConsumerGroupHeartbeatRequest",
    "LeaveGroupRequest",
    "OffsetFetchRequest",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "by_topic",
]

_REGEX = 1
_MEMBER_LIST = 3
_THROTTLED = 1
_GROUP_LIST = 8
_REQUIRE_STABLE = 7


class ConsumerGroupHeartbeatRequest(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
    """Holds an empty ``subscribed_topic_regex`` beside names (v1+): none, where null would leave an earlier one.

    One that is not empty cannot be left out: writing it in version 0 raises `VersionError`.
    """

    def write(self, w: Writer, version: int) -> None:
        regex = self.subscribed_topic_regex
        if version < _REGEX and not regex:
            self.subscribed_topic_regex = None
        super().write(w, version)
        self.subscribed_topic_regex = regex


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


class OffsetFetchRequest(offset_fetch.OffsetFetchRequest):
    """Holds one entry of ``groups`` (v8+, KIP-709); writes ``group_id`` and ``topics`` below.

    ``require_stable`` (v7+, KIP-447) is left out where it is not known: such brokers cannot wait for a
    transaction, and every offset that they have is readable.
    """

    def write(self, w: Writer, version: int) -> None:
        if version >= _GROUP_LIST:
            super().write(w, version)
            return
        (group,) = self.groups
        topics = [
            offset_fetch.OffsetFetchRequestTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in group.topics or ()
        ]
        offset_fetch.OffsetFetchRequest(
            group_id=group.group_id,
            topics=topics,
            require_stable=self.require_stable and version >= _REQUIRE_STABLE,
        ).write(w, version)


class SyncGroupResponse(sync_group.SyncGroupResponse):
    """Takes the error code even where the rest of the answer cannot be read.

    librdkafka's mock cluster sends a null assignment with an error, which the protocol does not allow; the error is
    what matters, and a rejoin mends it.
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


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partition numbers by topic, both in order: the shape that most requests want."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics
