"""A child that user code forks on a thread of ours ends with that call, and the thread goes on in the parent alone."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.patience import PATIENCE

from kadence import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Broker,
    Consumer,
    Producer,
    TopicPartition,
)
from kadence.client import slices
from kadence.client.aside import Calls, ThreadsAside
from kadence.client.surroundings import JobThread
from kadence.consumer.application import processing
from kadence.deserializers import _LOCK, converts_on_loop
from kadence.errors import ForkedError
from kadence.forked import ThisProcess, _tell, free_lock
from kadence.metrics.otel import ClientInstruments
from kadence.net.tokens import TokenLogin
from kadence.own_threads import OrderedCalls
from kadence.protocol.metadata import MetadataRequest
from kadence.security import Token
from kadence_broker.server.sasl.oauthbearer import ValidToken

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


class Forks:
    """User code that forks, and then does the same in both processes.

    Attributes:
        code: how the child has ended.
    """

    def __init__(self, returns: Any = None, raises: BaseException | None = None) -> None:
        self.code: int | None = None
        self._returns = returns
        self._raises = raises

    def __call__(self, *_: object) -> Any:
        child = os.fork()
        if child:
            self.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if self._raises is not None:
            raise self._raises
        return self._returns


@pytest.mark.parametrize(
    ("raises", "code"),
    [
        (None, 0),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 1),
        (SystemExit(), 0),
        (SystemExit(3), 3),
        (SystemExit(-1), 255),
        (SystemExit(1 << 70), 0),
        (SystemExit("no"), 1),
    ],
)
def test_a_child_ends_with_the_call_by_pythons_code(raises: BaseException | None, code: int) -> None:
    forks, here = Forks(17, raises), ThisProcess()
    if raises is None:
        assert here.call(forks) == 17
    else:
        with pytest.raises(type(raises)):
            here.call(forks)
    assert forks.code == code


def test_a_child_waits_for_the_threads_that_it_has_started(tmp_path: Path) -> None:
    """As at the end of every program."""

    def work() -> int:
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        threading.Thread(target=(tmp_path / "there").touch).start()
        return 17

    assert ThisProcess().call(work) == 0
    assert (tmp_path / "there").exists()


class Locked:
    """A stream whose lock a thread of the parent held at the fork: nobody gives it back in the child."""

    def write(self, text: str) -> int:
        threading.Event().wait()
        return 0

    def flush(self) -> None: ...


@pytest.mark.parametrize("locked", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_a_child_that_cannot_write_to_a_stream_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], locked: list[str]
) -> None:
    monkeypatch.setattr("kadence.forked._TELLING_S", 0.01)
    for name in locked:
        monkeypatch.setattr(sys, name, Locked())
    forks = Forks(raises=ValueError("of the child"))
    with pytest.raises(ValueError, match="of the child"):
        ThisProcess().call(forks)
    assert forks.code == 1
    assert "ValueError: of the child\n" in capfd.readouterr().err


def test_a_coroutine_is_watched_at_each_of_its_steps() -> None:
    """What it awaits, and what is thrown into it, passes through."""
    forks, later = Forks(), Forks()

    async def work() -> str:
        forks()
        await asyncio.sleep(0)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            later()
        return "done"

    async def main() -> str:
        task = asyncio.ensure_future(ThisProcess().awaits(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) == "done"
    # A child has no event loop to await on, and may return.
    assert (forks.code, later.code) == (1, 0)


@contextmanager
def ended(thread: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    finally:
        thread()


def test_a_job_that_forks_has_one_helper_thread() -> None:
    """A custom assignor, say."""
    forks, woken = Forks(17), threading.Event()
    jobs = JobThread("jobs", woken.set)
    results: list[object] = []
    with ended(jobs.close):
        jobs.submit(forks, lambda now, result, error: results.append(result))
        assert woken.wait(PATIENCE)
        jobs.deliver(0)
    assert (results, forks.code) == ([17], 0)


def test_a_provider_of_tokens_that_forks_has_one_thread() -> None:
    forks, woken = Forks(Token("value")), threading.Event()
    login = TokenLogin(forks, "me", woken.set)
    with ended(login.close):
        assert login.begin(0) is None
        assert woken.wait(PATIENCE)
        assert login.deliver(0)
    assert forks.code == 0


def test_a_call_that_may_block_and_forks_has_one_thread() -> None:
    forks, has_ended = Forks(17), threading.Event()
    results: list[object] = []

    def calls() -> Calls:
        results.append((yield forks))
        has_ended.set()

    caller = ThreadsAside().caller("caller")
    with ended(caller.end):
        caller.carry(calls())
        assert has_ended.wait(PATIENCE)
    assert (results, forks.code) == ([17], 0)


@pytest.mark.parametrize("raises", [None, ValueError("x")])
def test_a_callback_of_a_delivery_that_forks_has_one_network_thread(raises: Exception | None) -> None:
    """A second one would write to the sockets of the first."""
    forks, has_run = Forks(None, raises), threading.Event()

    def callback(future: Any) -> None:
        try:
            forks()
        finally:
            has_run.set()

    with Broker(topics={"t": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"0").add_done_callback(callback)
        assert has_run.wait(PATIENCE)
        assert producer.send("t", b"1").result(PATIENCE).offset == 1
    assert forks.code == (0 if raises is None else 1)


def test_a_handler_of_logging_that_forks_has_one_thread() -> None:
    """It gets lines of our threads on one that delivers them, one after the other."""
    forks = Forks()
    delivery = OrderedCalls(lambda count: None)
    delivered: list[int] = []
    delivery.put(forks)
    delivery.put(lambda: delivered.append(os.getpid()))
    assert delivery.flush(PATIENCE)
    assert (delivered, forks.code) == ([os.getpid()], 0)


@pytest.mark.parametrize("kind", ["respond", "where"])
def test_a_fault_that_forks_has_one_broker(kind: str) -> None:
    """A second one would accept the connections of the first."""
    forks = Forks(False)
    with Broker(topics={"t": 1}) as broker:
        if kind == "where":
            broker.faults.drop(MetadataRequest, where=forks)
        else:

            def refused(call: Any) -> Any:
                forks()
                return call.handler.refuse(call, 5)

            broker.faults.respond(MetadataRequest, refused, times=1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert producer.send_and_wait("t", b"0").offset == 0
    assert forks.code == 0


def test_a_validator_of_tokens_that_forks_has_one_broker() -> None:
    forks = Forks(ValidToken("me"))
    with (
        Broker(topics={"t": 1}, token_validator=forks) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_provider=lambda: Token("value"),
        ) as producer,
    ):
        assert producer.send_and_wait("t", b"0").offset == 0
    assert forks.code == 0


def test_a_report_of_a_stall_that_forks_ends_in_the_child() -> None:
    parent = os.getpid()
    forks, has_ended = Forks(), threading.Event()

    def report(_: object) -> None:
        forks()
        if os.getpid() != parent:
            raise SystemExit(3)
        has_ended.set()

    processing._aside(report, None)
    assert has_ended.wait(PATIENCE)
    assert forks.code == 3


# ------------------------------------------------------------ what a child does with what its parent made


def in_child(work: Callable[[], object]) -> int:
    """How a child ends that does this: with 0 once it has returned, with a signal's number if it waits too long."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def held_elsewhere(lock: threading.Lock) -> None:
    """A thread of this process acquires the lock, and does not exist in its children."""
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()


