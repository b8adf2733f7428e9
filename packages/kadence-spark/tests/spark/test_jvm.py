"""Spark's Java process of a pipeline that cannot start. For signals see pipeline/test_kill.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE
from tests.spark.processes import environment

from kadence_broker import Broker

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
        "kadence pipeline: Spark did not start: its Java process ended at once; its output is above"
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
