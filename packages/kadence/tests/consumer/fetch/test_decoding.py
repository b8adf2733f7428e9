"""Deserialisers inside poll(), and what becomes of records that they refuse: raise, skip, dead-letter (D2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.support import Cluster, partitions, read
from tests.patience import PATIENCE, until

from kadence import Admin, AsyncConsumer, Broker, Consumer, NewTopic, Producer, Record, TopicPartition
from kadence.config import ConsumerConfig
from kadence.consumer.fetch.decoding import decoding_one
from kadence.errors import ConfigError, DeadLetterError, RecordDeserializationError
from kadence.protocol.error_codes import INVALID_RECORD, NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED
from kadence.protocol.produce import ProduceRequest
from kadence.records import MOST_HEADERS

PARTITION = TopicPartition("t", 0)


def number(data: bytes) -> int:
    """Refuses what is no number; its message shows what it got, as Python's own does."""
    return int(data)


def fill(bootstrap_servers: str, topic: str, values: list[bytes | None], **fields: Any) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=0, **fields)


@pytest.fixture
def served(broker: Broker) -> Broker:
    """0 to 19, of which 5 and 6 are bad."""
    broker.create_topic("t", 1)
    broker.create_topic("bad", 1)
    values: list[bytes | None] = [b"secret" if n in (5, 6) else b"%d" % n for n in range(20)]
    fill(broker.bootstrap_servers, "t", values, key=b"k", headers=[("h", b"1")], timestamp=1_700_000_000_000)
    return broker


def consumer(broker: Broker, **settings: Any) -> Consumer[Any, Any]:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=number,
        **settings,
    )


def committed_by(subject: Consumer) -> int | None:
    found = subject.committed([PARTITION])[PARTITION]
    return None if found is None else found.offset


def values(records: Any) -> list[Any]:
    return [record.value for record in records]


def test_keys_and_values_are_what_the_deserialisers_make_and_a_tombstone_stays_none(broker: Broker) -> None:
    broker.create_topic("t", 1)
    fill(broker.bootstrap_servers, "t", [b'{"a": 1}', None], key=b"\x00\x00\x00\x07")
    with Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "key.deserializer": "org.apache.kafka.common.serialization.IntegerDeserializer",
            "value.deserializer": json.loads,
        },
        auto_offset_reset="earliest",
    ) as subject:
        subject.assign([PARTITION])
        found = read(subject, 2)
        assert [(record.key, record.value) for record in found] == [(7, {"a": 1}), (7, None)]
        assert isinstance(found[0], Record)


def test_an_object_with_deserialize_is_told_topic_and_headers(served: Broker) -> None:
    class Told:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
            return topic, headers

    with Consumer(
        bootstrap_servers=served.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=Told()
    ) as subject:
        subject.assign([PARTITION])
        assert read(subject, 1)[0].value == ("t", (("h", b"1"),))


def test_raise_returns_what_came_before_then_raises_from_each_poll_until_a_seek(served: Broker) -> None:
    with consumer(served, group_id="g") as subject:
        subject.assign([PARTITION])
        assert values(read(subject, 5)) == [0, 1, 2, 3, 4]
        for _ in range(3):
            with pytest.raises(RecordDeserializationError) as error:
                subject.poll(PATIENCE)
        refused = error.value
        assert (refused.partition, refused.offset, refused.field) == (PARTITION, 5, "value")
        assert (refused.record.value, refused.record.key) == (b"secret", b"k")
        assert isinstance(refused.__cause__, ValueError)
        assert "secret" not in str(refused)
        assert "; seek past it, or set deserialization.errors to skip or dead-letter" in str(refused)
        # Nothing after it counts as returned.
        assert subject.position(PARTITION) == 5
        subject.commit()
        assert committed_by(subject) == 5
        subject.seek(refused.partition, refused.offset + 2)
        assert values(read(subject, 13)) == list(range(7, 20))


def test_a_pause_sets_a_bad_record_aside_and_others_go_on(served: Broker) -> None:
    served.create_topic("other", 1)
    with consumer(served) as subject:
        subject.assign([PARTITION, ("other", 0)])
        read(subject, 5)
        subject.pause([PARTITION])
        fill(served.bootstrap_servers, "other", [b"1", b"2"])
        assert values(read(subject, 2)) == [1, 2]
        subject.resume([PARTITION])
        with pytest.raises(RecordDeserializationError):
            subject.poll(PATIENCE)