def test_a_lock_that_another_thread_held_at_the_fork_is_free() -> None:
    lock = free_lock()
    held_elsewhere(lock)
    assert in_child(lock.acquire) == 0
    # In the parent nobody has released it.
    assert lock.locked()


@pytest.mark.parametrize("which", ["loops", "deserialisers"])
def test_what_all_clients_share_waits_for_no_thread_of_the_parent(which: str) -> None:
    lock = {"loops": slices._lock, "deserialisers": _LOCK}[which]

    class Caller:
        def is_converting(self) -> bool:
            return False

    def work() -> None:
        if which == "loops":
            slices.slices_of(asyncio.new_event_loop())
        else:
            converts_on_loop(Caller())

    held_elsewhere(lock)
    try:
        assert in_child(work) == 0
    finally:
        lock.release()


def test_instruments_report_the_clients_of_their_process() -> None:
    """A reader of OpenTelemetry goes on in a child, on a thread of its own."""
    with (
        Broker() as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, client_id="parent") as producer,
    ):
        reader = InMemoryMetricReader()
        instruments = ClientInstruments(MeterProvider([reader]).get_meter("m"), producer)

        def reported() -> set[object]:
            found = reader.get_metrics_data()
            return set() if found is None else set(re.findall(r"client_id': '(.*?)'", repr(found)))

        def work() -> None:
            assert reported() == set()
            with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="child") as own:
                instruments.add(own)
                assert reported() == {"child"}

        held_elsewhere(instruments._lock)
        assert in_child(work) == 0
        instruments._lock.release()
        assert reported() == {"parent"}


