"""What a process tells `kadence top` of its consumers, over a real socket."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until

from kadence import Consumer, Producer, Record, TopicPartition, publish_state
from kadence_broker import Broker
from kadence_cli.top import local
from kadence_cli.top.gathering import Gatherer, Model, Wish
from kadence_cli.top.partition_rows import partition_rows
from kadence_cli.top.rows import (
    member_rows,
    process_events,
    process_rows,
    process_summary,
    reading_rows,
)
from kadence_cli.top.sampling import GroupHistory


@pytest.fixture(autouse=True)
def directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A path of pytest's own for a test is too long for a socket.
    made = tmp_path_factory.mktemp("s") / "kadence"
    monkeypatch.setenv("KADENCE_STATE_DIR", str(made))
    # A busy machine has no answer within half a second.
    monkeypatch.setattr(local, "_PATIENCE_S", PATIENCE)
    return made


@pytest.fixture
def consumer(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """With the settings of a test's parameter."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("flights", b"a value that nobody is told")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "report",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        **getattr(request, "param", {}),
    }
    with Consumer(settings) as made:
        made.subscribe("flights")
        until(lambda: made.poll(0.1), every=0)
        yield made


def test_a_consumer_as_others_see_it(consumer: Consumer, directory: Path) -> None:
    tp = TopicPartition("flights", 0)
    consumer.pause(tp)
    with publish_state(consumer) as publisher:
        assert directory.stat().st_mode & 0o077 == 0
        (seen,) = local.processes()
        assert seen.pid == os.getpid()
        assert local.by_member([seen])[consumer.group_metadata().member_id] is seen
        state = seen.state
        assert (state["client_id"], state["group_id"]) == ("reader", "report")
        (row,) = reading_rows(seen)
        assert (row.key, row.cells[3], row.mark) == (tp, "paused by the application", "")
        assert "process" in process_summary(seen)[0]
        assert process_rows([seen])[0].mark == "ok"
        (rebalance,) = state["rebalances"][-1:]
        assert rebalance["added"] == ["flights-0"]
        assert abs(rebalance["ended"] - time.time()) < 3600, "seconds since 1970"
        assert publisher.path.exists()
    assert not publisher.path.exists()
    assert local.processes() == ()
    publisher.close()


def test_a_consumer_that_runs_process(broker: Broker, directory: Path) -> None:
    """Its first record is held up: what `top` shows of it, from the process itself and from the brokers."""
    tp = TopicPartition("flights", 0)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(8):
            producer.send("flights", b"%d" % n, b"held" if n < 3 else b"%d" % n, partition=0)
    release, others = threading.Event(), threading.Event()
    handled: list[int] = []

    def work(record: Record) -> None:
        if record.offset == 0:
            assert release.wait(PATIENCE)
        handled.append(record.offset)
        if len(handled) == 5:
            others.set()

    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "works",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 20,
    }
    gatherer = Gatherer({"bootstrap.servers": broker.bootstrap_servers}, lambda round_: None, delay=1)
    with Consumer(settings) as consumer, publish_state(consumer):
        assert process_rows(local.processes())[0].cells[-1] == "-"
        consumer.subscribe("flights")
        working = threading.Thread(target=lambda: consumer.process(work))
        working.start()
        try:
            assert others.wait(PATIENCE)
            # One second: a record that holds up its partition for a shorter time is not named.
            until(lambda: reading_rows(local.processes()[0])[0].cells[4])
            (seen,) = local.processes()
            assert seen.state["work"] == {
                "running": 1,
                "waiting": 2,
                "retrying": 0,
                "paused": 0,
                "key_waiting": 2,
            }
            assert process_rows([seen])[0].cells[-1] == "3"
            assert reading_rows(seen)[0].cells[4].startswith("0 for ")
            said = process_summary(seen)[1]
            assert said.startswith(
                "process: 1 run, 2 wait, 0 to be repeated; 2 wait behind one record; the record of flights:0 at "
            )
            model = Model()
            until(lambda: _sampled(gatherer, model).above([tp]) == 5)
            history = model.history("works")
            (member,) = member_rows(history, local.by_member([seen]))
            assert member.cells[-2:] == ("5", "3")
            assert member_rows(history, {})[0].cells[-2:] == ("5", "-"), "elsewhere: what brokers know"
            assert partition_rows(history)[0].cells[-1] == "5"
        finally:
            release.set()
            consumer.stop()
            working.join(PATIENCE)
            gatherer.close()


