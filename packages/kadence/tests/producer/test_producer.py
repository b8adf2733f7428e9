"""The producer over real sockets, against the embedded broker."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from tests.broker.wire import Wire
from tests.patience import PATIENCE, once_inside, overdue, until
from tests.producer.reading import read_all

from kadence.admin import Admin
from kadence.client.engine import Unclosed, abandoned
from kadence.client.waits import Waits
from kadence.errors import (
    ClosedError,
    ConfigError,
    FatalNetworkError,
    ForkedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kadence.producer import Producer, RecordFuture
from kadence.producer.sender import Sender
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.produce import ProduceRequest
from kadence.types import TopicPartition
from kadence_broker import Broker
from kadence_testing.clock import FakeClock

NO_TOPICS = {"auto.create.topics.enable": "false"}


@pytest.fixture
def three() -> Iterator[Broker]:
    with Broker(nodes=3, topics={"t": 6}) as broker:
        yield broker


def test_what_is_sent_is_read(three: Broker) -> None:
    with Producer(bootstrap_servers=three.bootstrap_servers) as producer:
        future = producer.send(
            "t", b"v", b"k", partition=2, timestamp=1234, headers=[("a", b"1"), ("b", None)]
        )
        assert future.result(PATIENCE) == ("t", 2, 0, 1234)
        producer.send("t", None, b"tombstone", partition=2, headers={"c": bytearray(b"2")})
        producer.send("t", memoryview(b"view"), partition=2)
        producer.flush(PATIENCE)
        assert [info.partition for info in producer.partitions_for("t")] == [0, 1, 2, 3, 4, 5]
    one, two, three_ = read_all(three.bootstrap_servers, "t", 6, 3)
    assert (one.value(), one.key(), one.timestamp()[1]) == (b"v", b"k", 1234)
    assert one.headers() == [("a", b"1"), ("b", None)]
    assert (two.value(), two.headers()) == (None, [("c", b"2")])
    assert three_.value() == b"view"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressions(broker: Broker, compression: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type=compression) as producer:
        for n in range(500):
            producer.send("t", b"%d" % n * 20)
    values = [message.value() for message in read_all(broker.bootstrap_servers, "t", 1, 500)]
    assert values == [b"%d" % n * 20 for n in range(500)]


def test_keys_go_where_other_clients_put_them(three: Broker) -> None:
    from confluent_kafka import Producer as Theirs

    theirs = Theirs({"bootstrap.servers": three.bootstrap_servers, "partitioner": "murmur2_random"})
    expected: dict[Any, Any] = {}
    for n in range(50):
        key = b"key-%d" % n
        theirs.produce("t", b"", key, on_delivery=lambda _, m: expected.__setitem__(m.key(), m.partition()))
    assert theirs.flush(PATIENCE) == 0
    with Producer(bootstrap_servers=three.bootstrap_servers) as producer:
        futures = {key: producer.send("t", b"", key) for key in expected}
        assert {key: future.result(PATIENCE).partition for key, future in futures.items()} == expected


def test_records_without_a_key_reach_all_partitions(three: Broker) -> None:
    with Producer(bootstrap_servers=three.bootstrap_servers, batch_size=200) as producer:
        futures = [producer.send("t", b"x" * 50) for _ in range(300)]
        assert {future.result(PATIENCE).partition for future in futures} == set(range(6))


def test_few_records_without_a_key_reach_all_partitions_by_default(broker: Broker) -> None:
    """A run of them is no longer than 16 KiB, although batches may be larger."""
    broker.create_topic("three", 3)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        futures = [producer.send("three", b"x" * 80) for _ in range(4_000)]
        counts = Counter(future.result(PATIENCE).partition for future in futures)
    assert len(counts) == 3
    assert max(counts.values()) < 3_000


def test_records_without_a_key_leave_a_partition_that_has_no_leader() -> None:
    with (
        Broker(nodes=3, topics={"t": 6}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, metadata_max_age_ms=50) as producer,
    ):
        producer.send("t", b"x").result(PATIENCE)
        for partition in (0, 2, 4, 5):
            broker.move_leader("t", partition, -1)
        until(
            lambda: (
                [info.partition for info in producer.partitions_for("t") if info.leader is not None] == [1, 3]
            )
        )
        futures = [producer.send("t", b"x" * 80) for _ in range(400)]
        assert {future.result(PATIENCE).partition for future in futures} <= {1, 3}


def test_many_threads_share_one(three: Broker) -> None:
    with Producer(bootstrap_servers=three.bootstrap_servers) as producer:
        futures: list[RecordFuture] = []

        def work() -> None:
            futures.extend([producer.send("t", b"x", b"k") for _ in range(500)])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(future.result(PATIENCE).offset for future in futures) == list(range(2000))


def test_a_lost_answer_does_not_repeat_the_record(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as producer:
        producer.send("t", b"0").result(PATIENCE)
        with broker.faults.disconnect(ProduceRequest, served=True, times=1) as fault:
            assert producer.send("t", b"1").result(PATIENCE).offset == 1
        assert fault.hits == 1
        assert producer.send("t", b"2").result(PATIENCE).offset == 2


def test_retriable_answers_are_retried_in_order(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1, batch_size=100) as producer:
        producer.send("t", b"0").result(PATIENCE)
        with broker.faults.error(ProduceRequest, ec.NOT_LEADER_OR_FOLLOWER, times=3):
            futures = [producer.send("t", b"x" * 100) for _ in range(20)]
            assert [future.result(PATIENCE).offset for future in futures] == list(range(1, 21))


def test_a_broker_that_forgot_us_gets_a_new_epoch(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as producer:
        producer.send("t", b"0").result(PATIENCE)
        with (
            broker.faults.observe(ProduceRequest) as seen,
            broker.faults.error(ProduceRequest, ec.UNKNOWN_PRODUCER_ID, times=1),
        ):
            assert producer.send("t", b"1").result(PATIENCE).offset == 1
        assert len(seen) == 2


def test_linger_gathers_and_flush_does_not_wait_for_it(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        with broker.faults.observe(ProduceRequest) as seen:
            futures = [producer.send("t", b"x") for _ in range(100)]
            assert not any(future.done() for future in futures)
            producer.flush(PATIENCE)
            assert all(future.done() for future in futures)
            assert len(seen) == 1
        last = producer.send("t", b"x")
    assert last.result(0).offset == 100, "close() sends what is left"


@pytest.mark.parametrize("way", ["result", "exception", "wait"])
def test_an_awaited_record_does_not_linger_where_nothing_fills_its_batch(broker: Broker, way: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        for offset in range(3):
            future = producer.send("t", b"x")
            if way == "wait":
                assert not concurrent.futures.wait([future], PATIENCE).not_done
            elif way == "exception":
                assert future.exception(PATIENCE) is None
            assert future.result(PATIENCE).offset == offset


def test_a_look_at_a_future_is_no_wait_and_leaves_its_batch_to_linger(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        with broker.faults.observe(ProduceRequest) as seen:
            first = producer.send("t", b"x")
            with pytest.raises(KafkaTimeoutError):
                first.result(0)
            assert not first.done()
            last = producer.send("t", b"x")
            assert last.result(PATIENCE).offset == 1
        assert first.result(0).offset == 0
        assert len(seen) == 1


def test_threads_that_wait_for_records_share_batches(broker: Broker) -> None:
    """While one thread's record is on its way, those of the others gather, and follow when it is acknowledged."""
    names = [f"k{number}".encode() for number in range(20)]
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send("t", b"x").result(PATIENCE)
        sent: list[RecordFuture] = []

        def send_and_wait(name: bytes) -> int:
            sent.append(future := producer.send("t", name))
            return future.result(PATIENCE).offset

        with broker.faults.observe(ProduceRequest) as seen, ThreadPoolExecutor(len(names)) as pool:
            with broker.faults.freeze():
                first = producer.send("t", b"x")
                waiting = threading.Thread(target=first.result, args=(PATIENCE,))
                waiting.start()
                calls = [pool.submit(send_and_wait, name) for name in names]
                until(lambda: len(sent) == len(names))
            offsets = {call.result(PATIENCE) for call in calls}
            waiting.join(PATIENCE)
        assert offsets == set(range(2, 22))
        assert len(seen) < len(names)


