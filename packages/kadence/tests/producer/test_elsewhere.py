"""The same producer against real Apache Kafka and librdkafka's mock cluster."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE
from tests.producer.reading import read_all

from kadence.admin import Admin, NewTopic
from kadence.errors import RecordTooLargeError, RowsNotWrittenError
from kadence.producer import Producer


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_takes_every_compression(kafka: Any, compression: str) -> None:
    topic = f"producer-{compression}"
    servers = kafka.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({topic: 3})
    with Producer(bootstrap_servers=servers, compression_type=compression, batch_size=2000) as producer:
        futures = [
            producer.send(topic, b"%d" % n * 10, b"k%d" % (n % 7), headers=[("n", b"%d" % n)])
            for n in range(1000)
        ]
        places = [future.result(PATIENCE) for future in futures]
    messages = read_all(servers, topic, 3, 1000)
    found = {(m.partition(), m.offset()): (m.value(), m.key(), m.headers()) for m in messages}
    assert len(found) == 1000
    for n, place in enumerate(places):
        expected = (b"%d" % n * 10, b"k%d" % (n % 7), [("n", b"%d" % n)])
        assert found[place.partition, place.offset] == expected


def test_kafka_creates_a_topic_for_us(kafka: Any) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        assert producer.send("producer-auto", b"x").result(PATIENCE).offset == 0


def test_kafkas_limit_splits_batches(kafka: Any) -> None:
    topic = "producer-small"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "2000"})])
    with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=10_000) as producer:
        futures = [producer.send(topic, b"x" * 400) for _ in range(20)]
        futures.append(producer.send(topic, b"x" * 5000))
        futures += [producer.send(topic, b"x" * 400) for _ in range(3)]
        producer.flush(PATIENCE)
    offsets = [future.result(0).offset for future in futures if future.exception(0) is None]
    assert offsets == list(range(23))
    with pytest.raises(RecordTooLargeError):
        futures[20].result(0)


def test_kafka_refuses_no_more_batches_once_it_has_refused_one(
    kafka: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "producer-limited"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "100000"})])
    caplog.set_level(logging.INFO, "kadence.producer")
    refusals = []
    with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=10_000) as producer:
        for _ in range(3):
            caplog.clear()
            for _ in range(1000):
                producer.send(topic, b"x" * 1000)
            producer.flush(PATIENCE)
            refusals.append(sum("splitting" in line for line in caplog.messages))
    assert refusals[0] > 0
    assert refusals[1:] == [0, 0]


def test_rows_that_kafka_refuses_are_named_among_those_it_takes(kafka: Any) -> None:
    """One row is above the topic's limit: its batch is split until the row is alone."""
    topic = "producer-table"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 3, configs={"max.message.bytes": "2000"})])
    keys = [b"k%d" % (n % 11) for n in range(60)]
    values = [b"%d" % n * 30 for n in range(60)]
    values[33] = b"large" * 1_000
    with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=10_000) as producer:
        delivery = producer.send_arrow(pa.table({"key": keys, "value": values}), topic)
        producer.flush(PATIENCE)
        with pytest.raises(
            RowsNotWrittenError, match=r"1 of 60 rows were not written.* row 33 for "
        ) as caught:
            delivery.result(0)
    assert list(caught.value.failed.values()) == [[33]]
    written = caught.value.written.partitions
    found = read_all(kafka.bootstrap_servers, topic, 3, 59)
    for tp, rows in written.items():
        own = [message for message in found if message.partition() == tp.partition]
        assert len(own) == rows.rows
        assert (own[0].offset(), own[-1].offset()) == (rows.first_offset, rows.last_offset)
    kept = sorted((key, value) for n, (key, value) in enumerate(zip(keys, values, strict=True)) if n != 33)
    assert sorted((message.key(), message.value()) for message in found) == kept


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_the_mock_cluster(mock_cluster: Any, acks: str) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap_servers, acks=acks) as producer:
        futures = [producer.send("t", b"%d" % n) for n in range(100)]
        producer.flush(PATIENCE)
        assert all(future.exception(0) is None for future in futures)
    partitions = 4
    assert len(read_all(mock_cluster.bootstrap_servers, "t", partitions, 100)) == 100
