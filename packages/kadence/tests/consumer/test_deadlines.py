"""Every call that can block ends at its deadline, whatever the network does (C2, B7): all calls × all silences.

What ends a wait is the reaper on the network thread, by its own timer: `test_reaper.py` and `test_turn.py` in
`network_thread` show under virtual time that it does so at the deadline. Here real consumers stand before real
silence, where every other time-out is ten minutes away: a call that its deadline or its interruption did not end would
hang.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.consumer.blackhole import path_to
from tests.consumer.support import Shell, poll_until, read
from tests.patience import PATIENCE, once_inside, overdue
from tests.virtual import VirtualCluster

from kadence import (
    AsyncConsumer,
    Broker,
    Consumer,
    RebalanceListener,
    TopicPartition,
)
from kadence.errors import ClosedError, KafkaTimeoutError, WakeupError
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.sync_group import SyncGroupRequest

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
TIMEOUT = 0.1

NEVER: dict[str, Any] = {"request_timeout_ms": 600_000, "default_api_timeout_ms": 600_000}
"""No other time-out may come to help."""

Call = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _no_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller gives up by itself when the network thread is five seconds late: here it may be, on a busy machine."""
    monkeypatch.setattr("kadence.consumer.application.exchange._GRACE_MS", int(10 * PATIENCE * 1_000))


CALLS: dict[str, Call] = {
    "assign": lambda c: c.assign([PARTITION, OTHER], timeout=TIMEOUT),
    "incremental_assign": lambda c: c.incremental_assign([("t", 2)], timeout=TIMEOUT),
    "incremental_unassign": lambda c: c.incremental_unassign([("t", 2)], timeout=TIMEOUT),
    "poll": lambda c: c.poll(TIMEOUT),
    "poll_arrow": lambda c: c.poll_arrow(TIMEOUT),
    "seek": lambda c: c.seek(PARTITION, 5, timeout=TIMEOUT),
    "seek_to_beginning": lambda c: c.seek_to_beginning([PARTITION], timeout=TIMEOUT),
    "seek_to_end": lambda c: c.seek_to_end([PARTITION], timeout=TIMEOUT),
    "position": lambda c: c.position(OTHER, timeout=TIMEOUT),
    "commit": lambda c: c.commit({PARTITION: 5}, timeout=TIMEOUT),
    "committed": lambda c: c.committed([PARTITION], timeout=TIMEOUT),
    "beginning_offsets": lambda c: c.beginning_offsets([PARTITION], timeout=TIMEOUT),
    "end_offsets": lambda c: c.end_offsets([PARTITION], timeout=TIMEOUT),
    "offsets_for_times": lambda c: c.offsets_for_times({PARTITION: 5}, timeout=TIMEOUT),
    "partitions_for": lambda c: c.partitions_for("other", timeout=TIMEOUT),
    "list_topics": lambda c: c.list_topics(timeout=TIMEOUT),
    "assign_topics": lambda c: c.assign_topics("other", timeout=TIMEOUT),
    "unsubscribe": lambda c: c.unsubscribe(timeout=TIMEOUT),
    "close": lambda c: c.close(timeout=TIMEOUT),
}
"""Each public call with a timeout, in an order that makes sense for one consumer with partitions of its own."""

NEEDS_AN_ANSWER = frozenset(
    {
        "assign_topics",
        "commit",
        "committed",
        "beginning_offsets",
        "end_offsets",
        "offsets_for_times",
        "partitions_for",
        "list_topics",
    }
)

GROUP_REQUESTS = (
    FindCoordinatorRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)


def blocking(kind: type[Any]) -> set[str]:
    """Public methods that take a timeout. That of `process` is one attempt's, not the call's."""
    return {
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and name != "process"
        and "timeout" in inspect.signature(method).parameters
    }


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_the_table_has_every_call_that_blocks(kind: type[Any]) -> None:
    assert blocking(kind) == set(CALLS)


