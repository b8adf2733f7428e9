"""What users of other clients write out of habit: it is understood, or answered by a sentence of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumer.support import Shell

from kadence import AsyncConsumer, Broker, ConfigError, Consumer, Producer, Records, TopicPartition

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


@pytest.mark.parametrize("wrong", ["orders", ["orders"]])
def test_a_topic_where_partitions_belong(consumer: Consumer, wrong: object) -> None:
    with pytest.raises(
        TypeError, match=r"not 'orders'; all of a topic is read by subscribe\(\), or by assign_topics"
    ):
        consumer.assign(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[("orders", "0")], ("orders", "0")])
def test_no_partition_at_all(consumer: Consumer, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"TopicPartition\("):
        consumer.assign(wrong)  # type: ignore[arg-type]


def test_a_topic_where_the_settings_belong() -> None:
    with pytest.raises(
        ConfigError, match=r"settings are a mapping such as .*; topics are given to subscribe\(\)"
    ):
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


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("consume", "poll(timeout, max_records=n)"),
        ("store_offsets", "commit_async(records)"),
        ("unassign", "unsubscribe()"),
        ("get_watermark_offsets", "end_offsets(partitions)"),
        ("getmany", "poll(timeout, max_records=n)"),
        ("getone", "iterate the consumer"),
        ("partitions_for_topic", "partitions_for(topic)"),
        ("topics", "list_topics()"),
        ("start", "it is not needed"),
    ],
)
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_call_of_another_client(kind: type[Any], name: str, sentence: str) -> None:
    # What is missing is looked up at the class; a consumer with its threads is not needed for it.
    with pytest.raises(AttributeError) as caught:
        getattr(object.__new__(kind), name)
    assert str(caught.value).startswith(f"{kind.__name__!r} object has no attribute {name!r}: ")
    assert sentence in str(caught.value)


def test_any_other_name_is_missing_as_ever(consumer: Consumer) -> None:
    with pytest.raises(AttributeError, match=r"^'Consumer' object has no attribute 'nonsense'$"):
        consumer.nonsense  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(consumer, "_nonsense")


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda records: records.value(), "for record in consumer.poll(1)"),
        (lambda records: records.error(), "errors are raised by poll()"),
        (lambda records: records.items(), "by_partition()"),
    ],
)
def test_one_message_or_a_mapping_where_poll_returns_records(
    consumer: Consumer, use: Callable[[Any], Any], sentence: str
) -> None:
    consumer.assign(PARTITION)
    with pytest.raises(AttributeError) as caught:
        use(consumer.poll(10))
    assert sentence in str(caught.value)


def test_close_takes_its_timeout_first_and_no_autocommit(shell: Shell) -> None:
    consumer = shell.make(bootstrap_servers="127.0.0.1:1", group_id="g")
    with pytest.raises(ValueError, match="timeout must be a number of seconds >= 0, not False"):
        shell.do(lambda: consumer.close(False))
    shell.do(lambda: consumer.close(0.1))
    assert " closed " in repr(consumer)


def test_stop_is_not_close_as_in_aiokafka() -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:1") as consumer:
            with pytest.raises(TypeError, match=r"await consumer\.close\(\)"):
                await consumer.stop()  # type: ignore[func-returns-value, misc]
            assert consumer.stopping

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda consumer: consumer.poll(timeout_ms=1_000), "write timeout=, in seconds"),
        (
            lambda consumer: consumer.commit(asynchronous=False),
            "commit() waits and raises; commit_async(offsets",
        ),
        (lambda consumer: consumer.subscribe("orders", on_assign=print), "subscribe(topics, listener=...)"),
    ],
)
def test_an_argument_of_another_client(
    consumer: Consumer, call: Callable[[Any], object], sentence: str
) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as caught:
        call(consumer)
    assert sentence in str(caught.value)


def test_an_argument_of_another_client_under_asyncio() -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            with pytest.raises(TypeError, match=r"'on_revoke': pass a RebalanceListener"):
                await consumer.subscribe("orders", on_revoke=print)  # type: ignore[arg-type]

    asyncio.run(main())


def test_an_argument_that_nobody_has_is_refused_as_ever(consumer: Consumer) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'nonsense'$"):
        consumer.poll(nonsense=1)  # type: ignore[arg-type]


def test_records_have_an_index(consumer: Consumer) -> None:
    consumer.assign_topics("orders")
    records = consumer.poll(10)
    assert records[0].value == records[-1].value == b"1"
    assert records[:5] == list(records)
    with pytest.raises(IndexError):
        records[1]
    other = [(TopicPartition("orders", 1), [*records])]
    assert len(Records([*other, (PARTITION, [*records])])[0:2]) == 2
