"""Signals of a pipeline's process at its start and at its end, and again: it ends at once, with one line.

A signal while a batch is at work: test_kill.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.spark.processes import java_below

from kadence_broker import Broker

pytestmark = pytest.mark.own_spark

FILE = """\
name = "numbers"
checkpoint = "checkpoint"
[source]
servers = "{servers}"
topics = ["t"]
[sink]
path = "table"
[spark]
master = "local[1]"
driver.bindAddress = "127.0.0.1"
driver.host = "127.0.0.1"
"""

RUN = """
import os, sys, threading, time
from types import SimpleNamespace
from kadence_spark.pipeline import signals as module
from kadence_spark.pipeline.signals import Signals

asked = threading.Event()
moment, seconds = sys.argv[1], float(sys.argv[2])
for name, value in zip(sys.argv[3::2], sys.argv[4::2]):
    setattr(module, name, float(value))

def work():
    print("at work", flush=True)
    asked.wait()
    print("asked", flush=True)
    time.sleep(seconds)

run = SimpleNamespace(run=work, stop=asked.set, grace=0.0, has_begun=moment == "batch")
with Signals("numbers") as signals:
    if moment == "start":
        print("at work", flush=True)
        time.sleep(seconds)
    sys.exit(signals.run(run))
"""


def signalled(
    moment: str, seconds: float, first: signal.Signals, second: signal.Signals | None = None, **limits: float
) -> tuple[int, str]:
    """The status and the words of a process whose run takes ``seconds`` to end once it is asked to.

    Args:
        second: it comes once the process has taken the first one. limits: values for constants of `signals`.
    """
    given = [part for name, value in limits.items() for part in (name, str(value))]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, moment, str(seconds), *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(first)
        if second is not None:
            assert process.stdout.readline() == "asked\n"
            process.send_signal(second)
        _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_nothing_is_at_stake_the_process_ends_at_once(number: signal.Signals) -> None:
    said = f"numbers: {number.name} ended it while Spark started or ended\n"
    assert signalled("start", 300, number) == (128 + number, said)


def test_a_run_is_asked_to_end_once_for_the_same_wish() -> None:
    """`timeout` and service managers send a signal to the process, and then to its group."""
    found = signalled("batch", 0.3, signal.SIGTERM, signal.SIGTERM, _SAME_S=300, _TO_CLOSE_S=300)
    assert found == (143, "")


def test_a_second_signal_ends_a_run_at_once() -> None:
    status, errors = signalled("batch", 300, signal.SIGTERM, signal.SIGINT, _SAME_S=0, _TO_CLOSE_S=300)
    assert (status, errors.splitlines()) == (
        143,
        ["numbers: SIGTERM ended it at the second one; the next run repeats the batch that was running"],
    )


def test_a_run_that_does_not_end_in_time_is_ended() -> None:
    status, errors = signalled("plan", 300, signal.SIGINT)
    assert status == 130
    assert errors.startswith("numbers: SIGINT ended it because it did not end in time; the next run ")


@pytest.mark.parametrize("command", ["run", pytest.param("check --sql", marks=pytest.mark.heavy)])
def test_a_signal_while_spark_starts_leaves_no_java(command: str, tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        (tmp_path / "numbers.toml").write_text(FILE.format(servers=broker.bootstrap_servers))
        process = subprocess.Popen(
            [sys.executable, "-m", "kadence", "pipeline", *command.split(), "numbers.toml"],
            cwd=tmp_path,
            env=dict(os.environ),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            until(lambda: java_below(process.pid) is not None)
            java = java_below(process.pid)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert "Traceback" not in errors
    until(lambda: not Path(f"/proc/{java}").exists(), what=f"the end of Java, {java}")
