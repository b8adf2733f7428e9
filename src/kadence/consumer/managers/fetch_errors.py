"""What becomes of a partition when the broker answers its fetch with an error. Network thread, sans-IO."""

from __future__ import annotations

import logging
from typing import Final

from kadence.config import ConsumerConfig
from kadence.consumer.border.messages import Failed
from kadence.consumer.managers.base import Outbox
from kadence.consumer.managers.fetch_requests import Sent
from kadence.consumer.managers.metadata import MetadataManager
from kadence.consumer.state.subscription import PartitionState, Status, Subscription
from kadence.errors import OffsetOutOfRangeError, for_code
from kadence.protocol import error_codes as ec

__all__ = ["FetchErrors"]

log = logging.getLogger("kadence.consumer.fetch")

_RESET_TIMESTAMPS: Final = {"earliest": -2, "latest": -1, "none": None}
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
    """See the head of this file."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        outbox: Outbox,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._outbox = outbox
        self._reset_timestamp = _RESET_TIMESTAMPS[config.auto_offset_reset]

    def partition_failed(self, now: int, sent: Sent, state: PartitionState, code: int) -> None:
        partition = state.partition
        state.retry_at = now + self._config.retry_backoff_ms
        if code in _MOVED or code in _UNKNOWN:
            state.preferred_replica = None
            self._metadata.request_update(now)
            if code in _UNKNOWN:
                log.warning(
                    "fetch of %s: %s; asking for metadata again",
                    partition,
                    ec.name(code),
                )
        elif code == ec.OFFSET_OUT_OF_RANGE:
            self._out_of_range(sent, state)
        elif code == ec.TOPIC_AUTHORIZATION_FAILED:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._outbox(Failed(for_code(code, f"not allowed to read topic {partition.topic!r}")))
        elif code == ec.CORRUPT_MESSAGE:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._outbox(
                Failed(
                    for_code(
                        code,
                        f"the broker found {partition} damaged at offset {state.offset}",
                    )
                )
            )
        else:
            log.warning("fetch of %s failed: %s; trying again", partition, ec.name(code))

    def _out_of_range(self, sent: Sent, state: PartitionState) -> None:
        partition, offset = state.partition, state.offset
        if state.preferred_replica == sent.node_id:
            # A follower may lag behind the leader: ask the leader before believing it.
            state.preferred_replica = None
            return
        if self._reset_timestamp is not None:
            log.info(
                "%s: offset %d is out of range, going to the %s",
                partition,
                offset,
                self._config.auto_offset_reset,
            )
            self._subscription.await_reset(partition, self._reset_timestamp)
            return
        state.status, state.reset_timestamp = Status.AWAIT_RESET, None
        self._outbox(
            Failed(
                OffsetOutOfRangeError(
                    f"{partition} has no offset {offset} (deleted by retention, or never written) and "
                    "auto.offset.reset is none: seek() to where you want to go on"
                ),
                partition=partition,
                lease=state.cell.lease,
            )
        )
