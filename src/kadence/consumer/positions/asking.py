"""ListOffsets as a message, and how long a partition may be unknown before that is an error. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kadence.clock import add_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.positions.metadata import MetadataManager
from kadence.errors import UnknownTopicOrPartitionError
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kadence.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Asking", "Unknown"]

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