def _sampled(gatherer: Gatherer, model: Model) -> GroupHistory:
    model.add(gatherer.round(Wish(("works",), 0)))
    return model.history("works")


@pytest.mark.parametrize(
    "consumer", [{"max.poll.interval.ms": 6_000, "stall.report.ratio": 0.05}], indirect=True, ids=["quick"]
)
def test_a_stall_is_told_while_it_lasts(consumer: Consumer) -> None:
    with publish_state(consumer):
        until(consumer.stalls)
        (seen,) = local.processes()
        (stall,) = seen.state["stalls"]
        assert stall["ended"] is None
        assert abs(stall["since"] - time.time()) < 3600
        assert "NOT POLLED since" in process_summary(seen)[1]
        assert "a value that nobody is told" not in str(seen.state)
        assert process_rows([seen])[0].mark == "bad"
        consumer.poll(0)
        until(lambda: consumer.stalls()[-1].ended_at is not None)
        (seen,) = local.processes()
        assert any("stall, for" in event.text for event in process_events(seen))


def test_a_consumer_without_a_group(broker: Broker) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer, publish_state() as publisher:
        assert local.processes() == ()
        publisher.add(consumer)
        (seen,) = local.processes()
        assert seen.state["group_id"] is None
        assert local.by_member([seen]) == {}


def test_a_process_that_is_stopped_and_one_that_was_killed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_PATIENCE_S", 0.5)
    program = "import kadence, sys; p = kadence.publish_state(); print(p.path, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            path = Path(process.stdout.readline().strip())
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            (seen,) = local.processes()
            assert (seen.pid, seen.trouble[:15]) == (process.pid, "does not answer")
            assert process_rows([seen])[0].mark == "bad"
        finally:
            process.kill()
        process.communicate()
    assert path.exists()
    assert local.processes() == ()
    with publish_state():
        assert not path.exists(), "the next one clears up"


def test_nobody_else_may_write_into_the_directory(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(PermissionError, match="other users of this machine may write to"):
        publish_state()


def test_nobody_else_may_connect_whatever_the_umask_says(directory: Path) -> None:
    before = os.umask(0)
    try:
        with publish_state():
            assert [path.stat().st_mode & 0o777 for path in directory.glob("*.sock")] == [0o600]
    finally:
        os.umask(before)


def test_a_forked_child_leaves_the_socket_alone() -> None:
    with publish_state() as publisher:
        child = os.fork()
        if not child:
            publisher.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert publisher.path.exists()


def test_what_other_programs_put_there_stays(directory: Path) -> None:
    """A directory such as /run/myapp, with files and sockets of others; none of their processes has such a number."""
    directory.mkdir(mode=0o700)
    dead = 400_000_000
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listening, silent, ours:
        listening.bind(str(directory / f"{dead}-1a.sock"))
        listening.listen()
        silent.bind(str(directory / "gunicorn.sock"))
        ours.bind(str(directory / f"{dead}-2b.sock"))
        ours.close()
        (directory / "notes.sock").write_text("mine")
        (directory / f"{dead}-3c.sock").write_text("mine")
        (directory / f"{dead}-4d.sock").symlink_to(directory / f"{dead}-1a.sock")
        (directory / f"{dead}-5e.sock.bak").write_text("mine")
        (directory / f"{dead * 10**12}-6f.sock").write_text("mine")
        before = {path.name for path in directory.iterdir()}
        publish_state().close()
        assert before - {path.name for path in directory.iterdir()} == {f"{dead}-2b.sock"}


def test_a_moment_without_file_descriptors_ends_no_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        """A listener that finds no descriptor for the first that it would accept."""

        def __init__(self, listener: socket.socket) -> None:
            self._listener = listener
            self._fails = iter((OSError(errno.EMFILE, "Too many open files"),))

        def accept(self) -> tuple[socket.socket, object]:
            for error in self._fails:
                raise error
            return self._listener.accept()

        def close(self) -> None:
            self._listener.close()

    with publish_state() as publisher:
        monkeypatch.setattr(publisher, "_listener", Short(publisher._listener))
        # The first answer is still that of the listener itself.
        for _ in range(2):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.settimeout(PATIENCE)
                asking.connect(str(publisher.path))
                assert asking.recv(1 << 16).startswith(b"{")
