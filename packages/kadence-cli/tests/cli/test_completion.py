"""What a shell offers behind <TAB>: names of topics, groups and transactions, as the brokers of the line have them."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.patience import PATIENCE

from kadence import Admin, OffsetAndMetadata, Producer, TopicPartition
from kadence_broker import Broker

argcomplete: Any = pytest.importorskip("argcomplete")
finders: Any = argcomplete.finders

Tab = Callable[[str], list[str]]


@pytest.fixture
def tab(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> Tab:
    """``tab("kadence consume o")``: what is offered, as bash gets it. Nothing is written to the terminal."""

    class Finder(finders.CompletionFinder):  # type: ignore[misc]
        def _init_debug_stream(self) -> None:
            """Nothing: it would take a file of pytest's for its own."""

        def __call__(self, parser: Any, **settings: Any) -> None:
            super().__call__(parser, exit_method=sys.exit, output_stream=said, **settings)

    said = io.StringIO()
    monkeypatch.setattr(argcomplete, "autocomplete", Finder())
    monkeypatch.setattr("argcomplete.io.debug_stream", io.StringIO())
    monkeypatch.setattr("kadence_cli.offered.PATIENCE_S", PATIENCE)
    monkeypatch.delenv("KADENCE_CLUSTER", raising=False)

    def press(line: str) -> list[str]:
        said.seek(0)
        said.truncate()
        for name, value in {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "COMP_TYPE": "9",
        }.items():
            monkeypatch.setenv(name, value)
        ran = kadence()
        assert (ran.status, ran.out, ran.err) == (0, "", "")
        return said.getvalue().split("\n") if said.getvalue() else []

    return press


@pytest.fixture
def filled(broker: Broker) -> Broker:
    """It has three topics, two groups, a transactional id, and a group whose name a terminal would obey."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"orders": 2, "orders.dead": 1, "payments": 1})
        for group in ("report", "b $(x)", "red\x1b[31m"):
            admin.alter_consumer_group_offsets(group, {TopicPartition("orders", 0): OffsetAndMetadata(0)})
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("payments", b"v")
        producer.commit_transaction()
    return broker


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("consume ", ["orders", "orders.dead", "payments"]),
        ("consume p", ["payments "]),
        ("consume payments -g r", ["report "]),
        ("consume orders:", ["orders:0", "orders:1"]),
        ("consume orders --from ea", ["earliest "]),
        ("consume __c", ["__consumer_offsets "]),
        ("produce pay", ["payments "]),
        ("topics describe orders", ["orders", "orders.dead"]),
        # What stands there already is not offered again.
        ("topics describe orders orders", ["orders.dead "]),
        ("topics list p", ["payments "]),
        # A name that is taken is no use.
        ("topics create ", []),
        ("groups describe ", ["b\\ \\$\\(x\\)", "report"]),
        ("groups list r", ["report "]),
        ("groups why r", ["report "]),
        ("groups reset report --topic pay", ["payments "]),
        ("top r", ["report "]),
        ("transactions describe ", ["tx-1 "]),
        ("transactions list ", ["tx-1 "]),
        ("transactions abort pay", ["payments:0 "]),
        ("dead-letters replay orders.dead --to pay", ["payments "]),
        ("topics ", ["list", "describe", "create", "grow", "config", "delete-records", "delete"]),
        ("topics describe --j", ["--json "]),
    ],
)
def test_names_are_those_of_the_brokers(tab: Tab, filled: Broker, line: str, offered: list[str]) -> None:
    assert tab(f"kadence {line}") == offered


@pytest.mark.parametrize(
    "line",
    [
        "kadence -c here topics describe p",
        "kadence topics describe -c here p",
        "kadence topics describe -b {servers} p",
        "kadence --config {file} consume p",
        "kadence consume -X bootstrap.servers={servers} p",
    ],
)
def test_the_brokers_are_those_of_the_line(
    tab: Tab, filled: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    clusters, file = tmp_path / "config.toml", tmp_path / "client.properties"
    clusters.write_text(f'[clusters.here]\nbootstrap.servers = "{filled.bootstrap_servers}"\n')
    file.write_text(f"bootstrap.servers={filled.bootstrap_servers}\n")
    monkeypatch.setenv("KADENCE_CONFIG", str(clusters))
    monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert tab(line.format(servers=filled.bootstrap_servers, file=file)) == ["payments "]


@pytest.mark.parametrize(
    "line",
    [
        "kadence topics describe -b 127.0.0.1:1 ",
        "kadence topics describe -b nohost.invalid:9092 ",
        "kadence groups describe -b {silent} ",
        "kadence topics describe -b nonsense ",
        "kadence topics describe -c there ",
        "kadence topics describe -X nonsense ",
        "kadence topics describe -X sasl.pasword=hunter2 ",
        "kadence --config /nowhere topics describe ",
    ],
)
def test_without_an_answer_nothing_is_offered_and_nothing_said(
    tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("KADENCE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setattr("kadence_cli.offered.PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert tab(line.format(silent=f"127.0.0.1:{silent.getsockname()[1]}")) == []


def test_whoever_presses_tab_does_not_wait_for_a_look_up(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on = threading.Event()

    def look_up(*asked: Any, **more: Any) -> Any:
        going_on.wait(PATIENCE)
        raise socket.gaierror("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr("kadence_cli.offered.PATIENCE_S", 0.1)
    try:
        assert tab("kadence topics describe -b kafka.example.org:9092 ") == []
        assert not going_on.is_set()
    finally:
        going_on.set()
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and "_ask" in thread.name:
                thread.join(PATIENCE)


def test_the_command_line_alone_loads_no_client() -> None:
    """Each <TAB> reads it, and each command before it does anything."""
    program = "import sys; from kadence_cli.main import make_parser; make_parser(); print('kadence.net' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
