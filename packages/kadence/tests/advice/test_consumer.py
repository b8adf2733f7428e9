"""Advice in errors of a consumer's calls: each row is a mistake, words of its error, and calls that follow it."""

from __future__ import annotations

import asyncio
import gc
import pickle
import re
import threading
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.advice.rows import Call, Row, raises
from tests.patience import standing_inside, until

from kadence import (
    AsyncConsumer,
    Consumer,
    RebalanceListener,
    SubscriptionPattern,
    TopicPartition,
)
from kadence.errors import (
    ConcurrentAccessError,
    ConfigError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidTopicError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)

PARTITION = TopicPartition("t", 0)


class Listener(RebalanceListener):
    def on_partitions_assigned(self, partitions: Any) -> None: ...

    def on_partitions_revoked(self, partitions: Any) -> None: ...


def seek_and_read(consumer: Any) -> None:
    consumer.seek(PARTITION, 3)
    assert [record.value for record in consumer.poll(10)] == [b"3", b"4"]


def assigned(*partitions: Any) -> Call:
    return lambda consumer: consumer.assign(*partitions)


def then(*calls: Call) -> Call:
    def run(consumer: Any) -> None:
        for call in calls:
            call(consumer)

    return run


def unsubscribe(consumer: Any) -> None:
    consumer.unsubscribe()


def subscribed(consumer: Any) -> None:
    consumer.subscribe("t")
    assert consumer.poll(10)


def polled(consumer: Any) -> None:
    assert consumer.poll(10)


