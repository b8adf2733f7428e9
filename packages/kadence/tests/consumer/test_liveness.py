"""Liveness that people can see: stall reports (B4), the network thread's lateness (B9), paths that go silent."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from typing import Any

import pytest
from tests.consumer.blackhole import path_to
from tests.consumer.holding import hold_the_interpreter, needs_the_lock
from tests.consumer.support import Cluster, has_settled, poll_until, read
from tests.patience import PATIENCE, until
from tests.virtual import VirtualCluster

from kadence import (
    AsyncConsumer,
    Broker,
    Consumer,
    RebalanceListener,
    Stall,
    TopicPartition,
)
from kadence.errors import WakeupError
from kadence.protocol import error_codes
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest

LOG = "kadence.consumer"


class Reports(queue.SimpleQueue[Stall]):
    """What stall.report.callback was told."""

    def next(self) -> Stall:
        return self.get(timeout=PATIENCE)


def work_that_hangs(reports: Reports) -> Stall:
    """What an application does instead of polling, until its stall is noticed."""
    return reports.next()


def poll_and_hang(consumer: Consumer, reports: Reports) -> tuple[int, Stall]:
    """One poll that brings records, and then what hangs: the report names this, wherever in it the thread is."""
    return len(consumer.poll(PATIENCE)), work_that_hangs(reports)


def settings(reports: Reports) -> dict[str, Any]:
    """A stall is told after a second, of a hundred that the member has: it does not leave meanwhile."""
    return {
        "stall_report_callback": reports.put,
        "stall_report_ratio": 0.01,
        "max_poll_interval_ms": 100_000,
        "max_poll_records": 10,
    }


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.mark.needs("groups")
@pytest.mark.brokers("embedded")
def test_b4_a_stall_tells_how_long_what_is_in_hand_and_where_the_thread_is(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    topic = cluster.topic(1)
    cluster.produce(topic, 20, partitions=1)
    reports = Reports()
    # The mock cluster's usual 1.2 s are less than a busy machine pauses this process for: then nothing is in hand.
    consumer = cluster.consumer(group_id=cluster.name("g"), session_timeout_ms=6_000, **settings(reports))
    assert consumer.stalls() == ()
    consumer.subscribe(topic)

    count, stall = poll_and_hang(consumer, reports)
    assert count == 10
    assert stall.duration * 1000 >= 0.01 * stall.timeout_ms
    assert (stall.records, stall.in_hand) == (10, {TopicPartition(topic, 0): range(10)})
    assert stall.thread == threading.current_thread().name
    assert "poll_and_hang" in stall.stack
    assert "test_b4_a_stall" in stall.stack
    assert (stall.left_group, stall.ended_at) == (False, None)
    assert consumer.stalls() == (stall,)
    (line,) = lines(caplog, "the application has not polled for")
    assert f"{topic}-0 0 to 9" in line
    assert "poll_and_hang" in line

    assert len(consumer.poll(PATIENCE)) == 10
    ended = reports.next()
    assert ended.ended_at is not None
    # A busy machine may have told of another one since.
    assert consumer.stalls()[0] == ended
    assert len(lines(caplog, "the application polls again")) == 1
    assert "key" not in caplog.text.replace("keys", ""), "what records hold is nobody's business"


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_b4_what_a_commit_proved_is_not_in_hand_any_more(cluster: VirtualCluster) -> None:
    topic = cluster.topic(1)
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer(group_id=cluster.name("g"), max_poll_interval_ms=60_000)
    consumer.subscribe(topic)
    records = read(consumer, 10)
    consumer.commit(records[3])

    def is_reported() -> bool:
        cluster.sleep(1)
        return bool(consumer.stalls())

    # A thread that no virtual time holds up makes the report.
    until(is_reported)
    (stall,) = consumer.stalls()
    assert stall.records == 10
    assert stall.in_hand == {TopicPartition(topic, 0): range(4, 10)}


def test_b4_a_callback_that_hangs_inside_poll_is_a_stall(broker: Broker) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    cluster.produce(topic, 1, partitions=1)
    reports = Reports()
    stalls: list[Stall] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            stalls.append(work_that_hangs(reports))

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None: ...

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None: ...

    with cluster.consumer(group_id="g", **settings(reports)) as consumer:
        consumer.subscribe(topic, listener=Listener())
        assert consumer.poll(PATIENCE)
    (stall,) = stalls
    assert "on_partitions_assigned" in stall.stack
    assert stall.in_hand == {}


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_b4_after_the_timeout_the_group_is_left_and_the_next_poll_joins_anew(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    topic = cluster.topic(1)
    cluster.produce(topic, 10, partitions=1)
    with cluster.consumer(group_id="g", max_poll_interval_ms=60_000) as consumer:
        consumer.subscribe(topic)
        read(consumer, 10)
        cluster.sleep(59)
        until(lambda: [stall.left_group for stall in consumer.stalls()] == [False])
        cluster.sleep(2)
        until(lambda: [stall.left_group for stall in consumer.stalls()] == [True])
        assert len(lines(caplog, "leaves: nothing was polled for")) == 1
        assert len(read(consumer, 10)) == 10, "nothing was committed, so they come again"
        (over,) = consumer.stalls()
        assert over.left_group
        assert over.ended_at is not None
        (line,) = lines(caplog, "the application polls again")
        assert line.endswith("and joins the group again")


def test_b4_a_thread_that_ended_is_said_to_have_ended(broker: Broker) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    reports = Reports()
    with cluster.consumer(group_id="g", **settings(reports)) as consumer:
        consumer.subscribe(topic)
        worker = threading.Thread(target=lambda: poll_until(consumer, lambda: bool(consumer.assignment())))
        worker.start()
        worker.join()
        # A busy machine may have told of one before.
        until(lambda: "has ended" in reports.next().stack, every=0)


def test_b4_a_hook_that_raises_harms_nobody(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    told = threading.Event()

    def hook(stall: Stall) -> None:
        told.set()
        raise ZeroDivisionError("in the hook")

    chosen = settings(Reports()) | {"stall_report_callback": hook}
    with cluster.consumer(group_id="g", **chosen) as consumer:
        consumer.subscribe(topic)
        poll_until(consumer, lambda: bool(consumer.assignment()))
        assert told.wait(PATIENCE)
        assert not consumer.poll(0)
        assert consumer.stalls()
        until(lambda: "stall.report.callback raised" in caplog.text)


async def some_slow_task(consumer: AsyncConsumer, reports: Reports, *, blocks: bool) -> tuple[int, Stall]:
    """Polls, and does something else then; the loop is blocked by that, or turns."""
    count = len(await consumer.poll(PATIENCE))
    while True:
        if blocks:
            stall = work_that_hangs(reports)
        else:
            stall = await asyncio.get_running_loop().run_in_executor(None, reports.next)
        if stall.records:
            return count, stall
        # One of a busy machine, which kept the loop from turning while the poll waited.


@pytest.mark.parametrize("blocks", [True, False], ids=["the loop is blocked", "the task is elsewhere"])
def test_b4_under_asyncio(broker: Broker, blocks: bool) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    cluster.produce(topic, 10, partitions=1)
    reports = Reports()

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            **settings(reports),
        ) as consumer:
            await consumer.subscribe(topic)
            count, stall = await some_slow_task(consumer, reports, blocks=blocks)
            assert stall.records == count == 10
            assert stall.thread == threading.current_thread().name
            if not blocks:
                assert "in work_that_hangs" not in stall.stack
            assert "in some_slow_task" in stall.stack
            assert "in main" in stall.stack
            await consumer.poll(0)
            await asyncio.to_thread(reports.next)
            assert consumer.stalls()[-1].ended_at is not None

    asyncio.run(main())


def test_b4_under_asyncio_a_poll_that_waits_on_a_blocked_loop_is_a_stall(broker: Broker) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    reports = Reports()

    async def main() -> None:
        chosen = settings(reports)
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", **chosen
        ) as consumer:
            await consumer.subscribe(topic)
            while not consumer.assignment():
                await consumer.poll(0.1)
            polling = asyncio.create_task(consumer.poll(PATIENCE), name="the poller")
            await asyncio.sleep(0.05)
            stall = work_that_hangs(reports)
            for _ in range(10):
                if "work_that_hangs" in stall.stack:
                    break
                # A busy machine kept the loop from turning before; now it turns.
                await asyncio.sleep(0.05)
                stall = work_that_hangs(reports)
            assert "work_that_hangs" in stall.stack
            assert "'the poller'" in stall.stack
            assert stall.records == 0
            polling.cancel()

    asyncio.run(main())


@needs_the_lock
def test_b9_a_held_interpreter_is_measured_and_told(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    # Less than half an interval is not told of, and a busy machine is late now and then.
    times: dict[str, Any] = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000}
    with cluster.consumer(group_id="g", **times) as consumer:
        consumer.subscribe(topic)
        poll_until(consumer, lambda: bool(consumer.assignment()))

        def is_told() -> bool:
            # Nothing is late while a heartbeat waits for its answer, as the first one may on a busy machine.
            hold_the_interpreter(2)
            consumer.poll(0.1)
            return bool(lines(caplog, "was kept from running"))

        until(is_told, every=0)
        lateness = consumer.network_lateness()
        assert lateness.longest >= 0.5
        assert lateness.last >= 0
        assert lateness.longest_ago is not None
        line, *_ = lines(caplog, "was kept from running")
        assert "The membership ends after 10.0 s without heartbeats" in line
        assert len(consumer.rebalances()) == 1, "and the membership was not lost"


def test_a_silent_path_costs_no_membership_where_another_one_works(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """request.timeout.ms is 30 s: only a heartbeat's own patience is shorter than a session."""
    caplog.set_level(logging.INFO, LOG)
    broker.create_topic("t", 1)
    times: dict[str, Any] = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
    with (
        path_to(broker) as path,
        Consumer(bootstrap_servers=f"127.0.0.1:{path.port}", group_id="g", **times) as consumer,
    ):
        consumer.subscribe("t")
        poll_until(consumer, lambda: has_settled(consumer))
        before = consumer.group_metadata()
        with broker.faults.observe(HeartbeatRequest) as beats:
            poll_until(consumer, lambda: len(beats) >= 1)
        path.swallow()
        with broker.faults.observe(HeartbeatRequest) as beats:
            poll_until(consumer, lambda: len(beats) >= 10)
        assert consumer.group_metadata() == before
        assert len(consumer.rebalances()) == 1
    assert "trying another connection" in caplog.text


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("slow", [ListOffsetsRequest, MetadataRequest, OffsetFetchRequest])
def test_b10_no_other_request_delays_a_heartbeat_or_is_sent_again_because_of_one(
    cluster: VirtualCluster, slow: type[Any]
) -> None:
    """The broker never answers a request of another kind. Nothing but its own time-out ends that request."""
    cluster.create_topic("t", 1)
    calls: dict[type[Any], tuple[Any, ...]] = {
        ListOffsetsRequest: ("end_offsets", [("t", 0)]),
        MetadataRequest: ("list_topics",),
        OffsetFetchRequest: ("committed", [("t", 0)]),
    }
    broker = cluster.virtual_broker
    with cluster.consumer(group_id="g", group_protocol="classic", request_timeout_ms=300_000) as consumer:
        consumer.subscribe("t")
        poll_until(consumer, lambda: has_settled(consumer))
        consumer.position(TopicPartition("t", 0))
        before = consumer.group_metadata()
        with broker.faults.drop(slow) as dropped, broker.faults.observe(HeartbeatRequest) as beats:
            name, *arguments = calls[slow]
            waiting = consumer.begin(name, *arguments, timeout=300)
            dropped.wait()
            # More than a session.
            beats.wait(20)
            assert not waiting.done()
            consumer.wakeup()
            cluster.until(waiting.done)
            assert isinstance(waiting.exception(), WakeupError)
        assert dropped.hits == 1
        consumer.commit({TopicPartition("t", 0): 0}, timeout=10)
        assert consumer.group_metadata() == before
        assert len(consumer.rebalances()) == 1


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_a_network_that_is_gone_for_a_while_costs_no_membership(cluster: VirtualCluster) -> None:
    cluster.create_topic("t", 1)
    with cluster.consumer(group_id="g", group_protocol="classic", session_timeout_ms=45_000) as consumer:
        consumer.subscribe("t")
        poll_until(consumer, lambda: has_settled(consumer))
        before = consumer.group_metadata()
        network = cluster.simulation.network
        network.cut(consumer.program.name)
        consumer.poll(30)
        network.heal()
        with cluster.virtual_broker.faults.observe(HeartbeatRequest) as beats:
            poll_until(consumer, lambda: len(beats) >= 20)
        assert consumer.group_metadata() == before
        assert len(consumer.rebalances()) == 1


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_b4_holds_while_nobody_coordinates(cluster: VirtualCluster) -> None:
    """Partitions are given up in time here, whether or not there is anybody to tell (Java's client waits for one)."""
    topic = cluster.topic(1)
    faults = cluster.virtual_broker.faults
    with cluster.consumer(group_id="g", group_protocol="classic", max_poll_interval_ms=60_000) as consumer:
        consumer.subscribe(topic)
        poll_until(consumer, lambda: bool(consumer.assignment()))
        with (
            faults.error(HeartbeatRequest, error_codes.NOT_COORDINATOR),
            faults.error(FindCoordinatorRequest, error_codes.COORDINATOR_NOT_AVAILABLE),
        ):
            cluster.sleep(61)
            until(lambda: any(stall.left_group for stall in consumer.stalls()))
            assert consumer._core.assigned == frozenset()
        poll_until(consumer, lambda: bool(consumer.assignment()))


