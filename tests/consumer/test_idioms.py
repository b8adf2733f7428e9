"""What users of other clients write out of habit: it is understood, or answered by a sentence of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kadence import Broker, ConfigError, Consumer, Producer, TopicPartition

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with Broker(topics={"orders": 2}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"1", partition=0).result(timeout=10)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            yield consumer


def test_one_partition_where_several_belong(consumer: Consumer) -> None:
    consumer.assign(PARTITION)
    assert consumer.assignment() == {PARTITION}
    consumer.incremental_assign(TopicPartition("orders", 1))
    assert len(consumer.assignment()) == 2
    consumer.pause(PARTITION)
    assert consumer.paused() == {PARTITION}
    consumer.resume(PARTITION)
    assert consumer.end_offsets(PARTITION) == {PARTITION: 1}
    consumer.seek_to_beginning(PARTITION)
    assert [record.value for record in consumer.poll(10)] == [b"1"]
    consumer.incremental_unassign(PARTITION)
    assert consumer.assignment() == {TopicPartition("orders", 1)}


@pytest.mark.parametrize("wrong", ["orders", ["orders"], [("orders", "0")]])
def test_no_partition_at_all(consumer: Consumer, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"TopicPartition\("):
        consumer.assign(wrong)  # type: ignore[arg-type]


def test_a_topic_where_the_settings_belong() -> None:
    with pytest.raises(ConfigError, match="settings are a mapping such as"):
        Consumer("orders")  # type: ignore[arg-type]


def test_a_timeout_that_is_surely_milliseconds_is_told_once(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.assign(PARTITION)
    assert len(consumer.poll(1000)) == 1
    consumer.seek_to_beginning(PARTITION)
    assert len(consumer.poll(1000)) == 1
    told = [message for message in caplog.messages if "seconds" in message]
    assert told == ["poll(1000) waits for up to 1000 seconds: timeouts are seconds here, so 1000 ms are 1.0"]


def test_a_long_timeout_in_seconds_is_not_told(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    consumer.assign(PARTITION)
    for timeout in (60, 600.0):
        consumer.poll(timeout)
        consumer.seek_to_beginning(PARTITION)
    assert not caplog.messages
