"""Calls that wait too long, cannot be ended, or leave something behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.consumer.support import numbers, read
from tests.patience import PATIENCE, once_inside, overdue
from tests.weaknesses.conftest import Served

from kadence import Consumer, RebalanceListener, TopicPartition
from kadence.consumer.turn import Turn
from kadence.errors import KafkaTimeoutError, RebalanceInProgressError, WakeupError
from kadence.protocol import error_codes
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest

PARTITION = TopicPartition("t", 0)
FOR_EVER = 3 * PATIENCE
"""Seconds that no test here may come near."""


def test_a_poll_returns_with_what_there_is(served: Served) -> None:
    """confluent's consume(100, 3.0) with 5 records ready waits for the full 3 s (CK #407, #2205, #1076)."""
    served.produce(5)
    consumer = served.consumer()
    consumer.assign([PARTITION])
    started = time.monotonic()
    assert numbers(consumer.poll(FOR_EVER, max_records=100)) == [0, 1, 2, 3, 4]
    assert time.monotonic() - started < PATIENCE


def iterate(consumer: Consumer) -> None:
    next(consumer)


def columns(consumer: Consumer) -> None:
    consumer.poll_arrow(FOR_EVER, max_records=10)


def records(consumer: Consumer) -> None:
    consumer.poll(FOR_EVER, max_records=10)


@pytest.mark.parametrize("wait", [records, columns, iterate])
def test_ctrl_c_ends_every_way_of_waiting(served: Served, wait: Callable[[Consumer], None]) -> None:
    """confluent's consume(n, -1) ignores SIGINT until it returns (CK #209, #807, #1321, RDK #2423)."""
    if wait is columns:
        pytest.importorskip("pyarrow")
    consumer = served.consumer()
    consumer.assign([PARTITION])
    interrupter = once_inside(lambda: os.kill(os.getpid(), signal.SIGINT))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait(consumer)
    assert time.monotonic() - started < PATIENCE
    interrupter.join()
    served.produce(3)
    assert numbers(read(consumer, 3)) == [0, 1, 2]


def test_a_call_from_a_second_thread_does_not_wait_for_the_poll_of_the_first(served: Served) -> None:
    """confluent's position() waited 3.7 s for a poll(4) of another thread; earlier ones raced (CK #460, KP #1105)."""
    served.produce(1)
    consumer = served.consumer()
    consumer.assign([PARTITION])
    read(consumer, 1)
    inside = threading.Thread(target=lambda: consumer.poll(FOR_EVER))
    inside.start()
    started = time.monotonic()
    # What other threads may do works at once, all the while.
    while not consumer.paused():
        consumer.pause([PARTITION])
    consumer.resume([PARTITION])
    assert consumer.assignment() == {PARTITION}
    assert consumer.current_lag(PARTITION) == 0
    served.produce(1, start=1)
    inside.join(PATIENCE)
    assert not inside.is_alive()
    assert time.monotonic() - started < PATIENCE


def test_a_poll_ends_in_time_though_the_next_try_is_far_off(served: Served) -> None:
    """kafka-python caps the wait for a coordinator, and then sleeps the uncapped one."""
    consumer = served.consumer(
        group_id="g", group_protocol="classic", retry_backoff_ms=60_000, retry_backoff_max_ms=60_000
    )
    consumer.subscribe("t")
    with served.faults.error(FindCoordinatorRequest, error_codes.COORDINATOR_NOT_AVAILABLE) as refused:
        started = time.monotonic()
        assert not consumer.poll(0.3)
        assert time.monotonic() - started < PATIENCE
        refused.wait()


