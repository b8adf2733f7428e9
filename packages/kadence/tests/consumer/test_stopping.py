"""Programs that end in order: `stop()`, and `stop_on_signals` in processes that get real signals."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest
from conftest import FAST_GROUPS
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE

from kadence import Admin, Broker, Consumer, TopicPartition, stop_on_signals, stopping

GROUP = "g"
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(topics={"orders": 1}, config=FAST_GROUPS) as broker:
        yield Cluster("embedded", broker.bootstrap_servers, broker=broker)


# ---------------------------------------------------------------- without signals


def test_an_iteration_ends_after_the_record_in_hand(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("orders", 10, partitions=1)
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    consumer = shell.make(group_id=GROUP, **settings)
    shell.do(lambda: consumer.subscribe("orders"))
    seen = []

    def plain() -> None:
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 4:
                consumer.stop()

    async def awaited() -> None:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 4:
                consumer.stop()

    assert not consumer.stopping
    shell.do(plain if shell.kind == "threads" else awaited)
    assert seen == [0, 1, 2, 3]
    assert consumer.stopping
    # Ten records were fetched, and none of the others is returned.
    assert not shell.do(lambda: consumer.poll(PATIENCE))
    assert shell.do(lambda: consumer.poll_arrow(PATIENCE)).num_rows == 0
    shell.do(consumer.close)
    assert _committed(cluster) == 4


def test_a_poll_that_waits_returns_nothing(cluster: Cluster, shell: Shell) -> None:
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: consumer.assign(ORDERS))
    stopper = threading.Timer(0.05, consumer.stop)
    stopper.start()
    assert not shell.do(lambda: consumer.poll(None))
    stopper.join()
    shell.do(consumer.close)


def test_records_with_an_idle_timeout_end_too(cluster: Cluster) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(ORDERS)
        consumer.stop()
        assert list(consumer.records(idle_timeout=PATIENCE)) == []


def test_a_loop_that_does_not_look_is_told_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(ORDERS)
        consumer.stop()
        for _ in range(300):
            consumer.poll(PATIENCE)
    assert len([message for message in caplog.messages if "consumer.stopping" in message]) == 1


def test_a_close_without_a_timeout_keeps_to_the_grace_period(cluster: Cluster) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        calls, clock = consumer._calls, consumer._core.clock
        assert calls.closed_by(None) - clock.now_ms() > 20_000
        consumer.stop(grace=10)
        assert calls.closed_by(None) - clock.now_ms() <= 10_000
        assert calls.closed_by(20) - clock.now_ms() > 10_000
        # A grace period that is over leaves the time of a goodbye.
        consumer.stop(grace=0)
        assert calls.closed_by(None) - clock.now_ms() > 1_000


# ---------------------------------------------------------------- real signals


def test_sigterm_while_nothing_comes(cluster: Cluster) -> None:
    cluster.produce("orders", 3, partitions=1)
    with _running(cluster, THREADS) as child:
        _wait_for(child, "at 2")
        child.send_signal(signal.SIGTERM)
        _wait_for(child, "ended by SIGTERM")
    assert child.returncode == 0
    assert _members(cluster) == 0
    assert _committed(cluster) == 3


def test_sigint_on_an_event_loop(cluster: Cluster) -> None:
    cluster.produce("orders", 3, partitions=1)
    with _running(cluster, ASYNCIO) as child:
        _wait_for(child, "at 2")
        child.send_signal(signal.SIGINT)
        _wait_for(child, "ended by SIGINT")
    assert child.returncode == 0
    assert _members(cluster) == 0
    assert _committed(cluster) == 3


@pytest.mark.parametrize("program", ["threads", "asyncio"])
def test_a_record_in_hand_is_finished(cluster: Cluster, program: str) -> None:
    """Two more wait, which are not touched."""
    cluster.produce("orders", 3, partitions=1)
    with _running(
        cluster, THREADS if program == "threads" else ASYNCIO, work="sys.stdin.readline()"
    ) as child:
        _wait_for(child, "at 0")
        child.send_signal(signal.SIGTERM)
        _go_on(child)
        _wait_for(child, "ended by SIGTERM")
    assert child.returncode == 0
    assert _members(cluster) == 0
    assert _committed(cluster) == 1


def test_several_consumers_of_one_process(cluster: Cluster) -> None:
    with _running(cluster, SEVERAL) as child:
        _wait_for(child, "joined")
        child.send_signal(signal.SIGTERM)
        _wait_for(child, "ended by SIGTERM")
    assert child.returncode == 0
    assert _members(cluster) == 0


@pytest.mark.parametrize("program", ["threads", "asyncio"])
@pytest.mark.parametrize("work", ["slow_work", "slow_query"])
def test_work_that_outlasts_the_grace_period(cluster: Cluster, program: str, work: str) -> None:
    """The log says where it is, and the group is left without it, also while Python cannot run signal handlers."""
    cluster.produce("orders", 3, partitions=1)
    text = THREADS if program == "threads" else ASYNCIO
    with _running(cluster, text, work=f"{work}()", grace="0.5") as child:
        _wait_for(child, "working")
        child.send_signal(signal.SIGTERM)
        errors = child.stderr
        assert errors is not None
        told = _until(errors, "leaves the group, without waiting")
        assert "the grace period ends" in told
        assert "orders-0 0 to 0" in told
        assert work in told
        while _members(cluster):
            pass
        assert child.poll() is None
        _go_on(child)
        _wait_for(child, "ended by SIGTERM")
    assert child.returncode == 0
    assert _committed(cluster) is None


@pytest.mark.parametrize("grace", ["0", "0.5"])
def test_a_close_that_waits_for_brokers_ends_with_the_grace_period(cluster: Cluster, grace: str) -> None:
    """Also one that began before the signal came: an hour of its time would be left."""
    cluster.produce("orders", 1, partitions=1)
    assert cluster.broker is not None
    with _running(cluster, CLOSING, grace=grace) as child:
        _wait_for(child, "read")
        with cluster.broker.faults.freeze():
            _go_on(child)
            _wait_for(child, "closing")
            child.send_signal(signal.SIGTERM)
            _wait_for(child, "ended by SIGTERM")
    assert child.returncode == 0


def test_a_second_signal_ends_the_process_as_without_us(cluster: Cluster) -> None:
    cluster.produce("orders", 1, partitions=1)
    with _running(cluster, THREADS, work="work_on_both()") as child:
        _wait_for(child, "at 0")
        child.send_signal(signal.SIGTERM)
        _wait_for(child, "once")
        child.send_signal(signal.SIGTERM)
    assert child.returncode == -signal.SIGTERM


# ---------------------------------------------------------------- the handlers


def test_a_signal_that_comes_twice_at_once_counts_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may pause between the two.
    monkeypatch.setattr(stopping, "_SAME_MS", 1_000 * int(PATIENCE))
    with stop_on_signals(signals=[signal.SIGUSR1]) as stop:
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            signal.raise_signal(signal.SIGUSR1)
            # Else this would end the process.
            signal.raise_signal(signal.SIGUSR1)
            assert consumer.stopping
        assert stop.received is signal.SIGUSR1


def test_a_consumer_that_is_made_after_the_signal_is_stopped(cluster: Cluster) -> None:
    with stop_on_signals(signals=[signal.SIGUSR1]):
        signal.raise_signal(signal.SIGUSR1)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as late:
            assert late.stopping
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as later:
        assert not later.stopping


def test_consumers_that_are_named_are_stopped_and_no_others(cluster: Cluster) -> None:
    with (
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as one,
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as other,
        stop_on_signals(one, signals=[signal.SIGUSR1]),
    ):
        signal.raise_signal(signal.SIGUSR1)
        assert one.stopping
        assert not other.stopping


def test_handlers_are_put_back() -> None:
    came = []

    def own(number: int, frame: object) -> None:
        came.append(number)

    before = signal.signal(signal.SIGUSR1, own)
    ignored = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with stop_on_signals(signals=[signal.SIGUSR1, signal.SIGUSR2]) as stop:
            signal.raise_signal(signal.SIGUSR2)
            assert stop.received is None
            signal.raise_signal(signal.SIGUSR1)
            assert came == []
        assert signal.getsignal(signal.SIGUSR1) is own
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGUSR2, ignored)


def test_another_thread_than_the_main_one_is_refused() -> None:
    raised: list[BaseException] = []

    def enter() -> None:
        with pytest.raises(RuntimeError, match=r"call consumer\.stop\(\)") as caught, stop_on_signals():
            raise AssertionError
        raised.append(caught.value)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(raised) == 1


def test_a_forked_child_takes_its_signals_itself() -> None:
    """A pool's `terminate()` ends it, as ever."""
    with stop_on_signals(signals=[signal.SIGTERM]) as stop:
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        # Python wrote the child's signal to the parent, too.
        while select.select([stop._reads], [], [], 0)[0]:
            pass
        with stop._acting:
            assert stop.received is None


