"""Batches that the application's thread sends by itself, over real sockets, and all that may come in between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence import Admin, AsyncProducer, Consumer, Producer, Record, TopicPartition
from kadence._native.drain import Asked
from kadence.client.slices import AT_ONCE
from kadence.errors import ForkedError, KafkaError, KafkaTimeoutError, TopicAuthorizationError
from kadence.net import drain
from kadence.producer import turn
from kadence.producer.accumulator import Batch
from kadence.producer.direct_sends import DirectSends
from kadence.producer.futures import Delivery, RecordFuture, RecordMetadata
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker
from kadence_broker.faults.injected import Injected
from kadence_testing.kafka import Kafka

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

PARTITIONS = 2


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": PARTITIONS}) as broker:
        yield broker


class Ways:
    """Counts the batches that the application's threads sent and decided, and those that were taken over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.taken_over = 0
        send, took_over = DirectSends._send, DirectSends.took_over

        def counted(direct: DirectSends, *arguments: Any) -> bool:
            is_sent = send(direct, *arguments)
            self.sent += is_sent
            return is_sent

        def taken(direct: DirectSends, *arguments: Any) -> Any:
            self.taken_over += 1
            return took_over(direct, *arguments)

        monkeypatch.setattr(DirectSends, "_send", counted)
        monkeypatch.setattr(DirectSends, "took_over", taken)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def producer(broker: Broker, ways: Ways) -> Iterator[Producer]:
    """With some records behind it, the last of each partition sent by this thread."""
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        retry_backoff_ms=10,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    ) as producer:
        settle(producer, ways)
        yield producer


def settle(producer: Producer, ways: Ways) -> None:
    """Send to each partition until that is done by this thread."""

    def is_direct(partition: int) -> bool:
        before = ways.sent
        producer.send("t", b"before", partition=partition).result(PATIENCE)
        return ways.sent > before

    for partition in range(PARTITIONS):
        until(partial(is_direct, partition), every=0)


def records_in(servers: str) -> list[Record[Any, Any]]:
    """All records but those of `settle`, partition by partition."""
    found: list[Record[Any, Any]] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            found += consumer.poll(PATIENCE)
    found.sort(key=lambda record: (record.partition, record.offset))
    return [record for record in found if record.value != b"before"]


def stored(broker: Broker) -> list[bytes]:
    return [record.value for record in records_in(broker.bootstrap_servers)]


def trips(producer: Producer, count: int, first: int = 0) -> list[RecordMetadata]:
    return [
        producer.send("t", b"%d" % number, partition=number % PARTITIONS).result(PATIENCE)
        for number in range(first, first + count)
    ]


def expected(count: int) -> list[bytes]:
    """What `stored` says after so many trips."""
    return [
        b"%d" % number
        for partition in range(PARTITIONS)
        for number in range(count)
        if number % PARTITIONS == partition
    ]


def test_records_in_a_row_cost_the_network_thread_nothing(
    broker: Broker, producer: Producer, ways: Ways
) -> None:
    sent, taken_over = ways.sent, ways.taken_over
    found = trips(producer, 300)
    assert ways.sent - sent > 150
    assert ways.taken_over - taken_over < 50
    for partition in range(PARTITIONS):
        offsets = [each.offset for each in found if each.partition == partition]
        assert offsets == list(range(offsets[0], offsets[0] + 150))
    assert stored(broker) == expected(300)
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
    sent, called = ways.sent, threading.Event()
    future = producer.send("t", b"0", partition=0)
    assert ways.sent == sent + 1
    until(future.done)
    future.add_done_callback(lambda _: called.set())
    assert called.is_set()
    # Nor was it expected again.
    until(producer.send("t", b"2", partition=0).done)
    assert ways.sent == sent + 1
    assert stored(broker) == [b"0", b"2"]


