"""Transactions under virtual time: what is asked in both versions of the protocol, and what errors mean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.worlds.producer import TP, batches_of, header_of
from tests.worlds.transacting import OTHER, TransactionWorld

from kadence.client.gate import Gate
from kadence.connection.request import Request
from kadence.errors import (
    BrokerError,
    ClosedError,
    DisconnectedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kadence.producer import Producer
from kadence.producer.transaction_states import TRANSITIONS, State
from kadence.producer.transactions import Transactions
from kadence.protocol import error_codes as ec
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
)
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
)
from kadence.types import GroupMetadata, OffsetAndMetadata, OpenTransaction, TopicPartition

GROUP = GroupMetadata("g", 3, "member")
TOPIC_ID = b"t" * 16
KNOWING = GroupMetadata("g", 3, "member", topic_ids={"t": TOPIC_ID})
OFFSETS = {TP: OffsetAndMetadata(5)}
LOST = DisconnectedError("gone")


def identity_of(batch: bytes) -> tuple[int, int, int]:
    header = header_of(batch)
    return header.producer_id, header.producer_epoch, header.base_sequence


def test_before_the_first_transaction_there_must_be_an_id() -> None:
    world = TransactionWorld(transaction_timeout_ms=7_000)
    with pytest.raises(IllegalStateError, match=r"init_transactions\(\) was not called"):
        world.now_in.check_open()
    assert world.turn() == []
    world.run(world.now_in.begin_init())
    world.now_in.has_returned()
    assert world.asked_for() == ["ApiVersions", "FindCoordinator", "InitProducerId"]
    init = world.asked[-1]
    assert (init.transactional_id, init.transaction_timeout_ms, init.producer_id) == ("x", 7_000, -1)
    assert world.now_in.coordinators[3].host == "b"
    assert not world.is_open
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        world.now_in.check_open()
    with pytest.raises(
        IllegalStateError, match=r"init_transactions\(\) was called before; one call is enough"
    ):
        world.now_in.begin_init()


def test_v2_leaders_add_partitions_and_each_end_raises_the_epoch() -> None:
    world = TransactionWorld()
    world.begin()
    assert world.is_open
    future = world.append()
    for request in world.turn():
        world.say(request)
    (produce,) = world.turn()
    assert produce.message.transactional_id == "x"
    assert produce.max_version is None
    (batch,) = batches_of(produce).values()
    assert identity_of(batch) == (9, 0, 0)
    assert header_of(batch).is_transactional
    done = world.now_in.begin_commit()
    assert world.turn() == []  # what is on its way is waited for
    world.acknowledge(produce, 40)
    world.run(done)
    assert world.asked_for() == ["EndTxn"]
    assert world.asked[0].committed
    assert future.result(0).offset == 40
    world.begin()
    world.append()
    (second,) = world.turn()
    assert identity_of(batches_of(second)[TP]) == (9, 1, 0)


class GateAfter:
    """The lock, with what another thread does just before it is taken, once."""

    def __init__(self, gate: Gate, before: Callable[[], None]) -> None:
        self._gate = gate
        self._before: list[Callable[[], None]] = [before]

    def __enter__(self) -> None:
        if self._before:
            self._before.pop()()
        self._gate.acquire()

    def __exit__(self, *error: object) -> None:
        self._gate.release()

    @property
    def is_mine(self) -> bool:
        return self._gate.is_mine

    def check_entry(self) -> None:
        self._gate.check_entry()

    def notify_all(self) -> None:
        self._gate.notify_all()


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("end", [Transactions.begin_commit, Transactions.begin_abort])
def test_a_record_that_comes_just_before_the_end_is_part_of_the_transaction(
    version: int, end: Callable[[Transactions], Callable[[], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network thread has found nothing to send, and waits for the lock while the application sends and commits."""
    world = TransactionWorld(version=version)
    world.begin()
    futures = []

    def send_and_end() -> None:
        futures.append(world.append())
        end(world.now_in)

    monkeypatch.setattr(world.now_in, "_gate", GateAfter(world.gate, send_and_end))
    for request in world.turn():
        world.say(request)
    assert world.now_in.state in (State.COMMITTING, State.ABORTING)
    assert world.asked_for() == []
    world.run(lambda: world.now_in.state is State.READY)
    error = futures[0].exception(0)
    assert (error is None) == (end is Transactions.begin_commit)
    assert not world.accumulator.incomplete