def lateness(shell: Shell, call: Call, consumer: Any) -> tuple[float, Exception | None]:
    """How much later than its deadline a call ended (s; negative: sooner), and what it raised."""
    error = None
    began = time.monotonic()
    try:
        shell.do(lambda: call(consumer))
    except KafkaTimeoutError as raised:
        error = raised
    return time.monotonic() - began - TIMEOUT, error


@contextmanager
def mute() -> Iterator[tuple[str, Callable[[], None]]]:
    """Something that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}", lambda: None


@contextmanager
def dead() -> Iterator[tuple[str, Callable[[], None]]]:
    """Nobody is there."""
    yield "127.0.0.1:1", lambda: None


@contextmanager
def blackholed() -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker that serves until the path to it swallows everything, connections that come later too."""
    with Broker() as broker, path_to(broker) as path:
        broker.create_topic("t", 3)

        def begin() -> None:
            path.dark = True
            path.swallow()

        yield f"127.0.0.1:{path.port}", begin


@contextmanager
def without_coordinator() -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker that answers everything but what is said to a coordinator."""
    with Broker() as broker, ExitStack() as faults:
        broker.create_topic("t", 3)

        def begin() -> None:
            for request in GROUP_REQUESTS:
                faults.enter_context(broker.faults.drop(request))

        yield broker.bootstrap_servers, begin


SILENCES = {"mute": mute, "dead": dead, "blackholed": blackholed, "no coordinator": without_coordinator}


@pytest.mark.parametrize("silence", SILENCES)
def test_c2_every_blocking_call_ends_at_its_deadline(silence: str) -> None:
    shell = Shell("threads")
    with SILENCES[silence]() as (address, begin):
        consumer = shell.make(bootstrap_servers=address, group_id="g", group_protocol="classic", **NEVER)
        if silence in ("blackholed", "no coordinator"):
            # All is well at first, so that connections, metadata and a coordinator are there.
            shell.do(lambda: consumer.list_topics(timeout=20))
            shell.do(lambda: consumer.committed([PARTITION], timeout=20))
        begin()
        found = {name: lateness(shell, call, consumer) for name, call in CALLS.items()}
        assert consumer._core.exchange.closed

    late = {name: seconds for name, (seconds, _) in found.items()}
    raised = {name: error for name, (_, error) in found.items() if error is not None}
    assert max(late.values()) < PATIENCE, late
    if silence == "no coordinator":
        assert {"commit", "committed"} <= set(raised), "the others have all that they need"
    else:
        assert set(raised) >= NEEDS_AN_ANSWER, "nobody answered, so nothing may claim an answer"
        assert all(late[name] >= -0.001 for name in NEEDS_AN_ANSWER), "an attempt is made until the deadline"


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize("last", ["unsubscribe", "close"])
def test_b7_a_member_is_gone_at_its_deadline(silence: str, last: str) -> None:
    shell = Shell("threads")
    with SILENCES[silence]() as (address, begin):
        consumer = shell.make(bootstrap_servers=address, group_id="g", group_protocol="classic", **NEVER)
        shell.do(lambda: consumer.subscribe("t"))
        if silence in ("blackholed", "no coordinator"):
            while not consumer.assignment():
                shell.do(lambda: consumer.poll(0.1))
        else:
            shell.do(lambda: consumer.poll(0.1))
        begin()
        late, error = lateness(shell, CALLS[last], consumer)
        assert error is None
        assert late < PATIENCE
        assert consumer.assignment() == frozenset()
        assert lateness(shell, CALLS["close"], consumer)[0] < PATIENCE


def drop_group_requests(cluster: VirtualCluster) -> None:
    for request in GROUP_REQUESTS:
        cluster.virtual_broker.faults.drop(request)


VIRTUAL_SILENCES: dict[str, Callable[[VirtualCluster], None]] = {
    "mute": lambda cluster: cluster.simulation.broker.process.freeze(),
    "dead": lambda cluster: cluster.simulation.broker.crash(),
    "blackholed": lambda cluster: cluster.simulation.network.cut("broker"),
    "no coordinator": drop_group_requests,
}


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("is_known", [True, False], ids=["known before", "never heard of"])
@pytest.mark.parametrize("silence", VIRTUAL_SILENCES)
def test_c2_awaited_calls_end_at_their_deadlines_to_the_millisecond(
    cluster: VirtualCluster, silence: str, is_known: bool
) -> None:
    cluster.create_topic("t", 3)
    consumer: Any = cluster.make(group_id="g", group_protocol="classic", **NEVER)
    if is_known:
        consumer.list_topics(timeout=20)
        consumer.committed([PARTITION], timeout=20)
    VIRTUAL_SILENCES[silence](cluster)
    took: dict[str, float] = {}
    raised: set[str] = set()
    for name, call in CALLS.items():
        began = cluster.simulation.now
        try:
            call(consumer)
        except KafkaTimeoutError:
            raised.add(name)
        took[name] = cluster.simulation.now - began
    assert max(took.values()) <= TIMEOUT + 0.0005, took
    if silence == "no coordinator":
        assert {"commit", "committed"} <= raised
    else:
        assert raised >= NEEDS_AN_ANSWER, "nobody answered, so nothing may claim an answer"
        assert {name for name in NEEDS_AN_ANSWER if took[name] < TIMEOUT - 0.0005} == set(), took


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("silence", VIRTUAL_SILENCES)
@pytest.mark.parametrize("last", ["unsubscribe", "close"])
def test_b7_an_awaited_end_of_a_membership_ends_at_its_deadline(
    cluster: VirtualCluster, silence: str, last: str
) -> None:
    cluster.create_topic("t", 3)
    consumer: Any = cluster.make(group_id="g", group_protocol="classic", **NEVER)
    consumer.subscribe("t")
    poll_until(consumer, lambda: len(consumer.assignment()) == 3)
    VIRTUAL_SILENCES[silence](cluster)
    for name in dict.fromkeys((last, "close")):
        began = cluster.simulation.now
        CALLS[name](consumer)
        assert cluster.simulation.now - began <= TIMEOUT + 0.0005
        assert consumer.assignment() == frozenset()


def test_c2_an_overdue_call_says_what_stood_in_its_way() -> None:
    with dead() as (address, _), Consumer(bootstrap_servers=address) as consumer:
        overdue(
            lambda seconds: consumer.list_topics(timeout=seconds),
            KafkaTimeoutError,
            match=f"did not finish in time; last error: .*{address}",
        )


def test_c2_a_deadline_before_the_first_turn_gets_its_one_attempt(broker: Broker) -> None:
    broker.create_topic("t", 1)
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        with pytest.raises(KafkaTimeoutError):
            consumer.list_topics(timeout=0)
        consumer.assign([PARTITION], timeout=0)
        assert consumer.assignment() == {PARTITION}, "what needs no broker is done even so"


def test_b7_closing_twice_and_leaving_by_exception_on_a_dead_path(broker: Broker) -> None:
    broker.create_topic("t", 1)
    with path_to(broker) as path:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{path.port}", group_id="g")
        consumer.subscribe("t")
        poll_until(consumer, lambda: bool(consumer.assignment()))
        path.dark = True
        path.swallow()

        def work() -> None:
            with consumer:
                consumer.close(timeout=TIMEOUT)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        consumer.close()


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_c5_a_commit_before_a_revocation_holds_up_no_poll(cluster: VirtualCluster) -> None:
    """A silent coordinator: the callback runs once, in the first poll, and records of what stays flow."""
    cluster.create_topic("t", 2)
    cluster.create_topic("u", 1)
    revoked: list[list[TopicPartition]] = []

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            revoked.append(partitions)

    with cluster.consumer(
        group_id="g", group_protocol="classic", max_poll_records=5, auto_commit_interval_ms=100_000
    ) as consumer:
        listener = Listener()
        consumer.subscribe(["t", "u"], listener=listener)
        for topic in ("t", "u"):
            cluster.produce(topic, 20, partitions=1)
        read(consumer, 40)
        consumer.poll(0)
        with cluster.virtual_broker.faults.drop(OffsetCommitRequest) as commits:
            consumer.subscribe("t", listener=listener)
            poll_until(consumer, lambda: commits.hits > 0)
            assert revoked == [[TopicPartition("u", 0)]], (
                "nothing waits for the commit but the network thread"
            )
            cluster.produce("t", 40, partitions=2)
            assert len(read(consumer, 20)) >= 20
            assert TopicPartition("u", 0) in consumer._core.assigned, "the commit still has its time"
            poll_until(consumer, lambda: TopicPartition("u", 0) not in consumer._core.assigned)
        assert len(revoked) == 1


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_c2_an_unsubscribe_that_ran_out_of_time_does_not_undo_the_next_subscription(
    cluster: VirtualCluster,
) -> None:
    cluster.create_topic("t", 1)
    with cluster.consumer(group_id="g", group_protocol="classic") as consumer:
        consumer.subscribe("t")
        poll_until(consumer, lambda: bool(consumer.assignment()))
        with cluster.virtual_broker.faults.drop(LeaveGroupRequest):
            consumer.unsubscribe(timeout=TIMEOUT)
            consumer.subscribe("t")
        poll_until(consumer, lambda: bool(consumer.assignment()))
        cluster.create_topic("u", 1)
        consumer.list_topics()
        assert consumer.subscription() == {"t"}
        assert consumer.assignment() == {PARTITION}


WAITING = (*sorted(NEEDS_AN_ANSWER), "poll", "poll_arrow", "position")


def patient(name: str) -> Call:
    """The call with ten minutes of time: something else must end it."""

    def call(consumer: Any) -> Any:
        method = getattr(consumer, name)
        arguments: dict[str, tuple[Any, ...]] = {
            "assign_topics": ("other",),
            "commit": ({PARTITION: 5},),
            "offsets_for_times": ({PARTITION: 5},),
            "partitions_for": ("other",),
            "position": (PARTITION,),
            "committed": ([PARTITION],),
            "beginning_offsets": ([PARTITION],),
            "end_offsets": ([PARTITION],),
        }
        return method(*arguments.get(name, ()), timeout=600)

    return call


def end_all(shell: Shell, consumer: Any, end: Callable[[], None], error: type[BaseException]) -> None:
    """Each call that waits raises ``error`` because of ``end``."""
    for name in WAITING:
        ending = once_inside(end)
        with pytest.raises(error):
            shell.do(lambda name=name: patient(name)(consumer))  # type: ignore[misc]
        ending.join()


def test_c7_wakeup_ends_every_call_that_waits(shell: Shell) -> None:
    with mute() as (address, _):
        consumer = shell.make(bootstrap_servers=address, group_id="g", group_protocol="classic", **NEVER)
        shell.do(lambda: consumer.assign([PARTITION]))
        end_all(shell, consumer, consumer.wakeup, WakeupError)
        shell.do(lambda: consumer.close(timeout=TIMEOUT))


def test_c7_ctrl_c_ends_every_call_that_waits() -> None:
    shell = Shell("threads")
    with mute() as (address, _):
        consumer = shell.make(bootstrap_servers=address, group_id="g", group_protocol="classic", **NEVER)
        consumer.assign([PARTITION])
        end_all(shell, consumer, lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt)
        consumer.close(timeout=TIMEOUT)


def test_c7_a_cancelled_await_ends_every_call_that_waits() -> None:
    async def main(address: str) -> None:
        consumer = AsyncConsumer(bootstrap_servers=address, group_id="g", group_protocol="classic", **NEVER)
        await consumer.assign([PARTITION])
        for name in WAITING:
            task = asyncio.ensure_future(patient(name)(consumer))
            await asyncio.sleep(0.05)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await consumer.close(timeout=TIMEOUT)

    with mute() as (address, _):
        asyncio.run(main(address))


def test_c7_close_from_another_thread_ends_every_call_that_waits() -> None:
    with mute() as (address, _):
        for name in WAITING:
            consumer = Consumer(bootstrap_servers=address, group_id="g", group_protocol="classic", **NEVER)
            consumer.assign([PARTITION])
            closing = once_inside(lambda consumer=consumer: consumer.close(timeout=0.3))  # type: ignore[misc]
            with pytest.raises(ClosedError):
                patient(name)(consumer)
            closing.join()
