"""What the answers to fetches mean: bytes for the application, the session's next step. Network thread, sans-IO.

What an error of one partition sets going is in `FetchErrors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kadence.config import ConsumerConfig
from kadence.connection.request import Arrival, Loan, Part
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.fetch.manager.fetchable import Reasons, trouble_of
from kadence.consumer.fetch.manager.memory import Memory, Sizes
from kadence.consumer.fetch.manager.session import PartitionBucket, Sent, Wanted
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.positions.validation import note_epochs
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.consumer.shared_state import CompletedFetch, SharedState, frees, is_small
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.errors import CorruptRecordError, OffsetOutOfRangeError, for_code
from kadence.lag import end_offset
from kadence.logs import LogLimiter, logger
from kadence.protocol import error_codes as ec
from kadence.protocol.fetch import FetchResponse, PartitionData
from kadence.records import scan
from kadence.records.batch import ATTRIBUTES_AT, COMPRESSION
from kadence.types import Node, TopicPartition
from kadence.wire import Buffer

__all__ = ["READ_COMMITTED", "FetchAnswers"]

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


class _Brought:
    """What answers that are counted together brought of one partition.

    Attributes:
        offset: behind the last of ``records``. number: of the last answer with some.
        compressed: whether any of these begin with a compressed batch.
        heard: the high watermark, last stable offset and log's start of the last answer that names it.
    """

    __slots__ = ("compressed", "heard", "number", "offset", "records", "state")

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.offset = state.offset
        self.records: list[bytes] = []
        self.number = 0
        self.compressed = False
        self.heard = (-1, -1, -1)


class FetchAnswers:
    """Turns the answers to fetches into bytes for the application.

    Attributes:
        node_retry_at: no fetch to a broker before this time (ms).
        stale_bytes: bytes that came for a position that had moved on.
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
        self.stale_bytes = 0
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
        """Its latest fetch failed like this; it is so until one is answered."""
        state.trouble = trouble
        self._troubled[state] = None
        state.mark()

    def _out_of_trouble(self, sent: Sent) -> None:
        """A fetch was answered: whatever was wrong with its partitions before is over."""
        for state in tuple(self._troubled):
            if state.partition in sent.asked:
                state.trouble = None
                del self._troubled[state]
                state.mark()

    def answered(self, now: int, sent: Sent, response: FetchResponse, arena: Loan | None) -> int:
        """Returns how many bytes of records came."""
        code = response.error_code
        if self._troubled:
            self._out_of_trouble(sent)
        if code:
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
            return 0
        if sent.session is not None:
            sent.session.answered(response.session_id)
            sent.session.answers += 1
        sent.answers += 1
        # What arrived by itself came before this.
        self._shared_state.take_arrivals()
        sizes = [
            len(data.records) for topic in response.responses for data in topic.partitions if data.records
        ]
        copies = arena is not None and is_small(sizes) and frees(sizes, arena)
        for topic in response.responses:
            name = topic.topic or sent.names.get(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                self._partition(now, sent, partition, data, response, arena, copies)
        self._measures.end(now)
        return sum(sizes)

    def passed_on(
        self,
        now: int,
        sent: Sent,
        arrivals: Iterable[Arrival],
        going_on: Callable[[PartitionState, int], None],
    ) -> Arrival | None:
        """Count answers whose records the application has, or is to take, by `SharedState.arrivals`.

        There may be many, so what they brought of a partition is counted together.

        Args:
            going_on: told of each partition that brought something, with the number of the last answer that did: it was
                asked for again at once.

        Returns:
            The first in which something does not fit to what was asked for: those before it are counted, and the
            application has them, or is to take them. None: all are.
        """
        brought: dict[TopicPartition, _Brought] = {}
        responses: list[dict[str, tuple[int, int]]] = []
        misfit: Arrival | None = None
        for arrival in arrivals:
            found = self._fitting(sent, arrival, brought)
            if found is None:
                misfit = arrival
                break
            response: dict[str, tuple[int, int]] = {}
            for partition, of, offset, count, part in found:
                # To the end, as each fetch that followed has named it.
                brought.pop(partition, None)
                brought[partition] = of
                of.heard, records = part[2:5], part[5]
                if records is None:
                    continue
                of.offset, of.number = offset, arrival.number
                of.records.append(records)
                of.compressed = of.compressed or bool(records[ATTRIBUTES_AT] & COMPRESSION)
                in_bytes, in_records = response.get(partition.topic, (0, 0))
                response[partition.topic] = in_bytes + len(records), in_records + count
            if response:
                responses.append(response)
        sizes: list[int] = []
        for of in brought.values():
            self._heard(now, of.state, *of.heard)
            if of.records:
                sizes += map(len, of.records)
                batches = memoryview(of.records[0] if len(of.records) == 1 else b"".join(of.records))
                self._behind(of.state, of.offset, batches, compressed=of.compressed)
                going_on(of.state, of.number)
        self._shared_state.copies.arrived(sizes)
        self._measures.count(now, responses)
        return misfit

    def _fitting(
        self, sent: Sent, arrival: Arrival, brought: Mapping[TopicPartition, _Brought]
    ) -> list[tuple[TopicPartition, _Brought, int, int, Part]] | None:
        """Of each partition in it what came before, the offset behind what it brings, and how many records that is.

        Args:
            brought: by the answers before it.

        Returns:
            None: it does not fit to what was asked for. Nothing of it may be counted then.
        """
        found: list[tuple[TopicPartition, _Brought, int, int, Part]] = []
        seen: set[TopicPartition] = set()
        for part in arrival.parts:
            partition, records = TopicPartition(sent.names[part[0]], part[1]), part[5]
            if partition in seen:
                return None
            seen.add(partition)
            of = brought.get(partition)
            if of is None:
                asked = self._asked(sent, partition)
                if asked is None:
                    if records is None:
                        continue
                    return None
                of = _Brought(asked[1])
            offset, count = of.offset, 0
            if records is not None:
                offset, count, complete = scan(records, of.offset)
                if offset == of.offset or complete != len(records):
                    return None
            found.append((partition, of, offset, count, part))
        return found

    def _partition(
        self,
        now: int,
        sent: Sent,
        partition: TopicPartition,
        data: PartitionData,
        response: FetchResponse,
        arena: Loan | None,
        copies: bool,
    ) -> None:
        found = self._asked(sent, partition)
        if found is None:
            self.stale_bytes += len(data.records or b"")
            return
        asked, state = found
        if data.error_code:
            self._errors.partition_failed(now, sent, state, data, response)
            state.preferred_replica = None
            if state.status is Status.FETCHING:
                self._in_trouble(state, trouble_of(data.error_code))
            return
        if self._errors.diverged(now, state, data):
            return
        self._heard(now, state, data.high_watermark, data.last_stable_offset, data.log_start_offset)
        if data.preferred_read_replica >= 0:
            if state.preferred_replica != data.preferred_read_replica:
                # Telling it again does not prolong it: the leader must be asked once in this time (KIP-392).
                state.preferred_replica, state.preferred_by = data.preferred_read_replica, sent.node_id
                state.preferred_until = now + self._config.metadata_max_age_ms
                state.mark()
            return
        records = data.records
        if not records or arena is None or (batches := self._move_on(now, state, records)) is None:
            return
        state.mark()
        held: memoryview | bytes = batches
        aborted = None
        if self._isolation == READ_COMMITTED and data.aborted_transactions:
            aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions)
        if copies:
            held, arena = self._shared_state.copies.pack(batches)
        else:
            arena.retain()
        self._shared_state.put(
            CompletedFetch(state.shared_partition, asked.fetch_epoch, asked.offset, held, arena, aborted)
        )

    def _asked(self, sent: Sent, partition: TopicPartition) -> tuple[Wanted, PartitionState] | None:
        """What was asked of a partition that still stands there; None: it has moved on, or was given up."""
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
        return asked, state

    def _heard(
        self, now: int, state: PartitionState, high_watermark: int, last_stable: int, log_start: int
    ) -> None:
        """Where a partition's log begins and ends."""
        shared_partition = state.shared_partition
        shared_partition.high_watermark = high_watermark
        shared_partition.last_stable_offset = last_stable
        shared_partition.log_start = log_start
        read_committed = self._isolation == READ_COMMITTED
        end = end_offset(high_watermark, last_stable, read_committed=read_committed)
        self._measures.heard(now, shared_partition, end, log_start)
        if read_committed:
            self._reasons.stable(now, state, last_stable, high_watermark)

    def _move_on(self, now: int, state: PartitionState, records: Buffer) -> memoryview | None:
        """The position goes behind what came, which is in the buffer now: whole batches.

        None: nothing can be made of it.
        """
        partition, offset = state.partition, state.offset
        next_offset, count, complete = scan(records, offset)
        self._measures.add(partition.topic, len(records), count)
        if not complete:
            self._add_event(
                Failed(
                    CorruptRecordError(
                        f"{partition} at offset {offset}: {len(records)} bytes came that hold no whole batch; "
                        "the log may be damaged: seek() past this offset to go on"
                    )
                )
            )
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._in_trouble(state, trouble_of(ec.CORRUPT_MESSAGE))
            return None
        if next_offset == offset:
            # A batch of an older format, or a damaged one: the application gets it, and its reader says so. It is not
            # fetched again at once, nor while it lies in the buffer.
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._in_trouble(state, trouble_of(ec.CORRUPT_MESSAGE))
            if state.buffered_bytes:
                return None
        # No memoryview of what is not one: the application takes this over (`_native.buffers.MemorySlice`).
        batches = (memoryview(records) if isinstance(records, bytes | bytearray) else records)[:complete]
        self._behind(state, next_offset, batches, compressed=bool(records[ATTRIBUTES_AT] & COMPRESSION))
        return batches

    def _behind(
        self, state: PartitionState, next_offset: int, batches: memoryview, *, compressed: bool
    ) -> None:
        """The position goes behind ``batches``."""
        partition = state.partition
        self._memory.saw(compressed=compressed)
        self._sizes.saw(partition.topic, next_offset - state.offset, batches)
        note_epochs(state, batches, self._metadata.leader_epoch(partition))
        state.offset, state.named_at = next_offset, -1
        state.fetched_bytes += len(batches)
        if isinstance(state.place, PartitionBucket) and (broker := state.place.broker) is not None:
            broker.unsettled[state] = None
        self._subscription.move_to_end(partition)