CONSUMER = {
    "polls without topics": Row(
        lambda c: c.poll(1),
        IllegalStateError,
        "call subscribe() or assign() first",
        (then(assigned([PARTITION]), polled, unsubscribe), subscribed),
    ),
    "assigns what it has subscribed to": Row(
        then(lambda c: c.subscribe("t"), assigned([PARTITION])),
        IllegalStateError,
        "unsubscribe() before assign()",
        (then(unsubscribe, assigned([PARTITION]), polled),),
    ),
    "assigns topics beside a subscription": Row(
        then(lambda c: c.subscribe("t"), lambda c: c.assign_topics("t")),
        IllegalStateError,
        "unsubscribe() before assign_topics()",
        (then(unsubscribe, lambda c: c.assign_topics("t"), polled),),
    ),
    "subscribes beside an assignment": Row(
        then(assigned([PARTITION]), lambda c: c.subscribe("t")),
        IllegalStateError,
        "unsubscribe() before subscribe()",
        (then(unsubscribe, subscribed),),
    ),
    "assigns single partitions of followed topics": Row(
        then(lambda c: c.assign_topics("t"), lambda c: c.incremental_assign([PARTITION])),
        IllegalStateError,
        "assign() takes single ones",
        (then(assigned([PARTITION]), polled),),
    ),
    "assigns no topic": Row(
        then(assigned([PARTITION]), lambda c: c.assign_topics([])),
        ValueError,
        "to stop reading, call unsubscribe()",
        (then(unsubscribe, lambda c: c.assignment() == frozenset() or pytest.fail("still reading")),),
    ),
    "a listener's class": Row(
        lambda c: c.subscribe("t", listener=Listener),
        TypeError,
        "give an object: Listener()",
        (lambda c: c.subscribe("t", listener=Listener()),),
    ),
    "a listener without methods": Row(
        lambda c: c.subscribe("t", listener=object()),
        TypeError,
        "subclass kadence.RebalanceListener",
        (lambda c: c.subscribe("t", listener=Listener()),),
    ),
    "a pattern for the broker": Row(
        lambda c: c.subscribe(SubscriptionPattern("t.*")),
        ConfigError,
        "use re.compile('t.*'), which is matched here",
        (then(lambda c: c.subscribe(re.compile("t.*")), polled),),
        {"group_protocol": "classic"},
    ),
    "a subscription of no group": Row(
        lambda c: c.subscribe("t"),
        InvalidGroupIdError,
        "subscribe() needs group.id; without a group assign_topics() reads all of a topic",
        (then(lambda c: c.assign_topics("t"), polled),),
        {"group_id": None},
    ),
    "a topic's name": Row(
        lambda c: c.subscribe("a b"),
        InvalidTopicError,
        "use 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'",
        (lambda c: c.subscribe(["aZ9._-", "a" * 249, "..."]),),
    ),
    "a partition by the topic alone": Row(
        lambda c: c.assign("t"),
        TypeError,
        "all of a topic is read by subscribe(), or by assign_topics()",
        (then(lambda c: c.assign_topics("t"), polled, unsubscribe), subscribed),
    ),
    "an offset below 0": Row(
        then(assigned([PARTITION]), lambda c: c.seek(PARTITION, -1)),
        ValueError,
        "see seek_to_beginning() and seek_to_end()",
        (then(lambda c: c.seek_to_beginning(), polled), lambda c: c.seek_to_end()),
    ),
    "a time without a zone": Row(
        lambda c: c.assign_topics("t", start=datetime(2020, 1, 1)),  # noqa: DTZ001
        ValueError,
        "a datetime needs a timezone, such as datetime.now(UTC)",
        (then(lambda c: c.assign_topics("t", start=datetime(2020, 1, 1, tzinfo=UTC)), polled),),
    ),
    "no columns": Row(
        then(assigned([PARTITION]), lambda c: c.poll_arrow(1, columns=[])),
        ValueError,
        "choose from key, value, topic",
        (lambda c: c.poll_arrow(10, columns=["key", "value", "topic"]),),
    ),
    "headers beside columns": Row(
        then(assigned([PARTITION]), lambda c: c.poll_arrow(1, columns=["key"], headers=True)),
        ValueError,
        "name 'headers' in columns= instead",
        (lambda c: c.poll_arrow(10, columns=["key", "headers"]),),
    ),
    "a single column": Row(
        then(assigned([PARTITION]), lambda c: c.poll_arrow(1, columns="key")),
        TypeError,
        "such as ['key']",
        (lambda c: c.poll_arrow(10, columns=["key"]),),
    ),
    "a commit of names": Row(
        then(assigned([PARTITION]), lambda c: c.commit("t")),
        TypeError,
        "commit() takes a mapping of offsets, or records",
        (lambda c: c.commit({PARTITION: 1}), lambda c: c.commit(c.poll(10))),
    ),
    "a commit callback": Row(
        lambda c: c.commit_async(None, 5),
        TypeError,
        "callback must be a function of (offsets, error)",
        (then(assigned([PARTITION]), lambda c: c.commit_async({PARTITION: 1}, lambda offsets, error: None)),),
    ),
    "timeouts in ms": Row(
        lambda c: c.poll(timeout_ms=100),
        TypeError,
        "write timeout=, in seconds",
        (then(assigned([PARTITION]), lambda c: c.poll(timeout=0.1)),),
    ),
    "tracks beside automatic commits": Row(
        lambda c: c.track([]),
        ConfigError,
        "track() needs enable.auto.commit=false",
        (),
        {"enable_auto_commit": True},
    ),
    "a range of three": Row(
        lambda c: c.assign({PARTITION: (0, 1, 2)}),
        ValueError,
        "a range is (start, end)",
        (then(lambda c: c.assign({PARTITION: (0, 2)}), polled),),
    ),
    "a column that there is not": Row(
        then(assigned([PARTITION]), lambda c: c.poll_arrow(1, columns=["values"])),
        ValueError,
        "no column 'values'; choose from key, value, topic, partition, offset, timestamp, timestampType, headers",
        (lambda c: c.poll_arrow(1, columns=["value", "timestampType", "headers"]),),
    ),
    "no committed offset": Row(
        then(assigned([PARTITION]), lambda c: c.poll(10)),
        NoOffsetForPartitionError,
        "auto.offset.reset is none: seek() to where you want to start",
        (seek_and_read,),
        {"auto_offset_reset": "none"},
    ),
    "an offset that the log does not have": Row(
        then(assigned({PARTITION: 99}), lambda c: c.poll(10)),
        OffsetOutOfRangeError,
        "auto.offset.reset is none: seek() to where you want to go on",
        (seek_and_read,),
        {"auto_offset_reset": "none"},
    ),
    "a range beyond the log": Row(
        then(assigned({PARTITION: (50, 60)}), lambda c: c.poll(10)),
        OffsetOutOfRangeError,
        "assign a range that it has, or seek()",
        (then(assigned({PARTITION: (1, 3)}), lambda c: [r.value for r in c.poll(10)] == [b"1", b"2"]),),
    ),
    "a bad record": Row(
        then(assigned([TopicPartition("bad", 0)]), lambda c: (c.poll(10), c.poll(10))),
        RecordDeserializationError,
        "seek past it, or set deserialization.errors to skip or dead-letter",
        (
            then(
                lambda c: c.seek(TopicPartition("bad", 0), 2),
                lambda c: [r.value for r in c.poll(10)] == ["3"] or pytest.fail("not read on"),
            ),
        ),
        {"value_deserializer": "string"},
    ),
    "a pickle of a client": Row(
        pickle.dumps,
        TypeError,
        "create one where it is used",
        (lambda c: Consumer(bootstrap_servers="127.0.0.1:1").close(),),
    ),
}