def test_the_wakeup_fd_of_an_event_loop_stays() -> None:
    """Signals that the loop handles come, also those of within the `with`."""

    async def main() -> None:
        loop, handled = asyncio.get_running_loop(), asyncio.Semaphore(0)
        loop.add_signal_handler(signal.SIGUSR1, handled.release)
        with stop_on_signals(signals=[signal.SIGUSR2]) as stop:
            signal.raise_signal(signal.SIGUSR1)
            await asyncio.wait_for(handled.acquire(), PATIENCE)
            signal.raise_signal(signal.SIGUSR2)
            assert stop.received is signal.SIGUSR2
        with stop_on_signals(signals=[signal.SIGUSR2]) as stop:
            loop.add_signal_handler(signal.SIGUSR1, handled.release)
            signal.raise_signal(signal.SIGUSR2)
            assert stop.received is signal.SIGUSR2
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.wait_for(handled.acquire(), PATIENCE)
        loop.remove_signal_handler(signal.SIGUSR1)

    asyncio.run(main())
    assert signal.set_wakeup_fd(-1) == -1


def test_a_handler_of_its_own_within(cluster: Cluster) -> None:
    """A signal is no longer ours when the program has set another handler for it."""
    came = []
    with (
        stop_on_signals(signals=[signal.SIGUSR1]) as stop,
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
    ):
        signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
        try:
            signal.raise_signal(signal.SIGUSR1)
            while select.select([stop._reads], [], [], 0)[0]:
                pass
            with stop._acting:
                assert not consumer.stopping
            assert came == [signal.SIGUSR1]
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_negative_grace() -> None:
    with pytest.raises(ValueError, match="seconds"):
        stop_on_signals(grace=-1)