def test_flush_in_vain(broker: Broker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300)
    producer.partitions_for("t")
    with broker.faults.drop(ProduceRequest):
        future = producer.send("t", b"x")
        with pytest.raises(KafkaTimeoutError, match="1 batches are not acknowledged yet"):
            producer.flush(0.05)
        producer.close(0)
    with pytest.raises(ClosedError, match="before this record was acknowledged"):
        future.result(0)


def test_flush_waits_for_the_callbacks(broker: Broker) -> None:
    """A usual program gathers errors in callbacks, and looks at them after flush()."""
    go_on, told = threading.Event(), []

    def delivered(future: RecordFuture) -> None:
        assert go_on.wait(PATIENCE)
        told.append(future.result().offset)

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send("t", b"x").add_done_callback(delivered)
        overdue(
            producer.flush, KafkaTimeoutError, match="all records are acknowledged, but callbacks of futures"
        )
        assert not told
        other = once_inside(go_on.set)
        producer.flush(PATIENCE)
        assert told == [0, 1, 2]
        other.join(PATIENCE)


def test_flush_in_a_callback_hangs_nobody(broker: Broker) -> None:
    """It does not wait for the callbacks that run now, of which it is one; nor can it wait for anything else."""
    seen: list[str] = []

    def alone(future: RecordFuture) -> None:
        producer.flush(PATIENCE)
        seen.append("nothing to wait for")

    def before_another(future: RecordFuture) -> None:
        producer.send("t", b"x")
        try:
            producer.flush(PATIENCE)
        except IllegalStateError as error:
            seen.append(str(error))

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        for callback in (alone, before_another):
            producer.send("t", b"x").add_done_callback(callback)
            producer.flush(PATIENCE)
    assert seen[0] == "nothing to wait for"
    assert "network thread" in seen[1]


