"""`Producer.send_arrow`: rows become the records that `send` would make of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE, until
from tests.producer.reading import read_all

from kadence.admin import Admin
from kadence.connection.cluster import Cluster, Topic
from kadence.errors import (
    ClosedError,
    KafkaTimeoutError,
    RecordTooLargeError,
    RowsNotWrittenError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kadence.layered import Layered
from kadence.producer import ArrowDelivery, Producer, WrittenRows
from kadence.producer.transaction_states import State
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest
from kadence.types import PartitionInfo, TopicPartition
from kadence_broker import Broker

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


def full(rows: int = 6) -> pa.Table:
    """Every column, with nulls in each that may have them."""
    odd = range(rows)
    return pa.table(
        {
            "value": pa.array([None if n % 3 == 2 else b"value %d" % n for n in odd], pa.binary()),
            "key": pa.array([None if n % 4 == 3 else f"key {n}" for n in odd], pa.string()),
            "topic": ["t" if n % 2 else "u" for n in odd],
            "partition": pa.array([n % 2 for n in odd], pa.int64()),
            "headers": pa.array(
                [
                    None if n == 1 else [{"key": f"h{i}", "value": b"x" if i else None} for i in range(n % 3)]
                    for n in odd
                ],
                pa.list_(PAIR),
            ),
            "timestamp": pa.array([dt.datetime(2026, 1, 1, 0, 0, n, 1_500, dt.UTC) for n in odd]),
        }
    )


def test_every_column_is_read_by_others() -> None:
    with (
        Broker(topics={"t": 2, "u": 2}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        table = full()
        delivery = producer.send_arrow(table)
        summary = delivery.result(PATIENCE)
        assert delivery.done()
        assert summary.rows == delivery.rows == 6
        assert summary.partitions == {
            TopicPartition("u", 0): WrittenRows(3, 0, 2),
            TopicPartition("t", 1): WrittenRows(3, 0, 2),
        }
        for topic, rows in (("u", (0, 2, 4)), ("t", (1, 3, 5))):
            found = read_all(broker.bootstrap_servers, topic, 2, 3)
            for message, row in zip(found, (table.slice(row, 1).to_pylist()[0] for row in rows), strict=True):
                assert message.value() == row["value"]
                assert message.key() == (None if row["key"] is None else row["key"].encode())
                assert message.timestamp()[1] == int(row["timestamp"].timestamp() * 1000)
                assert message.headers() == ([(h["key"], h["value"]) for h in row["headers"] or ()] or None)


def test_the_argument_beats_the_column_and_a_batch_is_data_too(broker: Broker) -> None:
    batch = pa.record_batch(
        {"value": ["a", "b"], "topic": pa.array([None, "nowhere"], pa.string()), "other": [1, 2]}
    )
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert producer.send_arrow(batch, "t").result(PATIENCE).partitions == {("t", 0): (2, 0, 1)}
        nothing = producer.send_arrow(batch.slice(0, 0), "t")
        assert nothing.done()
        assert nothing.result(0) == (0, {})


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ([b"x"], SerializationError, "takes a pyarrow Table or RecordBatch, not list"),
        (pa.table({"key": ["a"]}), SerializationError, "needs a column 'value'.*its columns are 'key'"),
        (pa.table({"value": [1]}), SerializationError, "'value' must be binary or string, not int64"),
        (
            pa.table({"value": ["x"], "partition": ["1"]}),
            SerializationError,
            "'partition' must be an integer",
        ),
        (
            pa.table({"value": ["x"], "topic": ["t"], "partition": [2**40]}),
            SerializationError,
            "cannot be used: .*1099511627776",
        ),
        (
            pa.table({"value": ["x", "y"], "topic": ["t", "t"], "timestamp": [1, -5]}),
            SerializationError,
            "ms since 1970, not -5",
        ),
        (
            pa.table({"value": ["x"], "timestamp": [1.5]}),
            SerializationError,
            "'timestamp' must be a timestamp",
        ),
        (
            pa.table({"value": ["x"], "headers": [["a"]]}),
            SerializationError,
            "'headers' must be list<struct<key",
        ),
        (pa.table([["x"], ["y"]], names=["value", "value"]), SerializationError, "2 columns 'value'"),
        (pa.table({"value": ["x"]}), SerializationError, "no topic: pass one to send_arrow"),
        (pa.table({"value": ["x"] * 3, "topic": ["t", "t", None]}), SerializationError, "row 2 has no topic"),
        (
            pa.table({"value": ["x"] * 2, "topic": ["t"] * 2, "partition": [0, 1]}),
            UnknownTopicOrPartitionError,
            "row 1: topic 't' has 1 partition, 0; 1 is none of them",
        ),
        (
            pa.table({"value": ["x"] * 2, "topic": ["t"] * 2, "partition": pa.array([None, -1], pa.int8())}),
            UnknownTopicOrPartitionError,
            "row 1: topic 't' has 1 partition, 0; -1 is none of them",
        ),
        (
            pa.table({"value": ["x", "y" * 1000], "topic": ["t", "t"]}),
            RecordTooLargeError,
            "row 1 for topic 't' takes 1021 bytes, more than max.request.size=1000",
        ),
        (
            pa.table(
                {
                    "value": ["x"] * 2,
                    "topic": ["t"] * 2,
                    "headers": pa.array([None, [{"key": None, "value": b""}]], pa.list_(PAIR)),
                }
            ),
            SerializationError,
            "row 1 has a header without a name",
        ),
    ],
)
def test_data_with_a_bad_row_sends_nothing(
    broker: Broker, data: Any, error: type[Exception], match: str
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=1000) as producer:
        with pytest.raises(error, match=match):
            producer.send_arrow(data)
        assert producer.send("t", b"after").result(PATIENCE).offset == 0


def test_rows_that_are_refused_are_named(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1) as producer:
        producer.send("t", b"first").result(PATIENCE)
        with broker.faults.error(ProduceRequest, ec.INVALID_RECORD, times=1):
            delivery = producer.send_arrow(pa.table({"value": ["a", "b", "c"]}), "t")
            with pytest.raises(
                RowsNotWrittenError, match=r"1 of 3 rows .* in 1 partitions; row 0 for t-0: "
            ) as caught:
                delivery.result(PATIENCE)
        assert caught.value.failed == {("t", 0): [0]}
        assert caught.value.written.rows == 2
        assert not caught.value.retriable
        assert pickle.loads(pickle.dumps(caught.value)).failed == caught.value.failed


def test_a_result_in_vain(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.partitions_for("t")
        with broker.faults.freeze():
            delivery = producer.send_arrow(pa.table({"value": ["a", "b"]}), "t")
            with pytest.raises(KafkaTimeoutError, match=r"2 of 2 rows were not acknowledged within 0\.001 s"):
                delivery.result(0.001)
            assert delivery.running()


def test_a_callback_comes_once_when_all_is_decided(broker: Broker) -> None:
    called: list[object] = []
    done = threading.Event()

    def note(delivery: ArrowDelivery) -> None:
        called.append(delivery.result(0))
        done.set()

    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1) as producer:
        delivery = producer.send_arrow(pa.table({"value": ["a", "b", "c"]}), "t")
        delivery.add_done_callback(note)
        assert done.wait(PATIENCE)
        delivery.add_done_callback(note)
        producer.send_arrow(pa.table({"value": pa.array([], pa.binary())}), "t").add_done_callback(note)
    assert called == [(3, {("t", 0): (3, 0, 2)})] * 2 + [(0, {})]


def test_a_table_larger_than_the_memory_waits_for_room(broker: Broker) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, batch_size=1_000, buffer_memory=5_000
    ) as producer:
        rows = 300
        delivery = producer.send_arrow(pa.table({"value": [b"%d" % n * 100 for n in range(rows)]}), "t")
        assert delivery.result(PATIENCE).partitions == {("t", 0): (rows, 0, rows - 1)}
        assert producer._accumulator.used_bytes == 0
    values = [message.value() for message in read_all(broker.bootstrap_servers, "t", 1, rows)]
    assert values == [b"%d" % n * 100 for n in range(rows)]


def test_no_room_in_time_tells_how_far_it_came(broker: Broker) -> None:
    settings = {"buffer.memory": 2_000, "batch.size": 400, "max.block.ms": 50}
    with broker.faults.drop(ProduceRequest):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        until(lambda: knows(producer, "t"))
        told = r"^5 of 9 rows were queued, and may be written; no room for .*buffer\.memory=2000 is full"
        with pytest.raises(KafkaTimeoutError, match=told) as caught:
            producer.send_arrow(pa.table({"value": ["x" * 300] * 9}), "t")
        assert not caught.value.retriable, "the same call again would send the five twice"
        with pytest.raises(KafkaTimeoutError, match=r"^no room for") as caught:
            producer.send_arrow(pa.table({"value": ["x" * 300]}), "t")
        assert caught.value.retriable, "it has taken nothing"
        producer.close(0)
    with pytest.raises(ClosedError):
        producer.send_arrow(pa.table({"value": ["x"]}), "t")


def knows(producer: Producer, topic: str) -> bool:
    with contextlib.suppress(KafkaTimeoutError):
        return bool(producer.partitions_for(topic))
    return False


@pytest.mark.parametrize("before", [0, 5])
def test_half_a_table_cannot_be_committed(before: int) -> None:
    """Rows that were taken are part of the transaction, which would make half a table visible; without any, none."""
    settings = {"buffer.memory": 2_000, "batch.size": 400, "max.block.ms": 0, "transactional.id": "x"}
    with contextlib.ExitStack() as stack:
        producer = Producer({"bootstrap.servers": "127.0.0.1:1", **settings})
        # Records that nobody takes are not waited for.
        stack.callback(producer.close, 0)
        transactions = producer._send_checks.transactions
        assert transactions is not None
        with producer._gate:
            only = PartitionInfo("t", 0, 1, None, (), ())
            producer._topics.cluster = Cluster(topics=Layered({"t": Topic("t", partitions=(only,))}))
            # As after init_transactions() at a coordinator that is gone since then.
            transactions.state = State.READY
        producer.begin_transaction()
        for _ in range(before):
            producer.send("t", b"x" * 300)
        with pytest.raises(KafkaTimeoutError):
            producer.send_arrow(pa.table({"value": ["x" * 300] * 9}), "t")
        told = "no room for a record" if before else "5 of 9 rows"
        with pytest.raises(KafkaTimeoutError, match=told) as caught:
            producer.commit_transaction()
        assert any("call abort_transaction()" in note for note in caught.value.__notes__)


def test_a_topic_that_grows_while_rows_are_looked_at() -> None:
    with (
        Broker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        producer.send_arrow(pa.table({"value": ["a"]}), "t").result(PATIENCE)
        admin.create_partitions({"t": 3})
        # The first chunk fits what was known of the topic, the second does not.
        chunks = [{"value": ["b"], "partition": [0]}, {"value": ["c", "d", "e"], "partition": [0, 2, 0]}]
        delivery = producer.send_arrow(pa.concat_tables(map(pa.table, chunks)), "t")
        assert delivery.result(PATIENCE).partitions == {("t", 0): (3, 1, 3), ("t", 2): (1, 0, 0)}
        assert sorted(row for share in delivery._shares for row in share.rows()) == [0, 1, 2, 3]
