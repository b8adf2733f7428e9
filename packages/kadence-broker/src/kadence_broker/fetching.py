"""A fetch from its request to its answer: waiting for records, size limits, and the fields of the answer.

A fetch waits until there are ``min_bytes`` or an error, or ``max_wait_ms`` have passed; a produce to one of its
partitions wakes it. The answer is made at that moment, from the logs as they are then.
"""

from __future__ import annotations

from typing import Any, Final, cast

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kadence.wire import ZERO_UUID
from kadence_broker.scatter import Chunks
from kadence_broker.server.loop import Loop, Timer
from kadence_broker.service import Call, Services, Steps
from kadence_broker.sessions import FetchContext, WantedPartition
from kadence_broker.storage import Isolation, Partition

__all__ = ["ParkedFetch", "ReadablePartitions", "check_leader"]

_READ_COMMITTED = 1
_LEADER_HINT_VERSION = 12
_TOPIC_ID_VERSION = 13
_ENDPOINTS_VERSION = 16
_PARTITION_US: Final = 25
_NEW_LEADER_HINTS = frozenset({codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH})
"""Errors whose response names the present leader (KIP-951)."""


def check_leader(partition: Partition | None, node_id: int, current_leader_epoch: int) -> int:
    """The code for serving ``partition`` from ``node_id`` to a client that knows ``current_leader_epoch`` (KIP-320).

    -1: the client knows no epoch.
    """
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader_id != node_id:
        return codes.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch == -1:
        return codes.NONE
    if current_leader_epoch < partition.leader_epoch:
        return codes.FENCED_LEADER_EPOCH
    if current_leader_epoch > partition.leader_epoch:
        return codes.UNKNOWN_LEADER_EPOCH
    return codes.NONE


def _diverges(partition: Partition, wanted: WantedPartition) -> bool:
    """True if the log diverged from the records that the reader read before its offset (KIP-320)."""
    if wanted.last_fetched_epoch < 0:
        return False
    epoch, end_offset = partition.epoch_end(wanted.last_fetched_epoch)
    return epoch >= 0 and (epoch < wanted.last_fetched_epoch or end_offset < wanted.offset)


class ReadablePartitions:
    """Partitions with more to read: requests that wait for them are retried after this round of the loop."""

    __slots__ = ("_loop", "_partitions")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._partitions: dict[Partition, None] = {}

    def add(self, partition: Partition) -> None:
        if not self._partitions:
            self._loop.soon(self._wake_all)
        self._partitions[partition] = None

    def _wake_all(self) -> None:
        partitions, self._partitions = self._partitions, {}
        for partition in partitions:
            partition.wake()