def test_a1_a_cap_holds_for_what_was_kept(served: Broker) -> None:
    with consumer(served) as subject:
        subject.assign([PARTITION])
        assert values(read(subject, 5)) == [0, 1, 2, 3, 4]
        with pytest.raises(RecordDeserializationError):
            subject.poll(PATIENCE)
        subject.seek(PARTITION, 7)
        assert values(subject.poll(PATIENCE, max_records=3)) == [7, 8, 9]
        assert values(subject.poll(PATIENCE, max_records=3)) == [10, 11, 12]
        assert subject.position(PARTITION) == 13


def test_skip_passes_over_counts_and_logs_the_offset_but_never_the_value(
    served: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kadence.consumer")
    with consumer(served, deserialization_errors="skip") as subject:
        subject.assign([PARTITION])
        assert values(read(subject, 18)) == [n for n in range(20) if n not in (5, 6)]
        assert subject.position(PARTITION) == 20
        assert subject._core.polls.decoding is not None
        assert subject._core.polls.decoding.skipped == 2
    told = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert told == [
        "skipped: the value of t-0 at offset 5 is bad (ValueError)",
        "skipped: the value of t-0 at offset 6 is bad (ValueError)",
    ]


def test_skip_goes_on_where_a_whole_poll_is_bad(broker: Broker) -> None:
    broker.create_topic("t", 1)
    fill(broker.bootstrap_servers, "t", [*([b"bad"] * 30), b"30"])
    with consumer(broker, deserialization_errors="skip", max_poll_records=7) as subject:
        subject.assign([PARTITION])
        assert values(subject.poll(PATIENCE)) == [30]


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_no_memory_is_no_bad_record(served: Broker, policy: str) -> None:
    failures = [MemoryError()]

    def tight(data: bytes) -> bytes:
        if data == b"9" and failures:
            raise failures.pop()
        return data

    with Consumer(
        bootstrap_servers=served.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=tight,
        deserialization_errors=policy,
    ) as subject:
        subject.assign([PARTITION])
        with pytest.raises(MemoryError):
            read(subject, 20)
        assert subject.position(PARTITION) == 0
        assert len(read(subject, 20)) == 20


@pytest.mark.needs("reading")
@pytest.mark.brokers("embedded")
def test_dead_letters_carry_the_record_and_where_it_comes_from(cluster: Cluster) -> None:
    topic, bad = cluster.topic(1), cluster.topic(1)
    fill(
        cluster.bootstrap_servers,
        topic,
        [b"0", b"secret", b"2"],
        key=b"k",
        headers=[("h", b"1")],
        timestamp=1_700_000_000_000,
    )
    subject = cluster.consumer(
        value_deserializer=number, deserialization_errors="dead-letter", dead_letter_topic=bad
    )
    subject.assign(partitions(topic, 1))
    assert values(read(subject, 2)) == [0, 2]
    letters = cluster.consumer()
    letters.assign(partitions(bad, 1))
    [letter] = read(letters, 1)
    assert (letter.key, letter.value) == (b"k", b"secret")
    assert letter.timestamp > 1_700_000_000_000, "it lives as long as its topic keeps what is new"
    assert dict(letter.headers) == {
        "h": b"1",
        "kadence.error.topic": topic.encode(),
        "kadence.error.partition": b"0",
        "kadence.error.offset": b"1",
        "kadence.error.timestamp": b"1700000000000",
        "kadence.error.field": b"value",
        "kadence.error.class": b"ValueError",
        "kadence.error.message": b"invalid literal for int() with base 10: b'secret'",
    }


def test_a_dead_letter_has_no_more_headers_than_can_be_read(served: Broker) -> None:
    """A record with as many as there may be would have its dead letter refused, and hold up its partition for ever."""
    served.create_topic("full", 1)
    headers = [("h", b"%d" % n) for n in range(MOST_HEADERS)]
    fill(served.bootstrap_servers, "full", [b"secret", b"1"], headers=headers)
    with consumer(served, deserialization_errors="dead-letter", dead_letter_topic="bad") as subject:
        subject.assign([TopicPartition("full", 0)])
        assert values(read(subject, 1)) == [1]
    with Consumer(bootstrap_servers=served.bootstrap_servers) as letters:
        letters.assign({TopicPartition("bad", 0): 0})
        [letter] = read(letters, 1)
    assert letter.headers[:-7] == tuple(headers[: MOST_HEADERS - 7])
    assert letter.headers[-7][0] == "kadence.error.topic"


@pytest.mark.parametrize(
    ("limit", "value", "left_out"),
    [
        (3_000, 2_500, {"value"}),
        (1_200, 40, {"message"}),
        (600, 600, {"message", "value", "headers"}),
    ],
)
def test_a_dead_letter_that_is_too_large_for_its_topic_goes_without_what_makes_it_so(
    broker: Broker, limit: int, value: int, left_out: set[str]
) -> None:
    """Otherwise whoever may write to a topic stops its readers with one record."""
    broker.create_topic("t", 1)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("bad", 1, configs={"max.message.bytes": str(limit)})])
    fill(broker.bootstrap_servers, "t", [b"0", b"x" * value, b"2"], key=b"k", headers=[("h", b"h" * 200)])

    def strict(data: bytes) -> Any:
        if len(data) > 1:
            raise ValueError("no number " + "." * 5_000)
        return int(data)

    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=strict,
        deserialization_errors="dead-letter",
        dead_letter_topic="bad",
    ) as subject:
        subject.assign([PARTITION])
        assert values(read(subject, 2)) == [0, 2]
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as letters:
        letters.assign({TopicPartition("bad", 0): 0})
        [letter] = read(letters, 1)
    told = dict(letter.headers)
    missing = {
        part for part in ("value", "headers", "key", "message") if f"kadence.error.{part}.bytes" in told
    }
    assert missing >= left_out
    assert told["kadence.error.offset"] == b"1"
    assert (letter.key, letter.value) == (b"k", None if "value" in missing else b"x" * value)