def test_records_are_done_in_the_process_that_has_read_them() -> None:
    """What a child says of them would be lost."""
    with Broker(topics={"t": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"0")
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            consumer.assign({TopicPartition("t", 0): 0})
            records = consumer.poll(PATIENCE)
            work = consumer.track(records)

            def child() -> None:
                with pytest.raises(ForkedError):
                    work.done(records[0])
                with pytest.raises(ForkedError):
                    consumer.track(records)
                assert consumer.health().alive

            held_elsewhere(consumer._calls._core.stalls._lock)
            assert in_child(child) == 0
            consumer._calls._core.stalls._lock.release()
            work.done(records[0])
            assert work.unfinished == 0


def test_a_child_of_an_event_loop_is_refused_by_the_clients_of_its_parent() -> None:
    """No loop runs in it, of which asyncio would say no more than that. Whatever it closes is left to the parent."""

    async def refused(calls: list[Callable[[], Awaitable[object]]]) -> None:
        for call in calls:
            with pytest.raises(ForkedError):
                await call()

    async def main() -> int:
        servers: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        async with (
            AsyncProducer(**servers) as producer,
            AsyncConsumer(**servers, group_id="g") as consumer,
            AsyncAdmin(**servers) as admin,
        ):
            await producer.send_and_wait("t", b"0")
            await consumer.subscribe("t")
            await admin.list_topics()
            child = os.fork()
            if child:
                await producer.send_and_wait("t", b"1")
                await admin.list_topics()
                return child
            signal.alarm(int(PATIENCE))
            code = 1
            try:
                await refused(
                    [
                        lambda: producer.send("t", b"2"),
                        lambda: producer.send_and_wait("t", b"2"),
                        lambda: producer.partitions_for("t"),
                        producer.flush,
                        consumer.poll,
                        consumer.poll_arrow,
                        lambda: anext(consumer),
                        lambda: consumer.commit({}),
                        admin.list_topics,
                    ]
                )
                for client in (producer, consumer, admin):
                    await client.close()
                code = 0
            finally:
                os._exit(code)

    with Broker(topics={"t": 1}) as broker:
        assert os.waitstatus_to_exitcode(os.waitpid(asyncio.run(main()), 0)[1]) == 0


def test_a_loop_of_a_child_is_none_of_its_parents_clients() -> None:
    with Broker(topics={"t": 1}) as broker, asyncio.Runner() as runner:

        async def make() -> AsyncProducer:
            producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.send_and_wait("t", b"0")
            return producer

        producer = runner.run(make())

        async def send() -> None:
            with pytest.raises(ForkedError):
                await producer.send("t", b"1")

        assert in_child(lambda: asyncio.run(send())) == 0
        runner.run(producer.close())


def test_an_exception_is_shown_where_cpython_takes_a_new_thread_for_the_dead_one_that_held_the_lock_of_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Held(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(sys, "stderr", Held())
    _tell(ValueError("of the child"))
    assert capfd.readouterr().err.endswith("ValueError: of the child\n")
