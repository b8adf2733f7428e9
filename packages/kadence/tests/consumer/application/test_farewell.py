"""Consumers that nobody closed: each is collected, warns, and leaves its group by itself (B7)."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import pytest
from tests.consumer.support import read

from kadence import AsyncConsumer, Broker, Consumer, Producer, RebalanceListener
from kadence.client.engine import Unclosed, abandoned
from kadence.consumer.events import Close
from kadence.consumer.shared_state import SharedState
from kadence.protocol.leave_group import LeaveGroupRequest


class Keeps(RebalanceListener):
    """A listener that refers to its consumer, as most do: to commit in on_partitions_revoked."""

    consumer: object = None

    def refuse(self, *_anything: Any) -> Any:
        return self.consumer


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number)
    return broker


def settings(broker: Broker) -> dict[str, Any]:
    """Of a classic member, whose goodbye is a request of its own."""
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "group_protocol": "classic",
        "auto_offset_reset": "earliest",
    }


def test_b7_a_consumer_that_is_collected_unclosed_warns_and_leaves(served: Broker) -> None:
    subject = Consumer(**settings(served))
    subject.subscribe("t")
    assert len(read(subject, 10)) == 10
    with served.faults.observe(LeaveGroupRequest) as left:
        with pytest.warns(ResourceWarning, match="was not closed"):
            subject = None  # type: ignore[assignment]
        left.wait()


@pytest.mark.parametrize("of", ["listener", "interceptor", "deserialiser", "stall report"])
def test_b7_a_consumer_that_something_of_its_own_refers_to_is_collected_and_leaves(
    served: Broker, of: str
) -> None:
    keeps = Keeps()
    choices: dict[str, dict[str, Any]] = {
        "interceptor": {"interceptors": [_Interceptor(keeps)]},
        "deserialiser": {"value_deserializer": _Deserializer(keeps)},
        "stall report": {"stall_report_callback": keeps.refuse},
    }
    given = choices.get(of, {})
    subject = Consumer(**settings(served), **given)
    keeps.consumer = subject
    subject.subscribe("t", listener=keeps if of == "listener" else None)
    assert len(read(subject, 10)) == 10
    known = weakref.ref(subject)
    with served.faults.observe(LeaveGroupRequest) as left:
        del subject, keeps, given, choices
        with pytest.warns(ResourceWarning, match="was not closed"):
            gc.collect()
        assert known() is None
        left.wait()


def test_b7_asyncio_a_consumer_whose_listener_refers_to_it_is_collected_and_leaves(served: Broker) -> None:
    async def main() -> weakref.ref[AsyncConsumer]:
        keeps = Keeps()
        subject = AsyncConsumer(**settings(served))
        keeps.consumer = subject
        await subject.subscribe("t", listener=keeps)
        while not await subject.poll(1):
            pass
        return weakref.ref(subject)

    known = asyncio.run(main())
    with served.faults.observe(LeaveGroupRequest) as left:
        with pytest.warns(ResourceWarning, match="was not closed"):
            gc.collect()
        assert known() is None
        left.wait()


def test_b7_whoever_collects_a_consumer_waits_for_nothing() -> None:
    """It may be an event loop, or the network thread of another consumer, or of this one."""

    class Engine:
        has_thread = True

        def start(self) -> None: ...

        def join(self, seconds: float | None = None) -> None:
            raise AssertionError("this thread has other things to do")

        def is_alive(self) -> bool:
            return True

        def runs_here(self) -> bool:
            return False

    shared_state = SharedState(lambda: None)
    with pytest.warns(ResourceWarning, match="was not closed"):
        abandoned(Unclosed("Consumer", shared_state, 1_000), Engine(), os.getpid())
    [call] = shared_state.application_events
    assert isinstance(call, Close)


@pytest.mark.parametrize("kept", [True, False], ids=["until the end", "dropped just before"])
def test_b7_the_interpreter_ends_without_close_and_the_group_is_left(served: Broker, kept: bool) -> None:
    program = f"""
        from kadence import Consumer
        c = Consumer(**{settings(served)!r})
        c.subscribe("t")
        while not c.poll(1):
            pass
        print("polled")
        {"" if kept else "del c"}
    """
    with served.faults.observe(LeaveGroupRequest) as left:
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert ended.stdout == "polled\n"
        left.wait()


def test_b7_a_child_of_multiprocessing_ends_without_close_and_the_group_is_left(served: Broker) -> None:
    """Such a process ends without what `atexit` has."""
    program = f"""
        import multiprocessing
        from kadence import Consumer
        def work():
            global c
            c = Consumer(**{settings(served)!r})
            c.subscribe("t")
            while not c.poll(1):
                pass
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            print(process.exitcode)
    """
    with served.faults.observe(LeaveGroupRequest) as left:
        ended = subprocess.run(
            [sys.executable, "-X", "dev", "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert ended.stdout == "0\n", ended.stderr
        assert "ResourceWarning: Consumer was not closed" in ended.stderr
        left.wait()


class _Interceptor:
    def __init__(self, keeps: Keeps) -> None:
        self.on_consume_keeps = keeps

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None: ...

    def close(self) -> None: ...


class _Deserializer:
    def __init__(self, keeps: Keeps) -> None:
        self.keeps = keeps

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        return data