def test_with_a_linger(broker: Broker, ways: Ways) -> None:
    """A record that is waited for does not linger; the others do."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        settle(producer, ways)
        sent = ways.sent
        trips(producer, 20)
        assert ways.sent > sent + 10
        until(producer.send("t", b"20", partition=0).done)
        sent = ways.sent
        futures = [producer.send("t", b"%d" % (22 + 2 * number), partition=0) for number in range(10)]
        time.sleep(0.05)
        assert not futures[-1].done()
        # They are the only batch, which the network thread need not send: it waits already.
        futures[-1].result(PATIENCE)
        assert ways.sent == sent + 1
        assert all(each.done() for each in futures)
    values = [b"%d" % number for number in range(0, 20, 2)] + [b"%d" % number for number in range(20, 42, 2)]
    assert stored(broker) == values + [b"%d" % number for number in range(1, 20, 2)]


def test_every_record_is_counted_once(producer: Producer) -> None:
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

    time.sleep(0.6)
    before, records = totals(), record_total()
    trips(producer, 100)
    until(lambda: record_total() - records == 100, what=lambda: f"{record_total() - records}")
    after = totals()
    assert after["request-total"] - before["request-total"] == 100
    assert after["response-total"] - before["response-total"] == 100
    assert after["outgoing-byte-total"] - before["outgoing-byte-total"] > 100 * 100


@pytest.mark.parametrize("code", [ec.NOT_LEADER_OR_FOLLOWER, ec.NOT_ENOUGH_REPLICAS, ec.CORRUPT_MESSAGE])
def test_an_error_that_passes(broker: Broker, producer: Producer, ways: Ways, code: int) -> None:
    taken_over = ways.taken_over
    with broker.faults.error(ProduceRequest, code, times=1):
        trips(producer, 2)
    assert ways.taken_over == taken_over + 1
    settle(producer, ways)
    trips(producer, 2, 2)
    assert stored(broker) == expected(4)


def test_a_refusal_is_raised(broker: Broker, producer: Producer, ways: Ways) -> None:
    taken_over = ways.taken_over
    with (
        broker.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, times=1),
        pytest.raises(TopicAuthorizationError),
    ):
        producer.send("t", b"refused", partition=0).result(PATIENCE)
    assert ways.taken_over == taken_over + 1
    trips(producer, 10)
    assert stored(broker) == expected(10)


@pytest.mark.parametrize("served", [False, True])
def test_a_lost_connection_in_the_wait(
    broker: Broker, producer: Producer, ways: Ways, *, served: bool
) -> None:
    for number in range(3):
        settle(producer, ways)
        taken_over = ways.taken_over
        with broker.faults.disconnect(ProduceRequest, times=1, served=served):
            producer.send("t", b"%d" % (2 * number), partition=0).result(PATIENCE)
        assert ways.taken_over == taken_over + 1
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
        with broker.faults.delay(ProduceRequest, 0.4, times=1):
            future = producer.send("t", b"%d" % (2 * number), partition=0)
            with pytest.raises(KafkaTimeoutError):
                future.result(limit)
            with pytest.raises(KafkaTimeoutError):
                future.result(0)
            assert ways.sent == sent + 1
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
        trips(producer, 2)
        settle(producer, ways)
        sent = ways.sent
        with broker.faults.drop(ProduceRequest):
            # Nobody waits for this one, and its time is over all the same.
            future = producer.send("t", b"lost", partition=0)
            assert ways.sent == sent + 1
            until(future.done)
            assert isinstance(future.exception(), KafkaTimeoutError)


def test_a_slow_answer_is_the_network_threads_affair(broker: Broker, producer: Producer, ways: Ways) -> None:
    taken_over = ways.taken_over
    with broker.faults.delay(ProduceRequest, 0.4, times=1):
        producer.send("t", b"0", partition=0).result(PATIENCE)
    assert ways.taken_over == taken_over + 1


def test_callbacks_run_on_the_network_thread(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent = ways.sent

    def once(number: int) -> None:
        called: list[int] = []
        with broker.faults.delay(ProduceRequest, 0.02 * (number % 2)):
            future = producer.send("t", b"%d" % (2 * number), partition=0)
            future.add_done_callback(lambda _: called.append(threading.get_ident()))
            future.result(PATIENCE)
        until(lambda: bool(called))
        assert len(called) == 1
        assert called != [threading.get_ident()]

    for number in range(20):
        once(number)
    assert ways.sent > sent + 5
    assert stored(broker) == [b"%d" % (2 * number) for number in range(20)]


def test_a_callback_that_comes_during_the_wait(broker: Broker, producer: Producer) -> None:
    called: list[int] = []
    with broker.faults.delay(ProduceRequest, 0.05, times=1):
        future = producer.send("t", b"0", partition=0)
        waiting = in_thread(lambda: future.result(PATIENCE))
        time.sleep(0.02)
        future.add_done_callback(lambda _: called.append(threading.get_ident()))
        waiting()
    until(lambda: bool(called))
    assert called != [threading.get_ident()]
    trips(producer, 2)


def test_several_threads_wait_for_the_same_record(broker: Broker, producer: Producer) -> None:
    for number in range(20):
        with broker.faults.delay(ProduceRequest, 0.03, times=1):
            future = producer.send("t", b"%d" % (2 * number), partition=0)
            waiting = [in_thread(partial(future.result, PATIENCE)) for _ in range(3)]
            assert len({each() for each in waiting}) == 1


def test_threads_that_wait_for_records_of_their_own(broker: Broker, producer: Producer, ways: Ways) -> None:
    counts = dict.fromkeys(range(4), 0)

    def work(thread: int) -> None:
        last = -1
        for number in range(150):
            key = b"%d" % thread
            found = producer.send("t", b"%d-%d" % (thread, number), key=key).result(PATIENCE)
            assert found.offset > last
            last = found.offset
            counts[thread] += 1
            if number % 50 == thread:
                time.sleep(0.01)

    for each in [in_thread(partial(work, thread)) for thread in counts]:
        each()
    values = stored(broker)
    assert len(values) == len(set(values)) == 600
    for thread in counts:
        mine = [value for value in values if value.startswith(b"%d-" % thread)]
        assert mine == [b"%d-%d" % (thread, number) for number in range(150)]
    assert ways.sent > 0


def test_flush_by_another_thread_in_the_wait(broker: Broker, producer: Producer, ways: Ways) -> None:
    taken_over = ways.taken_over
    with broker.faults.delay(ProduceRequest, 0.08, times=1):
        future = producer.send("t", b"0", partition=0)
        waiting = in_thread(lambda: future.result(PATIENCE))
        time.sleep(0.02)
        producer.flush(PATIENCE)
        assert future.done()
        waiting()
    assert ways.taken_over == taken_over + 1
    trips(producer, 1, 2)
    assert stored(broker) == [b"0", b"2"]


def test_close_by_another_thread_in_the_wait(broker: Broker, ways: Ways) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
    settle(producer, ways)
    with broker.faults.delay(ProduceRequest, 0.3, times=1):
        future = producer.send("t", b"0", partition=0)
        waiting = in_thread(lambda: future.result(PATIENCE))
        time.sleep(0.02)
        producer.close(PATIENCE)
        assert future.done()
        waiting()
    assert stored(broker) == [b"0"]


def test_close_that_does_not_wait(broker: Broker, ways: Ways) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
    settle(producer, ways)
    with broker.faults.drop(ProduceRequest):
        future = producer.send("t", b"0", partition=0)
        waiting = in_thread(lambda: isinstance(future.exception(PATIENCE), KafkaError))
        time.sleep(0.02)
        producer.close(0)
        assert waiting()


def test_ctrl_c_in_the_wait(broker: Broker, producer: Producer, ways: Ways) -> None:
    main = threading.main_thread().ident
    assert main is not None
    for number, delay in enumerate((0.02, 0.05, 0.3)):
        settle(producer, ways)
        sent = ways.sent
        with broker.faults.delay(ProduceRequest, delay, times=1):

            def interrupt(sent: int = sent) -> None:
                until(lambda: ways.sent > sent, every=0.001)
                time.sleep(0.01)
                signal.pthread_kill(main, signal.SIGINT)

            interrupting = in_thread(interrupt)
            future = producer.send("t", b"%d" % (2 * number), partition=0)
            try:
                future.result(PATIENCE)
                interrupting()
                time.sleep(PATIENCE)
            except KeyboardInterrupt:
                pass
            interrupting()
        assert future.result(PATIENCE).partition == 0
    assert stored(broker) == [b"0", b"2", b"4"]


@pytest.mark.parametrize("step", ["has_callbacks", "written_alone", "end_alone", "_ended"])
def test_ctrl_c_while_the_answer_is_taken(
    broker: Broker, producer: Producer, ways: Ways, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The network thread makes it whole, also for other threads that wait."""
    interrupted: list[bool] = []

    def interrupt() -> bool:
        if threading.current_thread() is threading.main_thread() and not interrupted:
            interrupted.append(True)
            return True
        return False

    owner: Any = DirectSends if step == "_ended" else Delivery
    before: Any = getattr(owner, step)

    def step_of(self: Any, *arguments: Any) -> Any:
        is_now = interrupt()
        if is_now and step != "end_alone":
            raise KeyboardInterrupt
        found = before.__get__(self) if isinstance(before, property) else before(self, *arguments)
        if is_now:
            raise KeyboardInterrupt
        return found

    values: list[bytes] = []

    def once() -> bool:
        """True if this thread was the one that took the answer. On a busy machine it may come too late."""
        settle(producer, ways)
        with monkeypatch.context() as patched, broker.faults.delay(ProduceRequest, 0.05, times=1):
            patched.setattr(owner, step, property(step_of) if isinstance(before, property) else step_of)
            values.append(b"%d" % (2 * len(values)))
            future = producer.send("t", values[-1], partition=0)

            def later() -> RecordMetadata:
                time.sleep(0.02)
                return future.result(PATIENCE)

            waiting = in_thread(later)
            with contextlib.suppress(KeyboardInterrupt):
                future.result(PATIENCE)
            assert waiting() == future.result(PATIENCE)
        return bool(interrupted)

    until(once, every=0)
    trips(producer, 1, 1)
    until(lambda: producer._accumulator.used_bytes == 0)
    assert stored(broker) == [*values, b"1"]