def test_flush_waits_for_the_callbacks_of_a_batch_that_is_split(broker: Broker) -> None:
    from kadence.admin import NewTopic

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": "1000"})])
    told: list[KafkaError | None] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        for _ in range(10):
            producer.send("small", os.urandom(400)).add_done_callback(
                lambda future: told.append(future.exception())
            )
        producer.flush(PATIENCE)
        assert told == [None] * 10
        assert not producer._accumulator.unnotified


def test_buffer_memory_blocks_and_then_raises() -> None:
    settings = {"buffer.memory": 1000, "max.block.ms": 60, "batch.size": 400}
    clock = FakeClock()
    with (
        Broker(topics={"t": 1}, clock=clock) as broker,
        Producer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer,
    ):

        def known() -> bool:
            with contextlib.suppress(KafkaTimeoutError):
                return bool(producer.partitions_for("t"))
            return False

        until(known)
        with broker.faults.delay(ProduceRequest, 0.4, times=1) as delayed:
            producer.send("t", b"x" * 300)
            producer.send("t", b"x" * 300)
            with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory=1000 is full"):
                producer.send("t", b"x" * 300)
            delayed.wait()
        clock.advance(400)
        broker.offsets("t")
        # Room again as soon as the broker answers.
        producer.flush(PATIENCE)
        assert producer.send("t", b"x" * 300).result(PATIENCE).offset == 2


