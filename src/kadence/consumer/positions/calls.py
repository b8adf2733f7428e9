"""Calls of the application for offsets by time: offsets_for_times(), beginning_offsets(), end_offsets(). Sans-IO.

Each leader is asked by itself: one that fails or hangs keeps no other from being asked, and what it owes is asked again
until the call's deadline. Network thread.

ListOffsets as a message, and how long a partition may be unknown before that is an error. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kadence.clock import FOREVER, add_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Answer, ListOffsets
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.subscription import Subscription
from kadence.errors import KafkaTimeoutError, UnknownTopicOrPartitionError, for_code
from kadence.protocol import error_codes as ec
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kadence.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Asking", "OffsetCalls", "Unknown"]

_PATIENCE_MS: Final = 5_000
"""A new topic takes a moment to spread among the brokers."""


class Unknown:
    """Since when metadata has not known partitions that are asked for."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._since: dict[TopicPartition, int] = {}

    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._since)

    def is_long(self, now: int, partition: TopicPartition) -> bool:
        """Whether the partition, which is unknown now, has been so for long enough to call it an error."""
        return now - self._since.setdefault(partition, now) >= _PATIENCE_MS

    def forget(self, partition: TopicPartition) -> None:
        """It is known, or nobody asks for it any more: should it be unknown again, that counts from then."""
        self._since.pop(partition, None)

    def error(self, partition: TopicPartition) -> UnknownTopicOrPartitionError:
        return UnknownTopicOrPartitionError(
            f"{partition} does not exist on the cluster at {','.join(self._config.bootstrap_servers)}; "
            f"create it (kadence topics create {partition.topic}) or correct its name"
        )


