"""Evaluates fetch responses: bytes for the application, the session's next step. Network thread, sans-IO.

`FetchErrors` handles the error of one partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kadence.config import ConsumerConfig
from kadence.connection.request import Arrival, Loan
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.fetch.manager.fetchable import Reasons, trouble_of
from kadence.consumer.fetch.manager.memory import Memory, Sizes
from kadence.consumer.fetch.manager.session import PartitionBucket, Sent
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.positions.validation import note_epochs
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.errors import CorruptRecordError, OffsetOutOfRangeError, for_code
from kadence.lag import end_offset
from kadence.logs import LogLimiter, logger
from kadence.protocol import error_codes as ec
from kadence.protocol.fetch import FetchResponse, PartitionData
from kadence.records.batch import ATTRIBUTES_AT, COMPRESSION
from kadence.types import Node, TopicPartition

__all__ = ["READ_COMMITTED", "Brought", "FetchAnswers"]

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
                log.warning("fetch of %s: %s; refreshing metadata", partition, ec.name(code))
        elif code == ec.OFFSET_OUT_OF_RANGE:
            self._out_of_range(now, sent, state)
        elif code == ec.TOPIC_AUTHORIZATION_FAILED:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._add_event(Failed(for_code(code, f"not allowed to read topic {partition.topic!r}")))
        elif code == ec.CORRUPT_MESSAGE:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._add_event(
                Failed(
                    for_code(code, f"the broker reports that {partition} is damaged at offset {state.offset}")
                )
            )
        elif self._log_limiter.is_new(now, partition, code):
            log.warning("fetch of %s failed: %s; trying again", partition, ec.name(code))

    def diverged(self, now: int, state: PartitionState, data: PartitionData) -> bool:
        """Whether the broker reports that its log diverges from the records read before the fetched offset (KIP-320).

        The leader itself is asked before anything is dropped: otherwise a broker that keeps an old epoch in its session
        would move the position again and again.
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
        """Adopt the current leader, if the response names it (KIP-951)."""
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
            # Kafka also returns this when it does not know the epoch before the offset. Ask about the offset alone.
            state.epoch = None
            state.retry_at = now
            return
        if state.buffered_bytes:
            # Records fetched earlier are still valid, and may exist nowhere else by now: wait until they have been
            # returned.
            state.retry_at = now + self._config.retry_backoff_max_ms
            return
        self._subscription.lose(
            partition,
            OffsetOutOfRangeError(
                f"{partition} has no offset {offset} (deleted by retention, or never written) and "
                "auto.offset.reset is none: seek() to where you want to go on",
                partition=partition,
                position=offset,
            ),
        )