def test_a_large_record_that_waits_for_room_is_not_passed_by_small_ones(broker: Broker) -> None:
    broker.create_topic("t", 1)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 1_000, "batch.size": 1}
    with Producer(settings) as producer, ThreadPoolExecutor(3) as threads:
        producer.partitions_for("t")
        accumulator = producer._accumulator
        with broker.faults.freeze():
            first = producer.send("t", b"x" * 300)
            waiting = []
            for value in (b"large" * 150, b"small", b"small"):
                # The small ones would fit.
                waiting.append(threads.submit(producer.send, "t", value))
                until(lambda: accumulator.blocked == len(waiting))
        futures = [first, *(each.result(PATIENCE) for each in waiting)]
        assert [each.result(PATIENCE).offset for each in futures] == [0, 1, 2, 3]
        until(lambda: not accumulator.blocked)
        assert not accumulator.claimed_bytes


def test_a_topic_that_does_not_exist() -> None:
    with Broker(config=NO_TOPICS) as broker:

        def send(seconds: float) -> None:
            with Producer(
                bootstrap_servers=broker.bootstrap_servers,
                max_block_ms=int(seconds * 1_000),
                retry_backoff_ms=10,
            ) as producer:
                producer.send("no", b"x")

        overdue(send, KafkaError, match=r"topic 'no' does not exist.*kadence topics create no")


def test_a_topic_that_appears_while_we_wait() -> None:
    with (
        Broker(config=NO_TOPICS) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5) as producer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        with broker.faults.observe(MetadataRequest) as asked:
            result: list[RecordFuture] = []
            thread = threading.Thread(target=lambda: result.append(producer.send("late", b"x")))
            thread.start()
            asked.wait(2)
            admin.create_topics({"late": 2})
            thread.join(PATIENCE)
        assert result[0].result(PATIENCE).offset == 0


def test_a_topic_that_was_deleted_stays_so(broker: Broker) -> None:
    """The broker creates topics that are asked for, and a producer refreshes what it knows."""
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, metadata_max_age_ms=20) as producer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        producer.send("short-lived", b"x").result(PATIENCE)
        admin.delete_topics(["short-lived"])
        with broker.faults.observe(MetadataRequest) as asked:
            asked.wait(3)
        assert "short-lived" not in admin.list_topics()
        assert producer.send("short-lived", b"x").result(PATIENCE).offset == 0, "a record creates it again"


def test_a_name_that_no_topic_can_have(broker: Broker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        pytest.raises(InvalidTopicError, match="topic 'a/b'"),
    ):
        producer.send("a/b", b"x")


def test_partitions_beyond_the_topic(three: Broker) -> None:
    with (
        Producer(bootstrap_servers=three.bootstrap_servers) as producer,
        Admin(bootstrap_servers=three.bootstrap_servers) as admin,
    ):
        for partition in (6, -1):
            with pytest.raises(
                UnknownTopicOrPartitionError, match=f"6 partitions, 0 to 5; {partition} is none"
            ):
                producer.send("t", b"x", partition=partition)
        admin.create_partitions({"t": 7})
        assert producer.send("t", b"x", partition=6).result(PATIENCE).partition == 6


def test_no_broker_at_all() -> None:

    def send(seconds: float) -> None:
        with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=int(seconds * 1_000)) as producer:
            producer.send("t", b"x")

    overdue(send, KafkaTimeoutError, match=r"no metadata of topic 't'.*127\.0\.0\.1:1")


def test_what_cannot_be_sent(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=1000) as producer:
        with pytest.raises(
            SerializationError,
            match=r"value must be bytes or None, not str.*value\.encode\(\); .* with value_serializer='string'",
        ):
            producer.send("t", "text")
        with pytest.raises(SerializationError, match="key must be bytes or None, not int"):
            producer.send("t", b"", 5)
        with pytest.raises(SerializationError, match="header 'h' must be bytes"):
            producer.send("t", b"", headers={"h": 1})  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match=r"a header is a pair .*, not \(bytes, bytes\)$"):
            producer.send("t", b"", headers=[(b"h", b"secret")])  # type: ignore[list-item]
        with pytest.raises(RecordTooLargeError, match=r"takes 1021 bytes, more than max.request.size=1000"):
            producer.send("t", b"x" * 1000)
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=1000) as producer,
        pytest.raises(RecordTooLargeError, match=r"more than buffer.memory=1000"),
    ):
        producer.send("t", b"x" * 1000)
    with pytest.raises(ConfigError, match="did you mean"):
        Producer(bootstrap_servers=broker.bootstrap_servers, linger=5)  # type: ignore[call-arg]


