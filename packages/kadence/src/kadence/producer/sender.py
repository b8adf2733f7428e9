"""Makes the producer's requests and handles their responses. Sans-IO: ``now`` comes in, requests go out.

`Sender.poll` moves batches from the accumulator into one ProduceRequest per broker, at most one batch of each
partition in each; `on_response` gives each batch its verdict (`verdicts`), and `outcomes` carries it out.
A batch ends in exactly one of three ways: written, refused, or out of time (``delivery.timeout.ms``, KIP-91).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kadence.client.request_manager import Poll, RequestManager
from kadence.clock import FOREVER, add_ms
from kadence.config import ProducerConfig
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.errors import (
    KafkaError,
    LocalError,
    MalformedMessageError,
    for_code,
)
from kadence.logs import logger
from kadence.producer.accumulator import Accumulator, Batch
from kadence.producer.identity import Identity
from kadence.producer.load import Load
from kadence.producer.outcomes import Outcomes
from kadence.producer.sequences import MAX_UNDECIDED, PartitionDelivery
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.producer.verdicts import Verdict, blamed, endpoints_of, refused, verdict_of
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kadence.types import Node, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Sender"]

_log = logger("kadence.producer")

_RECONNECT_CHECK_MS: Final = 50
"""The interval at which a broker in reconnect backoff is checked again."""

CanSend = Callable[[int, ConnectionPurpose, int], bool]


class _Sent(NamedTuple):
    """The batches of a ProduceRequest, for its response."""

    node_id: int
    batches: dict[TopicPartition, Batch]
    names_by_id: dict[bytes, str]


class Sender:
    """Makes ProduceRequests of batches, and handles their responses.

    Network thread only, except for what it takes from the accumulator.

    Args:
        can_send: whether a node accepts requests now (`NetworkClient.can_send`).
        transactions: of a producer that has them.

    Attributes:
        plain_answers: how many answers wrote all batches of their requests.
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
        level = config.compression_level
        self._level = None if level is None or level < 0 else level
        self._acks = {"all": -1, "-1": -1, "1": 1, "0": 0}[config.acks]
        self._accumulator = accumulator
        self._measures = accumulator.measures
        self._topics = topics
        self._can_send = can_send
        self._requests_in_flight: dict[int, int] = {}
        self._identity: Identity | Transactions = transactions or Identity(config)
        self._transactions = transactions
        self._outcomes = Outcomes(config, accumulator, topics, self._identity)
        self._identity.wanted = self._is_wanted
        self._identity.on_refused = self._outcomes.fail_all
        self._load = Load(config, accumulator, topics)
        self.plain_answers = 0
        # Without sequence numbers the broker cannot refuse a batch that overtakes another, so only one may be
        # undecided; without acknowledgements no batch is ever repeated.
        self._most_undecided = MAX_UNDECIDED if config.enable_idempotence else 1 if self._acks else 2**31

    @property
    def managers(self) -> tuple[RequestManager, ...]:
        """All request managers of a producer, in the order of a turn.

        The sender comes first: it may find a partition that must be added to the transaction, or one without a leader,
        and the others request those.
        """
        return (
            (self, self._identity, self._topics) if self._config.enable_idempotence else (self, self._topics)
        )

    @property
    def is_idle(self) -> bool:
        """True if no request waits for its response."""
        return not any(self._requests_in_flight.values())

    @property
    def has_nothing_to_send(self) -> bool:
        """True if no record waits. A transaction may want to end then."""
        return self._transactions is None and not self._accumulator.waiting and not self._outcomes.repeating

    def _is_wanted(self) -> bool:
        """True if records are undecided or on their way."""
        return bool(self._accumulator.incomplete) or not self.is_idle

    # ------------------------------------------------------------ sending

    def poll(self, now: int) -> Poll:
        """The records to send at ``now``."""
        self._measures.now = now
        if self._topics.forgotten:
            self._outcomes.forget(self._topics.forgotten)
            self._topics.forgotten.clear()
        wake_at = self._outcomes.expire(now)
        requests: list[Request] = []
        if self._transactions is not None and self._transactions.writes_nothing:
            self._outcomes.drop_for_abort(self._transactions.error)
        # Read once: an abort that begins from here on waits for the records that are sent now.
        known = self._identity.known
        if not self._config.enable_idempotence or known is not None:
            chosen, ready_at = self._choose(now)
            wake_at = min(wake_at, ready_at)
            requests += [
                request for node, batches in chosen if (request := self._produce(now, node, batches, known))
            ]
        return Poll(requests, wake_at)

    def _choose(self, now: int) -> tuple[list[tuple[int, list[Batch]]], int]:
        """Take the batches to send now, by node and request; and return when more may be ready.

        One turn fills as many requests as may be in flight: before each turn the thread may wait for the GIL.
        """
        chosen: list[tuple[int, list[Batch]]] = []
        filling: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        in_flight = dict(self._requests_in_flight)
        wake_at = FOREVER
        accumulator = self._accumulator
        with accumulator.gate:
            # First the batches that must be repeated, then the others in turn: a request may not have room for all.
            repeated = list(self._outcomes.repeating)
            for tp in dict.fromkeys([*repeated, *accumulator.ready(now)]):
                candidate = self._candidate(tp)
                if candidate is None:
                    if self._load.watches and tp in accumulator.waiting and accumulator.ready_at(tp) <= now:
                        self._load.refused(self._topics.cluster.leader(tp), now)
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
                size = batch.size if batch.encoded is None else len(batch.encoded)
                if leader not in filling or sizes[leader] + size > self._config.max_request_size:
                    if in_flight.get(leader, 0) >= self._config.max_in_flight_requests_per_connection:
                        if leader not in filling:
                            self._load.refused(leader, now)
                        continue
                    if not self._can_send(leader, ConnectionPurpose.MAIN, now):
                        self._load.refused(leader, now)
                        wake_at = min(wake_at, now + _RECONNECT_CHECK_MS)
                        continue
                    self._load.taken(leader)
                    in_flight[leader] = in_flight.get(leader, 0) + 1
                    filling[leader] = []
                    sizes[leader] = 0
                    chosen.append((leader, filling[leader]))
                sizes[leader] += size
                self._topics.used(tp.topic, now)
                if is_new:
                    accumulator.take(tp)
                    wake_at = now if tp in accumulator.waiting else wake_at
                filling[leader].append(batch)
            wake_at = min(wake_at, accumulator.next_ready())
            self._load.update_shares(now, repeated)
        return chosen, wake_at

    def _candidate(self, tp: TopicPartition) -> tuple[Batch, int, bool] | None:
        """The next batch of a partition, the time at which it may be sent, and whether it was never sent."""
        partition = self._outcomes.partitions.get(tp)
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
        encoded: dict[TopicPartition, Batch] = {}
        for batch in batches:
            if self._encode(batch, identity):
                self._count_sent(now, batch)
                encoded[batch.tp] = batch
        if not encoded:
            return None
        return self._request_with(now, node_id, encoded)

    def _count_sent(self, now: int, batch: Batch) -> None:
        self._measures.batch_sent(
            batch.tp.topic,
            count=batch.count,
            nbytes=len(batch.encoded or b""),
            plain=batch.builder.size,
            queued_ms=None if batch.attempts else now - batch.created,
        )
        self._outcomes.sent(batch)

    def _request_with(self, now: int, node_id: int, batches: dict[TopicPartition, Batch]) -> Request:
        """The request that these batches are sent in."""
        request = self.request_of(now, node_id, {tp: batch.encoded for tp, batch in batches.items()})
        names = {each.topic_id: each.name for each in request.message.topic_data}
        request.tag = _Sent(node_id, batches, names)
        self._measures.per_request.record(now, sum(batch.count for batch in batches.values()))
        self._requests_in_flight[node_id] = self._requests_in_flight.get(node_id, 0) + 1
        return request

    def request_of(
        self, now: int, node_id: int, batches: Mapping[TopicPartition, bytes | memoryview | None]
    ) -> Request:
        """A request with these batches, as bytes."""
        topics: dict[str, TopicProduceData] = {}
        for tp, records in batches.items():
            topic = topics.get(tp.topic)
            if topic is None:
                known = self._topics.cluster.topics.get(tp.topic)
                topic_id = ZERO_UUID if known is None else known.topic_id
                topics[tp.topic] = topic = TopicProduceData(topic_id=topic_id, name=tp.topic)
            topic.partition_data.append(PartitionProduceData(index=tp.partition, records=records))
        message = ProduceRequest(
            transactional_id=None if self._transactions is None else self._transactions.transactional_id,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        # Produce v13 names topics by id alone, which needs metadata with the ids.
        max_version = 12 if any(each.topic_id == ZERO_UUID for each in topics.values()) else None
        if self._transactions is not None:
            max_version = self._transactions.max_produce_version or max_version
        return Request(
            message, node_id, add_ms(now, self._config.request_timeout_ms), max_version=max_version
        )

    @property
    def deliveries(self) -> Mapping[TopicPartition, PartitionDelivery]:
        """Of all partitions that batches were sent to."""
        return self._outcomes.partitions

    def sent_directly(self, now: int, node_id: int, batch: Batch) -> Request:
        """A thread of the application has sent a batch, which has no answer yet: the request with it."""
        self._measures.now = now
        # The same bytes again, from the same numbers.
        self._encode(batch, None)
        self._count_sent(now, batch)
        return self._request_with(now, node_id, {batch.tp: batch})

    def _encode(self, batch: Batch, identity: tuple[int, int] | None) -> bool:
        """Encode the batch; on failure, fail it and return False."""
        partition = self._outcomes.of(batch.tp)
        if batch.encoded is not None:
            return True
        # A thread of the application may have sent it already (`sent_directly`).
        is_sent = batch.base_sequence >= 0
        if self._config.enable_idempotence and not is_sent:
            assert identity is not None, "no batch is chosen before there is a producer id"
            # The epoch may differ in each transaction; without transactions each partition has its own.
            if partition.needs_identity or (self._transactions is not None and not partition.has(*identity)):
                partition.identify(*identity)
            partition.number(batch)
        try:
            batch.encoded = batch.builder.build_in_place(
                compression=self._config.compression_type,
                level=self._level,
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
            self._outcomes.fail(batch, cause, never_sent=not is_sent)
            return False
        return True

    # ------------------------------------------------------------ answers

    def on_response(self, now: int, completed: Completed) -> None:
        """Handle the response, or the failure, of one request."""
        sent: _Sent = completed.request.tag
        self._measures.now = now
        self._requests_in_flight[sent.node_id] -= 1
        missing = dict(sent.batches)
        is_plain = True
        if completed.error is None and completed.response is not None:
            self._measures.answered(
                completed.received_at - completed.sent_at, completed.response.throttle_time_ms
            )
            endpoints = endpoints_of(completed.response)
            for topic in completed.response.responses:
                name = topic.name or sent.names_by_id.get(topic.topic_id, "")
                for answer in topic.partition_responses:
                    batch = missing.pop(TopicPartition(name, answer.index), None)
                    if batch is not None and not self._judge(now, batch, answer, endpoints):
                        is_plain = False
        error = completed.error
        if error is None and not missing:
            self.plain_answers += is_plain
            return
        if error is not None and error.retriable:
            self._topics.request_update(now)
        for batch in missing.values():
            if error is None and self._acks == 0:
                self._outcomes.written(batch, -1, -1)
            elif error is not None and error.retriable:
                self._outcomes.repeat(now, batch, error)
            else:
                self._outcomes.fail(
                    batch,
                    error or MalformedMessageError(f"the response to a ProduceRequest lacks {batch.tp}"),
                )

    def _judge(
        self, now: int, batch: Batch, answer: PartitionProduceResponse, endpoints: Mapping[int, Node]
    ) -> bool:
        """Have the verdict on a batch carried out. True if it is written."""
        verdict = verdict_of(answer.error_code)
        if verdict is Verdict.WRITTEN:
            self._outcomes.written(
                batch, answer.base_offset if not answer.error_code else -1, answer.log_append_time_ms
            )
            return True
        error = for_code(answer.error_code, answer.error_message and f"{batch.tp}: {answer.error_message}")
        partition = self._outcomes.partitions[batch.tp]
        if self._accumulator.is_decided(batch):
            self._outcomes.answered_late(batch)
        elif verdict is Verdict.SPLIT:
            self._outcomes.split(batch, error)
        elif verdict is Verdict.FAIL or (
            verdict is Verdict.OUT_OF_SEQUENCE and not self._may_come_right(batch, answer.error_code)
        ):
            record_errors = blamed(batch, answer)
            self._outcomes.fail(batch, refused(batch, error, record_errors), record_errors)
        else:
            if error.code == ec.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.has_lost_past(batch):
                _log.warning(
                    "%s: the broker lacks records that it has acknowledged, and refuses the next ones. They may "
                    "be lost, as after an unclean leader election. The producer continues with a new epoch",
                    batch.tp,
                )
            moved = False
            if verdict is Verdict.RETRY_ELSEWHERE:
                leader = answer.current_leader
                moved = self._topics.moved(now, batch.tp, leader.leader_id, leader.leader_epoch, endpoints)
                if not moved:
                    self._topics.want(batch.tp.topic, now)
            self._outcomes.repeat(
                now, batch, error, out_of_sequence=verdict is Verdict.OUT_OF_SEQUENCE, at_once=moved
            )
        return False

    def _may_come_right(self, batch: Batch, code: int) -> bool:
        """True if a batch can still be written although the broker finds its numbers out of order.

        With a new epoch of its partition it can. In a transaction it can while an older batch is undecided: that
        one was refused for a transient reason, or is to be split, and is repeated first.
        """
        if self._config.enable_idempotence and self._transactions is None:
            return True
        return code != ec.INVALID_PRODUCER_EPOCH and not self._outcomes.partitions[batch.tp].is_oldest(batch)

    def fail_all(self, error: KafkaError) -> None:
        """See `Outcomes.fail_all`."""
        self._outcomes.fail_all(error)

    def __repr__(self) -> str:
        return (
            f"<Sender {sum(self._requests_in_flight.values())} requests in flight, "
            f"{len(self._outcomes.undecided)} partitions undecided, {self._accumulator!r}>"
        )
