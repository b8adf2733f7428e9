"""Batches that the application's thread sends by itself, over real sockets: when, and what fails in between."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from functools import partial
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.producer.direct_sends.world import (
    PARTITIONS,
    Ways,
    expected,
    in_thread,
    needs_the_direct_way,
    records_in,
    settle,
    stored,
    trips,
    until_open,
)

from kadence import Admin, Producer
from kadence._native.drain import Asked
from kadence.errors import KafkaTimeoutError, TopicAuthorizationError
from kadence.producer import turn
from kadence.producer.accumulator import Batch
from kadence.producer.futures import Delivery, RecordFuture, RecordMetadata
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

pytestmark = needs_the_direct_way


def test_records_in_a_row_cost_the_network_thread_nothing(
    broker: Broker, producer: Producer, ways: Ways
) -> None:
    found: list[RecordMetadata] = []

    def is_alone() -> bool:
        """How many are is the machine's business: answers may be late, and the network thread looks twice a second."""
        sent, taken_over = ways.sent, ways.taken_over
        found.extend(trips(producer, 1, len(found)))
        return (ways.sent - sent, ways.taken_over - taken_over) == (1, 0)

    alone = [is_alone() for _ in range(300)]

    def are_some() -> bool:
        alone.append(is_alone())
        return sum(alone) >= 10

    until(are_some, every=0)
    for partition in range(PARTITIONS):
        offsets = [each.offset for each in found if each.partition == partition]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert stored(broker) == expected(len(found))
    assert all(abs(each.timestamp - time.time() * 1000) < 1000 * PATIENCE for each in found)


