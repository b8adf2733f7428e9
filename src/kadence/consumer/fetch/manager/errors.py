"""Handles a partition whose fetch the broker answered with an error. Network thread, sans-IO."""

from __future__ import annotations

from kadence.config import ConsumerConfig
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.fetch.manager.session import Sent
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.errors import OffsetOutOfRangeError, for_code
from kadence.logs import LogLimiter, logger
from kadence.protocol import error_codes as ec
from kadence.protocol.fetch import FetchResponse, PartitionData
from kadence.types import Node, TopicPartition

__all__ = ["FetchErrors"]

log = logger("kadence.consumer.fetch")

_MOVED = frozenset(
    {
        ec.NOT_LEADER_OR_FOLLOWER,
        ec.REPLICA_NOT_AVAILABLE,
        ec.KAFKA_STORAGE_ERROR,
        ec.FENCED_LEADER_EPOCH,
        ec.OFFSET_NOT_AVAILABLE,
        ec.LEADER_NOT_AVAILABLE,
        ec.UNKNOWN_LEADER_EPOCH,
    }
)
_UNKNOWN = frozenset({ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID, ec.INCONSISTENT_TOPIC_ID})


class FetchErrors:
    """Decides what happens to a partition whose fetch the broker answered with an error."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._add_event = add_event
        self._log_limiter = LogLimiter()

    def partition_failed(
        self, now: int, sent: Sent, state: PartitionState, data: PartitionData, response: FetchResponse
    ) -> None:
        """The answer for one partition is an error code."""
        code, partition = data.error_code, state.partition
        state.retry_at = now + self._config.retry_backoff_ms
        if code in _MOVED:
            state.preferred_replica = None
            self._metadata.request_update(now)
            if self._follow(now, partition, data, response):
                state.retry_at = now
        elif code in _UNKNOWN:
            state.preferred_replica = None
            self._metadata.request_update(now)
            if self._log_limiter.is_new(now, partition, code):
                log.warning("fetch of %s: %s; asking for metadata again", partition, ec.name(code))
        elif code == ec.OFFSET_OUT_OF_RANGE:
            self._out_of_range(now, sent, state)
        elif code == ec.TOPIC_AUTHORIZATION_FAILED:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._add_event(Failed(for_code(code, f"not allowed to read topic {partition.topic!r}")))
        elif code == ec.CORRUPT_MESSAGE:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._add_event(
                Failed(for_code(code, f"the broker found {partition} damaged at offset {state.offset}"))
            )
        elif self._log_limiter.is_new(now, partition, code):
            log.warning("fetch of %s failed: %s; trying again", partition, ec.name(code))

    def diverged(self, now: int, state: PartitionState, data: PartitionData) -> bool:
        """Whether the broker says that its log parted from what was read before the fetched offset (KIP-320).

        The leader is asked itself before anything is dropped: a broker that keeps an old epoch in its session would
        otherwise move the position again and again.
        """
        told = data.diverging_epoch
        if told.epoch < 0 and told.end_offset < 0:
            return False
        state.retry_at = now + self._config.retry_backoff_ms
        self._subscription.doubt(state.partition)
        return True

    def _follow(
        self, now: int, partition: TopicPartition, data: PartitionData, response: FetchResponse
    ) -> bool:
        """Believe who leads now, where the answer says so (KIP-951)."""
        told = data.current_leader
        if told.leader_id < 0 or told.leader_epoch < 0:
            return False
        nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.node_endpoints
        }
        return self._metadata.moved(now, partition, told.leader_id, told.leader_epoch, nodes)

    def _out_of_range(self, now: int, sent: Sent, state: PartitionState) -> None:
        partition, offset = state.partition, state.offset
        if sent.node_id != self._metadata.leader(partition):
            # A follower may lag behind the leader: ask the leader before believing it.
            state.preferred_replica = None
            state.retry_at = now
            return
        if state.epoch is not None:
            # Kafka says so, too, when it knows nothing of the epoch before the offset. Ask about the offset alone.
            state.epoch = None
            state.retry_at = now
            return
        if state.buffered_bytes:
            # What was fetched before is still good, and may exist nowhere else by now: wait until it was handed out.
            state.retry_at = now + self._config.retry_backoff_max_ms
            return
        self._subscription.lose(
            partition,
            OffsetOutOfRangeError(
                f"{partition} has no offset {offset} (deleted by retention, or never written) and "
                "auto.offset.reset is none: seek() to where you want to go on"
            ),
        )
