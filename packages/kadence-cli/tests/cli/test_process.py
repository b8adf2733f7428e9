"""The program as a process: pipes, signals, statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence_broker import Broker
from kadence_schemas import SchemaRegistryClient

PROGRAM = [sys.executable, "-m", "kadence"]


@pytest.fixture
def environment(broker: Broker) -> dict[str, str]:
    # stdout is buffered as it is for everybody: whether it is flushed in time is for the program to see to.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**usual, "KADENCE_BOOTSTRAP_SERVERS": broker.bootstrap_servers}


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``kadence broker`` on a free port, and its address."""
    with subprocess.Popen(
        [*PROGRAM, "broker", "--port", "0", "--topic", "t:2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["bootstrap_servers"]
        process.kill()


def test_a_broker_with_a_schema_registry() -> None:
    with subprocess.Popen(
        [*PROGRAM, "broker", "--port", "0", "--schema-registry", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert SchemaRegistryClient(ready["schema_registry"]).get_subjects() == []
        process.kill()


def run(arguments: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, timeout=PATIENCE, check=False, **more)


def test_a_session_of_programs(served: tuple[subprocess.Popen[str], str]) -> None:
    broker, servers = served
    env = {**os.environ, "KADENCE_BOOTSTRAP_SERVERS": servers}
    assert run(["produce", "t", "--format", "lines"], input=b"1\n2\n3\n", env=env).returncode == 0
    consumed = run(["consume", "t", "-e", "--format", "values"], env=env)
    assert (consumed.returncode, sorted(consumed.stdout.split())) == (0, [b"1", b"2", b"3"])
    broker.send_signal(signal.SIGINT)
    out, err = broker.communicate(timeout=PATIENCE)
    assert (broker.returncode, out) == (0, "")
    assert "broker closed" in err


def test_a_reader_that_has_enough(environment: dict[str, str]) -> None:
    assert (
        run(
            ["produce", "t", "--format", "lines"], input=b"x" * 100 + b"\n" * 50_000, env=environment
        ).returncode
        == 0
    )
    with subprocess.Popen(
        [*PROGRAM, "consume", "t"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        consumer.stdout.readline()
        consumer.stdout.close()
        assert consumer.wait(PATIENCE) == 141
        assert b"Traceback" not in consumer.stderr.read()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_cleanly(environment: dict[str, str], number: int, status: int) -> None:
    assert run(["produce", "t", "--format", "lines"], input=b"x\n", env=environment).returncode == 0
    with subprocess.Popen(
        [*PROGRAM, "consume", "t", "-g", "g"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        consumer.stdout.readline()
        consumer.send_signal(number)
        assert consumer.wait(PATIENCE) == status
        assert b"Traceback" not in consumer.stderr.read()


def test_a_broker_with_logins_and_faults(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("# who may come in\nalice:correct:horse\n")
    arguments = [
        "broker",
        "--port",
        "0",
        "--topic",
        "t",
        "--users",
        str(users),
        "--fault",
        "list_groups drop",
    ]
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        servers = json.loads(broker.stdout.readline())["bootstrap_servers"]
        login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", "sasl.username=alice"]
        settings = [part for each in (*login, "sasl.password=correct:horse") for part in ("-X", each)]
        ran = run(["topics", "list", "-b", servers, *settings])
        assert (ran.returncode, b"t" in ran.stdout) == (0, True), ran.stderr
        broker.kill()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fault", "fetch explode"], b"'explode' is none of"),
        (["--users", "/nowhere"], b"--users /nowhere: No such file"),
        (["--users", "alone"], b"--users alone, line 2: a line is NAME:PASSWORD"),
        (["--users", "nobody"], b"--users nobody: it has no users; a line is NAME:PASSWORD"),
        (["--tls-key", "key.pem"], b"need --tls-certificate"),
        (["--tls-certificate", "/nowhere.pem"], b"'/nowhere.pem' and its key cannot be used"),
    ],
)
def test_a_broker_says_what_is_wrong(
    options: list[str], message: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone").write_text("ann:secret\nbob\n")
    (tmp_path / "nobody").write_text("# nobody yet\n")
    monkeypatch.chdir(tmp_path)
    ran = run(["broker", "--port", "0", *options])
    assert ran.returncode in (1, 2)
    assert message in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    """As `eval "$(register-python-argcomplete kadence)"` makes a shell ask."""
    pytest.importorskip("argcomplete")
    (tmp_path / "hour.parquet").touch()
    for line, offered in (
        ("kadence topi", ["topics "]),
        ("kadence topics create --part", ["--partitions "]),
        (f"kadence produce orders -i {tmp_path}/ho", [f"{tmp_path}/hour.parquet "]),
        (f"kadence groups why {tmp_path}/ho", [""]),
    ):
        said = tmp_path / "said"
        asked = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(said),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "COMP_TYPE": "9",
        }
        ran = run([], env={**os.environ, **asked})
        assert ran.returncode == 0, ran.stderr
        assert said.read_text().split("\n") == offered
