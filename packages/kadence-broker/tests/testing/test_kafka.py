"""The fixture itself: real Kafka comes up, answers, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until

from kadence import Producer
from kadence.errors import LocalError, MissingDependencyError
from kadence_testing.kafka import KAFKA_VERSION, Kafka, _reserved, free_ports
from kadence_testing.maven import maven_jars


def test_the_shared_node_answers_kafkas_own_tool(kafka: Kafka) -> None:
    kafka.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *(
            "--bootstrap-server",
            kafka.bootstrap_servers,
            "--create",
            "--topic",
            "fixture-check",
            "--partitions",
            "2",
        ),
    )
    described = kafka.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--topic", "fixture-check"),
    )
    assert "PartitionCount: 2" in described
    assert repr(kafka) == f"<Kafka {KAFKA_VERSION} at {kafka.bootstrap_servers}, pid {kafka.pid}>"


@pytest.mark.parametrize(("named", "used"), [("4.3.1", "4.3.1"), ("", "4.4.0"), (None, "4.4.0")])
def test_one_variable_chooses_the_release(named: str | None, used: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KADENCE_KAFKA_VERSION"}
    if named is not None:
        environment["KADENCE_KAFKA_VERSION"] = named
    program = "from kadence_testing.kafka import KAFKA_VERSION as v, _COORDINATES as c; print(v, v in c[0], v in c[1])"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [used, "True", "True"]


def test_a_failing_tool_says_what_it_wrote(kafka: Kafka) -> None:
    with pytest.raises(LocalError, match="TopicCommand ended with 1"):
        kafka.run_tool("org.apache.kafka.tools.TopicCommand", "--no-such-option")


def test_a_node_that_cannot_start_shows_its_log_and_leaves_nothing(kafka: Kafka) -> None:
    broken = Kafka({"process.roles": "broker,conductor"})
    with pytest.raises(LocalError, match="conductor"):
        broken.start()
    assert broken.pid == 0
    assert repr(broken) == f"<Kafka {KAFKA_VERSION} not running>"


@pytest.mark.heavy
@pytest.mark.parametrize("taken", [pytest.param(0, id="listener"), pytest.param(1, id="controller")])
def test_a_node_whose_port_is_taken_while_it_starts_gets_others(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    chosen: list[list[int]] = []
    with ExitStack() as others:

        def choose(count: int) -> list[int]:
            ports = free_ports(count)
            if not chosen:
                others.enter_context(socket.create_server(("127.0.0.1", ports[taken])))
            chosen.append(ports)
            return ports

        monkeypatch.setattr("kadence_testing.kafka.free_ports", choose)
        with Kafka() as node, Producer(bootstrap_servers=node.bootstrap_servers) as producer:
            assert node.bootstrap_servers == f"127.0.0.1:{chosen[1][0]}"
            assert producer.send("t", b"v").result(PATIENCE).offset == 0
    assert len(chosen) == 2


@pytest.mark.heavy
def test_a_node_that_never_gets_a_port_says_so(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kadence_testing.kafka._PORT_ATTEMPTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr("kadence_testing.kafka.free_ports", lambda count: [port, *free_ports(count - 1)])
        with pytest.raises(LocalError, match=f"failed to bind to 127.0.0.1:{port}"):
            Kafka().start()


def test_nobody_is_given_a_port_of_a_node_that_is_halted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens there, and it has to come back on it: another node once had it meanwhile."""
    ours, other = free_ports(2)
    monkeypatch.setattr("kadence_testing.kafka._PORTS", [ours, other])
    with _reserved(ours):
        assert [free_ports(1) for _ in range(20)] == [[other]] * 20
    assert sorted(free_ports(2)) == sorted([ours, other])


@pytest.mark.heavy
def test_a_halted_node_comes_back_with_its_data_on_its_port(kafka: Kafka) -> None:
    with Kafka() as node, Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        address = node.bootstrap_servers
        sent = producer.send("kept", b"before").result(PATIENCE)
        pid = node.pid
        node.halt()
        assert (node.pid, repr(node)) == (0, f"<Kafka {KAFKA_VERSION} halted>")
        node.start()
        assert node.bootstrap_servers == address
        assert node.pid != pid
        after = producer.send("kept", b"after", partition=sent.partition).result(PATIENCE)
        assert (sent.offset, after.offset) == (0, 1)


def test_the_guard_kills_what_a_killed_owner_leaves(tmp_path: Path) -> None:
    """A test run that is killed must not leave a JVM behind, and nobody is left to clean up but the guard."""
    owner = "import sys; from kadence_testing.kafka import _guard; from pathlib import Path\n"
    owner += (
        "with _guard(int(sys.argv[1]), Path(sys.argv[2])): print('guarding', flush=True); sys.stdin.read()\n"
    )
    directory = tmp_path / "data"
    directory.mkdir()
    with subprocess.Popen(["sleep", "600"]) as native_heartbeat:
        with subprocess.Popen(
            [sys.executable, "-c", owner, str(native_heartbeat.pid), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"guarding\n"
            process.send_signal(signal.SIGKILL)
        assert native_heartbeat.wait(timeout=PATIENCE) == -signal.SIGKILL
    # The guard removes the data after the kill, in a process that nobody waits for.
    until(lambda: not directory.exists(), what="the data is there still")


def test_jars_without_maven_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="apt-get install maven"):
        maven_jars("nothing-1.0", ["org.example:nothing:1.0"])


def test_jars_that_are_cached_need_no_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    libs = tmp_path / "kadence" / "jars" / "nothing-1.0" / "libs"
    libs.mkdir(parents=True)
    assert maven_jars("nothing-1.0", ["org.example:nothing:1.0"]) == libs


def test_maven_that_fails_is_reported_and_nothing_half_made_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho 'no such artifact'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MissingDependencyError, match="no such artifact"):
        maven_jars("nothing-1.0", ["org.example:nothing:1.0"])
    assert not (tmp_path / "kadence" / "jars" / "nothing-1.0" / "libs").exists()
