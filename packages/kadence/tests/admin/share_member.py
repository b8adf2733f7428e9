"""A member of a share group, request by request: tests of the admin side say what it holds."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Any, Self

from tests.patience import until

from kadence.admin import Admin
from kadence.admin.calls import Ask, Calls
from kadence.admin.offsets import by_leader
from kadence.client.waits import Waits
from kadence.protocol.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kadence.protocol.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence.types import TopicPartition

__all__ = ["ACCEPT", "REJECT", "RELEASE", "ShareMember"]

ACCEPT, RELEASE, REJECT = 1, 2, 3


class ShareMember:
    """Joins at once. It sends its requests through an admin client, so its session ends with that client."""

    def __init__(self, admin: Admin, group: str, *topics: str) -> None:
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._admin = admin
        self._group = group
        self._topics = list(topics)
        self._epoch = 0
        self._sessions: dict[int, int] = {}
        self.partitions: set[TopicPartition] = set()
        self._ids = {name: topic.topic_id for name, topic in admin.describe_topics(topics).items()}
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        self.heartbeat()

    def heartbeat(self) -> None:
        """One heartbeat."""
        topics = None if self._epoch > 0 else self._topics
        answer = self._ask(
            ShareGroupHeartbeatRequest(self._group, self.member_id, self._epoch, None, topics), None
        )
        assert not answer.error_code, answer.error_message
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self.partitions = {
                TopicPartition(self._names[topic.topic_id], number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            }

    def settle(self, count: int) -> Self:
        """Send heartbeats until it has so many partitions."""

        def is_settled() -> bool:
            self.heartbeat()
            return len(self.partitions) == count

        until(is_settled, what=lambda: f"it has {self.partitions}")
        return self

    def leave(self) -> None:
        """Leave the group; its session and its locks stay."""
        self._epoch = -1
        self.heartbeat()

    def fetch(self, tp: TopicPartition, count: int = 500) -> list[tuple[int, int]]:
        """Acquire records: until there are some, the offsets and delivery counts of a partition."""
        found: list[tuple[int, int]] = []

        def has_some() -> bool:
            topic = FetchTopic(self._ids[tp.topic], [FetchPartition(tp.partition)])
            answer = self._ask_leader(
                tp,
                lambda epoch: ShareFetchRequest(
                    self._group, self.member_id, epoch, 500, 1, 1 << 20, count, count, topics=[topic]
                ),
            )
            for each in answer.responses:
                for partition in each.partitions:
                    # Before the first assignment has come to the leader there is nothing.
                    for batch in partition.acquired_records:
                        offsets = range(batch.first_offset, batch.last_offset + 1)
                        found.extend((offset, batch.delivery_count) for offset in offsets)
            return bool(found)

        until(has_some, what="it has records", every=0)
        return found

    def acknowledge(self, tp: TopicPartition, first: int, last: int, kind: int = ACCEPT) -> None:
        """Acknowledge offsets, the last one included."""
        batch = AcknowledgementBatch(first, last, [kind])
        topic = AcknowledgeTopic(self._ids[tp.topic], [AcknowledgePartition(tp.partition, [batch])])
        answer = self._ask_leader(
            tp,
            lambda epoch: ShareAcknowledgeRequest(self._group, self.member_id, epoch, topics=[topic]),
        )
        (code,) = [each.error_code for topic in answer.responses for each in topic.partitions]
        assert not code, code

    def _ask_leader(self, tp: TopicPartition, message: Any) -> Any:
        leader = self._leader(tp)
        epoch = self._sessions.get(leader, 0)
        answer = self._ask(message(epoch), leader)
        assert not answer.error_code, answer.error_message
        self._sessions[leader] = epoch + 1
        return answer

    def _leader(self, tp: TopicPartition) -> int:
        def call(calls: Calls, deadline: int) -> Waits[Mapping[int, Any]]:
            return (yield from by_leader(calls, [(tp, 0)], deadline, {}))

        (leader,) = self._admin._shell.run(None, call)
        return leader

    def _ask(self, message: Any, node: int | None) -> Any:
        def call(calls: Calls, deadline: int) -> Waits[Any]:
            at = node if node is not None else (yield from calls.coordinator(self._group, deadline))
            return (yield from calls.ask(Ask(message, at), deadline))

        return self._admin._shell.run(None, call)
