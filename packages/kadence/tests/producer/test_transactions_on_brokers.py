"""Transactions on our broker and on real Kafka: what readers of both kinds see of them, ours and somebody else's."""

from __future__ import annotations

import contextlib
import random
import re
import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from tests.patience import PATIENCE, until

from kadence import Admin, Broker, Consumer, Producer, TopicPartition
from kadence.admin import NewTopic
from kadence.client.gate import Gate
from kadence.client.surroundings import Surroundings
from kadence.clock import FOREVER
from kadence.config import ProducerConfig
from kadence.errors import (
    BrokerError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kadence.producer import transaction_calls
from kadence.producer.accumulator import Accumulator
from kadence.producer.assembly import network_side
from kadence.producer.topics import Topics
from kadence.producer.transaction_states import State
from kadence.producer.transactions import Transactions
from kadence.protocol import error_codes as ec
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence.types import GroupMetadata
from kadence_testing.kafka import Kafka


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    running: Broker | Kafka = request.getfixturevalue("broker" if request.param == "embedded" else "kafka")
    return running.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1, {"max.message.bytes": "2000"})])
    return name


def ours(servers: str, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    """Values that our consumer reads up to the end that it is shown, sorted."""
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with Consumer(
        bootstrap_servers=servers, isolation_level=isolation_level, auto_offset_reset="earliest"
    ) as reader:
        ends = reader.end_offsets(partitions)
        reader.assign({tp: (0, end) for tp, end in ends.items()})
        values: list[bytes | None] = []
        while any(reader.position(tp) < end for tp, end in ends.items()):
            values += [record.value for record in reader.poll(PATIENCE)]
        return sorted(values, key=lambda value: value or b"")


def theirs(servers: str, topic: str) -> list[bytes | None]:
    """The same, as librdkafka reads what is committed."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        reader.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in (0, 1)])
        values: list[bytes | None] = []
        ended: set[int | None] = set()
        while len(ended) < 2:
            message = reader.poll(PATIENCE)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
            else:
                ended.add(message.partition())
        return sorted(values, key=lambda value: value or b"")
    finally:
        reader.close()


def readers_see(servers: str, topic: str, values: list[bytes]) -> None:
    """Whoever reads what is committed gets these values, and no others.

    A commit is decided before it is written into each partition, which brokers do soon afterwards.
    """
    until(lambda: ours(servers, topic) == values, what=lambda: ours(servers, topic))
    assert theirs(servers, topic) == values


def test_readers_see_all_of_it_or_nothing(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        with pytest.raises(IllegalStateError, match=r"init_transactions\(\) was not called"):
            producer.send(topic, b"too early")
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            futures = [producer.send(topic, b"%d" % number, partition=partition) for partition in (0, 1)]
            if number == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            assert all(future.done() for future in futures)
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result(PATIENCE)
        readers_see(servers, topic, [b"0", b"0", b"2", b"2"])
        assert ours(servers, topic, "read_uncommitted") == [b"0", b"0", b"1", b"1", b"2", b"2", b"open"]
    # Closing aborts what is open.
    readers_see(servers, topic, [b"0", b"0", b"2", b"2"])


def test_a_refused_record_undoes_the_others(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"good", partition=0)
        producer.send(topic, b"x" * 5000, partition=1)
        with pytest.raises(RecordTooLargeError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"after", partition=0)
        producer.send(topic, b"after", partition=1)
        producer.commit_transaction()
    readers_see(servers, topic, [b"after", b"after"])


def test_batches_that_are_split_abort_no_transaction(servers: str) -> None:
    """Batches of the default size are too large for this topic; several of them are on their way at once."""
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, {"max.message.bytes": "100000"})])
    luck = random.Random(4)
    # Batches of the default size are too large where luck filled them, and those behind them fit.
    values = [
        b"%04d" % number + (luck.randbytes if number // 400 % 2 else bytes)(800) for number in range(2400)
    ]
    with Producer(bootstrap_servers=servers, transactional_id=topic, compression_type="lz4") as producer:
        producer.init_transactions()
        with producer.transaction():
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % 2)
    until(lambda: ours(servers, topic) == values)


def test_refusals_that_pass_abort_no_transaction() -> None:
    """A leader that lacks replicas now and then refuses one batch of several that are on their way."""
    luck = random.Random(1)
    with Broker(topics={"t": 2}) as broker:
        with (
            broker.faults.error(
                ProduceRequest, ec.NOT_ENOUGH_REPLICAS, where=lambda call: luck.random() < 0.05
            ) as refused,
            Producer(
                bootstrap_servers=broker.bootstrap_servers,
                transactional_id="x",
                batch_size=200,
                retry_backoff_ms=1,
            ) as producer,
        ):
            producer.init_transactions()
            for number in range(60):
                with producer.transaction():
                    for part in range(20):
                        producer.send("t", b"%03d-%02d" % (number, part), partition=part % 2)
                        producer.flush() if part == 1 else None
        assert refused.hits > 3
        expected = [b"%03d-%02d" % (number, part) for number in range(60) for part in range(20)]
        assert ours(broker.bootstrap_servers, "t") == expected


def test_a_with_block_is_one_transaction(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:

        def write(*values: bytes, then: Callable[[], object] = list) -> None:
            with producer.transaction():
                for partition, value in enumerate(values):
                    producer.send(topic, value, partition=partition)
                then()

        def fail() -> None:
            producer.flush()
            raise ZeroDivisionError

        with pytest.raises(IllegalStateError, match="was not called"):
            write(b"too early")
        producer.init_transactions()
        write(b"kept", b"kept")
        with pytest.raises(ZeroDivisionError):
            write(b"the block fails", then=fail)
        with pytest.raises(RecordTooLargeError):
            write(b"the commit fails", b"x" * 5000)
        write(b"kept")
    readers_see(servers, topic, [b"kept"] * 3)


def test_a_with_block_whose_abort_fails_raises_what_the_block_raised() -> None:
    def write_and_fail() -> None:
        with producer.transaction():
            producer.send("t", b"never seen").result(PATIENCE)
            raise ZeroDivisionError

    with (
        Broker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer,
    ):
        producer.init_transactions()
        with (
            broker.faults.error(EndTxnRequest, ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            pytest.raises(ZeroDivisionError) as raised,
        ):
            write_and_fail()
    why, advice = raised.value.__notes__
    assert why.startswith("abort_transaction() failed: TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    assert "close it, and create another one" in advice


def test_a_with_block_whose_commit_runs_out_of_time_lets_it_go_on() -> None:
    def write() -> None:
        with producer.transaction():
            producer.send("t", b"kept").result(PATIENCE)
            object.__setattr__(producer._config, "max_block_ms", 0)

    with (
        Broker(topics={"t": 2}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer,
    ):
        producer.init_transactions()
        with pytest.raises(KafkaTimeoutError, match="has not ended within") as raised:
            write()
        assert not hasattr(raised.value, "__notes__"), "nobody tries to abort it"
        object.__setattr__(producer._config, "max_block_ms", 60_000)
        producer.commit_transaction()
        readers_see(broker.bootstrap_servers, "t", [b"kept"])


def test_ctrl_c_in_a_with_block_does_not_wait_for_a_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the abort nor for the close, which have ten minutes otherwise."""
    monkeypatch.setattr(transaction_calls, "_IN_A_HURRY", 0.05)

    def interrupted(broker: Broker) -> None:
        with Producer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="x",
            max_block_ms=600_000,
            delivery_timeout_ms=600_000,
        ) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"x").result(PATIENCE)
                silence.enter_context(broker.faults.freeze())
                raise KeyboardInterrupt

    with (
        Broker(topics={"t": 2}) as broker,
        contextlib.ExitStack() as silence,
        pytest.raises(KeyboardInterrupt) as raised,
    ):
        interrupted(broker)
    assert "abort_transaction() has not ended within 0.05 s" in raised.value.__notes__[0]