@pytest.mark.parametrize("served", [(4, 1)], indirect=True)
def test_threads_that_pause_wake_and_measure_while_a_group_rebalances_never_lock_up(served: Served) -> None:
    """Locks of polls and heartbeats waited for each other (KP #1626, #1985, #2077, #1671, #1461)."""
    served.produce(400, partitions=4)
    settings = {"group_id": "g", "group_protocol": "classic", "heartbeat_interval_ms": 50}

    class Committing(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            one.commit_async()
            one.pause(partitions)

    one = served.consumer(max_poll_records=5, auto_commit_interval_ms=0, **settings)
    over = threading.Event()

    def meddle() -> None:
        while not over.is_set():
            one.pause(one.assignment())
            one.wakeup()
            one.metrics()
            one.not_fetched()
            one.resume(one.paused())
            over.wait(0.001)

    meddling = [threading.Thread(target=meddle) for _ in range(3)]
    seen: set[int] = set()

    def polled(consumer: Consumer) -> None:
        with suppress(WakeupError, RebalanceInProgressError):
            seen.update(numbers(consumer.poll(0.01)))

    one.subscribe("t", listener=Committing())
    for thread in meddling:
        thread.start()
    try:
        for _ in range(3):
            two = served.consumer(**settings)
            two.subscribe("t")
            end = time.monotonic() + PATIENCE
            while not two.assignment():
                assert time.monotonic() < end
                polled(one)
                polled(two)
            two.close(timeout=PATIENCE)
    finally:
        over.set()
        for thread in meddling:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in meddling)
    one.resume(one.paused())
    end = time.monotonic() + PATIENCE
    while seen != set(range(400)):
        assert time.monotonic() < end, sorted(set(range(400)) - seen)
        polled(one)


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_polls_while_a_join_takes_its_time_leave_nothing_behind(served: Served) -> None:
    """kafka-python adds callbacks to the join at each poll; its cancelled timers stayed, too (KP #3077)."""
    consumer = served.consumer(group_id="g", group_protocol="classic")
    consumer.subscribe("t")
    with served.faults.drop(JoinGroupRequest) as joins:
        consumer.poll(0.1)
        joins.wait()
        for _ in range(50):
            consumer.poll(0.001)
        before = objects()
        for _ in range(500):
            consumer.poll(0.001)
        assert objects() - before < 400
        consumer.close(timeout=0.2)


@pytest.mark.parametrize("served", [(6, 3)], indirect=True)
def test_an_idle_consumer_of_several_brokers_sleeps(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python spun in a busy loop with several brokers (KP #3084)."""
    turns = 0
    run_once = Turn.run_once

    def counted(self: Turn) -> bool:
        nonlocal turns
        turns += 1
        return run_once(self)

    monkeypatch.setattr(Turn, "run_once", counted)
    served.produce(6, partitions=6)
    consumer = served.consumer(group_id="g", group_protocol="classic")
    consumer.subscribe("t")
    read(consumer, 6)
    consumer.poll(0.3)
    before = turns
    consumer.poll(2.0)
    # Long polls of three brokers end every 500 ms, and are sent again without a turn; heartbeats go out every 3 s.
    assert turns - before < 100
    served.produce(6, partitions=6)
    read(consumer, 6)


@pytest.mark.parametrize("silent", [LeaveGroupRequest, OffsetCommitRequest])
def test_close_ends_in_its_time_and_may_be_called_again(served: Served, silent: type) -> None:
    """Closing hangs, has no bound, or leaves ghosts (CK #1667, #1573, #107, RDK #1002, #1376, KP #2564)."""
    served.produce(1)
    consumer = served.consumer(group_id="g", group_protocol="classic")
    consumer.subscribe("t")
    read(consumer, 1)
    with served.faults.drop(silent):
        started = time.monotonic()
        consumer.close(timeout=0.5)
        consumer.close(timeout=0.5)
        assert time.monotonic() - started < PATIENCE


def test_a_cluster_that_is_not_there_is_an_error_that_names_address_and_cause() -> None:
    """Errors of connecting are opaque, or only informational (KP #2348, #2671, #1440, CK #552)."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        overdue(
            lambda seconds: consumer.list_topics(timeout=seconds),
            KafkaTimeoutError,
            match=r"(?is)(?=.*127\.0\.0\.1:1).*refused",
        )