def test_a_callback_that_comes_while_the_answer_is_taken(
    producer: Producer, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no lock, so it may come after the look for callbacks."""
    before = Delivery.written_alone
    called: list[RecordFuture] = []
    missed: list[bool] = []

    def late(self: Delivery, *arguments: Any) -> bool:
        if not called and not missed:
            in_thread(partial(futures[-1].add_done_callback, called.append))()
            missed.append(True)
        return before(self, *arguments)

    futures: list[RecordFuture] = []

    def once() -> bool:
        settle(producer, ways)
        futures.append(producer.send("t", b"0", partition=0))
        with monkeypatch.context() as patched:
            patched.setattr(Delivery, "written_alone", late)
            futures[-1].result(PATIENCE)
        return bool(missed)

    until(once, every=0)
    until(lambda: bool(called))
    producer.flush(PATIENCE)
    assert called == [futures[-1]]
    assert producer._accumulator.used_bytes == 0


def test_ctrl_c_before_the_answer_is_taken_and_another_record(
    broker: Broker, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next record does not take the place of the one that is not decided yet."""
    interrupted: list[bool] = []

    def interrupt(*_: object) -> None:
        interrupted.append(True)
        raise KeyboardInterrupt

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        values: list[bytes] = []

        def once() -> bool:
            settle(producer, ways)
            values.append(b"%d" % (2 * len(values)))
            direct: Any = producer._accumulator.direct
            # As after the end of a batch that lingered, for which nothing was expected before.
            direct._is_expected = False
            future = producer.send("t", values[-1], partition=0)
            with monkeypatch.context() as patched, broker.faults.delay(ProduceRequest, 0.02, times=1):
                patched.setattr(Delivery, "written_alone", interrupt)
                with contextlib.suppress(KeyboardInterrupt):
                    future.result(PATIENCE)
            values.append(b"%d" % (2 * len(values)))
            next_one = producer.send("t", values[-1], partition=0)
            next_one.result(PATIENCE)
            future.result(PATIENCE)
            return bool(interrupted)

        until(once, every=0)
        until(lambda: producer._accumulator.used_bytes == 0)
        assert not producer._accumulator.waiting
    assert stored(broker) == values


@pytest.mark.parametrize("step", ["_went_out", "take"])
def test_ctrl_c_when_it_is_just_out(
    broker: Broker, ways: Ways, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is in line still, and is not sent again; its memory is counted once."""
    interrupted: list[bool] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        owner: Any = DirectSends if step == "_went_out" else producer._accumulator
        before = getattr(owner, step)
        direct: Any = producer._accumulator.direct

        def interrupt(*arguments: Any) -> Any:
            if not interrupted and threading.current_thread() is threading.main_thread():
                interrupted.append(True)
                raise KeyboardInterrupt
            return before(*arguments)

        def once() -> bool:
            settle(producer, ways)
            direct._is_expected = False
            future = producer.send("t", b"%d" % (2 * len(sent)), partition=0)
            sent.append(future)
            with monkeypatch.context() as patched, broker.faults.delay(ProduceRequest, 0.02, times=1):
                patched.setattr(owner, step, interrupt)
                with contextlib.suppress(KeyboardInterrupt):
                    future.result(PATIENCE)
                future.result(PATIENCE)
            return bool(interrupted)

        sent: list[RecordFuture] = []
        until(once, every=0)
        assert not producer._accumulator.waiting
        trips(producer, 6, 1)
        until(lambda: producer._accumulator.used_bytes == 0)
        with broker.faults.observe(ProduceRequest) as seen:
            producer.flush(PATIENCE)
        assert not seen


@pytest.mark.parametrize("linger_ms", [0, 20])
def test_signals_that_raise_at_any_time(broker: Broker, linger_ms: int) -> None:
    """Whose `send` returned is written, once and in order; nothing is left, and the network thread lives."""
    draws, is_armed = random.Random(3), False

    def strike(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    futures: list[tuple[int, RecordFuture]] = []
    try:
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=linger_ms) as producer:
            producer.send("t", b"before", partition=0).result(PATIENCE)
            number = 0
            for _ in range(400):
                # A condition of the standard library that is interrupted may raise RuntimeError in its place.
                with contextlib.suppress(KeyboardInterrupt, RuntimeError):
                    is_armed = True
                    signal.setitimer(signal.ITIMER_REAL, draws.uniform(2e-5, 6e-4))
                    for _ in range(20):
                        number += 1
                        future = producer.send("t", b"%d" % number, partition=number % PARTITIONS)
                        futures.append((number, future))
                        future.result(PATIENCE)
                    is_armed = False
            # A batch whose wait was interrupted may linger.
            producer.flush(PATIENCE)
            assert all(future.result(0).offset >= 0 for _, future in futures)
            until(lambda: not producer._accumulator.used_bytes)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    found = [int(value) for value in stored(broker)]
    assert len(found) == len(set(found))
    returned = {number for number, _ in futures}
    written = [number for number in found if number in returned]
    assert written == sorted(returned, key=lambda number: (number % PARTITIONS, number))


def test_a_topic_whose_records_are_taken_over_stays_in_use(
    broker: Broker, producer: Producer, ways: Ways
) -> None:
    """Else its metadata would be forgotten while it is used, and each partition would get another epoch."""
    direct: Any = producer._accumulator.direct
    taken_over = ways.taken_over

    def once() -> bool:
        settle(producer, ways)
        with broker.faults.delay(ProduceRequest, 0.2, times=1):
            future, before = producer.send("t", b"0", partition=0), ways.taken_over
            used_before = direct._topics._used_at["t"]
            with producer._accumulator.gate:
                direct._topics._used_at["t"] = -1
                # Of earlier batches, which were answered.
                direct._sums = {}
            future.result(PATIENCE)
        used = direct._topics._used_at["t"]
        assert used >= used_before
        return ways.taken_over > before

    until(once, every=0)
    assert ways.taken_over > taken_over


def test_a_signal_handler_that_sends_in_the_wait(broker: Broker, producer: Producer, ways: Ways) -> None:
    """Its record comes after the one that is waited for."""
    found: list[RecordFuture] = []

    def has(count: int) -> bool:
        return len(found) == count

    before = signal.signal(
        signal.SIGUSR1, lambda *_: found.append(producer.send("t", b"%d" % (2 * len(found) + 1), partition=1))
    )
    try:
        for number in range(20):
            with broker.faults.delay(ProduceRequest, 0.02, times=1):
                future = producer.send("t", b"%d" % (2 * number), partition=0)
                timer = threading.Timer(0.005, lambda: os.kill(os.getpid(), signal.SIGUSR1))
                timer.start()
                future.result(PATIENCE)
                timer.join()
            until(partial(has, number + 1))
            found[-1].result(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stored(broker) == expected(40)
    assert ways.sent > 0


def test_in_a_forked_child(broker: Broker, producer: Producer, ways: Ways) -> None:
    with broker.faults.delay(ProduceRequest, 0.1, times=1):
        future = producer.send("t", b"0", partition=0)
        child = os.fork()
        if not child:
            try:
                future.result(PATIENCE)
            except ForkedError:
                try:
                    producer.send("t", b"2", partition=0)
                except ForkedError:
                    os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        future.result(PATIENCE)
    settle(producer, ways)
    assert stored(broker) == [b"0"]


def test_while_every_object_begins_a_collection(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent, before = ways.sent, gc.get_threshold()
    gc.set_threshold(1)
    try:
        trips(producer, 30)
    finally:
        gc.set_threshold(*before)
    assert ways.sent > sent
    assert stored(broker) == expected(30)


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
    assert sent + 50 < ways.sent < sent + 200
    assert [
        (each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
        for each in records_in(broker.bootstrap_servers)
    ] == sorted(wanted, key=lambda each: each[:2])


@pytest.mark.parametrize("tasks", [1, 10, 100])
def test_tasks_that_wait_for_their_records(broker: Broker, ways: Ways, tasks: int) -> None:
    """The records of tasks that are ready together go in one request, and in their order."""
    rounds = max(300 // tasks, 20)
    # More tasks are woken in two turns. Of two batches neither is alone, and the network thread sends both.
    is_one_turn = tasks <= AT_ONCE

    async def work(producer: AsyncProducer, task: int) -> None:
        last = -1
        for number in range(rounds):
            found = await (await producer.send("t", b"%d-%d" % (task, number), partition=0))
            assert found.offset > last
            last = found.offset

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            await settled(producer, ways)
            with broker.faults.observe(ProduceRequest) as seen:
                await asyncio.gather(*(work(producer, task) for task in range(tasks)))
            assert len(seen) < (1.5 if is_one_turn else 2.5) * rounds + 10

    asyncio.run(main())
    values = stored(broker)
    assert sorted(values) == sorted(b"%d-%d" % (task, n) for task in range(tasks) for n in range(rounds))
    for task in range(tasks):
        mine = [value for value in values if value.startswith(b"%d-" % task)]
        assert mine == [b"%d-%d" % (task, number) for number in range(rounds)]
    assert not is_one_turn or ways.sent > rounds // 2


async def settled(producer: AsyncProducer, ways: Ways) -> None:
    end, sent = time.monotonic() + PATIENCE, ways.sent
    while ways.sent == sent:
        await producer.send_and_wait("t", b"before", partition=0)
        assert time.monotonic() < end


def on_a_loop(broker: Broker, ways: Ways, work: Callable[[AsyncProducer], Any]) -> None:
    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, retry_backoff_ms=10
        ) as producer:
            await settled(producer, ways)
            await work(producer)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_what_is_not_plain_on_a_loop(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        faults = broker.faults
        inflicted: list[Callable[[], Injected]] = [
            lambda: faults.delay(ProduceRequest, 0.7, times=1),
            lambda: faults.disconnect(ProduceRequest, times=1),
            lambda: faults.disconnect(ProduceRequest, times=1, served=True),
            lambda: faults.error(ProduceRequest, ec.NOT_ENOUGH_REPLICAS, times=1),
        ]
        for number, fault in enumerate(inflicted):
            await settled(producer, ways)
            taken_over = ways.taken_over
            with fault():
                await producer.send_and_wait("t", b"%d" % (2 * number), partition=0)
            assert ways.taken_over == taken_over + 1
        with (
            faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, times=1),
            pytest.raises(TopicAuthorizationError),
        ):
            await producer.send_and_wait("t", b"refused", partition=0)

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"0", b"2", b"4", b"6"]


def test_callbacks_and_cancelled_tasks_on_a_loop(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        called: list[int] = []
        for number in range(20):
            future = await producer.send("t", b"%d" % (2 * number), partition=0)
            future.add_done_callback(lambda _: called.append(threading.get_ident()))
            task = asyncio.ensure_future(wait_for(future))
            await asyncio.sleep(0.001 * (number % 3))
            if number % 2:
                task.cancel()
            assert (await future).partition == 0
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert called == [threading.get_ident()] * 20

    async def wait_for(future: RecordFuture) -> None:
        await future

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"%d" % (2 * number) for number in range(20)]


def test_threads_and_other_loops_that_wait_for_a_loops_records(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        async def elsewhere(future: RecordFuture) -> RecordMetadata:
            return await future

        for number in range(10):
            future = await producer.send("t", b"%d" % (2 * number), partition=0)
            found = await asyncio.gather(
                asyncio.to_thread(future.result, PATIENCE),
                asyncio.to_thread(asyncio.run, elsewhere(future)),
            )
            assert found[0] == found[1] == await future

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"%d" % (2 * number) for number in range(10)]


def test_a_loop_that_does_not_turn(broker: Broker, ways: Ways) -> None:
    """What it has queued last is sent all the same, and what was answered is decided."""
    loop = asyncio.new_event_loop()

    async def made() -> AsyncProducer:
        return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)

    producer = loop.run_until_complete(made())
    try:
        for number in range(2):
            loop.run_until_complete(settled(producer, ways))
            future = loop.run_until_complete(producer.send("t", b"%d" % (2 * number), partition=0))
            until(future.done)
    finally:
        loop.run_until_complete(producer.close())
        loop.close()
    assert stored(broker) == [b"0", b"2"]


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


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Runs it on a thread; the result waits for it, and returns or raises as it did."""
    outcome: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised by the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def joined() -> Any:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        if errors:
            raise errors[0]
        return outcome[0]

    return joined
