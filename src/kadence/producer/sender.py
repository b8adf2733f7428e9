"""What the producer sends and what it makes of the answers. Sans-IO: ``now`` comes in, requests go out.

`Sender.poll` moves batches from the accumulator into one ProduceRequest per broker, at most one batch of each
partition in each; `on_response` gives each batch its verdict (`verdicts`) and keeps order and sequence numbers
right (`sequences`, `identity`). A batch ends in exactly one of three ways: written, refused, or out of time
(``delivery.timeout.ms``, KIP-91).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kadence.clock import FOREVER, add_ms
from kadence.config import ProducerConfig
from kadence.connection.backoff import Backoff
from kadence.connection.request import Completed, Lane, Request
from kadence.errors import (
    KafkaError,
    LocalError,
    MalformedMessageError,
    TransactionAbortedError,
    for_code,
)
from kadence.producer.accumulator import Accumulator, Batch
from kadence.producer.identity import Identity
from kadence.producer.sequences import MAX_UNDECIDED, PartitionDelivery
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.producer.verdicts import Verdict, blamed, out_of_time, too_large, verdict_of
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Sender", "Step"]

_log = logging.getLogger("kadence.producer")

_RECONNECT_CHECK_MS: Final = 50
"""How often a broker in reconnect backoff is looked at again."""

CanSend = Callable[[int, Lane, int], bool]


class Step(NamedTuple):
    """What to send now, and when to ask again at the latest (absolute ms)."""

    requests: list[Request]
    wake_at: int


class _Sent(NamedTuple):
    """What a ProduceRequest carried, for its answer."""

    node_id: int
    batches: dict[TopicPartition, Batch]
    names_by_id: dict[bytes, str]


class Sender:
    """See the head of this file. Network thread only, but for what it takes from the accumulator.

    Args:
        can_send: whether a node takes requests now (`NetworkClient.can_send`).
        transactions: of a producer that has them.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        topics: Topics,
        can_send: CanSend,
        transactions: Transactions | None = None,
    ) -> None:
        self._config = config
        self._acks = {"all": -1, "-1": -1, "1": 1, "0": 0}[config.acks]
        self._accumulator = accumulator
        self._topics = topics
        self._can_send = can_send
        self._partitions: dict[TopicPartition, PartitionDelivery] = {}
        self._undecided: set[TopicPartition] = set()
        self._requests_in_flight: dict[int, int] = {}
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._identity: Identity | Transactions = transactions or Identity(config)
        self._transactions = transactions
        # Without sequence numbers the broker cannot refuse what overtakes, so only one may be undecided; without
        # acknowledgements nothing is ever repeated.
        self._most_undecided = MAX_UNDECIDED if config.enable_idempotence else 1 if self._acks else 2**31

    @property
    def _may_renumber(self) -> bool:
        """Whether a partition may raise its epoch: without numbers there is none, in a transaction all share it."""
        return self._config.enable_idempotence and self._transactions is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is waiting for an answer."""
        return not any(self._requests_in_flight.values())

    def _is_wanted(self) -> bool:
        """Whether records are undecided or on their way."""
        return bool(self._accumulator.incomplete) or not self.is_idle

    # ------------------------------------------------------------ sending

    def poll(self, now: int) -> Step:
        """The requests to send at ``now``."""
        wake_at = self._expire(now)
        requests: list[Request] = []
        if self._transactions is not None and self._transactions.writes_nothing:
            self._drop_for_abort(self._transactions.error)
        # Once: an abort that begins from here on waits for what is sent now.
        known = self._identity.known
        if not self._config.enable_idempotence or known is not None:
            chosen, ready_at = self._choose(now)
            wake_at = min(wake_at, ready_at)
            requests += [
                request
                for node, batches in chosen.items()
                if (request := self._produce(now, node, batches, known))
            ]
        # After choosing, which may have found a partition that is to be part of the transaction.
        if self._config.enable_idempotence:
            identity, identity_at = self._identity.poll(now, wanted=self._is_wanted)
            requests += identity
            wake_at = min(wake_at, identity_at)
        # Last, since choosing may have found a partition without a leader.
        metadata, metadata_at = self._topics.poll(now)
        if metadata is not None:
            requests.append(metadata)
        if self._topics.forgotten:
            self._forget(self._topics.forgotten)
            self._topics.forgotten.clear()
        return Step(requests, min(wake_at, metadata_at))

    def _choose(self, now: int) -> tuple[dict[int, list[Batch]], int]:
        """Take what goes out now, by node; and when more may be ready."""
        chosen: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        wake_at = FOREVER
        accumulator = self._accumulator
        with accumulator.gate:
            # What must be repeated, then the others in turn: a request may not have room for all.
            repeated = [tp for tp in self._undecided if self._partitions[tp].must_repeat]
            for tp in dict.fromkeys([*repeated, *accumulator.waiting]):
                candidate = self._candidate(tp)
                if candidate is None:
                    continue
                batch, ready_at, is_new = candidate
                if ready_at > now:
                    wake_at = min(wake_at, ready_at)
                    continue
                leader = self._topics.cluster.leader(tp)
                if leader is None:
                    self._topics.want(tp.topic, now)
                    continue
                if self._transactions is not None and not self._transactions.admits(tp):
                    continue
                if leader not in chosen:
                    in_flight = self._requests_in_flight.get(leader, 0)
                    if in_flight >= self._config.max_in_flight_requests_per_connection:
                        continue
                    if not self._can_send(leader, Lane.MAIN, now):
                        wake_at = min(wake_at, now + _RECONNECT_CHECK_MS)
                        continue
                size = sizes.get(leader, 0) + (batch.size if batch.encoded is None else len(batch.encoded))
                if leader in chosen and size > self._config.max_request_size:
                    wake_at = now
                    continue
                sizes[leader] = size
                self._topics.used(tp.topic, now)
                if is_new:
                    accumulator.take(tp)
                    wake_at = now if tp in accumulator.waiting else wake_at
                chosen.setdefault(leader, []).append(batch)
        return chosen, wake_at

    def _candidate(self, tp: TopicPartition) -> tuple[Batch, int, bool] | None:
        """The batch of a partition that goes next, when it may, and whether it was never sent."""
        partition = self._partitions.get(tp)
        if partition is not None and partition.must_repeat:
            batch = partition.retry()
            return None if batch is None else (batch, batch.not_before, False)
        if tp not in self._accumulator.waiting:
            return None
        if partition is not None and not partition.takes_new(self._most_undecided):
            return None
        return self._accumulator.waiting[tp][0], self._accumulator.ready_at(tp), True

    def _produce(
        self, now: int, node_id: int, batches: list[Batch], identity: tuple[int, int] | None
    ) -> Request | None:
        sent = _Sent(node_id, {}, {})
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            partition = self._partitions.setdefault(batch.tp, PartitionDelivery())
            if not self._encode(batch, partition, identity):
                continue
            batch.attempts += 1
            partition.sent(batch)
            self._undecided.add(batch.tp)
            sent.batches[batch.tp] = batch
            topic = topics.get(batch.tp.topic)
            if topic is None:
                known = self._topics.cluster.topics.get(batch.tp.topic)
                topic_id = ZERO_UUID if known is None else known.topic_id
                topics[batch.tp.topic] = topic = TopicProduceData(topic_id=topic_id, name=batch.tp.topic)
                sent.names_by_id[topic_id] = batch.tp.topic
            topic.partition_data.append(PartitionProduceData(index=batch.tp.partition, records=batch.encoded))
        if not sent.batches:
            return None
        self._requests_in_flight[node_id] = self._requests_in_flight.get(node_id, 0) + 1
        message = ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        # Produce v13 names topics by id alone, which needs metadata that knows it.
        max_version = None if ZERO_UUID not in sent.names_by_id else 12
        if self._transactions is not None:
            max_version = self._transactions.max_produce_version or max_version
        return Request(
            message,
            node_id,
            add_ms(now, self._config.request_timeout_ms),
            tag=sent,
            max_version=max_version,
        )

    def _encode(self, batch: Batch, partition: PartitionDelivery, identity: tuple[int, int] | None) -> bool:
        """Make the batch's bytes; False when that failed, which fails the batch."""
        if batch.encoded is not None:
            return True
        if self._config.enable_idempotence and batch.base_sequence < 0:
            assert identity is not None, "nothing is chosen before there is a producer id"
            # Each transaction may have another epoch; without transactions each partition has its own.
            if partition.needs_identity or (self._transactions is not None and not partition.has(*identity)):
                partition.identify(*identity)
            partition.number(batch)
        try:
            batch.encoded = batch.builder.build(
                compression=self._config.compression_type,
                producer_id=batch.producer_id,
                producer_epoch=batch.epoch,
                base_sequence=batch.base_sequence,
                transactional=self._transactions is not None,
            )
        except Exception as error:  # noqa: BLE001 - one bad batch must not stop the others
            cause = (
                error if isinstance(error, KafkaError) else LocalError(f"cannot encode records: {error!r}")
            )
            cause.__cause__ = error if cause is not error else None
            self._fail(batch, cause, never_sent=True)
            return False
        return True

    # ------------------------------------------------------------ answers

    def on_response(self, now: int, completed: Completed) -> None:
        """Take the answer, or the failure, of one request."""
        message = completed.request.message
        if isinstance(message, ProduceRequest):
            self._on_produced(now, completed)
        elif isinstance(message, MetadataRequest):
            self._topics.on_response(now, completed)
        else:
            refusal = self._identity.on_response(now, completed)
            if refusal is not None:
                self.fail_all(refusal)

    def _on_produced(self, now: int, completed: Completed) -> None:
        sent: _Sent = completed.request.tag
        self._requests_in_flight[sent.node_id] -= 1
        missing = dict(sent.batches)
        if completed.error is None and completed.response is not None:
            for topic in completed.response.responses:
                name = topic.name or sent.names_by_id.get(topic.topic_id, "")
                for answer in topic.partition_responses:
                    batch = missing.pop(TopicPartition(name, answer.index), None)
                    if batch is not None:
                        self._judge(now, batch, answer)
        error = completed.error
        if error is not None and error.retriable:
            self._topics.refresh()
        for batch in missing.values():
            if error is None and self._acks == 0:
                self._written(batch, -1, -1)
            elif error is not None and error.retriable:
                self._repeat(now, batch, error)
            else:
                self._fail(
                    batch, error or MalformedMessageError(f"the answer to a produce request lacks {batch.tp}")
                )

    def _judge(self, now: int, batch: Batch, answer: PartitionProduceResponse) -> None:
        verdict = verdict_of(answer.error_code)
        if verdict is Verdict.WRITTEN:
            self._written(
                batch, answer.base_offset if not answer.error_code else -1, answer.log_append_time_ms
            )
            return
        error = for_code(answer.error_code, answer.error_message and f"{batch.tp}: {answer.error_message}")
        partition = self._partitions[batch.tp]
        if self._accumulator.is_decided(batch):
            # It ran out of time while in flight.
            partition.failed(batch)
            self._settle(batch.tp)
        elif verdict is Verdict.SPLIT:
            self._split(batch, error)
        elif verdict is Verdict.FAIL or (verdict is Verdict.OUT_OF_SEQUENCE and not self._may_renumber):
            record_errors = blamed(batch, answer)
            if record_errors:
                others = f"{batch.tp}: not written since other records of its batch were refused"
                error = for_code(answer.error_code, others)
            self._fail(batch, error, record_errors)
        else:
            if error.code == ec.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.has_lost_past(batch):
                _log.warning(
                    "%s: the broker misses records that it has acknowledged, and refuses what follows them. They may "
                    "be lost, as after an unclean leader election. The producer goes on with a new epoch",
                    batch.tp,
                )
            if verdict is Verdict.RETRY_ELSEWHERE:
                self._topics.want(batch.tp.topic, now)
            self._repeat(now, batch, error, out_of_sequence=verdict is Verdict.OUT_OF_SEQUENCE)

    def _written(self, batch: Batch, base_offset: int, log_append_time: int) -> None:
        self._partitions[batch.tp].written(batch)
        self._settle(batch.tp)
        if not self._accumulator.is_decided(batch):
            with self._accumulator.gate:
                self._accumulator.release(batch)
            batch.delivery.complete(base_offset, log_append_time, first=batch.first)

    def _repeat(self, now: int, batch: Batch, error: KafkaError, *, out_of_sequence: bool = False) -> None:
        partition = self._partitions[batch.tp]
        if self._accumulator.is_decided(batch):
            partition.failed(batch)
            self._settle(batch.tp)
            return
        batch.last_error = error
        batch.not_before = now + self._backoff.delay_ms(batch.attempts - 1)
        if out_of_sequence:
            partition.out_of_sequence(batch)
        else:
            partition.failed_for_now(batch)
        self._settle(batch.tp)
        _log.info("repeating %r: %s", batch, error)

    def _split(self, batch: Batch, error: KafkaError) -> None:
        if batch.count == 1:
            self._fail(batch, too_large(batch, error))
            return
        batch.last_error = error
        try:
            with self._accumulator.gate:
                pieces = self._accumulator.split(batch)
        except KafkaError as fault:
            fault.__cause__ = error
            self._fail(batch, fault)
            return
        self._partitions[batch.tp].replaced(batch, pieces)
        self._settle(batch.tp)
        _log.info("splitting %r: %s", batch, error)

    def _fail(
        self,
        batch: Batch,
        error: KafkaError,
        record_errors: dict[int, KafkaError] | None = None,
        *,
        never_sent: bool = False,
    ) -> None:
        self._partitions[batch.tp].failed(batch, never_sent=never_sent)
        self._settle(batch.tp)
        self._tell(batch, error, record_errors)

    def _tell(
        self, batch: Batch, error: KafkaError, record_errors: dict[int, KafkaError] | None = None
    ) -> None:
        """Tell those who wait that the batch failed, once."""
        if self._accumulator.is_decided(batch):
            return
        with self._accumulator.gate:
            self._accumulator.release(batch)
            if self._transactions is not None:
                self._transactions.not_written(error, was_sent=batch.attempts > 0)
        # Nothing of a transaction is lost silently: its end raises, and readers see none of it.
        log = _log.warning if self._transactions is None else _log.info
        log("records lost: %r: %s", batch, error)
        batch.delivery.fail(error, record_errors, first=batch.first)

    def _settle(self, tp: TopicPartition) -> None:
        """After each change of a partition's undecided batches."""
        partition = self._partitions[tp]
        if not partition.undecided:
            self._undecided.discard(tp)
        if isinstance(self._identity, Identity) and partition.needs_identity:
            # It used up the epochs of its producer id.
            self._identity.known = None

    # ------------------------------------------------------------ time

    def _expire(self, now: int) -> int:
        """Fail what is out of time; say when the next one is."""
        with self._accumulator.gate:
            late = self._accumulator.expired(now)
            next_at = self._accumulator.next_deadline()
        for batch in late:
            self._tell(batch, self._late(batch))
        for tp in list(self._undecided):
            partition = self._partitions[tp]
            for batch in list(partition.undecided):
                if self._accumulator.is_decided(batch):
                    continue
                if batch.deadline > now:
                    next_at = min(next_at, batch.deadline)
                elif batch in partition.in_flight:
                    # Its place is kept until the answer comes: the order of the others depends on it.
                    self._tell(batch, self._late(batch))
                else:
                    self._fail(batch, self._late(batch))
        return next_at

    def _forget(self, topics: set[str]) -> None:
        """Drop what is known of the partitions of topics that nobody uses."""
        with self._accumulator.gate:
            self._accumulator.forget(topics)
        idle = [tp for tp in self._partitions if tp.topic in topics and tp not in self._undecided]
        for tp in idle:
            partition = self._partitions[tp]
            if self._identity.may_forget(partition.producer_id, partition.epoch):
                del self._partitions[tp]

    def _late(self, batch: Batch) -> KafkaError:
        has_leader = self._topics.cluster.leader(batch.tp) is not None
        return out_of_time(batch, self._config.delivery_timeout_ms, has_leader=has_leader)

    def _drop_for_abort(self, cause: KafkaError | None) -> None:
        """What was not sent, or must be repeated, would be undone at once; what is on its way is waited for."""
        why = "was aborted" if cause is None else f"has failed ({cause})"
        error = TransactionAbortedError(f"the transaction {why} before this record was written")
        with self._accumulator.gate:
            waiting = self._accumulator.expired(FOREVER)
        for batch in waiting:
            self._tell(batch, error)
        for tp in list(self._undecided):
            partition = self._partitions[tp]
            for batch in [each for each in partition.undecided if each not in partition.in_flight]:
                self._fail(batch, error)

    def fail_all(self, error: KafkaError) -> None:
        """Fail everything undecided: no identity, a forced close, a bug of ours."""
        with self._accumulator.gate:
            dropped = self._accumulator.drop_all()
        for batch in dropped:
            partition = self._partitions.get(batch.tp)
            if partition is not None and batch not in partition.in_flight:
                partition.failed(batch)
                self._settle(batch.tp)
            batch.delivery.fail(error, first=batch.first)

    def __repr__(self) -> str:
        return (
            f"<Sender {sum(self._requests_in_flight.values())} requests in flight, "
            f"{len(self._undecided)} partitions undecided, {self._accumulator!r}>"
        )