def test_a_producer_that_is_closed_meanwhile_begins_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", transactional_id="x")
    transactions = producer._send_checks.transactions
    assert transactions is not None
    transactions.state = State.READY
    gate = GateAfter(producer._gate, lambda: producer.close(0))
    monkeypatch.setattr(producer._send_checks, "gate", gate)
    with pytest.raises(ClosedError):
        producer.begin_transaction()
    assert not producer._accumulator.is_usable


def test_an_abort_that_begins_while_records_are_chosen_waits_for_them() -> None:
    world = TransactionWorld()
    world.begin()
    future = world.append()
    for request in world.turn():
        world.say(request)  # where the topic is

    def abort(node: int) -> bool:
        world.now_in.begin_abort()
        return True

    world.reachable = abort
    (produce,) = world.turn()
    assert isinstance(produce.message, ProduceRequest)
    assert world.now_in.state is State.ABORTING
    world.reachable = lambda node: True
    world.acknowledge(produce)
    world.run(lambda: world.now_in.state is State.READY)
    assert world.asked_for() == ["EndTxn"]
    assert future.exception(0) is None


@pytest.mark.parametrize("version", [0, 2])
def test_an_id_that_the_coordinator_has_forgotten_is_replaced_by_the_abort(version: int) -> None:
    world = TransactionWorld(version=version)
    world.begin()
    world.append()
    world.codes[EndTxnRequest] = [ec.INVALID_PRODUCER_ID_MAPPING]
    world.run()
    world.run(world.now_in.begin_abort())
    assert world.asked_for()[-2:] == ["EndTxn", "InitProducerId"]
    assert world.asked[-1].producer_id == -1
    world.begin()
    future = world.append()
    world.run(world.now_in.begin_commit())
    assert future.exception(0) is None


def test_v1_adds_each_partition_before_it_is_written_to() -> None:
    world = TransactionWorld(version=0)
    world.begin()
    world.append()
    world.append(tp=OTHER)
    world.codes[AddPartitionsToTxnRequest] = [ec.CONCURRENT_TRANSACTIONS] * 3
    began = world.now
    seen: list[Request] = []
    while not seen:
        for request in world.turn():
            seen.append(request) if isinstance(request.message, ProduceRequest) else world.say(request)
        world.advance(20)  # the end of the transaction before is soon written; no backoff is waited for
    (produce,) = seen
    assert world.now - began <= 200
    assert set(batches_of(produce)) == {TP, OTHER}
    assert produce.max_version == 11
    assert world.asked_for() == ["AddPartitionsToTxn"] * 4
    world.acknowledge(produce)
    world.run(world.now_in.begin_commit())
    world.begin()
    world.append()
    world.run(world.now_in.begin_commit())
    assert world.asked_for() == ["AddPartitionsToTxn", "EndTxn"]
    assert world.asked[0].v3_and_below_producer_epoch == 0  # only an abort raises it here


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (2, ["FindCoordinator", "TxnOffsetCommit"]),
        (0, ["AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit"]),
    ],
)
def test_offsets_of_a_group_are_part_of_it(version: int, asked: list[str]) -> None:
    world = TransactionWorld(version=version)
    world.begin()
    world.run(world.now_in.begin_offsets(OFFSETS, GROUP))
    commit = world.asked[-1]
    generation = commit.generation_id_or_member_epoch
    assert (commit.group_id, generation, commit.member_id) == ("g", 3, "member")
    world.run(world.now_in.begin_commit())
    assert world.asked_for() == [*asked, "EndTxn"]


def test_an_empty_transaction_asks_nobody() -> None:
    world = TransactionWorld()
    world.begin()
    world.run(world.now_in.begin_commit())
    world.begin()
    world.run(world.now_in.begin_abort())
    assert world.asked_for() == []


@pytest.mark.parametrize(
    ("version", "asked"), [(2, ["EndTxn"]), (0, ["AddPartitionsToTxn", "EndTxn", "InitProducerId"])]
)
def test_a_refused_record_can_only_be_aborted_and_the_next_begins_with_a_new_epoch(
    version: int, asked: list[str]
) -> None:
    world = TransactionWorld(version=version)
    world.begin()
    refused = world.append()
    world.run(produce=ec.TOPIC_AUTHORIZATION_FAILED)
    assert refused.done()
    assert not world.is_open
    for call in (world.now_in.begin_commit, world.now_in.check_open):
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            call()
        assert "call abort_transaction()" in caught.value.__notes__[0]
    world.run(world.now_in.begin_abort())
    assert world.asked_for() == asked
    assert not next(message for message in world.asked if isinstance(message, EndTxnRequest)).committed
    world.begin()
    world.append()
    seen: list[Request] = []
    while not seen:
        for request in world.turn():
            seen.append(request) if isinstance(request.message, ProduceRequest) else world.say(request)
    assert identity_of(batches_of(seen[0])[TP]) == (9, 1, 0)