# ---------------------------------------------------------------- the programs

HEAD = """
import asyncio, contextlib, logging, signal, sqlite3, sys, threading, time
from kadence import AsyncConsumer, Consumer, stop_on_signals
from kadence import stopping

logging.basicConfig(level=logging.WARNING)
settings = {{"bootstrap.servers": {servers!r}, "group.id": {group!r}, "auto.offset.reset": "earliest"}}

def slow_work():
    print("working", flush=True)
    sys.stdin.readline()

def slow_query():
    # SQLite does not return for a signal, so Python runs no handler.
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    spent = time.pthread_getcpuclockid(threading.get_ident())
    began = time.clock_gettime(spent)

    def end():
        # Only the query costs that much.
        while time.clock_gettime(spent) < began + 0.1:
            time.sleep(0.001)
        print("working", flush=True)
        sys.stdin.readline()
        connection.interrupt()

    threading.Thread(target=end).start()
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")

def work_on_both():
    stopping._SAME_MS = 0
    while not stop.received:
        pass
    print("once", flush=True)
    sys.stdin.readline()
"""

THREADS = (
    HEAD
    + """
with stop_on_signals(grace={grace}) as stop, Consumer(settings) as consumer:
    consumer.subscribe("orders")
    for record in consumer:
        print("at", record.offset, flush=True)
        {work}
print("ended by", stop.received.name, flush=True)
"""
)

ASYNCIO = (
    HEAD
    + """
async def main():
    async with AsyncConsumer(settings) as consumer:
        await consumer.subscribe("orders")
        async for record in consumer:
            print("at", record.offset, flush=True)
            {work}

with stop_on_signals(grace={grace}) as stop:
    asyncio.run(main())
print("ended by", stop.received.name, flush=True)
"""
)

CLOSING = (
    HEAD
    + """
from kadence.consumer.application import calls
from kadence.errors import KafkaError

calls._CLOSE_MS = 3_600_000
consumer = Consumer(settings)
consumer.subscribe("orders")

def tell():
    while not consumer._core.closing:
        pass
    print("closing", flush=True)

with stop_on_signals(grace={grace}) as stop:
    while not consumer.poll(1):
        pass
    print("read", flush=True)
    slow_work()
    threading.Thread(target=tell).start()
    try:
        consumer.close()
    except KafkaError as error:
        print(error, flush=True)
print("ended by", stop.received.name, flush=True)
"""
)

SEVERAL = (
    HEAD
    + """
joined = threading.Barrier(3)

def run():
    with Consumer(settings) as consumer:
        consumer.subscribe("orders")
        while not consumer.rebalances():
            consumer.poll(0.05)
        joined.wait()
        while not consumer.stopping:
            consumer.poll(60)

with stop_on_signals(grace={grace}) as stop:
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    joined.wait()
    print("joined", flush=True)
    for thread in threads:
        thread.join()
print("ended by", stop.received.name, flush=True)
"""
)


@contextmanager
def _running(
    cluster: Cluster, text: str, *, work: str = "pass", grace: str = "25"
) -> Iterator[subprocess.Popen[str]]:
    program = text.format(servers=cluster.bootstrap_servers, group=GROUP, work=work, grace=grace)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as child:
        try:
            yield child
            child.communicate(timeout=PATIENCE)
        finally:
            child.kill()


def _wait_for(child: subprocess.Popen[str], line: str) -> None:
    output = child.stdout
    assert output is not None
    _until(output, line)


def _until(stream: IO[str], words: str) -> str:
    """Everything up to the line with these words."""
    lines = []
    for line in stream:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"{words!r} was not printed, but {lines}")


def _go_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def _members(cluster: Cluster) -> int:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return len(admin.describe_consumer_groups([GROUP])[GROUP].members)


def _committed(cluster: Cluster) -> Any:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_consumer_group_offsets(GROUP)
    return found[ORDERS].offset if ORDERS in found else None


def test_what_is_no_consumer_is_refused_before_a_signal_comes() -> None:
    settings: Any = {"group.id": "g"}
    with pytest.raises(
        TypeError,
        match=r"is given consumers, producers and admin clients, or none for all of them, not {'group.id': 'g'}",
    ):
        stop_on_signals(settings)
