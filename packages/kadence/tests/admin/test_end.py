"""How an admin client's network thread begins and ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until

from kadence import Admin
from kadence.admin.manager import AdminManager
from kadence.errors import ClosedError, FatalNetworkError, ForkedError, KafkaTimeoutError
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def threads_of(client_id: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"{client_id}-network"]


def test_the_thread_begins_with_the_first_call_and_ends_with_the_client(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers, client_id="one") as admin:
        assert threads_of("one") == []
        admin.list_topics()
        with pytest.raises(KafkaTimeoutError):
            admin.list_topics(timeout=0)
        assert admin._shell.network.waiting == set(), "nothing is kept of a call that is over"
        (thread,) = threads_of("one")
        assert thread.daemon
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_first_calls_of_many_threads_begin_one_thread(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers, client_id="many") as admin:
        gate = threading.Barrier(16)

        def call() -> None:
            gate.wait()
            admin.list_topics()

        calls = [threading.Thread(target=call) for _ in range(16)]
        for each in calls:
            each.start()
        for each in calls:
            each.join()
        until(lambda: len(threads_of("many")) == 1)
        assert admin.list_topics() == {}


def test_one_that_made_no_call_is_closed_without_a_thread() -> None:
    admin = Admin(bootstrap_servers="127.0.0.1:1", client_id="idle")
    admin.close()
    assert threads_of("idle") == []
    with pytest.raises(ClosedError, match="this admin client is closed"):
        admin.list_topics()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="Linux lists descriptors there")
def test_one_that_nobody_closes_leaves_no_thread_and_no_descriptor(broker: Broker) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()
    before = descriptors()
    admins = [Admin(bootstrap_servers=broker.bootstrap_servers, client_id=f"left{n}") for n in range(5)]
    for admin in admins[1:]:
        admin.list_topics()
    threads = [thread for n in range(1, 5) for thread in threads_of(f"left{n}")]
    assert len(threads) == 4
    del admin
    with pytest.warns(ResourceWarning, match="was not closed"):
        admins.clear()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    # The embedded broker, in this process too, closes its ends when it sees that.
    until(lambda: descriptors() <= before, what=lambda: f"{descriptors()} and not {before}")


@pytest.mark.parametrize("is_waiting", [False, True])
def test_one_that_nobody_closes_does_not_hold_up_the_end_of_the_interpreter(
    broker: Broker, is_waiting: bool
) -> None:
    program = (
        "import contextlib, sys, threading\nfrom kadence import Admin\nfrom kadence.errors import ClosedError\n"
        "admin = Admin(bootstrap_servers=sys.argv[1])\nadmin.list_topics()\n"
    )
    if is_waiting:
        program += (
            "sys.stdin.readline()\n"
            "def call():\n"
            "    with contextlib.suppress(ClosedError):\n"
            "        admin.list_topics(timeout=3600)\n"
            "threading.Thread(target=call, daemon=True).start()\n"
            "sys.stdin.readline()\n"
        )
    command = [sys.executable, "-W", "default", "-c", program, broker.bootstrap_servers]
    with broker.faults.observe(MetadataRequest) as asked:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: asked)
    assert process.stdin is not None
    if is_waiting:
        with broker.faults.drop(MetadataRequest) as dropped:
            process.stdin.write("\n")
            process.stdin.flush()
            dropped.wait()
    _, said = process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert "Admin was not closed" in said


def test_a_bug_on_the_network_thread_ends_every_call_and_is_named(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.list_topics()
        monkeypatch.setattr(AdminManager, "on_response", broken)
        for _ in range(2):
            with pytest.raises(FatalNetworkError, match="a bug") as raised:
                # It asks in two ways, so the network thread does.
                admin.describe_consumer_groups("g")
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(FatalNetworkError):
        admin.list_topics()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_after_fork_is_refused_and_may_close(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.list_topics()
        child = os.fork()
        if child == 0:
            status = 1
            signal.alarm(int(PATIENCE))  # ends the child, should it wait
            try:
                admin.list_topics()
            except ForkedError:
                admin.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert admin.list_topics() == {}