def test_an_abort_drops_what_was_not_sent_and_waits_for_what_was() -> None:
    world = TransactionWorld(batch_size=60)
    world.begin()
    world.append()
    for request in world.turn():
        world.say(request)
    (sent,) = world.turn()
    waiting = [world.append(b"x" * 60) for _ in range(2)]
    done = world.now_in.begin_abort()
    assert world.turn() == []
    for future in waiting:
        assert isinstance(future.exception(0), TransactionAbortedError)
    world.acknowledge(sent)
    world.run(done)
    assert world.asked_for() == ["EndTxn"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "code", [ec.ILLEGAL_GENERATION, ec.GROUP_AUTHORIZATION_FAILED, ec.TRANSACTION_ABORTABLE]
)
def test_an_abort_does_not_raise_what_became_of_a_request_that_was_on_its_way(
    version: int, code: int
) -> None:
    """Such as offsets whose call was cancelled: what could not be added is undone by the abort anyway."""
    world = TransactionWorld(version=version)
    world.begin()
    world.now_in.begin_offsets(OFFSETS, GROUP)
    request = world.only()
    while not isinstance(request.message, TxnOffsetCommitRequest):
        world.say(request)
        request = world.only()
    done = world.now_in.begin_abort()
    world.codes[TxnOffsetCommitRequest] = [code]
    world.say(request)
    world.run(done)
    assert world.now_in.state is State.READY


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("fenced", [True, False])
def test_the_coordinator_is_asked_why_an_epoch_is_old(version: int, *, fenced: bool) -> None:
    """Leaders say the same to a producer that was replaced and to one whose transaction was open for too long."""
    world = TransactionWorld(version=version)
    world.begin()
    future = world.append()
    done = world.now_in.begin_commit()
    while not isinstance((request := world.only()).message, ProduceRequest):
        world.say(request)
    world.acknowledge(request, code=ec.INVALID_PRODUCER_EPOCH)
    assert not done(), "it is not known why yet"
    assert not future.done()
    world.codes[EndTxnRequest] = [ec.PRODUCER_FENCED if fenced else ec.NONE]
    world.run()
    with pytest.raises(ProducerFencedError if fenced else BrokerError) as caught:
        done()
    assert isinstance(caught.value, ProducerFencedError) is fenced
    assert isinstance(future.exception(0), ProducerFencedError) is fenced
    if not fenced:
        assert "the brokers have aborted the transaction" in str(future.exception(0))
        assert "INVALID_PRODUCER_EPOCH" in str(caught.value)
        assert "the brokers have aborted the transaction" in str(caught.value)
        asked = world.asked_for().count("EndTxn")
        world.run(world.now_in.begin_abort())
        assert world.asked_for().count("EndTxn") == asked == 1
        world.begin()
        world.append()
        world.run(world.now_in.begin_commit())


def test_a_coordinator_that_refuses_to_say_why_is_not_asked_again_and_again() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.codes[EndTxnRequest] = [ec.COORDINATOR_LOAD_IN_PROGRESS, ec.TRANSACTION_ABORTABLE]
    done = world.now_in.begin_commit()
    world.run(produce=ec.INVALID_PRODUCER_EPOCH)
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
        done()
    assert world.asked_for().count("EndTxn") == 2
    world.run(world.now_in.begin_abort())