class Asking:
    """ListOffsets requests of one consumer, and what their answers say."""

    def __init__(self, config: ConsumerConfig, metadata: MetadataManager) -> None:
        self._config = config
        self._metadata = metadata
        self._isolation = 1 if config.isolation_level == "read_committed" else 0

    def request(self, now: int, leader: int, timestamps: Mapping[TopicPartition, int]) -> Request:
        """The request to the leader of these partitions."""
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, timestamp in timestamps.items():
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
            epoch = self._metadata.leader_epoch(partition)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=-1 if epoch is None else epoch,
                    timestamp=timestamp,
                )
            )
        message = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation,
            topics=list(topics.values()),
            timeout_ms=self._config.request_timeout_ms,
        )
        return Request(message, leader, add_ms(now, self._config.request_timeout_ms))

    def read(
        self, completed: Completed, asked: Mapping[TopicPartition, object]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, int]]:
        """Answers and error codes of the partitions asked; a lost request answers none of them."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        failed: dict[TopicPartition, int] = {}
        response = completed.response
        if isinstance(response, ListOffsetsResponse):
            for topic in response.topics:
                for part in topic.partitions:
                    partition = TopicPartition(topic.name, part.partition_index)
                    if partition not in asked:
                        continue
                    if part.error_code:
                        failed[partition] = part.error_code
                    elif part.offset < 0:
                        found[partition] = None
                    else:
                        epoch = part.leader_epoch if part.leader_epoch >= 0 else None
                        found[partition] = OffsetAndTimestamp(part.offset, part.timestamp, epoch)
        return found, failed


_NAMED: Final = 5
"""Partitions named in the text of an error."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """A call for offsets by time: what is still to be asked, what was found."""

    call: ListOffsets
    todo: dict[TopicPartition, int]
    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    asked: set[TopicPartition] = field(default_factory=set)
    """Of ``todo``: what is on its way."""
    retry_at: dict[TopicPartition, int] = field(default_factory=dict)


class OffsetCalls:
    """Answers offsets_for_times(), beginning_offsets() and end_offsets() by ListOffsets requests."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        asking: Asking,
        unknown: Unknown,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._asking = asking
        self._unknown = unknown
        self._add_event = add_event
        self._lookups: list[_Lookup] = []
        self._asked: dict[Request, tuple[_Lookup, dict[TopicPartition, int]]] = {}

    def begin(self, call: ListOffsets) -> None:
        """Take a call; it is answered when every partition was, or at its deadline, be it here or by the reaper."""
        self._lookups.append(_Lookup(call, dict(call.timestamps)))
        self._need_topics()

    def poll(self, now: int, requests: list[Request]) -> int:
        """Add what is to be asked now to ``requests``. Returns when to poll again."""
        wake_at = FOREVER
        if self._lookups:
            for lookup in [each for each in self._lookups if each.call.deadline <= now]:
                text = f"{lookup.call.what} did not finish in time: {self._missing(lookup)}"
                self._end(lookup, Answer(lookup.call.id, None, KafkaTimeoutError(text)))
            for lookup in list(self._lookups):
                wake_at = min(wake_at, self._ask(now, lookup, requests))
        return wake_at

    def missing(self, call_id: int) -> str | None:
        """Which partitions a call still waits for, and why, in words; None if there is no such call."""
        return next((self._missing(each) for each in self._lookups if each.call.id == call_id), None)

    def _missing(self, lookup: _Lookup) -> str:
        todo = list(lookup.todo)
        named = [f"{partition} {self._trouble(partition)}" for partition in todo[:_NAMED]]
        return ", ".join(named) + (f" and {len(todo) - _NAMED} more" if len(todo) > _NAMED else "")

    def _trouble(self, partition: TopicPartition) -> str:
        if self._metadata.leader(partition) is not None:
            return "was not answered by its leader"
        is_unknown = self._metadata.error_of(partition) == ec.UNKNOWN_TOPIC_OR_PARTITION
        return "does not exist" if is_unknown else "has no known leader"

    def on_response(self, now: int, completed: Completed) -> None:
        lookup, asked = self._asked.pop(completed.request)
        self._answered(now, completed, lookup, asked)

    def _ask(self, now: int, lookup: _Lookup, requests: list[Request]) -> int:
        wake_at = lookup.call.deadline
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in lookup.todo.items():
            if partition in lookup.asked:
                continue
            if (retry_at := lookup.retry_at.get(partition, 0)) > now:
                wake_at = min(wake_at, retry_at)
                continue
            leader = self._metadata.leader(partition)
            if leader is not None:
                by_leader.setdefault(leader, {})[partition] = timestamp
                continue
            if self._is_unknown_for_good(now, partition):
                self._end(lookup, Answer(lookup.call.id, None, self._unknown.error(partition)))
                return FOREVER
            self._metadata.request_update(now)
            wake_at = min(wake_at, add_ms(now, self._config.retry_backoff_ms))
        for leader, group in by_leader.items():
            request = self._asking.request(now, leader, group)
            self._asked[request] = (lookup, group)
            lookup.asked |= group.keys()
            requests.append(request)
        return wake_at

    def _end(self, lookup: _Lookup, answer: Answer) -> None:
        self._lookups.remove(lookup)
        for partition in lookup.todo:
            if partition not in self._subscription.partitions:
                # Nobody asks for metadata of it any more, so the next call must wait for a new answer.
                self._unknown.forget(partition)
        self._need_topics()
        self._add_event(answer)

    def _need_topics(self) -> None:
        self._metadata.need("offsets", frozenset(p.topic for each in self._lookups for p in each.todo))

    def _is_unknown_for_good(self, now: int, partition: TopicPartition) -> bool:
        is_unknown = self._metadata.error_of(partition) == ec.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown and self._unknown.is_long(now, partition)

    def _answered(
        self,
        now: int,
        completed: Completed,
        lookup: _Lookup,
        asked: Mapping[TopicPartition, int],
    ) -> None:
        found, failed = self._asking.read(completed, asked)
        lookup.asked -= asked.keys()
        if lookup not in self._lookups:
            return
        for partition in asked:
            if partition in found:
                lookup.found[partition] = found[partition]
                del lookup.todo[partition]
                self._unknown.forget(partition)
                continue
            code = failed.get(partition, ec.NONE)
            if code and code not in ec.RETRIABLE:
                error = for_code(code, f"{partition}: {ec.MESSAGES.get(code, '')}")
                self._end(lookup, Answer(lookup.call.id, None, error))
                return
            lookup.retry_at[partition] = add_ms(now, self._config.retry_backoff_ms)
            self._metadata.request_update(now)
        if not lookup.todo:
            self._end(lookup, Answer(lookup.call.id, lookup.found))
