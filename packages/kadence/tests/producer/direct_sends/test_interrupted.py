"""Batches that the application's thread sends by itself: other threads, callbacks, signals and forks in between."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.patience import PATIENCE, once_inside, until
from tests.producer.direct_sends.world import (
    PARTITIONS,
    Ways,
    at_the_gate,
    expected,
    in_thread,
    needs_the_direct_way,
    settle,
    stored,
    striking,
    trips,
)

from kadence import Producer
from kadence.client.gate import Gate
from kadence.errors import ForkedError, KafkaError
from kadence.producer.futures import RecordFuture, RecordMetadata
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker
from kadence_broker.faults import Frozen

pytestmark = needs_the_direct_way


def test_a_callback_that_comes_during_the_wait(broker: Broker, producer: Producer) -> None:
    called: list[int] = []
    with broker.faults.freeze():
        future = producer.send("t", b"0", partition=0)
        waiting = in_thread(lambda: future.result(PATIENCE), waits=True)
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
    sent, taken_over = ways.sent, ways.taken_over
    with broker.faults.freeze() as frozen:
        future = producer.send("t", b"0", partition=0)
        waiting = in_thread(lambda: future.result(PATIENCE), waits=True)
        thawing = once_inside(frozen.thaw)
        producer.flush(PATIENCE)
        assert future.done()
        thawing.join(PATIENCE)
    waiting()
    assert ways.taken_over - taken_over == ways.sent - sent
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
        with broker.faults.delay(ProduceRequest, delay, times=1):
            has_begun = threading.Event()

            def interrupt(has_begun: threading.Event = has_begun) -> None:
                assert has_begun.wait(PATIENCE)
                time.sleep(0.01)
                signal.pthread_kill(main, signal.SIGINT)

            interrupting = in_thread(interrupt)
            future = producer.send("t", b"%d" % (2 * number), partition=0)
            try:
                has_begun.set()
                future.result(PATIENCE)
                interrupting()
                time.sleep(PATIENCE)
            except KeyboardInterrupt:
                pass
            interrupting()
        assert future.result(PATIENCE).partition == 0
    assert stored(broker) == [b"0", b"2", b"4"]


@pytest.fixture
def strike() -> Iterator[Callable[[], Callable[[], None]]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield striking
    signal.signal(signal.SIGUSR1, before)


def test_ctrl_c_when_the_answer_has_come(
    broker: Broker, producer: Producer, ways: Ways, strike: Callable[[], Callable[[], None]]
) -> None:
    """The network thread decides the record, also for other threads that wait."""
    values: list[bytes] = []

    def once() -> bool:
        """True if this thread had the answer, and was interrupted before it took it."""
        settle(producer, ways)
        is_struck = False
        with broker.faults.delay(ProduceRequest, 0.05, times=1):
            values.append(b"%d" % (2 * len(values)))
            future = producer.send("t", values[-1], partition=0)

            def later() -> RecordMetadata:
                time.sleep(0.02)
                return future.result(PATIENCE)

            waiting = in_thread(later)
            try:
                at_the_gate(producer, future, strike())
            except KeyboardInterrupt:
                is_struck = True
            assert waiting() == future.result(PATIENCE)
        return is_struck

    until(once, every=0)
    trips(producer, 1, 1)
    until(lambda: producer._accumulator.used_bytes == 0)
    assert stored(broker) == [*values, b"1"]


def test_ctrl_c_while_the_answer_is_taken(
    broker: Broker, producer: Producer, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads that wait would not be notified: the network thread does that."""
    interrupted: list[bool] = []
    before = Gate.notify_all

    def interrupt(gate: Gate) -> None:
        if threading.current_thread() is threading.main_thread() and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        before(gate)

    values: list[bytes] = []

    def once() -> bool:
        """True if this thread was the one that took the answer. On a busy machine it may come too late."""
        settle(producer, ways)
        with monkeypatch.context() as patched, broker.faults.delay(ProduceRequest, 0.05, times=1):
            patched.setattr(Gate, "notify_all", interrupt)
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


def test_a_callback_that_comes_before_the_answer_is_taken(
    broker: Broker, producer: Producer, ways: Ways
) -> None:
    """It takes no lock, so it may come when the waiting thread has the answer. It runs on the network thread."""
    called: list[int] = []
    futures: list[RecordFuture] = []

    def add() -> None:
        # This thread holds the lock.
        in_thread(lambda: futures[-1].add_done_callback(lambda _: called.append(threading.get_ident())))()

    def once() -> bool:
        settle(producer, ways)
        with broker.faults.delay(ProduceRequest, 0.02, times=1):
            futures.append(producer.send("t", b"0", partition=0))
            return at_the_gate(producer, futures[-1], add)

    until(once, every=0)
    producer.flush(PATIENCE)
    assert len(called) == 1
    assert called != [threading.get_ident()]
    assert producer._accumulator.used_bytes == 0


