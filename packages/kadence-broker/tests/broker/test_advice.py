"""Advice in errors of the embedded broker: a broker that is started by it runs."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kadence import Admin, AsyncConsumer, ConfigResource, NewTopic, TopicPartition
from kadence.errors import ConfigError, ForkedError, KafkaError, MissingDependencyError
from kadence_broker import Broker
from kadence_broker.storage.journal import line_of
from kadence_testing import maven
from kadence_testing.simulation import Program, Simulation, SimulationError


class Row(NamedTuple):
    wrong: dict[str, Any]
    advice: str
    right: tuple[dict[str, Any], ...]


def config(**settings: Any) -> dict[str, Any]:
    return {"config": {name.replace("_", "."): value for name, value in settings.items()}}


def sessions(timeout_ms: int) -> dict[str, Any]:
    """Of members that send a heartbeat every five seconds."""
    return config(
        group_consumer_min_session_timeout_ms=5000,
        group_consumer_session_timeout_ms=timeout_ms,
        group_consumer_heartbeat_interval_ms=5000,
    )


ROWS = {
    "the port in the host": Row(
        {"host": "localhost:0"},
        "give the port apart from the host: host 'localhost', port 0",
        ({"host": "localhost", "port": 0},),
    ),
    "an address elsewhere": Row(
        {"host": "192.0.2.1"},
        "127.0.0.1 is for clients on this machine, 0.0.0.0 listens on all addresses that it has",
        ({"host": "127.0.0.1"}, {"host": "0.0.0.0"}),
    ),
    "a misspelt setting": Row(
        config(num_partition=3), "did you mean 'num.partitions'", (config(num_partitions=3),)
    ),
    "a migration policy": Row(
        config(group_consumer_migration_policy="always"),
        "is bidirectional, upgrade, downgrade or disabled",
        tuple(
            config(group_consumer_migration_policy=each)
            for each in ("bidirectional", "upgrade", "downgrade", "disabled")
        ),
    ),
    "an assignor": Row(
        config(group_consumer_assignors="sticky"),
        "group.consumer.assignors knows uniform and range",
        (config(group_consumer_assignors="uniform,range"), config(group_consumer_assignors="range")),
    ),
    "protocols": Row(
        config(group_coordinator_rebalance_protocols="consumer"),
        "is 'classic' or 'classic,consumer'",
        (
            config(group_coordinator_rebalance_protocols="classic"),
            config(group_coordinator_rebalance_protocols="classic,consumer"),
        ),
    ),
    "two hosts to advertise": Row(
        config(advertised_listeners="PLAINTEXT://localhost:19092", advertised_host_name="localhost"),
        "advertised.listeners has the host, too; leave out advertised.host.name",
        (config(advertised_listeners="PLAINTEXT://localhost:19092"),),
    ),
    "a port of nobody": Row(
        config(advertised_listeners="PLAINTEXT://localhost:0"),
        "name one from 1 to 65535",
        tuple(config(advertised_listeners=f"PLAINTEXT://localhost:{port}") for port in (1, 65535)),
    ),
    "an address without a port": Row(
        config(advertised_listeners="localhost"),
        "is no address with a port, such as PLAINTEXT://localhost:19092",
        (config(advertised_listeners="PLAINTEXT://localhost:19092"),),
    ),
    "all addresses to clients": Row(
        config(advertised_host_name="0.0.0.0"),
        "0.0.0.0 is for listening only; name the address that clients connect to",
        (config(advertised_host_name="192.0.2.1"),),
    ),
    "rare heartbeats": Row(
        config(group_consumer_heartbeat_interval_ms=9000, group_consumer_session_timeout_ms=9000),
        "must be between",
        (config(group_consumer_heartbeat_interval_ms=5000, group_consumer_session_timeout_ms=45000),),
    ),
    "sessions of share groups": Row(
        config(group_share_max_share_sessions=10, group_share_max_size=20),
        "must be at least group.share.max.size",
        (config(group_share_max_share_sessions=20, group_share_max_size=20),),
    ),
    "an assignor of share groups": Row(
        config(group_share_assignors="range"),
        "group.share.assignors knows only simple",
        (config(group_share_assignors="simple"),),
    ),
    "heartbeats as rare as the session is long": Row(
        sessions(5000),
        "group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms",
        (sessions(5001),),
    ),
    "a bound below one request": Row(
        config(queued_max_request_bytes=1000),
        "must be at least socket.request.max.bytes (104857600), or -1 for no bound",
        (config(queued_max_request_bytes=104857600), config(queued_max_request_bytes=-1)),
    ),
    "passwords of nobody": Row(
        {"mechanisms": ["PLAIN"]},
        "mechanism PLAIN needs users=, passwords by user",
        ({"mechanisms": ["PLAIN"], "users": {"me": "pw"}},),
    ),
    "passwords that nobody asks for": Row(
        {"mechanisms": ["OAUTHBEARER"], "users": {"me": "pw"}},
        "no mechanism that asks for a password: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        tuple(
            {"mechanisms": ["OAUTHBEARER", each], "users": {"me": "pw"}}
            for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        ),
    ),
    "a policy of the disk": Row(
        {"fsync": "often"},
        "fsync must be one of flush, interval, never",
        tuple({"fsync": each} for each in ("flush", "interval", "never")),
    ),
    "a truth": Row(
        config(auto_create_topics_enable="perhaps"),
        "must be true or false",
        (config(auto_create_topics_enable="true"), config(auto_create_topics_enable="false")),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_broker_that_follows_the_advice_runs(row: Row) -> None:
    with pytest.raises((ConfigError, KafkaError), match=re.escape(row.advice)):
        Broker(**row.wrong)
    for right in row.right:
        with Broker(**right) as broker:
            assert broker.bootstrap_servers


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(KafkaError, match="choose another port, or 0 for any free one"):
            Broker(port=taken.getsockname()[1])
        with Broker(port=0) as broker:
            assert broker.bootstrap_servers


@contextmanager
def left(path: Path, harm: Callable[[Path], object]) -> Iterator[str]:
    """The error of a broker on a data directory that was left in order and then harmed."""
    with Broker(topics={"t": 1}, data_dir=path):
        pass
    harm(path)
    with pytest.raises(ConfigError) as caught:
        Broker(data_dir=path)
    yield str(caught.value)


def topics(path: Path) -> list[str]:
    with Broker(data_dir=path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return list(admin.list_topics())


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, data_dir=tmp_path / "one") as broker:
        with pytest.raises(ConfigError, match="stop that broker, or use another directory"):
            Broker(data_dir=tmp_path / "one")
        assert topics(tmp_path / "two") == []
        broker.close()
    assert topics(tmp_path / "one") == ["t"]


def test_an_identity_that_is_empty(tmp_path: Path) -> None:
    meta = tmp_path / "meta.properties"
    with left(tmp_path, lambda _: meta.write_text("version=1\n")) as text:
        assert "names no cluster.id; correct it, or delete it to get a new id" in text
    meta.unlink()
    assert topics(tmp_path) == ["t"]


def test_topics_that_are_gone(tmp_path: Path) -> None:
    journal = tmp_path / "topics.journal"
    kept = {}

    def harm(_: Path) -> None:
        kept["journal"] = journal.read_bytes()
        journal.unlink()

    with left(tmp_path, harm) as text:
        assert "Restore it; or, to begin without topics, move all else that is in" in text
    journal.write_bytes(kept["journal"])
    assert topics(tmp_path) == ["t"]
    with left(tmp_path, harm):
        for each in list(tmp_path.iterdir()):
            each.rename(tmp_path.parent / f"away-{each.name}")
    assert topics(tmp_path) == []


def test_topics_of_which_the_last_is_damaged(tmp_path: Path) -> None:
    """Its line is cut off, as the error says; the next one says how to go on with fewer topics."""
    journal = tmp_path / "topics.journal"
    with left(tmp_path, lambda _: journal.write_bytes(journal.read_bytes()[:-1])) as text:
        assert "line 2 is damaged; restore it, or cut the file off before it" in text
    damaged = journal.read_bytes()
    journal.write_bytes(damaged + b"\n")
    assert topics(tmp_path) == ["t"]
    journal.write_bytes(damaged.splitlines(keepends=True)[0])
    with pytest.raises(ConfigError, match="it may lack topics") as caught:
        Broker(data_dir=tmp_path)
    found = re.search(r"to continue with its present content, delete (\S+)$", str(caught.value))
    assert found is not None
    Path(found[1]).unlink()
    assert topics(tmp_path) == []


def test_an_entry_that_this_version_does_not_know(tmp_path: Path) -> None:
    """As of a later version: the line has a checksum, so nobody mends it by hand."""
    journal = tmp_path / "topics.journal"
    with left(tmp_path, lambda _: journal.write_bytes(journal.read_bytes() + line_of({"later": 1}))) as text:
        found = re.search(r"line (\d+) is no entry .* start the version that wrote it, or cut the file", text)
    assert found is not None
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[: int(found[1]) - 1]))
    assert topics(tmp_path) == ["t"]


def test_a_setting_of_a_group_that_this_version_does_not_take(tmp_path: Path) -> None:
    journal = tmp_path / "topics.journal"
    entries = [
        {"group": name, "config": {"consumer.session.timeout.ms": value}}
        for name, value in (("before", "50000"), ("jobs", "long"), ("later", "50000"))
    ]
    with left(
        tmp_path, lambda _: journal.write_bytes(journal.read_bytes() + b"".join(map(line_of, entries)))
    ) as text:
        assert f"{journal} has " in text, "more bytes than when the broker ended"
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with pytest.raises(ConfigError) as caught:
        Broker(data_dir=tmp_path)
    assert str(caught.value).endswith(
        "delete the line of this group there: then the group has the broker's settings"
    )
    assert f"{journal}: group 'jobs': " in str(caught.value)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"jobs"' not in line))
    with Broker(data_dir=tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        groups = [ConfigResource("group", name) for name in ("before", "jobs", "later")]
        found = admin.describe_configs(groups)
        name = "consumer.session.timeout.ms"
        assert [found[each][name].value for each in groups] == ["50000", "45000", "50000"]


def test_an_identity_that_is_mended(tmp_path: Path) -> None:
    meta = tmp_path / "meta.properties"
    with left(tmp_path, lambda _: meta.write_text("version=1\n")):
        meta.write_text("version=1\ncluster.id=mine\n")
    with Broker(data_dir=tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_cluster().cluster_id == "mine"


FAULTS = {
    "fetsch drop": ("did you mean fetch?", ("fetch drop",)),
    "nonsense drop": (
        "e.g. fetch, produce, heartbeat, any",
        tuple(f"{api} drop" for api in ("fetch", "produce", "heartbeat", "any")),
    ),
    " ": ("a fault is empty; e.g. 'fetch delay=200ms'", ("fetch delay=200ms",)),
    "fetch": (
        "after the API comes one of delay, error, drop, disconnect, truncate, e.g. 'fetch delay=200ms'",
        ("fetch delay=1s", "fetch error=NONE", "fetch drop", "fetch disconnect", "fetch truncate"),
    ),
    "fetch delay=fast": (
        "e.g. 200ms, 1.5s, 2m",
        tuple(f"fetch delay={time}" for time in ("200ms", "1.5s", "2m")),
    ),
    "fetch error=NOT_LEADER": (
        "did you mean NOT_LEADER_OR_FOLLOWER?",
        ("fetch error=NOT_LEADER_OR_FOLLOWER",),
    ),
    "freeze topic=t": ("freeze takes node= only", ("freeze node=1",)),
}


@pytest.mark.parametrize("wrong", FAULTS)
def test_faults_that_are_written_as_advised(wrong: str) -> None:
    advice, right = FAULTS[wrong]
    with Broker() as broker:
        with pytest.raises(ConfigError, match=re.escape(advice)):
            broker.faults.parse(wrong)
        for text in right:
            broker.faults.parse(text)
            broker.faults.clear()


def refused(call: Callable[[], object], advice: str) -> None:
    with pytest.raises(KafkaError, match=re.escape(advice)):
        call()


def test_what_the_broker_answers() -> None:
    with (
        Broker(topics={"t": 2}, nodes=2) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        refused(lambda: admin.create_partitions({"t": 2}), "The topic has 2 partitions; ask for more.")
        admin.create_partitions({"t": 3})
        refused(
            lambda: admin.create_topics([NewTopic("tiered", 1, configs={"remote.storage.enable": "true"})]),
            "Leave it at false.",
        )
        admin.create_topics([NewTopic("tiered", 1, configs={"remote.storage.enable": "false"})])
        refused(
            lambda: admin.create_topics([NewTopic("kept", 1, configs={"retention.m": "1"})]),
            "Did you mean retention.ms?",
        )
        admin.create_topics([NewTopic("kept", 1, configs={"retention.ms": "1"})])


def test_maven_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a program of its name is on PATH, the jars are got."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setattr(maven, "cache_directory", lambda: tmp_path / "cache")
    monkeypatch.setattr(maven, "find_java", lambda: SimpleNamespace(home=tmp_path))
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(MissingDependencyError, match=r"`mvn`.* is not on PATH\. Install it"):
        maven.maven_jars("kafka", ["org.apache.kafka:kafka_2.13:4.4.0"])
    program = tools / "mvn"
    program.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "pathlib.Path(sys.argv[-1].removeprefix('-DoutputDirectory=')).mkdir()\n"
    )
    program.chmod(0o755)
    assert maven.maven_jars("kafka", ["org.apache.kafka:kafka_2.13:4.4.0"]).is_dir()


def test_programs_of_a_simulation() -> None:
    """One that starts a thread is told which clients have none, and a name that is taken, how to start it again."""
    polled: list[int] = []

    async def starts(program: Program) -> None:
        threading.Thread(target=print).start()

    async def reads(program: Program) -> None:
        async with AsyncConsumer(bootstrap_servers=program.bootstrap_servers) as consumer:
            await consumer.assign([TopicPartition("t", 0)])
            polled.append(len(await consumer.poll(1)))

    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("wrong", starts)
        with pytest.raises(SimulationError) as caught:
            simulation.run(1)
    assert "Use AsyncConsumer and AsyncProducer; Admin has threads" in str(caught.value.__cause__)
    with Simulation(topics={"t": 1}) as simulation:
        program = simulation.start("right", reads)
        simulation.run(5)
        with pytest.raises(SimulationError, match=re.escape("its restart() starts it again")):
            simulation.start("right", reads)
        program.restart()
        simulation.run(5)
    assert polled == [0, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork()")
def test_a_fork_of_a_brokers_process_reaches_it_by_its_address() -> None:
    with Broker() as broker:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                broker.create_topic("made")
            except ForkedError as error:
                servers = str(error).rpartition("clients here reach it as ")[2]
                with Admin(bootstrap_servers=servers) as admin:
                    admin.create_topics([NewTopic("made", 1)])
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert broker.offsets("made") == [(0, 0)]


def test_data_where_no_files_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "fcntl" else find(name, *more)
    )
    with pytest.raises(ConfigError, match="which this system lacks; keep the data in memory"):
        Broker(data_dir=tmp_path)
    with Broker() as broker:
        assert broker.bootstrap_servers


def test_a_port_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = socket.socket.bind

    def as_this_user(sock: socket.socket, address: Any) -> None:
        if 0 < address[1] < 1024:
            raise PermissionError(errno.EACCES, "Permission denied")
        bind(sock, address)

    monkeypatch.setattr(socket.socket, "bind", as_this_user)
    with pytest.raises(KafkaError, match="choose one above 1023, or 0 for any free one"):
        Broker(port=92)
    with Broker(port=0) as broker:
        assert broker.bootstrap_servers