def test_a_dead_letter_that_its_topic_never_takes_is_told_so_behind_what_came_before(served: Broker) -> None:
    """Nothing but a seek, or another topic, helps; the message says so."""
    with consumer(
        served, group_id="g", deserialization_errors="dead-letter", dead_letter_topic="bad"
    ) as subject:
        subject.assign([PARTITION])
        with served.faults.error(ProduceRequest, INVALID_RECORD):
            assert values(subject.poll(PATIENCE)) == [0, 1, 2, 3, 4]
            with pytest.raises(
                DeadLetterError, match=r"INVALID_RECORD.*; trying again will not help: seek\(\) past"
            ):
                subject.poll(PATIENCE)
            subject.seek(PARTITION, 7)
            assert values(read(subject, 13)) == list(range(7, 20))


def test_an_offset_is_processed_once_its_dead_letter_is_acknowledged_and_not_before(served: Broker) -> None:
    with consumer(
        served,
        group_id="g",
        auto_commit_interval_ms=0,
        deserialization_errors="dead-letter",
        dead_letter_topic="bad",
    ) as subject:
        subject.assign([PARTITION])
        with served.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS) as refused:
            until(lambda: values(subject.poll(0.2)) == [] and refused.hits, every=0)
            assert subject.position(PARTITION) == 0
            assert not subject.poll(0)
            subject.commit({})
            assert committed_by(subject) == 0
        assert values(read(subject, 18)) == [n for n in range(20) if n not in (5, 6)]
        assert subject._core.polls.decoding is not None
        assert subject._core.polls.decoding.dead_lettered == 2
        assert subject.position(PARTITION) == 20


@pytest.mark.parametrize("topics", [["t", "bad"], re.compile("t|bad")])
def test_a_topic_to_which_its_bad_records_go_is_not_subscribed_to(served: Broker, topics: Any) -> None:
    """Each dead letter would be read, refused, and written again, without end."""
    with consumer(
        served, group_id="g", deserialization_errors="dead-letter", dead_letter_topic="bad"
    ) as subject:
        with pytest.raises(ConfigError, match=r"dead\.letter\.topic='bad' is among these topics"):
            subject.subscribe(topics)
        assert subject.subscription() == set()
        subject.subscribe("t")


def test_nor_is_it_assigned_but_for_a_range_which_ends(served: Broker) -> None:
    own = TopicPartition("bad", 0)
    with consumer(served, deserialization_errors="dead-letter", dead_letter_topic="bad") as subject:
        calls: list[Callable[[], None]] = [
            lambda: subject.assign([PARTITION, own]),
            lambda: subject.assign({own: 0}),
            lambda: subject.assign_topics(["t", "bad"]),
            lambda: subject.assign_topics("bad", start="earliest"),
        ]
        for assign in calls:
            with pytest.raises(ConfigError, match=r"dead\.letter\.topic='bad' is among these topics"):
                assign()
            assert subject.assignment() == set()
        subject.assign([PARTITION])
        with pytest.raises(ConfigError, match=r"dead\.letter\.topic='bad' is among these topics"):
            subject.incremental_assign([own])
        assert subject.assignment() == {PARTITION}
        subject.incremental_assign({own: (0, 10)})
        subject.assign_topics("bad", start="earliest", end="latest")
        assert subject.assignment() == {own}


