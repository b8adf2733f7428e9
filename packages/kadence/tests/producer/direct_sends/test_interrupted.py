"""Batches that the application's thread sends by itself: other threads, callbacks, signals and forks in between."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from functools import partial
from typing import Any

import pytest
from tests.patience import PATIENCE, once_inside, until
from tests.producer.direct_sends.world import (
    PARTITIONS,
    Ways,
    expected,
    in_thread,
    needs_the_direct_way,
    settle,
    stored,
    trips,
)

from kadence import Producer
from kadence.errors import ForkedError, KafkaError
from kadence.producer.direct_sends import DirectSends
from kadence.producer.futures import Delivery, RecordFuture, RecordMetadata
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
    """It is in line still, and is not sent again. Its memory is counted once. The next record gets another batch."""
    interrupted: list[bool] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        owner: Any = DirectSends if step == "_went_out" else producer._accumulator
        before = getattr(owner, step)

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
                    patched.setattr(owner, step, interrupt)
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


def test_while_every_object_begins_a_collection(broker: Broker, producer: Producer, ways: Ways) -> None:
    sent, before = ways.sent, gc.get_threshold()
    gc.set_threshold(1)
    try:
        trips(producer, 30)
    finally:
        gc.set_threshold(*before)
    assert ways.sent > sent
    assert stored(broker) == expected(30)