READ_COMMITTED: Final = 1
_SESSION_ERRORS = frozenset(
    {
        ec.FETCH_SESSION_ID_NOT_FOUND,
        ec.INVALID_FETCH_SESSION_EPOCH,
        ec.FETCH_SESSION_TOPIC_ID_ERROR,
        ec.INCONSISTENT_TOPIC_ID,
        ec.UNKNOWN_TOPIC_ID,
    }
)
_OF_TOPICS = frozenset(
    {
        ec.UNKNOWN_TOPIC_OR_PARTITION,
        ec.UNKNOWN_TOPIC_ID,
        ec.INCONSISTENT_TOPIC_ID,
        ec.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


Sums = dict[str, tuple[int, int]]
"""The bytes as received and the records of one response, by topic."""


class Brought:
    """The data of one partition in responses that are counted together.

    Attributes:
        ends: the high watermark, last stable offset and log start of the last response.
        batches: the data, in order. is_compressed: whether any of these begin with a compressed batch. next_offset: the
            offset after the last. answer: the number of the last response with data.
    """

    __slots__ = ("answer", "batches", "ends", "is_compressed", "next_offset", "state")

    def __init__(self, state: PartitionState, ends: tuple[int, int, int]) -> None:
        self.state = state
        self.ends = ends
        self.batches: list[memoryview | bytes] = []
        self.is_compressed = False
        self.next_offset = state.offset
        self.answer = 0

    def add(self, fetched: CompletedFetch, batches: memoryview | bytes, size: int, sums: Sums) -> None:
        """Add the next response. ``size``: bytes as received. sums: those of its response.

        Args:
            batches: those of ``fetched``, which the application may have released by now.
        """
        self.next_offset = fetched.next_offset
        self.batches.append(batches)
        if len(batches) > ATTRIBUTES_AT and batches[ATTRIBUTES_AT] & COMPRESSION:
            self.is_compressed = True
        topic = self.state.partition.topic
        in_bytes, in_records = sums.get(topic, (0, 0))
        sums[topic] = in_bytes + size, in_records + fetched.count


class FetchAnswers:
    """Turns fetch responses into bytes for the application.

    Attributes:
        node_retry_at: no fetch to a broker before this time (ms).
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        shared_state: SharedState,
        memory: Memory,
        sizes: Sizes,
        reasons: Reasons,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._shared_state = shared_state
        self._memory = memory
        self._sizes = sizes
        self._reasons = reasons
        self._measures = shared_state.measures.fetches
        self._add_event = add_event
        self._errors = FetchErrors(config, subscription, metadata, add_event)
        self._isolation = READ_COMMITTED if config.isolation_level == "read_committed" else 0
        self.node_retry_at: dict[int, int] = {}
        self._troubled: dict[PartitionState, None] = {}
        self._log_limiter = LogLimiter()

    def failed(self, now: int, sent: Sent, error: Exception | None) -> None:
        """No answer. The client's own reconnect backoff comes on top of this one."""
        if sent.session is not None:
            sent.session.failed()
        self.node_retry_at[sent.node_id] = now + self._config.retry_backoff_ms
        for partition in sent.asked:
            if (state := self._subscription.partitions.get(partition)) is not None:
                state.preferred_replica = None
                self._in_trouble(
                    state, (NotFetchedReason.BROKER_UNREACHABLE, f"broker {sent.node_id}: {error}")
                )
        self._metadata.request_update(now)

    def _in_trouble(self, state: PartitionState, trouble: tuple[NotFetchedReason, str]) -> None:
        """Its latest fetch failed with this error, which stays until one is answered."""
        state.trouble = trouble
        self._troubled[state] = None
        state.mark()

    def _out_of_trouble(self, sent: Sent) -> None:
        """A fetch was answered: earlier errors of its partitions are over."""
        for state in tuple(self._troubled):
            if state.partition in sent.asked:
                state.trouble = None
                del self._troubled[state]
                state.mark()

    def answered(self, now: int, sent: Sent, response: FetchResponse, arena: Loan | None) -> int:
        """Returns how many bytes of records came."""
        if self._troubled:
            self._out_of_trouble(sent)
        if response.error_code:
            self._refused(now, sent, response.error_code)
            return 0
        if sent.session is not None:
            sent.session.answered(response.session_id)
            sent.session.answers += 1
        sent.answers += 1
        sums: Sums = {}
        size = 0
        for topic in response.responses:
            name = topic.topic or sent.names.get(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                came = len(data.records or b"")
                size += came
                of = self._brought(now, sent, TopicPartition(name, data.partition_index), data, response)
                if of is None:
                    continue
                fetched = self._fetched(now, of, data, arena)
                if fetched is not None:
                    of.add(fetched, fetched.data, came, sums)
                self._count(now, of)
                if fetched is not None:
                    fetched.arena.retain()
                    self._shared_state.put(fetched)
        self._measures.count(now, [sums] if sums else [])
        return size

    def _refused(self, now: int, sent: Sent, code: int) -> None:
        """The whole answer is an error code."""
        for partition in sent.asked:
            if (state := self._subscription.partitions.get(partition)) is not None:
                self._in_trouble(state, trouble_of(code))
        if sent.session is not None:
            if code == ec.FETCH_SESSION_ID_NOT_FOUND:
                sent.session.restart()
            else:
                sent.session.failed()
        if code not in _SESSION_ERRORS:
            if self._log_limiter.is_new(now, sent.node_id, code):
                log.warning("fetch from broker %d failed: %s", sent.node_id, ec.name(code))
            self.node_retry_at[sent.node_id] = now + self._config.retry_backoff_ms
        if code in _OF_TOPICS:
            self._metadata.request_update(now)
            self.node_retry_at[sent.node_id] = now + self._config.retry_backoff_ms

    def passed_on(self, now: int, sent: Sent, arrivals: Iterable[Arrival]) -> tuple[list[Brought], bool]:
        """Count responses whose records the application has taken, or will take, from `SharedState.arrivals`.

        There may be many, so each partition's data is counted together.

        Returns:
            The data of each partition, in the order in which partitions were named last, and whether all responses
            matched their requests. A response that does not match was not taken, nor was any after it.
        """
        brought: dict[tuple[str, int], Brought | None] = {}
        answers: list[Sums] = []
        sizes: list[int] = []
        fits = True
        for arrival in arrivals:
            if arrival.fetches is None:
                fits = False
                break
            fetches = iter(arrival.fetches)
            sums: Sums = {}
            for topic_id, number, high_watermark, last_stable, log_start, records in arrival.parts:
                partition = sent.names[topic_id], number
                ends = high_watermark, last_stable, log_start
                if partition in brought:
                    of = brought.pop(partition)
                else:
                    state = self._asked(sent, partition)
                    of = None if state is None else Brought(state, ends)
                # To the end, because each fetch that followed has named it.
                brought[partition] = of
                if of is not None:
                    of.ends = ends
                if records is None:
                    continue
                fetched = next(fetches)
                sizes.append(len(records))
                if of is None:
                    # Data that was passed on counts, although it will be dropped: it is not at our position.
                    self._passed_over(fetched, len(records))
                    fits = False
                    continue
                of.add(fetched, records, len(records), sums)
                of.answer = arrival.number
            if sums:
                answers.append(sums)
        found = [of for of in brought.values() if of is not None]
        for of in found:
            self._count(now, of)
        self._shared_state.copies.count_arrived(sizes)
        self._measures.count(now, answers)
        return found, fits

    def _passed_over(self, fetched: CompletedFetch, size: int) -> None:
        """The application releases it, but its partition's position has moved."""
        state = self._subscription.partitions.get(fetched.shared_partition.partition)
        if state is not None and state.shared_partition is fetched.shared_partition:
            state.fetched_bytes += size

    def _brought(
        self,
        now: int,
        sent: Sent,
        partition: TopicPartition,
        data: PartitionData,
        response: FetchResponse,
    ) -> Brought | None:
        """An empty entry for a partition whose part of the response is valid; None: it is invalid, or not needed."""
        state = self._asked(sent, partition)
        if state is None:
            return None
        if data.error_code:
            self._errors.partition_failed(now, sent, state, data, response)
            state.preferred_replica = None
            if state.status is Status.FETCHING:
                self._in_trouble(state, trouble_of(data.error_code))
            return None
        if self._errors.diverged(now, state, data):
            return None
        # Naming it again does not prolong it: the leader must be asked once in this time (KIP-392).
        if 0 <= data.preferred_read_replica != state.preferred_replica:
            state.preferred_replica, state.preferred_by = data.preferred_read_replica, sent.node_id
            state.preferred_until = now + self._config.metadata_max_age_ms
            state.mark()
        return Brought(state, (data.high_watermark, data.last_stable_offset, data.log_start_offset))

    def _fetched(
        self, now: int, of: Brought, data: PartitionData, arena: Loan | None
    ) -> CompletedFetch | None:
        """A partition's records for the application; None: there are none, or they are unusable."""
        state, records = of.state, data.records
        if not records or arena is None or data.preferred_read_replica >= 0:
            return None
        shared_partition, partition = state.shared_partition, state.partition
        aborted = None
        if self._isolation == READ_COMMITTED and data.aborted_transactions:
            aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions)
        # Not a memoryview: the application takes this over (`_native.buffers.MemorySlice`).
        view: memoryview = memoryview(records) if isinstance(records, bytes | bytearray) else records
        fetched = CompletedFetch(
            shared_partition, shared_partition.fetch_epoch, state.offset, view, arena, aborted
        )
        if fetched.next_offset == fetched.offset:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._in_trouble(state, trouble_of(ec.CORRUPT_MESSAGE))
            if not fetched.data:
                self._add_event(
                    Failed(
                        CorruptRecordError(
                            f"{partition} at offset {state.offset}: {len(records)} bytes came without a complete "
                            "batch; the log may be damaged: seek() past this offset to go on"
                        )
                    )
                )
                return None
            # A batch of an older format, or a damaged one: the application gets it, and its reader raises. It is not
            # fetched again at once, nor while it is buffered.
            if state.buffered_bytes:
                return None
        state.mark()
        return fetched

    def _asked(self, sent: Sent, partition: Any) -> PartitionState | None:
        """A partition that is still at the requested position; None: it has moved, or was given up.

        Args:
            partition: a `TopicPartition`, or an equal plain tuple.
        """
        asked = sent.asked.get(partition)
        state = self._subscription.partitions.get(partition)
        if (
            asked is None
            or state is None
            or state.shared_partition.fetch_epoch != asked.fetch_epoch
            or state.status is not Status.FETCHING
            or state.offset != asked.offset
            or state.checked not in (None, asked.leader_epoch)
        ):
            return None
        return state

    def _count(self, now: int, of: Brought) -> None:
        """Record the log's ends and the received data, and move the position past it."""
        state, partition, shared_partition = of.state, of.state.partition, of.state.shared_partition
        high_watermark, last_stable, log_start = of.ends
        shared_partition.high_watermark = high_watermark
        shared_partition.last_stable_offset = last_stable
        shared_partition.log_start = log_start
        read_committed = self._isolation == READ_COMMITTED
        end = end_offset(high_watermark, last_stable, read_committed=read_committed)
        self._measures.heard(now, shared_partition, end, log_start)
        if read_committed:
            self._reasons.stable(now, state, last_stable, high_watermark)
        if not of.batches:
            return
        batches = of.batches[0] if len(of.batches) == 1 else b"".join(of.batches)
        self._memory.saw(compressed=of.is_compressed)
        self._sizes.saw(partition.topic, of.next_offset - state.offset, batches)
        note_epochs(state, batches, self._metadata.leader_epoch(partition))
        state.offset, state.named_at = of.next_offset, -1
        state.fetched_bytes += len(batches)
        if isinstance(state.place, PartitionBucket) and (broker := state.place.broker) is not None:
            broker.unsettled[state] = None
        self._subscription.move_to_end(partition)
