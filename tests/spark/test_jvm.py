"""Spark's Java process of a pipeline: what it says, and when. For signals see pipeline/test_kill.py."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.patience import PATIENCE, until
from tests.spark.processes import environment

from kadence.broker import Broker
from kadence.spark.jvm import _Voice

FILE = """\
checkpoint = "checkpoint"
[source]
servers = "${SERVERS}"
topics = ["t"]
[sink]
path = "table"
[spark]
master = "local[1]"
driver.memory = "much"
"""


def test_what_java_says_while_it_starts_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    voice = _Voice()
    voice.keep()
    with voice.pipe() as java:

        def say(text: str) -> None:
            java.write(f"{text}\n".encode())
            java.flush()

        def spark() -> SparkSession:
            system = SimpleNamespace(err=SimpleNamespace(println=say))
            jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
            return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_jvm=cast("Any", jvm))))

        say("WARNING: Using incubator modules")
        voice.go_on(spark())
        say("a task failed")
        until(lambda: shown.getvalue() == "a task failed\n")
        voice.keep()
        say("no master")
        until(lambda: voice._kept == ["no master\n"])
        voice.go_on(None)
        assert shown.getvalue() == "a task failed\nno master\n"
        voice.hush()
        say("Broken pipe")
        voice.keep()
        voice.go_on(spark())
        say("again")
        until(lambda: shown.getvalue().endswith("no master\nagain\n"))


def test_a_helper_whose_work_is_done_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    head = "Traceback (most recent call last):\n"
    hung_up = head + (
        '  File "/x/pyspark/daemon.py", line 95, in worker\n    outfile.flush()\n'
        "BrokenPipeError: [Errno 32] Broken pipe\n"
    )
    other = head + '  File "/x/pyspark/daemon.py", line 95, in worker\n    main()\nValueError: no\n'
    theirs = head + '  File "/x/job.py", line 1, in f\nBrokenPipeError: [Errno 32] Broken pipe\n'
    voice = _Voice()
    for line in ("a\n" + hung_up + other + "b\n" + theirs + hung_up).splitlines(keepends=True):
        voice._hear(line)
    assert shown.getvalue() == "a\n" + other + "b\n" + theirs


def test_spark_that_does_not_start(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "p.toml").write_text(FILE)
    command = [sys.executable, "-m", "kadence", "pipeline", "run", "p.toml"]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(SERVERS=broker.bootstrap_servers),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 1
    first, *said, last = ran.stderr.splitlines()
    assert first == "p: starting Spark"
    assert any("Invalid maximum heap size: -Xmxmuch" in line for line in said)
    assert last == (
        "kadence pipeline: Spark did not start: its Java process ended at once, with the words above"
    )
    assert "Traceback" not in ran.stderr


def test_a_pipeline_is_nothing_for_spark_connect(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "p.toml").write_text(FILE)
    ran = subprocess.run(
        [sys.executable, "-m", "kadence", "pipeline", "run", "p.toml"],
        cwd=tmp_path,
        env=environment(SERVERS=broker.bootstrap_servers, SPARK_REMOTE="sc://localhost:1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 2
    assert "unset the variable SPARK_REMOTE" in ran.stderr
