"""What a consumer does not do: copy bytes, keep what is over, spin, join twice, or lock up."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from contextlib import suppress

import pytest
from tests.consumer.served import Served
from tests.consumer.support import numbers, poll_until, read
from tests.patience import PATIENCE, until

from kadence import Consumer, RebalanceListener, TopicPartition
from kadence.consumer.turn import Turn
from kadence.errors import RebalanceInProgressError, WakeupError
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.sync_group import SyncGroupRequest

PARTITION = TopicPartition("t", 0)
MIB = 1 << 20


def test_bytes_are_copied_once_on_their_way_to_the_record(served: Served) -> None:
    """kafka-python copies every byte seven or eight times (KP #290, #1508, #2437)."""
    served.produce(8, size=MIB // 2)
    consumer = served.consumer(max_partition_fetch_bytes=8 * MIB)
    consumer.assign([PARTITION])
    tracemalloc.start()  # the broker is in this process as well: what it copies is counted
    try:
        held = read(consumer, 8)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(record.value) for record in held) == 4 * MIB
    assert most < 4 * 4 * MIB


def test_two_assignors_join_once(served: Served) -> None:
    """Aiokafka sends JoinGroup once per assignor: 4 and 2 SyncGroups where 1 and 1 are enough (AIO #108)."""

    def requests(*strategies: str) -> tuple[int, int]:
        with (
            served.faults.observe(JoinGroupRequest) as joins,
            served.faults.observe(SyncGroupRequest) as syncs,
            served.consumer(
                group_id="-".join(strategies),
                group_protocol="classic",
                partition_assignment_strategy=strategies,
            ) as consumer,
        ):
            consumer.subscribe("t")
            poll_until(consumer, lambda: bool(consumer.assignment()))
            return len(joins), len(syncs)

    alone = requests("range")
    assert alone[1] == 1
    assert requests("cooperative-sticky", "range") == alone


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
    with served.faults.observe(FetchRequest) as fetches:
        until(lambda: len(fetches) >= 3)
        before = turns
        # Long polls of three brokers end every 500 ms, and are sent again without a turn; heartbeats go out every 3 s.
        until(lambda: len(fetches) >= 15)
    assert turns - before < 100
    served.produce(6, partitions=6)
    read(consumer, 6)