def test_a_record_that_waits_for_its_dead_letter_holds_up_its_own_partition_only(served: Broker) -> None:
    served.create_topic("other", 1)
    fill(served.bootstrap_servers, "other", [b"%d" % n for n in range(5)])
    with consumer(served, deserialization_errors="dead-letter", dead_letter_topic="bad") as subject:
        subject.assign([PARTITION, ("other", 0)])
        with served.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS, topic="bad") as refused:
            assert [record.topic for record in read(subject, 5)] == ["other"] * 5
            refused.wait()
            fill(served.bootstrap_servers, "other", [b"5", b"6"])
            assert [record.topic for record in read(subject, 2)] == ["other"] * 2
        assert values(read(subject, 18)) == [n for n in range(20) if n not in (5, 6)]


def test_a_dead_letter_topic_that_takes_nothing_stops_the_reading_and_loses_nothing(served: Broker) -> None:
    with consumer(
        served, group_id="g", deserialization_errors="dead-letter", dead_letter_topic="bad"
    ) as subject:
        subject.assign([PARTITION])
        with served.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED):
            # As with `raise`: what is before it first.
            found: list[Any] = values(subject.poll(PATIENCE))
            assert found == [0, 1, 2, 3, 4]
            for _ in range(2):
                with pytest.raises(DeadLetterError, match="'bad': TOPIC_AUTHORIZATION_FAILED"):
                    subject.poll(PATIENCE)
                assert subject.position(PARTITION) == 5
        # What was under way when the fault ended may still be told; then it is sent again and goes on.
        while len(found) < 18:
            with contextlib.suppress(DeadLetterError):
                found += values(subject.poll(PATIENCE))
        assert found == [n for n in range(20) if n not in (5, 6)]


def test_dead_letters_with_asyncio_keep_the_loop_turning(served: Broker) -> None:
    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=served.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=number,
            deserialization_errors="dead-letter",
            dead_letter_topic="bad",
        ) as subject:
            await subject.assign([PARTITION])
            with served.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS) as refused:
                reading = asyncio.create_task(subject.poll(PATIENCE))
                await asyncio.to_thread(refused.wait)
                for _ in range(5):
                    await asyncio.sleep(0.01)
                assert not reading.done()
            assert values(await reading) == [n for n in range(20) if n not in (5, 6)]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_c7_a_poll_that_is_cancelled_while_dead_letters_are_under_way_loses_nothing(served: Broker) -> None:
    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=served.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=number,
            deserialization_errors="dead-letter",
            dead_letter_topic="bad",
        ) as subject:
            await subject.assign([PARTITION])
            with served.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS) as refused:
                reading = asyncio.create_task(subject.poll(PATIENCE))
                await asyncio.to_thread(refused.wait)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                assert await subject.position(PARTITION) == 0
            assert values(await subject.poll(PATIENCE)) == [n for n in range(20) if n not in (5, 6)]
            # The first delivery was waited for, not made again.
            assert served.offsets("bad") == [(0, 2)]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_poll_arrow_gives_bytes_and_loses_nothing_that_a_poll_kept(served: Broker) -> None:
    pytest.importorskip("pyarrow")
    with consumer(served) as subject:
        subject.assign([PARTITION])
        read(subject, 5)
        with pytest.raises(RecordDeserializationError):
            subject.poll(PATIENCE)
        found: list[bytes] = []
        while len(found) < 15:
            found += subject.poll_arrow(PATIENCE)["value"].to_pylist()
        assert found == [b"secret", b"secret", *(b"%d" % n for n in range(7, 20))]


def test_b4_a_deserialiser_that_hangs_is_processing_that_hangs(served: Broker) -> None:
    seen: list[int | None] = []

    def slow(data: bytes) -> bytes:
        seen.append(subject._shared_state.progress.processing_since(10**15))
        return data

    with Consumer(
        bootstrap_servers=served.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=slow
    ) as subject:
        subject.assign([PARTITION])
        read(subject, 20)
        assert None not in seen


# ---------------------------------------------------------------- one record at a time


