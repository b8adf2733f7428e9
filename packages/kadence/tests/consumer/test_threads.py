"""Who may use a consumer, and how every wait ends (B6, B7, C6, C7, C8)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumer.support import Cluster, read
from tests.patience import PATIENCE, once_inside, overdue, until

from kadence import AsyncConsumer, Broker, Consumer, Producer, RebalanceListener, TopicPartition
from kadence.consumer.client_state import Signal
from kadence.errors import (
    ClosedError,
    ConcurrentAccessError,
    FatalNetworkError,
    ForkedError,
    IllegalStateError,
    KafkaTimeoutError,
    WakeupError,
)
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence_broker.faults import Injected

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def topic(broker: Broker) -> str:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number)
    return "t"


FOR_EVER = 10 * PATIENCE
"""Seconds of a wait that something else must end."""

LONG_SESSION: dict[str, Any] = {"group_protocol": "classic", "session_timeout_ms": int(FOR_EVER * 1000)}
"""Of a member that is gone only if it says so. The broker may hear of it after the call, or the program, has ended."""

NEVER = {"request_timeout_ms": 600_000, "default_api_timeout_ms": 600_000}
"""No other time-out may come to help."""


def consumer(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)


def no_hops(consumer: Consumer | AsyncConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a wait of the application for the network thread is an error."""

    def hop() -> None:
        raise AssertionError("a blocking hop")

    monkeypatch.setattr(Signal, "wait", lambda signal, seconds: hop())


POLLS = {
    "poll": lambda consumer: len(consumer.poll(0)),
    "poll_arrow": lambda consumer: consumer.poll_arrow(0).num_rows,
    "iteration": lambda consumer: len([next(consumer)]),
}