def test_what_is_out_of_sequence_behind_a_batch_that_is_repeated_is_repeated_after_it() -> None:
    """One batch is refused for a passing reason, and those behind it are out of sequence only because of that."""
    world = TransactionWorld(batch_size=60)
    world.warm()
    futures = [world.append() for _ in range(3)]
    sent = [request for _ in range(3) for request in world.turn()]
    world.acknowledge(sent[0], code=ec.NOT_ENOUGH_REPLICAS)
    for request in sent[1:]:
        world.acknowledge(request, code=ec.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert world.now_in.state is State.IN_TRANSACTION
    world.run(world.now_in.begin_commit())
    assert [future.exception(0) for future in futures] == [None] * 3


def test_a_batch_that_is_split_does_not_end_the_transaction_for_those_behind_it() -> None:
    world = TransactionWorld(batch_size=110)
    world.warm()
    futures = [world.append() for _ in range(4)]
    first, second = [request for _ in range(2) for request in world.turn()]
    world.acknowledge(first, code=ec.MESSAGE_TOO_LARGE)
    world.acknowledge(second, code=ec.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.run(world.now_in.begin_commit())
    assert [future.exception(0) for future in futures] == [None] * 4


def test_out_of_sequence_of_the_oldest_is_no_reason_to_number_anew() -> None:
    """Without transactions a partition raises its own epoch; here that would tear the transaction apart."""
    world = TransactionWorld()
    world.begin()
    future = world.append()
    world.run(produce=ec.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(future.exception(0), BrokerError)
    assert world.now_in.state is State.ABORTABLE


@pytest.mark.parametrize("code", [ec.PRODUCER_FENCED, ec.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_of_no_more_use(code: int) -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.codes[EndTxnRequest] = [code]
    done = world.now_in.begin_commit()
    world.run()
    for call in (done, world.now_in.begin, world.now_in.begin_abort, world.now_in.check_open):
        with pytest.raises(
            ProducerFencedError, match=r"another producer with transactional.id='x' took over"
        ) as caught:
            call()
        assert "close it" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "code",
    [
        ec.CONCURRENT_TRANSACTIONS,
        ec.COORDINATOR_LOAD_IN_PROGRESS,
        ec.NOT_COORDINATOR,
        ec.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_what_passes_is_asked_again_of_whoever_coordinates_then(code: int) -> None:
    world = TransactionWorld()
    world.codes[InitProducerIdRequest] = [code]
    world.begin()
    world.append()
    world.codes[EndTxnRequest] = [code]
    world.run(world.now_in.begin_commit())
    moved = code in (ec.NOT_COORDINATOR, ec.COORDINATOR_NOT_AVAILABLE)
    assert world.asked_for() == (["EndTxn", "FindCoordinator", "EndTxn"] if moved else ["EndTxn", "EndTxn"])


def test_a_lost_connection_is_asked_again_after_a_while() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.run()
    done = world.now_in.begin_commit()
    (end,) = world.turn()
    world.fail(end, LOST)
    assert world.turn() == []
    world.run(done)
    assert world.asked_for() == ["FindCoordinator", "EndTxn"]


@pytest.mark.parametrize(
    ("request_type", "code", "state"),
    [
        (TxnOffsetCommitRequest, ec.ILLEGAL_GENERATION, State.ABORTABLE),
        (TxnOffsetCommitRequest, ec.GROUP_AUTHORIZATION_FAILED, State.ABORTABLE),
        (TxnOffsetCommitRequest, ec.TRANSACTION_ABORTABLE, State.ABORTABLE),
        (TxnOffsetCommitRequest, ec.PRODUCER_FENCED, State.FAILED),
        (TxnOffsetCommitRequest, ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, State.FAILED),
    ],
)
def test_refused_offsets(request_type: type, code: int, state: State) -> None:
    world = TransactionWorld()
    world.begin()
    world.codes[request_type] = [code]
    done = world.now_in.begin_offsets(OFFSETS, GROUP)
    world.run()
    with pytest.raises(KafkaError, match=ec.name(code)):
        done()
    assert world.now_in.state is state


@pytest.mark.parametrize("code", [ec.GROUP_ID_NOT_FOUND, ec.STALE_MEMBER_EPOCH])
def test_a_member_that_the_group_left_behind_fails_the_transaction_alone(code: int) -> None:
    """Both are codes of version 6."""
    world = TransactionWorld()
    world.begin()
    world.codes[TxnOffsetCommitRequest] = [code]
    done = world.now_in.begin_offsets(OFFSETS, KNOWING)
    world.run()
    with pytest.raises(KafkaError, match=ec.name(code)):
        done()
    assert world.now_in.state is State.ABORTABLE


@pytest.mark.parametrize(
    ("version", "group", "newest"),
    [(2, GROUP, 5), (2, KNOWING, None), (0, KNOWING, 4)],
    ids=["no id", "by id", "an old cluster"],
)
def test_topics_whose_ids_are_known_are_named_by_them(
    version: int, group: GroupMetadata, newest: int | None
) -> None:
    """KIP-1319. Version 6 has no names, so one topic without an id needs version 5."""
    world = TransactionWorld(version=version)
    world.begin()
    done = world.now_in.begin_offsets(OFFSETS, group)
    while not isinstance((request := world.turn()[0]).message, TxnOffsetCommitRequest):
        world.say(request)
    (topic,) = request.message.topics
    assert (topic.name, topic.topic_id) == ("t", group.topic_ids.get("t", bytes(16)))
    assert request.max_version == newest
    world.say(request)
    assert done()


def test_one_topic_without_an_id_keeps_all_names() -> None:
    world = TransactionWorld()
    world.begin()
    world.now_in.begin_offsets({**OFFSETS, TopicPartition("u", 0): OffsetAndMetadata(1)}, KNOWING)
    while not isinstance((request := world.turn()[0]).message, TxnOffsetCommitRequest):
        world.say(request)
    assert request.max_version == 5


def test_a_topic_that_is_gone_is_not_confused_with_the_next_one_of_its_name() -> None:
    world = TransactionWorld()
    world.begin()
    world.codes[TxnOffsetCommitRequest] = [ec.UNKNOWN_TOPIC_ID]
    done = world.now_in.begin_offsets(OFFSETS, KNOWING)
    world.run()
    with pytest.raises(UnknownTopicOrPartitionError, match="does not know t-0") as raised:
        done()
    assert raised.value.partitions == {TP}
    assert world.now_in.state is State.ABORTABLE


def test_a_topic_that_the_coordinator_does_not_know_for_seconds_is_gone() -> None:
    """A new one takes a moment to be known everywhere. What waits for one that was deleted waits for ever."""
    world = TransactionWorld(retry_backoff_ms=100, retry_backoff_max_ms=100)
    world.begin()
    world.codes[TxnOffsetCommitRequest] = [ec.UNKNOWN_TOPIC_OR_PARTITION] * 5
    world.run(world.now_in.begin_offsets(OFFSETS, GroupMetadata("g")))
    assert world.is_open
    world.codes[TxnOffsetCommitRequest] = [ec.UNKNOWN_TOPIC_OR_PARTITION] * 100
    done = world.now_in.begin_offsets(OFFSETS, GroupMetadata("g"))
    world.run()
    with pytest.raises(UnknownTopicOrPartitionError, match="does not know t-0") as raised:
        done()
    assert raised.value.partitions == {TP}
    assert world.now_in.state is State.ABORTABLE
    world.run(world.now_in.begin_abort())


def test_offsets_of_a_member_are_not_sent_again_when_the_coordinator_does_not_know_their_topic() -> None:
    """It has read the topic, which so was deleted; the next one of that name is another."""
    world = TransactionWorld()
    world.begin()
    world.codes[TxnOffsetCommitRequest] = [ec.UNKNOWN_TOPIC_OR_PARTITION]
    done = world.now_in.begin_offsets(OFFSETS, GROUP)
    world.run()
    with pytest.raises(UnknownTopicOrPartitionError, match="does not know t-0"):
        done()
    assert world.now_in.state is State.ABORTABLE
    world.run(world.now_in.begin_abort())


@pytest.mark.parametrize(
    ("codes", "match"),
    [
        (
            {FindCoordinatorRequest: [ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]},
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ),
        ({InitProducerIdRequest: [ec.INVALID_TRANSACTION_TIMEOUT]}, r"transaction\.max\.timeout\.ms"),
    ],
)
def test_init_that_is_refused(codes: dict[type, list[int]], match: str) -> None:
    world = TransactionWorld()
    world.codes = codes
    done = world.now_in.begin_init()
    world.run()
    with pytest.raises(BrokerError, match=match):
        done()


def test_brokers_without_transactions_are_told_of_in_one_sentence() -> None:
    world = TransactionWorld(offers_end=False)
    done = world.now_in.begin_init()
    world.run()
    with pytest.raises(
        UnsupportedVersionError, match=r"the brokers have no transactions; leave out transactional.id"
    ):
        done()


def until_the_commit_is_asked(world: TransactionWorld) -> tuple[Callable[[], bool], Request]:
    """A transaction of one record whose commit has begun: whether it is done, and its EndTxn, not answered."""
    world.begin()
    world.append()
    done = world.now_in.begin_commit()
    return done, sent_of(world, EndTxnRequest)


def sent_of(world: TransactionWorld, kind: type) -> Request:
    """The first request of this kind, not answered; those before it are."""
    for _ in range(30):
        for request in world.turn():
            if isinstance(request.message, kind):
                return request
            if isinstance(request.message, ProduceRequest):
                world.acknowledge(request)
            else:
                world.say(request)
        world.advance(200)
    raise AssertionError(f"no {kind.__name__} was sent")


NO_METADATA = KafkaTimeoutError("no metadata of the topic")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "its first answer was lost"])
def test_a_commit_that_was_asked_for_does_not_change_by_a_record_that_is_refused(
    version: int, *, is_lost: bool
) -> None:
    world = TransactionWorld(version=version)
    done, end = until_the_commit_is_asked(world)
    assert end.message.committed
    world.now_in.not_taken(NO_METADATA)
    if is_lost:
        world.lose(end)
        world.now_in.not_taken(NO_METADATA)
    else:
        world.say(end)
    world.run(done)
    assert {each.committed for each in world.asked if isinstance(each, EndTxnRequest)} == {True}
    assert world.now_in.state is State.READY
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        world.now_in.begin_abort()


def test_a_record_that_is_refused_before_the_commit_was_asked_for_fails_the_transaction() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    done = world.now_in.begin_commit()
    world.now_in.not_taken(NO_METADATA)
    with pytest.raises(KafkaTimeoutError, match="no metadata of the topic"):
        done()
    world.run(world.now_in.begin_abort())
    assert EndTxnRequest not in map(type, world.asked)


def test_a_commit_is_told_even_if_the_producer_fails_while_its_answer_is_on_its_way() -> None:
    world = TransactionWorld()
    done, end = until_the_commit_is_asked(world)
    refused = for_code(ec.CLUSTER_AUTHORIZATION_FAILED)
    world.now_in.not_written(refused, was_sent=False)
    world.say(end)
    assert done()
    assert world.now_in.state is State.FAILED


def test_a_producer_that_fails_while_an_abort_is_on_its_way_stays_failed() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.run()
    done = world.now_in.begin_abort()
    end = sent_of(world, EndTxnRequest)
    world.now_in.not_taken(for_code(ec.CLUSTER_AUTHORIZATION_FAILED))
    world.say(end)
    with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        done()


def test_a_commit_that_ran_out_of_time_can_be_waited_for_again_and_aborted_until_it_is_asked_for() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    first = world.now_in.begin_commit()
    second = world.now_in.begin_commit()
    assert not first()
    assert not second()
    aborted = world.now_in.begin_abort()
    with pytest.raises(IllegalStateError, match=r"not committed: abort_transaction\(\) was called"):
        first()
    world.run(aborted)
    world.now_in.begin()
    world.append()
    done = world.now_in.begin_commit()
    with pytest.raises(IllegalStateError, match=r"not committed: abort_transaction\(\) was called"):
        second()
    sent_of(world, EndTxnRequest)
    with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) has not ended"):
        world.now_in.begin_abort()
    assert not done()


def test_ctrl_c_in_the_last_instant_of_a_commit_lets_the_program_ask_again() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    done = world.now_in.begin_commit()
    world.run(done)
    # The call did not return; the program calls again, as the page advises.
    assert world.now_in.begin_commit()()
    world.now_in.has_returned()
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        world.now_in.begin_commit()


def test_v2_offsets_of_an_old_epoch_fail_the_transaction_and_not_the_producer() -> None:
    world = TransactionWorld()
    world.codes = {TxnOffsetCommitRequest: [ec.INVALID_PRODUCER_EPOCH]}
    world.begin()
    done = world.now_in.begin_offsets(OFFSETS, GROUP)
    with pytest.raises(BrokerError, match="the brokers have aborted the transaction"):
        world.run(done)
    world.run(world.now_in.begin_abort())
    world.now_in.begin()


def test_v1_offsets_of_an_old_epoch_fence_the_producer() -> None:
    world = TransactionWorld(version=1)
    world.codes = {TxnOffsetCommitRequest: [ec.INVALID_PRODUCER_EPOCH]}
    world.begin()
    with pytest.raises(ProducerFencedError):
        world.run(world.now_in.begin_offsets(OFFSETS, GROUP))


def test_offsets_whose_time_is_over_are_not_part_of_a_commit() -> None:
    world = TransactionWorld()
    world.codes = {TxnOffsetCommitRequest: [ec.COORDINATOR_LOAD_IN_PROGRESS] * 1000}
    world.begin()
    done = world.now_in.begin_offsets(OFFSETS, GROUP)
    world.run()
    assert not done()
    world.now_in.not_taken(KafkaTimeoutError("send_offsets_to_transaction()"))
    with pytest.raises(KafkaTimeoutError, match="send_offsets_to_transaction"):
        world.now_in.begin_commit()
    assert world.now_in.end_for_close()
    world.run()
    assert not world.now_in.end_for_close()


def test_offsets_that_wait_while_another_thread_aborts_wait_no_more() -> None:
    world = TransactionWorld()
    world.begin()
    done = world.now_in.begin_offsets(OFFSETS, GROUP)
    aborted = world.now_in.begin_abort()
    with pytest.raises(IllegalStateError, match=r"not sent: abort_transaction\(\) was called"):
        done()
    world.run(aborted)
    world.now_in.begin()
    with pytest.raises(IllegalStateError, match=r"not sent: abort_transaction\(\) was called"):
        done()


def test_a_transaction_left_open_is_somebody_elses_and_the_next_has_another_name() -> None:
    world = TransactionWorld()
    world.warm()
    world.asked.clear()
    with world.gate:
        left = world.now_in.leave_open()
    assert left == OpenTransaction("x", 9, 0, is_v2=True)
    assert not world.is_open
    assert world.turn() == []
    with world.gate:
        assert not world.now_in.end_for_close()  # a close ends nothing
    world.codes[InitProducerIdRequest] = [ec.CONCURRENT_TRANSACTIONS]
    world.run(world.now_in.begin_as("y"))
    assert world.asked_for() == ["FindCoordinator", "InitProducerId", "InitProducerId"]
    assert (world.asked[-1].transactional_id, world.asked[-1].producer_id) == ("y", -1)
    world.begin()
    world.append()
    (produce,) = world.turn()
    assert produce.message.transactional_id == "y"
    world.acknowledge(produce, 41)
    with world.gate:
        assert world.now_in.leave_open() == OpenTransaction("y", 9, 0, is_v2=True)
    world.run(world.now_in.begin_as("x"))
    assert world.asked_for() == ["InitProducerId"], "who coordinates it is still known"


def test_a_transaction_that_brokers_know_nothing_of_needs_no_end() -> None:
    world = TransactionWorld()
    world.begin()
    with world.gate:
        assert world.now_in.leave_open() is None


def test_every_state_can_be_reached_and_only_one_is_the_end() -> None:
    assert set().union(*TRANSITIONS.values()) == set(State)
    assert [state for state, after in TRANSITIONS.items() if not after] == [State.FAILED]


def lose_the_answer_to(world: TransactionWorld, kind: type) -> None:
    """The brokers do what is asked, and the connection is lost before they say so."""
    for _ in range(10):
        for request in world.turn():
            if isinstance(request.message, kind):
                world.asked.append(request.message)
                world.lose(request)
                return
            world.say(request)
    raise AssertionError(f"no {kind.__name__} was sent")


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest])
def test_v1_a_partition_that_may_have_been_added_is_aborted_at_the_coordinator(
    kind: type, begun: bool
) -> None:
    """Else the coordinator may keep the transaction open until its timeout, and readers wait behind it."""
    world = TransactionWorld(version=0)
    world.begin()
    if kind is AddPartitionsToTxnRequest:
        world.append()
    else:
        world.now_in.begin_offsets(OFFSETS, GROUP)
    lose_the_answer_to(world, kind)
    done = world.now_in.begin_abort()
    if not begun:
        world.codes[EndTxnRequest] = [ec.INVALID_TXN_STATE]
    world.run(done)
    # The epoch is raised, so that the lost request, should it arrive only now, opens no transaction.
    assert world.asked_for()[1:] == ["FindCoordinator", "EndTxn", "InitProducerId"]
    assert not world.asked[-2].committed
    assert world.asked[-1].producer_epoch == 0
    world.begin()
    future = world.append()
    world.run(world.now_in.begin_commit())
    assert future.exception(0) is None
    assert world.asked_for() == ["AddPartitionsToTxn", "EndTxn"]


def test_an_end_of_a_transaction_that_surely_is_open_may_not_be_refused() -> None:
    world = TransactionWorld(version=0)
    world.begin()
    world.append()
    world.run()
    world.codes[EndTxnRequest] = [ec.INVALID_TXN_STATE]
    done = world.now_in.begin_abort()
    world.run()
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
        done()
    assert world.now_in.state is State.FAILED


@pytest.mark.parametrize("code", [ec.NONE, ec.TRANSACTION_ABORTABLE])
def test_closing_waits_for_an_abort_until_it_is_done_or_refused(code: int) -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.run()
    world.codes[EndTxnRequest] = [code]
    with world.gate:
        assert world.now_in.end_for_close()
    world.run()
    with world.gate:
        assert not world.now_in.end_for_close()
    assert world.asked_for() == ["EndTxn"]


def test_closing_says_that_it_aborts_an_open_transaction(caplog: pytest.LogCaptureFixture) -> None:
    world = TransactionWorld()
    world.begin()
    with world.gate:
        assert world.now_in.end_for_close()
    world.now_in.lines.write()
    assert "close() aborts the open transaction" in caplog.text


def test_closing_aborts_what_a_commit_could_not_commit() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.run()
    world.now_in.begin_commit()
    world.codes[EndTxnRequest] = [ec.TRANSACTION_ABORTABLE]
    with world.gate:
        assert world.now_in.end_for_close()
    world.run()
    assert world.now_in.state is State.ABORTABLE
    with world.gate:
        assert world.now_in.end_for_close()
    world.run()
    assert [end.committed for end in world.asked] == [True, False]
    with world.gate:
        assert not world.now_in.end_for_close()


@pytest.mark.parametrize(
    "code",
    [
        ec.PRODUCER_FENCED,
        ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ec.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_record_that_is_refused_for_ever_ends_the_producer(code: int) -> None:
    world = TransactionWorld()
    world.begin()
    future = world.append()
    world.run(produce=code)
    assert world.now_in.state is State.FAILED
    error = future.exception(0)
    assert error is not None
    with pytest.raises(KafkaError) as caught:
        world.now_in.begin_commit()
    assert "close it" in caught.value.__notes__[0]


def test_no_offsets_ask_nobody() -> None:
    """A consumer without partitions has none; its group need not be part of the transaction."""
    world = TransactionWorld()
    world.begin()
    assert world.now_in.begin_offsets({}, GROUP)()
    world.run(world.now_in.begin_commit())
    assert world.asked_for() == []


def test_v2_a_transaction_that_brokers_aborted_is_aborted_here_and_the_producer_goes_on() -> None:
    world = TransactionWorld()
    world.begin()
    world.append()
    world.run()
    world.codes[EndTxnRequest] = [ec.INVALID_TXN_STATE]
    done = world.now_in.begin_commit()
    world.run()
    with pytest.raises(BrokerError, match=r"longer than transaction\.timeout\.ms=60000"):
        done()
    world.run(world.now_in.begin_abort())
    world.begin()


def test_an_error_is_told_with_the_same_note_each_time() -> None:
    world = TransactionWorld()
    world.begin()
    error = DisconnectedError("gone")
    error.add_note("before")
    with world.gate:
        world.now_in.not_written(error, was_sent=True)
    for _ in range(2):
        with pytest.raises(DisconnectedError) as caught:
            world.now_in.begin_commit()
        assert len(caught.value.__notes__) == 2


@pytest.mark.parametrize("fenced", [True, False])
def test_records_that_wait_for_the_reason_get_that_of_an_abort_of_the_application(fenced: bool) -> None:
    world = TransactionWorld()
    world.warm()
    future = world.append()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.INVALID_PRODUCER_EPOCH)
    world.codes[EndTxnRequest] = [ec.PRODUCER_FENCED if fenced else ec.NONE]
    with world.gate:
        world.now_in.begin_abort()
    assert not future.done()
    world.run()
    assert world.now_in.state is (State.FAILED if fenced else State.READY)
    error = future.exception(0)
    assert isinstance(error, BrokerError)
    assert isinstance(error, ProducerFencedError) is fenced
    assert fenced or error.code == ec.INVALID_PRODUCER_EPOCH


def test_records_wait_for_the_reason_no_longer_than_they_may_wait() -> None:
    """A coordinator that nobody reaches cannot say it."""
    world = TransactionWorld(delivery_timeout_ms=5_000, request_timeout_ms=5_000)
    world.warm()
    future = world.append()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.INVALID_PRODUCER_EPOCH)
    world.turn()
    world.advance(4_999)
    world.turn()
    assert not future.done()
    world.advance(1)
    world.turn()
    error = future.exception(0)
    assert isinstance(error, BrokerError)
    assert error.code == ec.INVALID_PRODUCER_EPOCH


def test_a_producer_that_ends_meanwhile_tells_those_that_wait_for_the_reason() -> None:
    world = TransactionWorld()
    world.warm()
    future = world.append()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.INVALID_PRODUCER_EPOCH)
    world.sender.fail_all(ClosedError("closed"))
    assert isinstance(future.exception(0), ClosedError)