def test_a_new_producer_of_the_same_name_fences_the_old_one(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as old:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old", partition=0).result(PATIENCE)
        with Producer(bootstrap_servers=servers, transactional_id=topic) as new:
            new.init_transactions()
            new.begin_transaction()
            new.send(topic, b"new", partition=0)
            new.commit_transaction()
        with pytest.raises(ProducerFencedError, match="took over"):
            old.commit_transaction()
        with pytest.raises(ProducerFencedError, match="took over"):
            old.begin_transaction()
    readers_see(servers, topic, [b"new"])


@pytest.mark.parametrize("call", ["commit", "send", "abort", "offsets"])
def test_whichever_call_of_a_fenced_producer_is_next_says_that_it_is(
    servers: str, topic: str, call: str
) -> None:
    """A leader says only that the epoch is old, which may have other reasons; the producer asks its coordinator."""
    with Producer(bootstrap_servers=servers, transactional_id=topic) as old:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old", partition=0).result(PATIENCE)
        with Producer(bootstrap_servers=servers, transactional_id=topic) as new:
            new.init_transactions()
        refused = old.send(topic, b"old", partition=0)
        if call == "commit":
            with pytest.raises(ProducerFencedError, match="took over"):
                old.commit_transaction()
            return
        assert isinstance(refused.exception(PATIENCE), BrokerError)
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: old.send(topic, b"old", partition=0),
            "abort": old.abort_transaction,
            "offsets": lambda: old.send_offsets_to_transaction(
                {TopicPartition(topic, 0): 1}, GroupMetadata("g", -1, "")
            ),
        }
        with pytest.raises(ProducerFencedError, match="took over"):
            calls[call]()