class Counting:
    """`number`, and how often it was asked for each record."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, data: bytes) -> int:
        self.asked.append(data)
        return number(data)


def test_iteration_raises_at_exactly_the_bad_record_and_goes_on_after_a_seek(served: Broker) -> None:
    counting = Counting()
    with Consumer(
        bootstrap_servers=served.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=counting
    ) as subject:
        subject.assign([PARTITION])
        records = iter(subject)
        assert [next(records).value for _ in range(5)] == [0, 1, 2, 3, 4]
        assert counting.asked == [b"0", b"1", b"2", b"3", b"4"], "none before it is returned"
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as error:
                next(records)
            assert (error.value.offset, subject.position(PARTITION)) == (5, 5)
        assert counting.asked[5:] == [b"secret", b"secret"], "once for each poll that raises"
        subject.seek(PARTITION, 7)
        assert [next(records).value for _ in range(13)] == list(range(7, 20))


def test_iteration_skips_bad_records_and_asks_for_none_twice(served: Broker) -> None:
    counting = Counting()
    with Consumer(
        bootstrap_servers=served.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=counting,
        deserialization_errors="skip",
    ) as subject:
        subject.assign([PARTITION])
        records = iter(subject)
        assert [next(records).value for _ in range(18)] == [n for n in range(20) if n not in (5, 6)]
        assert subject.position(PARTITION) == 20
        assert len(counting.asked) == 20


def test_iteration_returns_nothing_after_a_bad_record_before_its_dead_letter_is_acknowledged(
    served: Broker,
) -> None:
    with consumer(served, deserialization_errors="dead-letter", dead_letter_topic="bad") as subject:
        subject.assign([PARTITION])
        records = iter(subject)
        with served.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS):
            assert [next(records).value for _ in range(5)] == [0, 1, 2, 3, 4]
            assert list(subject.records(idle_timeout=0.1)) == []
            assert subject.position(PARTITION) == 5
        assert [next(records).value for _ in range(13)] == list(range(7, 20))
        assert subject._core.polls.decoding is not None
        assert subject._core.polls.decoding.dead_lettered == 2


def test_async_iteration_deserialises_as_iteration_does(served: Broker) -> None:
    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=served.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=number,
        ) as subject:
            await subject.assign([PARTITION])
            records = aiter(subject)
            assert [(await anext(records)).value for _ in range(5)] == [0, 1, 2, 3, 4]
            with pytest.raises(RecordDeserializationError):
                await anext(records)
            assert await subject.position(PARTITION) == 5

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


@pytest.mark.parametrize("call", ["seek", "pause", "commit"])
def test_a_deserialiser_may_call_the_consumer_that_iterates(served: Broker, call: str) -> None:
    """A seek takes effect at once: the record in hand is not returned."""

    def meddle(data: bytes) -> bytes:
        if data == b"3" and done.setdefault(call, 0) == 0:
            done[call] = 1
            if call == "seek":
                subject.seek(PARTITION, 10)
            elif call == "pause":
                subject.pause([PARTITION])
                subject.resume([PARTITION])
            else:
                subject.commit()
        return data

    done: dict[str, int] = {}
    with Consumer(
        bootstrap_servers=served.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id="g",
        value_deserializer=meddle,
    ) as subject:
        subject.assign([PARTITION])
        records = iter(subject)
        found = [next(records).offset for _ in range(5)]
        assert found == ([0, 1, 2, 10, 11] if call == "seek" else [0, 1, 2, 3, 4])
        if call == "commit":
            assert committed_by(subject) == 3, "what is deserialised is not returned yet"


def test_c7_ctrl_c_in_a_deserialiser_loses_no_record_of_an_iteration(served: Broker) -> None:
    interrupted: set[bytes] = set()

    def interrupts(data: bytes) -> bytes:
        if data not in interrupted:
            interrupted.add(data)
            raise KeyboardInterrupt
        return data

    with Consumer(
        bootstrap_servers=served.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=interrupts,
    ) as subject:
        subject.assign([PARTITION])
        records = iter(subject)
        found: list[int] = []
        while len(found) < 20:
            with contextlib.suppress(KeyboardInterrupt):
                found.append(next(records).offset)
        assert found == list(range(20))


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        ("json", b'{"a":\n x}', "JSONDecodeError at line 2, column 2"),
        ("string", b"ab\xff", "UnicodeDecodeError at byte 2"),
    ],
)
def test_a_bad_record_is_told_with_the_place_in_it(kind: str, value: bytes, where: str) -> None:
    """What `process` writes to a dead letter, and logs: no advice there, for the letter is what is done about it."""
    decode = decoding_one(ConsumerConfig.parse({"bootstrap.servers": "localhost:1"}, value_deserializer=kind))
    with pytest.raises(RecordDeserializationError) as refused:
        decode(Record("t", 0, 7, 0, 0, None, value))
    assert str(refused.value) == f"the value of t-0 at offset 7 is bad ({where})"