@pytest.mark.parametrize("row", CONSUMER.values(), ids=CONSUMER)
def test_a_consumer_that_follows_the_advice_reads(
    row: Row, servers: str, request: pytest.FixtureRequest
) -> None:
    settings: dict[str, Any] = {
        "group_id": re.sub(r"\W", "-", request.node.name),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **row.settings,
    }
    with Consumer(bootstrap_servers=servers, **settings) as consumer:
        raises(row, consumer)
        for right in row.right:
            right(consumer)


@pytest.mark.parametrize("setting", [{"deserialization_errors": "skip"}, {"enable_auto_commit": False}])
def test_the_setting_that_an_error_names(setting: dict[str, Any], servers: str) -> None:
    with Consumer(
        bootstrap_servers=servers,
        value_deserializer="string",
        auto_offset_reset="earliest",
        group_id="-".join(setting),
        **setting,
    ) as consumer:
        consumer.assign([TopicPartition("bad", 0)])
        if "enable_auto_commit" in setting:
            consumer.track(consumer.poll(10))
        else:
            found: list[Any] = []
            while len(found) < 2:
                found += [record.value for record in consumer.poll(10)]
            assert found == ["1", "3"]


def test_offsets_of_chosen_partitions_take_a_group_of_their_own(servers: str) -> None:
    with (
        Consumer(bootstrap_servers=servers, group_id="members") as member,
        Consumer(bootstrap_servers=servers, group_id="members") as other,
        Consumer(bootstrap_servers=servers, group_id="members-own") as own,
    ):
        member.subscribe("t")
        while not member.assignment():
            member.poll(0.1)
        other.assign([PARTITION])
        with pytest.raises(KafkaError, match="use a group id of its own"):
            other.commit({PARTITION: 1})
        own.assign([PARTITION])
        own.commit({PARTITION: 1})


def test_calls_that_another_thread_may_make(servers: str) -> None:
    """While one thread is in a poll."""
    with Consumer(bootstrap_servers=servers, group_id="two-threads") as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_end()
        consumer.position(PARTITION)
        polling = threading.Thread(target=consumer.poll, args=(60,))
        polling.start()
        assert polling.ident is not None
        # A call that comes first would have the poll refused.
        until(standing_inside(polling.ident))
        with pytest.raises(
            ConcurrentAccessError,
            match="only stop, wakeup, pause, resume, close and calls that read its state",
        ):
            consumer.position(PARTITION)
        consumer.pause([PARTITION])
        consumer.resume([PARTITION])
        assert consumer.metrics()
        assert consumer.not_fetched() is not None
        consumer.stop()
        polling.join(30)
        assert not polling.is_alive()


def test_a_consumer_that_is_not_closed_says_how_to_close_it(servers: str) -> None:
    def lose() -> None:
        Consumer(bootstrap_servers=servers)
        gc.collect()

    with pytest.warns(ResourceWarning, match=re.escape("use `with Consumer(...)` or close()")):
        lose()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Consumer(bootstrap_servers=servers).close()
        with Consumer(bootstrap_servers=servers):
            pass
        gc.collect()


def test_another_task_makes_other_calls_while_one_polls(servers: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=servers) as consumer:
            await consumer.assign([PARTITION])
            await consumer.seek_to_end()
            await consumer.position(PARTITION)
            polling = asyncio.ensure_future(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(
                ConcurrentAccessError,
                match="only one task may poll at a time, but other tasks may make other calls",
            ):
                await consumer.poll(0)
            assert await consumer.position(PARTITION) == 5
            await consumer.seek(PARTITION, 4)
            assert [record.value for record in await polling] == [b"4"]

    asyncio.run(main())