class ParkedFetch:
    """One fetch. `start` answers it or parks it; its end removes it from its partitions."""

    __slots__ = ("_call", "_context", "_isolation", "_message", "_services", "_timer", "_watched")

    def __init__(self, services: Services, call: Call, context: FetchContext) -> None:
        self._services = services
        self._call = call
        self._context = context
        self._message: FetchRequest = call.message
        is_committed = self._message.isolation_level == _READ_COMMITTED
        self._isolation = Isolation.COMMITTED if is_committed else Isolation.UNCOMMITTED
        self._timer: Timer | None = None
        self._watched: dict[Partition, WantedPartition] = {}
        if context.session is not None:
            context.session.look_as(call.node_id, self._message.isolation_level)

    def __repr__(self) -> str:
        return f"<fetch of {len(self._context.partitions())} partitions for {self._call.connection.peer}>"

    def start(self) -> None:
        """Answer now if there is reason to, else wait."""
        if self._message.max_wait_ms <= 0 or self._context.is_empty or self._is_due():
            self._answer()
            return
        for partition in self._watched:
            partition.waiting[self] = None
        if self._context.session is not None:
            self._context.session.waiting[self._watch] = None
        deadline = add_ms(self._call.now, self._message.max_wait_ms)
        self._timer = self._services.loop.at(deadline, self._answer)
        self._call.on_abandoned = self._stop_waiting

    def _watch(self, partition: Partition, wanted: WantedPartition) -> None:
        """A resting partition has changed: fetches look at it again when it notifies them."""
        self._watched[partition] = wanted
        partition.waiting[self] = None

    def try_answer(self, partition: Partition) -> None:
        """Something changed in one partition; nothing did in the others, or they would have said so.

        So one that is enough alone is all that must be looked at where one byte is enough, however many are waited for.
        """
        if self._missing_after(self._watched[partition], self._message.min_bytes) <= 0 or (
            self._message.min_bytes > 1 and self._is_due()
        ):
            self._answer()

    def _find(self, wanted: WantedPartition) -> Partition | None:
        cluster = self._services.cluster
        if wanted.topic_id != ZERO_UUID:
            topic = cluster.topic_by_id(wanted.topic_id)
            if topic is None:
                return None
            wanted.known_as = topic.name
            return topic.partition(wanted.index)
        return cluster.partition(wanted.topic, wanted.index)

    def _check(self, wanted: WantedPartition) -> tuple[Partition | None, int]:
        partition = self._find(wanted)
        if partition is None and self._call.version >= _TOPIC_ID_VERSION:
            return None, self._missing(wanted)
        # As Kafka: in a Fetch each negative epoch is none.
        code = check_leader(partition, self._call.node_id, max(wanted.current_leader_epoch, -1))
        if partition is not None and code == codes.NONE:
            if wanted.offset < partition.start_offset:
                code = codes.OFFSET_OUT_OF_RANGE
            elif wanted.last_fetched_epoch >= 0 and partition.epoch_end(wanted.last_fetched_epoch)[1] < 0:
                # As in Kafka: the records before that offset are of an epoch that this log does not know.
                code = codes.OFFSET_OUT_OF_RANGE
            elif wanted.offset > partition.end_offset and not _diverges(partition, wanted):
                code = codes.OFFSET_OUT_OF_RANGE
        return partition, code

    def _missing(self, wanted: WantedPartition) -> int:
        """Why there is no partition for a topic id. A session remembers the topic it found before, as in Kafka."""
        cluster = self._services.cluster
        if cluster.topic_by_id(wanted.topic_id) is not None or (
            wanted.known_as and wanted.known_as not in cluster.topics
        ):
            return codes.UNKNOWN_TOPIC_OR_PARTITION
        return codes.INCONSISTENT_TOPIC_ID if wanted.known_as else codes.UNKNOWN_TOPIC_ID

    def _is_due(self) -> bool:
        """Enough bytes, or an error that the client should hear of now. If not, all its partitions are watched."""
        missing = self._message.min_bytes
        for wanted in self._context.partitions():
            missing = self._missing_after(wanted, missing)
            if missing <= 0:
                return True
        return missing <= 0

    def _missing_after(self, wanted: WantedPartition, missing: int) -> int:
        """The bytes still missing after those of a partition; 0 if the client should get an error now."""
        partition, code = self._check(wanted)
        if code != codes.NONE or partition is None or _diverges(partition, wanted):
            return 0
        self._watched[partition] = wanted
        return missing - partition.available(wanted.offset, wanted.max_bytes, self._isolation)

    def _has_no_news(self, partition: Partition, wanted: WantedPartition) -> bool:
        """True if a session's client is up to date with a partition, as with most of them at most times."""
        return (
            wanted.offset >= partition.limit(self._isolation)
            and wanted.known_high_watermark == partition.high_watermark
            and wanted.known_log_start == partition.start_offset
            and not _diverges(partition, wanted)
        )

    def _stop_waiting(self) -> None:
        for partition in self._watched:
            partition.waiting.pop(self, None)
        self._watched.clear()
        if self._context.session is not None:
            self._context.session.waiting.pop(self._watch, None)
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self) -> None:
        self._stop_waiting()
        self._services.in_pieces(self._call, self._response())

    def _response(self) -> Steps:
        """Read within the limits: the first partition with data always gives a batch (KIP-74)."""
        context = self._context
        version = self._call.version
        left = min(self._message.max_bytes, self._services.settings.fetch_max_bytes)
        is_first = True
        is_committed = self._isolation is Isolation.COMMITTED
        topics: list[FetchableTopicResponse] = []
        leaders: set[int] = set()
        for wanted in context.partitions():
            yield _PARTITION_US
            partition, code = self._check(wanted)
            if (
                context.is_incremental
                and code == codes.NONE
                and partition is not None
                and self._has_no_news(partition, wanted)
            ):
                wanted.rest(partition)
                continue
            data = PartitionData(partition_index=wanted.index, error_code=code, high_watermark=-1)
            # As in Kafka: only read_committed, and what is not there, have a list at all.
            is_told = (partition is None and code != codes.INCONSISTENT_TOPIC_ID) or is_committed
            data.aborted_transactions = [] if is_told else None
            data.records = b""
            has_records = is_parted = False
            if code == codes.NONE and partition is not None:
                data.high_watermark = partition.high_watermark
                data.last_stable_offset = partition.last_stable_offset
                data.log_start_offset = partition.start_offset
                views: list[memoryview] = []
                if is_parted := _diverges(partition, wanted):
                    epoch, end_offset = partition.epoch_end(wanted.last_fetched_epoch)
                    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                else:
                    views = partition.read(
                        wanted.offset, min(wanted.max_bytes, left), self._isolation, at_least_one=is_first
                    )
                if views and is_committed:
                    data.aborted_transactions = [
                        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                        for each in partition.aborted(wanted.offset)
                    ]
                if views:
                    chunks = Chunks(views)
                    data.records = cast(Any, chunks)
                    left = max(left - chunks.size, 0)
                    is_first, has_records = False, True
            elif code in _NEW_LEADER_HINTS and partition is not None and version >= _LEADER_HINT_VERSION:
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
                )
                if version >= _ENDPOINTS_VERSION:
                    leaders.add(partition.leader_id)
            is_news = (
                has_records
                or is_parted
                or code != codes.NONE
                or data.high_watermark != wanted.known_high_watermark
                or data.log_start_offset != wanted.known_log_start
            )
            if context.is_incremental and not is_news:
                continue
            context.answered(wanted, data.high_watermark, data.log_start_offset, has_records=has_records)
            if code == codes.NONE and partition is not None and self._has_no_news(partition, wanted):
                wanted.rest(partition)
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (wanted.topic, wanted.topic_id):
                topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id))
            topics[-1].partitions.append(data)
        nodes = self._services.cluster.nodes
        return FetchResponse(
            error_code=codes.NONE,
            session_id=context.session_id,
            responses=topics,
            node_endpoints=[
                NodeEndpoint(node_id=node_id, host=nodes[node_id].host, port=nodes[node_id].port)
                for node_id in sorted(leaders & nodes.keys())
            ],
        )
