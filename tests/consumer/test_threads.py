"""Who may use a consumer, and how every wait ends (B6, B7, C6, C7, C8)."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from tests.consumer.support import read

from kadence import Broker, Consumer, Producer, TopicPartition
from kadence.broker.faults import Injected
from kadence.errors import (
    ClosedError,
    ConcurrentAccessError,
    FatalNetworkError,
    ForkedError,
    KafkaTimeoutError,
    WakeupError,
)
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def topic(broker: Broker) -> str:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number)
    return "t"


def consumer(broker: Broker, **settings: object) -> Consumer:
    return Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)


def after(seconds: float, what: object) -> threading.Timer:
    timer = threading.Timer(seconds, what)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_c6_a_poll_from_the_buffer_wakes_nobody(broker: Broker, topic: str) -> None:
    with consumer(broker, max_poll_records=1) as subject:
        subject.assign([PARTITION])
        read(subject, 1)
        # The first fetch brought all: nothing is left to fetch, and the long poll is parked again.
        before = subject._border.wakes
        for _ in range(900):
            assert len(subject.poll(0)) == 1
        assert subject._border.wakes == before


def test_c7_wakeup_ends_a_poll_and_the_next_one_works(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        subject.seek_to_end()
        timer = after(0.1, subject.wakeup)
        with pytest.raises(WakeupError):
            subject.poll(30)
        timer.join()
        assert not subject.poll(0)


def test_c7_a_wakeup_before_a_poll_ends_that_poll_and_loses_no_record(broker: Broker, topic: str) -> None:
    with consumer(broker, max_poll_records=10) as subject:
        subject.assign([PARTITION])
        first = read(subject, 10)
        subject.wakeup()
        with pytest.raises(WakeupError):
            subject.poll(30)
        assert subject.poll(1).by_partition()[PARTITION][0].offset == len(first)


def test_c7_ctrl_c_ends_a_poll(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        subject.seek_to_end()
        timer = after(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            subject.poll(30)
        assert time.monotonic() - started < 10
        timer.join()
        assert not subject.poll(0)


def test_c7_a_second_thread_is_told_at_once(broker: Broker, topic: str) -> None:
    with consumer(broker) as subject:
        subject.assign([PARTITION])
        subject.seek_to_end()
        inside = threading.Thread(target=lambda: subject.poll(1))
        inside.start()
        while subject._border.progress.processing_since(0) is not None:
            pass
        with pytest.raises(ConcurrentAccessError, match="another thread is inside"):
            subject.position(PARTITION)
        subject.pause([PARTITION])
        subject.resume([PARTITION])
        inside.join()


def test_c7_close_from_another_thread_ends_a_poll(broker: Broker, topic: str) -> None:
    subject = consumer(broker, group_id="g")
    subject.subscribe("t")
    read(subject, 1000)
    timer = after(0.1, subject.close)
    with pytest.raises((WakeupError, ClosedError)):
        subject.poll(30)
    timer.join()
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
    from kadence.consumer.network.processor import Processor

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Processor, "_assign", broken)
    subject = consumer(broker)
    with pytest.raises(FatalNetworkError, match="a bug") as error:
        subject.assign([PARTITION])
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(FatalNetworkError):
        subject.partitions_for("t")
    subject.close()


@pytest.mark.parametrize("request_type", [OffsetCommitRequest, LeaveGroupRequest, HeartbeatRequest])
def test_b7_close_never_hangs_on_a_silent_coordinator(broker: Broker, topic: str, request_type: type) -> None:
    subject = consumer(broker, group_id="g", heartbeat_interval_ms=100)
    subject.subscribe("t")
    read(subject, 1000)
    with broker.faults.drop(request_type) as silence:
        assert isinstance(silence, Injected)
        started = time.monotonic()
        subject.close(timeout=0.5)
        assert time.monotonic() - started < 5


def test_c2_a_call_ends_at_its_deadline_though_the_broker_is_silent(broker: Broker, topic: str) -> None:
    subject = consumer(broker, group_id="g")
    subject.subscribe("t")
    read(subject, 1000)
    with broker.faults.drop(OffsetCommitRequest):
        started = time.monotonic()
        with pytest.raises(KafkaTimeoutError):
            subject.commit(timeout=0.3)
        assert 0.29 <= time.monotonic() - started < 3
        subject.close(timeout=0.2)


def test_a_dead_cluster_is_one_clear_error_with_its_addresses() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1,127.0.0.1:2") as subject:
        with pytest.raises(KafkaTimeoutError) as error:
            subject.list_topics(timeout=0.5)
        assert "127.0.0.1:1" in str(error.value)
        assert "refused" in str(error.value).lower()


def test_b7_a_consumer_that_is_collected_unclosed_warns_and_leaves(broker: Broker, topic: str) -> None:
    subject = consumer(broker, group_id="g")
    subject.subscribe("t")
    read(subject, 1000)
    with pytest.warns(ResourceWarning, match="was not closed"):
        subject = None  # type: ignore[assignment]
    gc.collect()
    assert "Empty" in broker.describe_groups()["g"]


def test_the_interpreter_ends_without_close(broker: Broker, topic: str) -> None:
    program = f"""
        from kadence import Consumer
        c = Consumer(bootstrap_servers={broker.bootstrap_servers!r}, group_id="g", auto_offset_reset="earliest")
        c.subscribe("t")
        while not c.poll(1):
            pass
        print("polled")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ended.stdout == "polled\n"
    assert "Empty" in broker.describe_groups()["g"]