@pytest.mark.needs("reading")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("way", ["poll", "poll_arrow"])
def test_a5_records_that_become_dearer_never_take_a_round_beyond_its_share(
    cluster: VirtualCluster, way: str
) -> None:
    """10 ms for each record, and 500 ms from the middle on; a round has 30 of the 300 seconds."""
    topic = cluster.topic(1)
    cluster.produce(topic, 1_500, partitions=1)
    consumer = cluster.consumer(
        max_poll_records="auto", max_poll_interval_ms=300_000, max_poll_records_ratio=0.1
    )
    consumer.assign([(topic, 0)])
    rounds: list[tuple[int, float]] = []
    done = 0
    while done < 1_500:
        count = len(consumer.poll(5)) if way == "poll" else consumer.poll_arrow(5).num_rows
        dear = max(0, min(count, done + count - 1_200))
        seconds = (count - dear) * 0.01 + dear * 0.5
        cluster.sleep(seconds)
        done += count
        rounds.append((count, seconds))
    assert max(count for count, _ in rounds) >= 16, "it grew"
    assert max(seconds for _, seconds in rounds) <= 30.0, rounds


def test_b4_a_hook_that_takes_its_time_delays_no_poll(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a poll waits for is the report, and not the hook: it may wait for ever here.
    monkeypatch.setattr("kadence.consumer.application.processing._PATIENCE_S", 10 * PATIENCE)
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    told, release, over = threading.Event(), threading.Event(), threading.Event()

    def hook(stall: Stall) -> None:
        told.set()
        release.wait(PATIENCE)
        over.set()

    with cluster.consumer(
        group_id="g", **(settings(Reports()) | {"stall_report_callback": hook})
    ) as consumer:
        consumer.subscribe(topic)
        poll_until(consumer, lambda: bool(consumer.assignment()))
        assert told.wait(PATIENCE)
        consumer.poll(0)
        assert not over.is_set(), "the hook runs still"
        assert consumer.stalls()[0].ended_at is not None
        release.set()