def without_its_error(
    producer: Producer, topic: str, call: Callable[[], object], error: type[Exception]
) -> KafkaError | None:
    """What the end of a transaction raises in which an error was caught."""
    try:
        with producer.transaction():
            producer.send(topic, b"good", partition=0)
            with contextlib.suppress(error):
                call()
    except KafkaError as failure:
        return failure
    return None


def test_a_record_that_send_refused_makes_the_transaction_fail_although_it_was_caught(
    servers: str, topic: str
) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic, max_block_ms=10_000) as producer:
        producer.init_transactions()
        calls: dict[type[Exception], Callable[[], object]] = {
            RecordTooLargeError: lambda: producer.send(topic, b"x" * 2_000_000, partition=0),
            UnknownTopicOrPartitionError: lambda: producer.send(topic, b"nowhere", partition=7),
        }
        for error, call in calls.items():
            assert isinstance(without_its_error(producer, topic, call, error), error)
        table = pa.table({"value": [b"x" * 2_000_000]})
        failed = without_its_error(
            producer, topic, lambda: producer.send_arrow(table, topic), RecordTooLargeError
        )
        assert isinstance(failed, RecordTooLargeError)
        with producer.transaction():
            with contextlib.suppress(SerializationError):
                producer.send(topic, "what is no record may go elsewhere", partition=0)
            producer.send(topic, b"elsewhere", partition=1)
    readers_see(servers, topic, [b"elsewhere"])


def open_for(servers: str, topic: str) -> Producer:
    """A producer with a record in a transaction that brokers abort soon: once this machine has written the record."""
    for timeout_ms in (300, 1_200, 4_800, 19_200):
        producer = Producer(
            bootstrap_servers=servers, transactional_id=topic, transaction_timeout_ms=timeout_ms
        )
        producer.init_transactions()
        producer.begin_transaction()
        if producer.send(topic, b"slow", partition=0).exception(PATIENCE) is None:
            return producer
        producer.close()
    raise AssertionError("no record is written in time")