def test_ctrl_c_before_the_answer_is_taken_and_another_record(
    broker: Broker, ways: Ways, strike: Callable[[], Callable[[], None]]
) -> None:
    """The next record does not take the place of the one that is not decided yet."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        values: list[bytes] = []

        def once() -> bool:
            settle(producer, ways)
            values.append(b"%d" % (2 * len(values)))
            direct: Any = producer._accumulator.direct
            # As after the end of a batch that lingered, for which nothing was expected before.
            direct._is_expected = False
            is_struck = False
            future = producer.send("t", values[-1], partition=0)
            with broker.faults.delay(ProduceRequest, 0.02, times=1):
                try:
                    at_the_gate(producer, future, strike())
                except KeyboardInterrupt:
                    is_struck = True
            values.append(b"%d" % (2 * len(values)))
            next_one = producer.send("t", values[-1], partition=0)
            next_one.result(PATIENCE)
            future.result(PATIENCE)
            return is_struck

        until(once, every=0)
        until(lambda: producer._accumulator.used_bytes == 0)
        assert not producer._accumulator.waiting
    assert stored(broker) == values


def test_ctrl_c_when_it_is_just_out(broker: Broker, ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in line still, and is not sent again. Its memory is counted once. The next record gets another batch."""
    interrupted: list[bool] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        before = producer._accumulator.take

        def interrupt(*arguments: Any) -> Any:
            if not interrupted and threading.current_thread() is threading.main_thread():
                interrupted.append(True)
                raise KeyboardInterrupt
            return before(*arguments)

        def once() -> bool:
            settle(producer, ways)
            direct: Any = producer._accumulator.direct
            direct._is_expected = False
            future = producer.send("t", b"%d" % (2 * len(sent)), partition=0)
            sent.append(future)
            with broker.faults.delay(ProduceRequest, 0.02, times=1):
                # Without it where the network thread has sent the first one: the next would be interrupted.
                with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
                    patched.setattr(producer._accumulator, "take", interrupt)
                    future.result(PATIENCE)
                sent.append(producer.send("t", b"%d" % (2 * len(sent)), partition=0))
                future.result(PATIENCE)
            sent[-1].result(PATIENCE)
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
                with contextlib.suppress(KeyboardInterrupt):
                    try:
                        is_armed = True
                        signal.setitimer(signal.ITIMER_REAL, draws.uniform(2e-5, 6e-4))
                        for _ in range(20):
                            number += 1
                            future = producer.send("t", b"%d" % number, partition=number % PARTITIONS)
                            futures.append((number, future))
                            future.result(PATIENCE)
                    finally:
                        # An error of these calls would be lost in an interruption behind it.
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
    taken_over = ways.taken_over

    def once() -> bool:
        settle(producer, ways)
        direct: Any = producer._accumulator.direct
        with broker.faults.delay(ProduceRequest, 0.2, times=1):
            future, before = producer.send("t", b"0", partition=0), ways.taken_over
            used_before = direct._topics._used_at["t"]
            with producer._accumulator.gate:
                direct._topics._used_at["t"] = -1
                # Of earlier batches, which were answered.
                direct._sums = {}
            future.result(PATIENCE)
        if ways.taken_over == before:
            # This machine has let the answer come before the wait.
            return False
        assert direct._topics._used_at["t"] >= used_before
        return True

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
            with broker.faults.freeze() as frozen:
                future = producer.send("t", b"%d" % (2 * number), partition=0)

                def ring(frozen: Frozen = frozen, count: int = number + 1) -> None:
                    os.kill(os.getpid(), signal.SIGUSR1)
                    until(partial(has, count))
                    frozen.thaw()

                ringing = once_inside(ring)
                future.result(PATIENCE)
                ringing.join(PATIENCE)
            found[-1].result(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stored(broker) == expected(40)
    assert ways.sent > 0


def test_in_a_forked_child(broker: Broker, producer: Producer, ways: Ways) -> None:
    with broker.faults.freeze():
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


FORKED_BY_A_LIBRARY = """
import ctypes, os, sys
from kadence import Producer
from kadence.errors import ForkedError

with Producer(bootstrap_servers=sys.argv[1], linger_ms=0) as producer:
    for number in range(3):
        producer.send("t", b"%d" % number, partition=0).result()
    # No other thread asks for the interpreter at the fork. The child would give it away, with nobody there to take it.
    sys.setswitchinterval(1_000)
    # Functions of a PyDLL are called with the interpreter. Python's hooks do not run.
    child = ctypes.PyDLL(None).fork()
    if not child:
        try:
            producer.send("t", b"of the child", partition=0)
        except ForkedError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.send("t", b"3", partition=0).result()
"""


def test_in_a_child_that_a_library_forked(broker: Broker) -> None:
    """The connection is the parent's. A process of its own, for the broker's threads are none of the child's."""
    subprocess.run(
        [sys.executable, "-c", FORKED_BY_A_LIBRARY, broker.bootstrap_servers], check=True, timeout=PATIENCE
    )
    assert stored(broker) == [b"0", b"1", b"2", b"3"]


def test_while_every_object_begins_a_collection(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent, before = ways.sent, gc.get_threshold()
    gc.set_threshold(1)
    try:
        trips(producer, 30)
    finally:
        gc.set_threshold(*before)
    assert ways.sent > sent
    assert stored(broker) == expected(30)