def test_the_brokers_limit_splits_a_batch_and_names_the_record_that_is_too_large(broker: Broker) -> None:
    from kadence.admin import NewTopic

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": "2000"})])
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=10_000) as producer:
        futures = [producer.send("small", b"x" * 400) for _ in range(20)]
        futures.append(producer.send("small", b"x" * 5000))
        producer.flush(PATIENCE)
    assert [future.result(0).offset for future in futures[:20]] == list(range(20))
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        futures[20].result(0)


@pytest.mark.parametrize("way", ["records", "columns"])
def test_batches_fit_a_topics_limit_once_one_was_refused(
    broker: Broker, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    from kadence.admin import NewTopic

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": "100000"})])
    caplog.set_level(logging.INFO, "kadence.producer")
    refusals = []
    values = [b"x" * 1000] * 1000
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=10_000) as producer:
        for _ in range(3):
            caplog.clear()
            if way == "records":
                for value in values:
                    producer.send("small", value)
            else:
                producer.send_arrow(pa.table({"value": values}), "small")
            producer.flush(PATIENCE)
            refusals.append(sum("splitting" in line for line in caplog.messages))
        offset = producer.send("small", b"last").result(PATIENCE).offset
    assert refusals[0] > 0
    assert refusals[1:] == [0, 0]
    assert offset == 3000