def test_what_nobody_waits_for_keeps_its_batches(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent = ways.sent
    with broker.faults.observe(ProduceRequest) as seen:
        for first in range(0, 500, 100):
            futures = [producer.send("t", b"%d" % (first + n), partition=(first + n) % 2) for n in range(100)]
            for future in futures:
                future.result(PATIENCE)
    # The first one may be sent alone, in the hope that the program waits for it.
    assert ways.sent - sent <= 1
    assert len(seen) < 50
    assert stored(broker) == expected(500)


def test_a_record_that_nobody_waits_for_after_all(broker: Broker, producer: Producer, ways: Ways) -> None:
    """It was sent by this thread, and the network thread gets the answer."""
    called: list[RecordFuture] = []
    values: list[bytes] = []

    def nobody_waits() -> None:
        values.append(b"%d" % (2 * len(values)))
        future = producer.send("t", values[-1], partition=0)
        until(future.done)
        future.add_done_callback(called.append)
        assert called.pop() is future

    def once() -> bool:
        """True if it was sent by this thread: the network thread may be looking just then."""
        settle(producer, ways)
        sent = ways.sent
        nobody_waits()
        return ways.sent > sent

    until(once, every=0)
    sent = ways.sent
    # Nor is another one expected.
    nobody_waits()
    assert ways.sent == sent
    assert stored(broker) == values


def test_with_a_linger(broker: Broker, ways: Ways) -> None:
    """A record that is waited for does not linger; the others do."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        settle(producer, ways)
        sent = ways.sent
        trips(producer, 20)
        assert ways.sent > sent
        until(producer.send("t", b"20", partition=0).done)
        sent = ways.sent
        futures = [producer.send("t", b"%d" % (22 + 2 * number), partition=0) for number in range(10)]
        time.sleep(0.05)
        assert not futures[-1].done()
        # They are the only batch, which the network thread need not send.
        until_open(producer)
        futures[-1].result(PATIENCE)
        assert ways.sent == sent + 1
        assert all(each.done() for each in futures)
    values = [b"%d" % number for number in range(0, 20, 2)] + [b"%d" % number for number in range(20, 42, 2)]
    assert stored(broker) == values + [b"%d" % number for number in range(1, 20, 2)]


def test_every_record_is_counted_once(broker: Broker, producer: Producer) -> None:
    def totals() -> dict[str, float]:
        wanted = {
            "record-send-total",
            "outgoing-byte-total",
            "request-total",
            "response-total",
            "incoming-byte-total",
        }
        return {
            key.name: value
            for key, value in producer.metrics().items()
            if key.name in wanted and key.group == "producer-metrics"
        }

    def record_total() -> float:
        return next(
            value
            for key, value in producer.metrics().items()
            if key.name == "record-send-total" and key.group == "producer-topic-metrics"
        )

    # The network thread counts them twice a second, the records last.
    written = sum(end for _, end in broker.offsets("t"))
    until(lambda: record_total() == written)
    before, records = totals(), written
    trips(producer, 100)
    until(lambda: record_total() - records == 100, what=lambda: f"{record_total() - records}")
    after = totals()
    assert after["request-total"] - before["request-total"] == 100
    assert after["response-total"] - before["response-total"] == 100
    assert after["outgoing-byte-total"] - before["outgoing-byte-total"] > 100 * 100


@pytest.mark.parametrize("code", [ec.NOT_LEADER_OR_FOLLOWER, ec.NOT_ENOUGH_REPLICAS, ec.CORRUPT_MESSAGE])
def test_an_error_that_passes(broker: Broker, producer: Producer, ways: Ways, code: int) -> None:
    sent, taken_over = ways.sent, ways.taken_over
    with broker.faults.error(ProduceRequest, code, times=1):
        trips(producer, 1)
    assert ways.taken_over - taken_over == ways.sent - sent
    settle(producer, ways)
    trips(producer, 3, 1)
    assert stored(broker) == expected(4)


def test_a_refusal_is_raised(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent, taken_over = ways.sent, ways.taken_over
    with (
        broker.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, times=1),
        pytest.raises(TopicAuthorizationError),
    ):
        producer.send("t", b"refused", partition=0).result(PATIENCE)
    assert ways.taken_over - taken_over == ways.sent - sent
    trips(producer, 10)
    assert stored(broker) == expected(10)


@pytest.mark.parametrize("served", [False, True])
def test_a_lost_connection_in_the_wait(
    broker: Broker, producer: Producer, ways: Ways, *, served: bool
) -> None:
    for number in range(3):
        settle(producer, ways)
        sent, taken_over = ways.sent, ways.taken_over
        with broker.faults.disconnect(ProduceRequest, times=1, served=served):
            producer.send("t", b"%d" % (2 * number), partition=0).result(PATIENCE)
        assert ways.taken_over - taken_over == ways.sent - sent
    assert stored(broker) == [b"0", b"2", b"4"]


def test_connections_that_end_at_any_time(broker: Broker, producer: Producer) -> None:
    """Nothing is lost, nothing is written twice, and each partition keeps its order."""
    with (
        broker.faults.disconnect(ProduceRequest, probability=0.02, seed=1, served=True),
        broker.faults.disconnect(ProduceRequest, probability=0.02, seed=2),
        broker.faults.truncate(ProduceRequest, probability=0.02, seed=3),
        broker.faults.error(ProduceRequest, ec.NOT_ENOUGH_REPLICAS, probability=0.02, seed=4),
    ):
        trips(producer, 400)
    assert stored(broker) == expected(400)


def test_the_time_limit_of_the_wait(broker: Broker, producer: Producer, ways: Ways) -> None:
    for number, limit in enumerate((0.02, 0.2)):
        settle(producer, ways)
        sent = ways.sent
        with broker.faults.freeze():
            future = producer.send("t", b"%d" % (2 * number), partition=0)
            with pytest.raises(KafkaTimeoutError):
                future.result(limit)
            with pytest.raises(KafkaTimeoutError):
                future.result(0)
            assert ways.sent <= sent + 1
        future.result(PATIENCE)
    assert stored(broker) == [b"0", b"2"]


def test_the_time_limits_of_requests_and_deliveries(
    broker: Broker, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "_LEAST_LIMIT_MS", 1_000)
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        request_timeout_ms=1_000,
        delivery_timeout_ms=1_200,
        retry_backoff_ms=10,
    ) as producer:
        settle(producer, ways)
        with broker.faults.drop(ProduceRequest):
            began = time.monotonic()
            with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
                producer.send("t", b"lost", partition=0).result(PATIENCE)
            assert 1.1 < time.monotonic() - began < PATIENCE

        def nobody_waits() -> bool:
            """Its time is over all the same. True if it was sent by this thread."""
            settle(producer, ways)
            sent = ways.sent
            with broker.faults.drop(ProduceRequest):
                future = producer.send("t", b"lost", partition=0)
                until(future.done)
            assert isinstance(future.exception(), KafkaTimeoutError)
            return ways.sent > sent

        until(nobody_waits, every=0)


def test_a_slow_answer_is_the_network_threads_affair(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent, taken_over = ways.sent, ways.taken_over

    def is_taken_over() -> bool:
        return ways.taken_over - taken_over == ways.sent - sent

    with broker.faults.freeze() as frozen:
        future = producer.send("t", b"0", partition=0)

        def thaw() -> None:
            until(is_taken_over)
            frozen.thaw()

        thawing = in_thread(thaw)
        future.result(PATIENCE)
        thawing()
    assert is_taken_over()


def test_callbacks_run_on_the_network_thread(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent = ways.sent

    def once(number: int) -> None:
        called: list[int] = []
        with broker.faults.delay(ProduceRequest, 0.02 * (number % 2)):
            # What is done already calls back at once, on this thread.
            with broker.faults.freeze():
                future = producer.send("t", b"%d" % (2 * number), partition=0)
                future.add_done_callback(lambda _: called.append(threading.get_ident()))
            future.result(PATIENCE)
        until(lambda: bool(called))
        assert len(called) == 1
        assert called != [threading.get_ident()]

    for number in range(20):
        once(number)
    assert ways.sent > sent
    assert stored(broker) == [b"%d" % (2 * number) for number in range(20)]


def test_what_is_sent_leaves_nothing_behind(producer: Producer) -> None:
    """No cycles that only a collection would find."""

    def some() -> int:
        return sum(isinstance(each, Batch | Delivery | Asked) for each in gc.get_objects())

    trips(producer, 20)
    gc.collect()
    gc.disable()
    try:
        before = some()
        trips(producer, 50)
        assert some() - before < 10
    finally:
        gc.enable()
    assert producer._accumulator.used_bytes == 0
    assert not producer._accumulator.incomplete


def test_a_broker_that_pauses_in_the_middle(broker: Broker, producer: Producer, ways: Ways) -> None:
    done = threading.Event()

    def pause() -> None:
        while not done.wait(0.1):
            with broker.faults.freeze():
                done.wait(0.25)

    pausing = in_thread(pause)
    sent = ways.sent
    try:
        trips(producer, 1_000)
    finally:
        done.set()
        pausing()
    assert ways.sent > sent
    assert stored(broker) == expected(1_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"enable_idempotence": False},
        {"acks": "1", "enable_idempotence": False},
        {"compression_type": "gzip"},
        {"request_timeout_ms": 1_000, "delivery_timeout_ms": 1_000},
    ],
    ids=str,
)
def test_what_is_not_plain_is_the_network_threads_affair(
    broker: Broker, ways: Ways, settings: dict[str, Any]
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0, **settings) as producer:
        trips(producer, 20)
    assert ways.sent == 0
    assert stored(broker) == expected(20)


def test_records_of_all_kinds(broker: Broker, producer: Producer, ways: Ways) -> None:
    """Large ones, headers, no value, a time of their own, and keys that choose partitions."""
    draws = random.Random(7)
    sent = ways.sent
    wanted = []
    for number in range(200):
        value = None if number % 10 == 0 else draws.randbytes(draws.choice((0, 1, 100, 10_000, 20_000)))
        headers = [("h", b"%d" % number), ("none", None)][: draws.randrange(3)]
        key = None if number % 3 == 0 else b"%d" % draws.randrange(20)
        timestamp = 1_000_000 + number if number % 4 == 0 else None
        found = producer.send("t", value, key, headers=headers, timestamp=timestamp).result(PATIENCE)
        wanted.append((found.partition, found.offset, key, value, tuple(headers), found.timestamp))
    assert sent < ways.sent < sent + 200
    assert [
        (each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
        for each in records_in(broker.bootstrap_servers)
    ] == sorted(wanted, key=lambda each: each[:2])


@pytest.mark.kafka
@pytest.mark.heavy
def test_a_kafka_that_is_stopped_and_killed_in_the_middle(ways: Ways) -> None:
    """Of 10,000 round trips none is lost, none is written twice, and each partition keeps its order."""
    count = 10_000
    with Kafka() as kafka:
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics({"t": PARTITIONS})
        progress = 0

        def has_come_to(number: int) -> bool:
            return progress >= number

        def disturb() -> None:
            for number in range(1, 9):
                until(partial(has_come_to, number * count // 10), every=0.01)
                if number % 4 == 0:
                    kafka.halt()
                    kafka.start()
                else:
                    os.kill(kafka.pid, signal.SIGSTOP)
                    time.sleep(0.1 * number)
                    os.kill(kafka.pid, signal.SIGCONT)

        with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=0) as producer:
            disturbing = in_thread(disturb)
            found = []
            for number in range(count):
                future = producer.send("t", b"%d" % number, partition=number % PARTITIONS)
                found.append(future.result(2 * PATIENCE))
                progress = number
            disturbing()
        records = records_in(kafka.bootstrap_servers)
    assert [record.value for record in records] == expected(count)
    assert sorted((each.partition, each.offset) for each in found) == [
        (r.partition, r.offset) for r in records
    ]
    assert ways.sent > count // 2