def test_a_transaction_that_takes_too_long_is_aborted_by_the_brokers(servers: str, topic: str) -> None:
    with (
        open_for(servers, topic) as slow,
        Consumer(
            bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader,
    ):
        with Producer(bootstrap_servers=servers) as other:
            other.send(topic, b"behind it", partition=0).result(PATIENCE)
        reader.assign([TopicPartition(topic, 0)])
        # Readers get past it once it is aborted.
        assert [record.value for record in reader.poll(PATIENCE)] == [b"behind it"]
        with pytest.raises(BrokerError, match=r"longer than transaction\.timeout\.ms="):
            slow.commit_transaction()
        slow.abort_transaction()
        slow.begin_transaction()
        slow.send(topic, b"in time", partition=0)
        slow.abort_transaction()


def test_what_was_read_and_what_was_written_count_together(servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=servers) as plain:
        for number in range(3):
            plain.send(topic, b"in %d" % number, partition=0).result(PATIENCE)
    with (
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
        Consumer(
            bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        producer.init_transactions()
        consumer.subscribe([topic])
        offset = next(iter(consumer.poll(PATIENCE))).offset + 1
        for commits in (False, True):
            producer.begin_transaction()
            producer.send(topic, b"out", partition=1)
            producer.send_offsets_to_transaction({tp: offset}, consumer.group_metadata())
            producer.commit_transaction() if commits else producer.abort_transaction()
            if not commits:
                assert tp not in admin.list_consumer_group_offsets(topic)
        until(lambda: tp in admin.list_consumer_group_offsets(topic), what="the offset is committed")
        assert admin.list_consumer_group_offsets(topic)[tp].offset == offset


def test_c19_offsets_count_for_the_topic_that_was_read_when_the_consumer_knows_the_next_of_its_name() -> None:
    """The network thread notices the new topic by itself; no poll has reported it."""
    tp = TopicPartition("t", 0)
    with (
        Broker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"in")
        consumer.subscribe(["t"])
        records = consumer.poll(PATIENCE)
        old = consumer.group_metadata().topic_ids
        admin.delete_topics(["t"])
        admin.create_topics({"t": 1})
        until(lambda: consumer.position(tp) == 0, what="it begins to read the new topic")
        group = consumer.group_metadata()
        assert group.topic_ids == old
        with (
            pytest.raises(UnknownTopicOrPartitionError, match="does not know t-0"),
            producer.transaction(),
        ):
            producer.send_offsets_to_transaction(records.next_offsets(), group)
        with producer.transaction():
            producer.send("t", b"new")
        records = consumer.poll(PATIENCE)
        with producer.transaction():
            producer.send_offsets_to_transaction(records.next_offsets(), consumer.group_metadata())
        assert consumer.group_metadata().topic_ids == {"t": admin.describe_topics(["t"])["t"].topic_id}


@pytest.mark.parametrize("newest", [6, 5])
def test_offsets_count_for_the_topic_that_was_read_and_not_for_the_next_of_its_name(newest: int) -> None:
    """KIP-1319. By name, which older brokers need, the offset is the new topic's."""
    tp = TopicPartition("t", 0)
    with (
        Broker(topics={"t": 1}) as broker,
        broker.faults.limit(TxnOffsetCommitRequest, newest),
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        broker.faults.observe(TxnOffsetCommitRequest) as commits,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"in").result(PATIENCE)
        producer.commit_transaction()
        consumer.subscribe(["t"])
        offset = next(iter(consumer.poll(PATIENCE))).offset + 1
        group = consumer.group_metadata()
        assert group.topic_ids == {"t": admin.describe_topics(["t"])["t"].topic_id}
        admin.delete_topics(["t"])
        admin.create_topics({"t": 1})
        producer.begin_transaction()
        if newest == 6:
            with pytest.raises(UnknownTopicOrPartitionError, match="does not know t-0"):
                producer.send_offsets_to_transaction({tp: offset}, group)
            producer.abort_transaction()
        else:
            producer.send_offsets_to_transaction({tp: offset}, group)
            producer.commit_transaction()
        assert [call.version for call in commits.calls] == [newest]
        until(
            lambda: (tp in admin.list_consumer_group_offsets("g")) == (newest == 5),
            what="the offset is committed",
        )


def test_closing_does_not_wait_for_ever_for_an_abort_that_nobody_answers() -> None:
    config = ProducerConfig.parse(
        None, bootstrap_servers="127.0.0.1:1", transactional_id="x", delivery_timeout_ms=200
    )
    gate = Gate()
    accumulator = Accumulator(
        batch_size=1000, linger_ms=0, buffer_memory=1000, delivery_timeout_ms=200, gate=gate
    )
    transactions = Transactions(config, gate, lambda is_open: None)
    # As after an answer of the coordinator, which is gone since then.
    transactions.state = State.IN_TRANSACTION
    transactions.admits(TopicPartition("t", 0))
    transactions._is_started = True
    network, engine = network_side(config, Surroundings(), accumulator, Topics(config, gate), transactions)
    engine.start()
    network.begin_close(FOREVER - 1)
    engine.join(PATIENCE)
    assert not engine.is_alive()
    assert transactions.state is State.ABORTING


@pytest.mark.parametrize(
    ("offsets", "group", "refusal", "sentence"),
    [
        (
            {("t", 0): 3},
            "g",
            TypeError,
            "group_metadata must be the result of consumer.group_metadata(), not 'g'",
        ),
        ([1], GroupMetadata("g"), TypeError, "offsets are a mapping from partitions to offsets, such as"),
        ({"t": 3}, GroupMetadata("g"), TypeError, "a partition is TopicPartition(topic, number)"),
        (
            {("t", 0): "3"},
            GroupMetadata("g"),
            TypeError,
            "an offset is a whole number or OffsetAndMetadata, not '3'",
        ),
        ({("t", 0): -3}, GroupMetadata("g"), ValueError, "an offset to commit must be >= 0, not -3"),
    ],
)
def test_what_is_no_offset_or_group_is_refused_and_ends_nothing(
    broker: Broker, offsets: Any, group: Any, refusal: type[Exception], sentence: str
) -> None:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="payments") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(refusal, match=re.escape(sentence)):
            producer.send_offsets_to_transaction(offsets, group)
        pair: Any = ("t", 0)
        producer.send_offsets_to_transaction({pair: 3}, GroupMetadata("g"))
        producer.commit_transaction()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_consumer_group_offsets("g")[TopicPartition("t", 0)].offset == 3


def test_without_transactional_id_there_are_no_transactions() -> None:
    with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(IllegalStateError, match=r"create it with transactional\.id"):
                call()