@pytest.mark.needs("reading")
@pytest.mark.parametrize("poll", POLLS.values(), ids=POLLS)
@pytest.mark.brokers("embedded")
def test_c6_polls_from_the_buffer_make_no_hop_and_wake_nobody(
    cluster: Cluster, poll: Callable[[Consumer], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(1)
    cluster.produce(topic, 500, partitions=1)
    with cluster.consumer(max_poll_records=1) as consumer:
        consumer.assign([(topic, 0)])
        read(consumer, 1)
        # The first fetch brought all: nothing is left to fetch, and the long poll is parked again.
        before = consumer._shared_state.wakes
        with monkeypatch.context() as patch:
            no_hops(consumer, patch)
            assert sum(poll(consumer) for _ in range(400)) == 400
        assert consumer._shared_state.wakes == before


@pytest.mark.needs("reading")
@pytest.mark.brokers("embedded")
def test_c6_asyncio_polls_from_the_buffer_wake_nobody(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    cluster.produce(topic, 500, partitions=1)

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=1
        ) as consumer:
            await consumer.assign([(topic, 0)])
            assert await consumer.poll(PATIENCE)
            before = consumer._core._shared_state.wakes
            for _ in range(400):
                assert len(await consumer.poll(0)) == 1
            assert consumer._core._shared_state.wakes == before

    asyncio.run(main())


@pytest.mark.needs("reading")
@pytest.mark.parametrize("poll", [POLLS["poll"], POLLS["poll_arrow"]], ids=["poll", "poll_arrow"])
@pytest.mark.brokers("embedded")
def test_c6_what_is_drained_wakes_the_network_thread_only_across_a_watermark(
    cluster: Cluster, poll: Callable[[Consumer], int]
) -> None:
    """Several fetches' worth: wakes go with fetches, never with polls."""
    topic = cluster.topic(1)
    count, size = 4_000, 1_000
    cluster.produce(topic, count, partitions=1, size=size)
    fetch_bytes = 262_144
    with cluster.consumer(max_poll_records=1, max_partition_fetch_bytes=fetch_bytes) as consumer:
        consumer.assign([(topic, 0)])
        read(consumer, 1)
        before, got, empty = consumer._shared_state.wakes, 1, 0
        while got < count:
            taken = poll(consumer)
            got += taken
            empty += not taken
            if not taken:
                consumer._shared_state.signal.enter()
                consumer._shared_state.signal.wait(0.01)
        fetches = count * size / fetch_bytes
        assert consumer._shared_state.wakes - before <= 3 * fetches + 3, (
            f"{fetches:.0f} fetches, {empty} empty polls"
        )


def test_c7_wakeup_ends_a_poll_and_the_next_one_works(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        subject.seek_to_end()
        waker = once_inside(subject.wakeup)
        with pytest.raises(WakeupError):
            subject.poll(FOR_EVER)
        waker.join()
        assert not subject.poll(0)


def test_c7_a_wakeup_before_a_poll_ends_that_poll_and_loses_no_record(broker: Broker, topic: str) -> None:
    with consumer(broker, max_poll_records=10) as subject:
        subject.assign([PARTITION])
        first = read(subject, 10)
        subject.wakeup()
        with pytest.raises(WakeupError):
            subject.poll(FOR_EVER)
        assert subject.poll(PATIENCE).by_partition()[PARTITION][0].offset == len(first)


def test_c7_ctrl_c_ends_a_poll(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        subject.seek_to_end()
        interrupter = once_inside(lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            subject.poll(FOR_EVER)
        interrupter.join()
        assert not subject.poll(0)


def paused_and_resumed(subject: Consumer) -> None:
    subject.pause([PARTITION])
    subject.resume([PARTITION])


HANDLED: dict[str, Callable[[Consumer], object]] = {
    "commit": lambda subject: subject.commit(),
    "committed": lambda subject: subject.committed([PARTITION]),
    "position": lambda subject: subject.position(PARTITION),
    "end_offsets": lambda subject: subject.end_offsets([PARTITION]),
    "seek": lambda subject: subject.seek(PARTITION, 1000),
    "pause": paused_and_resumed,
    "poll": lambda subject: subject.poll(0),
}


@pytest.mark.parametrize("call", HANDLED)
@pytest.mark.parametrize("waits", ["poll", "iteration"])
def test_c13_a_call_in_a_signal_handler_does_not_deafen_the_one_it_interrupts(
    broker: Broker, topic: str, call: str, waits: str
) -> None:
    handled: list[object] = []

    def handler(*_: object) -> None:
        handled.append(HANDLED[call](subject))
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"afterwards").result(PATIENCE)

    with (
        consumer(broker, group_id="g", enable_auto_commit=False) as subject,
        handling(signal.SIGUSR1, handler),
    ):
        subject.assign({PARTITION: 1000})
        subject.poll(0)
        sender = once_inside(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        if waits == "poll":
            [record] = subject.poll(FOR_EVER)
            assert record.value == b"afterwards"
        else:
            assert next(iter(subject)).value == b"afterwards"
        sender.join()
    assert handled


@contextlib.contextmanager
def handling(number: int, handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("waits", ["poll", "iteration", "commit"])
def test_c13_close_in_a_signal_handler_ends_the_call_that_it_interrupts(
    broker: Broker, topic: str, waits: str
) -> None:
    subject = consumer(broker, group_id="g", **NEVER)
    subject.subscribe("t")
    read(subject, 1000)
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: subject.poll(FOR_EVER),
        "iteration": lambda: next(iter(subject)),
        "commit": subject.commit,
    }
    with handling(signal.SIGUSR1, lambda *_: subject.close(1)):
        if waits == "commit":
            broker.faults.drop(OffsetCommitRequest)
        sender = once_inside(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises((WakeupError, ClosedError)):
            calls[waits]()
        sender.join()
    with pytest.raises(ClosedError):
        subject.poll(0)


@pytest.mark.parametrize("polls", ["poll", "poll_arrow", "iteration"])
def test_c13_a_poll_in_the_midst_of_another_is_refused(broker: Broker, topic: str, polls: str) -> None:
    refused: list[Exception] = []
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: subject.poll(FOR_EVER),
        "poll_arrow": lambda: subject.poll_arrow(FOR_EVER),
        "iteration": lambda: next(iter(subject)),
    }

    def handler(*_: object) -> None:
        with pytest.raises(IllegalStateError) as caught:
            calls[polls]()
        refused.append(caught.value)

    def deserializer(value: bytes) -> int:
        if int(value) in (0, 250, 600):
            signal.raise_signal(signal.SIGUSR1)
        return int(value)

    with handling(signal.SIGUSR1, handler), consumer(broker, value_deserializer=deserializer) as subject:
        subject.assign([PARTITION])
        assert [record.value for record in read(subject, 1000)] == list(range(1000))
        assert len(refused) >= 3


@pytest.mark.parametrize("polls", ["poll", "iteration"])
def test_c13_close_in_the_midst_of_taking_records_is_told_as_such(
    broker: Broker, topic: str, polls: str
) -> None:
    def deserializer(value: bytes) -> bytes:
        if value == b"300":
            signal.raise_signal(signal.SIGUSR1)
        return value

    subject = consumer(broker, value_deserializer=deserializer, max_poll_records=200)
    subject.assign([PARTITION])
    with handling(signal.SIGUSR1, lambda *_: subject.close(1)), pytest.raises(ClosedError):  # noqa: PT012
        while True:
            if polls == "poll":
                subject.poll(FOR_EVER)
            else:
                next(iter(subject))


def test_c7_a_second_thread_is_told_at_once(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        subject.seek_to_end()

        def wait() -> None:
            with pytest.raises(WakeupError):
                subject.poll(FOR_EVER)

        inside = threading.Thread(target=wait)
        inside.start()
        until(lambda: subject._shared_state.progress.processing_since(0) is None)
        with pytest.raises(ConcurrentAccessError, match="another thread is using"):
            subject.position(PARTITION)
        subject.pause([PARTITION])
        subject.resume([PARTITION])
        subject.wakeup()
        inside.join()


def test_c7_close_from_another_thread_ends_a_poll(broker: Broker, topic: str) -> None:
    subject = consumer(broker, group_id="g")
    subject.subscribe("t")
    read(subject, 1000)
    closer = once_inside(subject.close)
    with pytest.raises(ClosedError):
        subject.poll(FOR_EVER)
    closer.join()
    with pytest.raises(ClosedError):
        subject.poll(0)
    subject.close()


def test_c8_a_child_is_refused_and_hangs_nowhere(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                subject.poll(0)
            except ForkedError:
                subject.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(read(subject, 500)) >= 500


def test_b6_a_bug_on_the_network_thread_reaches_every_call_and_close_works(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kadence.consumer.event_processor import ApplicationEventProcessor

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(ApplicationEventProcessor, "_assign", broken)
    subject = consumer(broker, group_id="g")
    with pytest.raises(FatalNetworkError, match="a bug") as error:
        subject.assign([PARTITION])
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(FatalNetworkError):
        subject.partitions_for("t")
    # Nobody would ever call the callback.
    with pytest.raises(FatalNetworkError):
        subject.commit_async({PARTITION: 0}, lambda *_: None)
    with pytest.raises(FatalNetworkError):
        subject.enforce_rebalance()
    subject.close()


@pytest.mark.parametrize("request_type", [OffsetCommitRequest, LeaveGroupRequest, HeartbeatRequest])
def test_b7_close_never_hangs_on_a_silent_coordinator(broker: Broker, topic: str, request_type: type) -> None:
    subject = consumer(broker, group_id="g", heartbeat_interval_ms=100, **NEVER)
    subject.subscribe("t")
    read(subject, 1000)
    with broker.faults.drop(request_type) as silence:
        assert isinstance(silence, Injected)
        subject.close(timeout=0.5)


def test_a_dead_cluster_is_one_clear_error_with_its_addresses() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1,127.0.0.1:2") as subject:
        overdue(
            lambda seconds: subject.list_topics(timeout=seconds),
            KafkaTimeoutError,
            match=r"(?is)(?=.*127\.0\.0\.1:1).*refused",
        )


class Doing(RebalanceListener):
    """Does something once, in its first callback of a kind."""

    def __init__(self, on: str, what: Callable[[], object]) -> None:
        self._on, self._what = on, what
        self.done = 0

    def _step(self, kind: str) -> None:
        if kind == self._on and not self.done:
            self.done = 1
            self._what()

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._step("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._step("revoked")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._step("lost")


def test_c7_close_from_another_thread_ends_in_time_though_a_callback_hangs(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()
    inside = threading.Event()
    outcome: list[Exception] = []

    def hang() -> None:
        inside.set()
        released.wait(5 * PATIENCE)

    subject = consumer(broker, group_id="g", **LONG_SESSION)
    subject.subscribe(topic, listener=Doing("assigned", hang))

    def owner() -> None:
        try:
            while True:
                subject.poll(1)
        except ClosedError as error:
            outcome.append(error)

    thread = threading.Thread(target=owner)
    thread.start()
    assert inside.wait(PATIENCE)
    subject.close(timeout=0.3)
    assert not released.is_set(), "the callback hangs still"
    assert "a callback runs in another thread's call" in caplog.text
    until(lambda: "Empty" in broker.describe_groups()["g"])
    with pytest.raises(ClosedError):
        subject.poll(0)
    released.set()
    thread.join(PATIENCE)
    assert len(outcome) == 1


def test_c7_ctrl_c_in_close_and_then_close_again(broker: Broker, topic: str) -> None:
    subject = consumer(broker, group_id="g", **NEVER)
    subject.subscribe(topic)
    read(subject, 1000)
    with broker.faults.drop(OffsetCommitRequest), broker.faults.drop(LeaveGroupRequest):
        interrupter = once_inside(lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            subject.close(timeout=FOR_EVER)
        interrupter.join()
        subject.close(timeout=0.2)
    assert not subject._core._engine.is_alive()
    with pytest.raises(ClosedError):
        subject.poll(0)


def test_c7_wakeup_inside_a_callback_ends_that_poll_and_loses_nothing(broker: Broker, topic: str) -> None:
    with consumer(broker, group_id="g") as subject:
        listener = Doing("assigned", subject.wakeup)
        subject.subscribe(topic, listener=listener)
        with pytest.raises(WakeupError):
            read(subject, 1)
        assert listener.done
        assert [int(record.value) for record in read(subject, 1000)] == list(range(1000))
        assert len(subject.rebalances()) == 1


def test_c7_a_wakeup_that_ends_a_commit_inside_a_callback_leaves_the_group_going(
    broker: Broker, topic: str
) -> None:
    """Whatever the callback raises, the rebalance learns that it is over."""
    with consumer(broker, group_id="g", enable_auto_commit=False) as subject:

        def commit() -> None:
            with broker.faults.drop(OffsetCommitRequest) as dropped:

                def wake() -> None:
                    dropped.wait()
                    subject.wakeup()

                timer = threading.Thread(target=wake)
                timer.start()
                try:
                    subject.commit({PARTITION: 0}, timeout=PATIENCE)
                finally:
                    timer.join()

        subject.subscribe(topic, listener=Doing("assigned", commit))
        with pytest.raises(WakeupError):
            read(subject, 1)
        assert len(read(subject, 1000)) == 1000
        subject.commit()


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_b7_close_inside_a_callback(broker: Broker, topic: str, kind: str) -> None:
    subject = consumer(broker, group_id="g")
    listener = Doing(kind, subject.close)
    subject.subscribe(topic, listener=listener)
    if kind == "assigned":
        with pytest.raises(ClosedError):
            read(subject, 1)
    else:
        read(subject, 1)
        subject.close()
    assert listener.done
    with pytest.raises(ClosedError):
        subject.poll(0)
    assert "Empty" in broker.describe_groups()["g"]


def test_c7_a_consumer_belongs_to_no_thread_only_calls_do(broker: Broker, topic: str) -> None:
    with consumer(broker, group_id="g", max_poll_records=500) as subject:
        subject.subscribe(topic)
        found = len(read(subject, 1))
        sizes: list[int] = []
        thread = threading.Thread(target=lambda: sizes.append(len(read(subject, 1000 - found))))
        thread.start()
        thread.join()
        assert found + sum(sizes) == 1000


def test_c8_asyncio_a_child_is_refused(broker: Broker, topic: str) -> None:
    async def main() -> int:
        async with AsyncConsumer(bootstrap_servers=broker.bootstrap_servers) as subject:
            await subject.assign([PARTITION])
            child = os.fork()
            if child == 0:
                os._exit(in_child(subject))
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            return os.waitstatus_to_exitcode(status)

    def in_child(subject: AsyncConsumer) -> int:
        async def use() -> int:
            try:
                await subject.poll(0)
            except ForkedError:
                await subject.close()
                return 0
            return 1

        asyncio._set_running_loop(None)
        return asyncio.new_event_loop().run_until_complete(use())

    assert asyncio.run(main()) == 0


def test_c8_a_child_that_ends_says_nothing_for_its_parent(broker: Broker, topic: str) -> None:
    """Neither a warning nor a goodbye: the membership is the parent's."""
    program = f"""
        import os, sys
        from kadence import Consumer
        with Consumer(bootstrap_servers={broker.bootstrap_servers!r}, group_id="g") as c:
            c.subscribe("t")
            while not c.assignment():
                c.poll(0.1)
            child = os.fork()
            if child == 0:
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            before = c.group_metadata()
            c.poll(1)
            assert c.group_metadata() == before and c.assignment()
            print("a member still")
    """
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert ended.stdout == "a member still\n"
    assert "not closed" not in ended.stderr


def test_c7_ctrl_c_ends_a_program_and_the_member_is_gone(broker: Broker, topic: str) -> None:
    program = f"""
        from kadence import Consumer
        c = Consumer(
            bootstrap_servers={broker.bootstrap_servers!r},
            group_id="g",
            auto_offset_reset="earliest",
            **{LONG_SESSION},
        )
        c.subscribe("t")
        for record in c:
            if record.offset == 999:
                print("waiting", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "waiting\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    until(lambda: "Empty" in broker.describe_groups()["g"])


def test_b7_asyncio_a_program_that_ends_without_close_leaves(broker: Broker, topic: str) -> None:
    program = f"""
        import asyncio
        from kadence import AsyncConsumer
        kept = []
        async def main():
            c = AsyncConsumer(
                bootstrap_servers={broker.bootstrap_servers!r},
                group_id="g",
                auto_offset_reset="earliest",
                **{LONG_SESSION},
            )
            kept.append(c)
            await c.subscribe("t")
            while not await c.poll(1):
                pass
        asyncio.run(main())
        print("polled")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert ended.stdout == "polled\n"
    until(lambda: "Empty" in broker.describe_groups()["g"])


def test_b7_close_without_any_time_still_leaves(broker: Broker, topic: str) -> None:
    subject = consumer(broker, group_id="g", group_protocol="classic", enable_auto_commit=False)
    subject.subscribe(topic)
    read(subject, 1000)
    with broker.faults.observe(LeaveGroupRequest) as left:
        subject.close(timeout=0)
        left.wait()