def test_closed(broker: Broker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    assert repr(producer).startswith("<Producer kadence-producer-")
    producer.close()
    producer.close()
    assert " closed " in repr(producer)
    for call in (
        lambda: producer.send("t", b"x"),
        producer.flush,
        lambda: producer.partitions_for("t"),
    ):
        with pytest.raises(ClosedError):
            call()


def test_a_callback_may_send_but_not_wait(broker: Broker) -> None:
    """It runs on the thread that it would wait for."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1) as producer:
        waiting: list[Callable[[], object]] = [
            lambda: producer.send("unknown", b"x"),
            lambda: producer.partitions_for("unknown"),
            lambda: producer.send("t", b"x").result(),
            lambda: producer.send_arrow(pa.table({"value": ["x"]}), "t").result(),
            producer.flush,
        ]
        seen: list[object] = []
        done = threading.Event()

        def callback(future: RecordFuture) -> None:
            for call in waiting:
                try:
                    seen.append(call())
                except IllegalStateError as error:
                    seen.append(str(error))
            seen.append(producer.send("t", b"last"))
            done.set()

        producer.send("t", b"first").add_done_callback(callback)
        assert done.wait(PATIENCE)
        *refused, last = seen
        assert isinstance(last, RecordFuture)
        assert last.result(PATIENCE).offset == 3
        assert len(refused) == len(waiting)
        assert ["network thread" in str(each) for each in refused] == [True] * len(waiting), refused


def test_a_callback_that_exits_ends_no_producer(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").add_done_callback(lambda future: sys.exit(3))
        assert producer.send("t", b"x").result(PATIENCE).offset == 1
        producer.flush(PATIENCE)
    assert "a callback of a future raised" in caplog.text


def test_a_later_close_does_not_wait_longer() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", delivery_timeout_ms=600_000)
    with producer._gate:
        tp = TopicPartition("t", 0)
        future, _ = producer._accumulator.append(tp, 0, None, b"x", (), 22, producer._clock.now_ms())
    thread = threading.Thread(target=producer.close)
    thread.start()
    producer.close(0)
    producer.close()
    thread.join(PATIENCE)
    assert isinstance(future.exception(0), ClosedError)


def test_a_close_that_drops_records_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    with producer._gate:
        for partition in (0, 1, 1):
            tp = TopicPartition("t", partition)
            producer._accumulator.append(tp, 0, None, b"x", (), 22, producer._clock.now_ms())
    producer.close(0)
    (line,) = [record for record in caplog.records if "records lost" in record.message]
    assert line.levelname == "WARNING"
    assert line.message.startswith("records lost: 3 in 2 batches: the producer was closed")


def test_close_does_not_wait_for_a_callback_longer_than_it_may(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(future: RecordFuture) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
    producer.send("t", b"x").add_done_callback(slow)
    assert inside.wait(PATIENCE)
    late = producer.send("t", b"y")
    producer.close(0)
    assert "1 records are neither acknowledged nor failed yet" in caplog.text
    assert not late.done()
    go_on.set()
    assert isinstance(late.exception(PATIENCE), ClosedError)


def test_metadata_and_memory_share_the_time_of_one_call(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result(PATIENCE)
        send_checks, deadlines = producer._send_checks, []
        place = producer._shell.run(send_checks.look_up("t", send_checks.block_until()))

        def look_up(topic: str, deadline: int) -> Waits[Any]:
            yield from ()
            deadlines.append(deadline)
            return place

        def wait_for_room(size: int, deadline: int) -> Waits[None]:
            yield from ()
            deadlines.append(deadline)

        monkeypatch.setattr(send_checks, "look_up", look_up)
        monkeypatch.setattr(send_checks, "wait_for_room", wait_for_room)
        monkeypatch.setattr(producer._accumulator, "has_room", lambda size: False)
        monkeypatch.setattr(send_checks, "block_until", iter((100, 200)).__next__)
        producer._accumulator.places.clear()
        producer.send("t", b"x", headers={"long": b"way"})
    assert deadlines == [100, 100]


def test_close_ends_a_send_that_blocks() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            producer.send("t", b"x")
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    producer.close(0)
    thread.join(PATIENCE)
    assert len(errors) == 1


def test_a_bug_on_the_network_thread_reaches_every_caller(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    future = producer.send("t", b"x")

    def broken(sender: Sender, now: int) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Sender, "poll", broken)
    producer._network.wakeup()
    with pytest.raises(FatalNetworkError, match="a bug"):
        future.result(PATIENCE)
    producer._engine.join(PATIENCE)
    with pytest.raises(FatalNetworkError, match="a bug") as caught:
        producer.send("t", b"x")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert " failed " in repr(producer)
    assert "a bug" in caplog.text
    producer.close()


def test_a_producer_that_is_forgotten_delivers_and_warns(broker: Broker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    future = producer.send("t", b"x")
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031 - both make it go
        del producer
        gc.collect()
    assert future.result(PATIENCE).offset == 0


def test_whoever_collects_a_producer_waits_for_nothing() -> None:
    """It may be an event loop, or a network thread that holds the producer's own lock."""
    asked: list[int] = []

    class Network:
        is_closing = False

        def begin_close(self, deadline: int) -> None:
            asked.append(deadline)

        def left_behind(self) -> None:
            raise AssertionError("nobody waited")

    class Engine:
        has_thread = True

        def start(self) -> None: ...

        def join(self, seconds: float | None = None) -> None:
            raise AssertionError("this thread has other things to do")

        def runs_here(self) -> bool:
            return False

        def is_alive(self) -> bool:
            return True

    network: Any = Network()
    with pytest.warns(ResourceWarning, match="was not closed"):
        abandoned(Unclosed("Producer", network, 5_000), Engine(), os.getpid())
    assert len(asked) == 1


def test_a_producer_that_is_forgotten_while_its_lock_is_held_hangs_nobody(broker: Broker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    future = producer.send("t", b"x")
    with producer._gate, pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031 - as above
        del producer
        gc.collect()
    assert future.result(PATIENCE).offset == 0


@pytest.mark.parametrize("kept", [True, False], ids=["until the end", "dropped just before"])
def test_the_interpreter_ends_without_close_and_what_was_sent_is_delivered(
    broker: Broker, kept: bool
) -> None:
    program = f"""
        from kadence import Producer
        p = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
        p.send("t", b"x")
        {"" if kept else "del p"}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=PATIENCE, check=True)
    (message,) = read_all(broker.bootstrap_servers, "t", 1, 1)
    assert message.value() == b"x"


def test_a_child_of_multiprocessing_ends_without_close_and_what_was_sent_is_delivered(broker: Broker) -> None:
    """Such a process ends without what `atexit` has."""
    program = f"""
        import multiprocessing
        from kadence import Producer
        def work():
            global p
            p = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
            p.send("t", b"x")
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            print(process.exitcode)
    """
    ended = _run(program)
    assert ended.stdout == "0\n", ended.stderr
    (message,) = read_all(broker.bootstrap_servers, "t", 1, 1)
    assert message.value() == b"x"


def test_the_end_of_the_process_says_how_many_records_it_lost() -> None:
    program = """
        from kadence import Producer, TopicPartition
        from kadence.producer import producer
        producer.FAREWELL_MS = 1
        p = Producer(bootstrap_servers="127.0.0.1:1")
        with p._gate:
            for partition in (0, 1, 1):
                tp = TopicPartition("t", partition)
                p._accumulator.append(tp, 0, None, b"x", (), 22, p._clock.now_ms())
    """
    ended = _run(program)
    assert "records lost: 3 in 2 batches: the producer was closed, or the process ended" in ended.stderr


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        timeout=PATIENCE,
        check=True,
        text=True,
        capture_output=True,
    )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_after_fork_is_refused(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result(PATIENCE)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                producer.send("t", b"x")
            except ForkedError:
                producer.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert producer.send("t", b"x").result(PATIENCE).offset == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_after_fork_waits_for_no_record_of_its_parent(broker: Broker) -> None:
    """Even if a thread of the parent held the lock."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send("t", b"x")
        rows = producer.send_arrow(pa.table({"value": ["x"]}), "t")
        producer._send_checks.gate.acquire()
        child = os.fork()
        if child == 0:
            status = 1
            signal.alarm(int(PATIENCE))  # ends the child, should it wait
            try:
                told: list[object] = []
                future.add_done_callback(told.append)
                error = future.exception()
                if told and isinstance(error, ForkedError) and rows.exception() is not None:
                    status = 0
            finally:
                os._exit(status)
        producer._send_checks.gate.release()
        assert os.waitpid(child, 0)[1] == 0
        producer.flush(PATIENCE)
        assert future.result(0).offset == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_is_refused_even_if_a_thread_of_the_parent_held_the_lock(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result(PATIENCE)
        producer._send_checks.gate.acquire()
        child = os.fork()
        if child == 0:
            status = 1
            signal.alarm(int(PATIENCE))  # ends the child, should it wait for the lock
            try:
                producer.send("t", b"x")
            except ForkedError:
                status = 0
            finally:
                os._exit(status)
        producer._send_checks.gate.release()
        assert os.waitpid(child, 0)[1] == 0


def test_leaders_that_move_under_way(three: Broker) -> None:
    with Producer(bootstrap_servers=three.bootstrap_servers, retry_backoff_ms=1, batch_size=200) as producer:
        futures = []
        for n in range(300):
            futures.append(producer.send("t", b"%d" % n, partition=0))
            if n % 100 == 50:
                futures[-1].result(PATIENCE)
                three.move_leader("t", 0, three.node_ids[n // 100])
        assert [future.result(PATIENCE).offset for future in futures] == list(range(300))
    messages = read_all(three.bootstrap_servers, "t", 6, 300)
    assert [message.value() for message in messages] == [b"%d" % n for n in range(300)]


def test_a_leader_that_moved_is_found_by_the_answer_alone(three: Broker) -> None:
    with Producer(bootstrap_servers=three.bootstrap_servers) as producer:
        old = producer.partitions_for("t")[0].leader
        producer.send("t", b"x", partition=0).result(PATIENCE)
        with three.faults.drop(MetadataRequest):
            three.move_leader("t", 0, next(node for node in three.node_ids if node != old))
            assert producer.send("t", b"y", partition=0).result(PATIENCE).offset == 1


def test_exactly_once_in_order_over_connections_that_break(three: Broker) -> None:
    rng = random.Random(7)
    settings: dict[str, Any] = {
        "retry_backoff_ms": 1,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 2,
        "batch_size": 500,
    }
    with (
        three.faults.disconnect(ProduceRequest, served=True, where=lambda call: rng.random() < 0.1) as after,
        three.faults.disconnect(ProduceRequest, where=lambda call: rng.random() < 0.1) as before,
        Producer(bootstrap_servers=three.bootstrap_servers, **settings) as producer,
    ):
        futures = [producer.send("t", b"%d" % n, partition=n % 6) for n in range(3_000)]
        producer.flush(60)
        for partition in range(6):
            offsets = [future.result(0).offset for future in futures[partition::6]]
            assert offsets == list(range(500))
    assert after.hits
    assert before.hits
    messages = read_all(three.bootstrap_servers, "t", 6, 3_000)
    for partition in range(6):
        values = [message.value() for message in messages if message.partition() == partition]
        assert values == [b"%d" % n for n in range(partition, 3_000, 6)]


@pytest.mark.parametrize("timestamp", [1.5, "now", 2**63, -(2**63) - 1, -5, -1])
def test_a_timestamp_that_is_none_is_refused_before_others_share_its_batch(
    broker: Broker, timestamp: Any
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(2):  # the second meets a topic and a batch that are there
            with pytest.raises(SerializationError, match="timestamp must be ms since 1970"):
                producer.send("t", b"x", timestamp=timestamp)
            assert producer.send("t", b"x").result(PATIENCE).offset >= 0


def test_a_header_name_that_is_no_text_is_refused(broker: Broker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        pytest.raises(SerializationError, match="lone surrogate"),
    ):
        producer.send("t", b"x", headers=[("\ud800", b"")])


def test_a_partition_that_is_no_number_is_refused(broker: Broker) -> None:
    broker.create_topic("t", 2)
    wrong: Any
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for known in (False, True):
            for wrong in ("1", 1.0):
                with pytest.raises(
                    TypeError, match=f"partition must be a whole number or None, not {wrong!r}"
                ):
                    producer.send("t", b"", partition=wrong)
            assert known or producer.partitions_for("t")


@pytest.mark.parametrize("rack", ["a", "b"])
def test_kip1123_records_without_a_key_stay_in_the_rack_and_keys_do_not_care(rack: str) -> None:
    with Broker(topics={"t": 4}, nodes=2) as broker, Wire(broker) as wire:
        for partition in range(4):
            broker.move_leader("t", partition, 1 + partition % 2)
        answer = wire.call(MetadataRequest([MetadataRequestTopic(name="t")]))
        for node in answer.brokers:
            node.rack = "ab"[node.node_id - 1]
        with (
            broker.faults.respond(MetadataRequest, lambda call: answer),
            Producer(
                bootstrap_servers=broker.bootstrap_servers,
                client_rack=rack,
                partitioner_rack_aware=True,
                batch_size=10,
                linger_ms=0,
            ) as producer,
        ):
            sent = [producer.send("t", b"%d" % number) for number in range(40)]
            keyed = [producer.send("t", b"v", key=b"%d" % number) for number in range(40)]
            producer.flush(PATIENCE)
            assert {each.result().partition % 2 for each in sent} == {"ab".index(rack)}
            assert {each.result().partition for each in keyed} == {0, 1, 2, 3}
