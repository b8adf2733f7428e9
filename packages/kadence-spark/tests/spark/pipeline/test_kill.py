"""A pipeline as a process of its own: killed, stopped, started again; every record is there once.

Signals go to the whole group of processes, as service managers, Kubernetes and terminals send them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.patience import until
from tests.spark.conftest import Cluster
from tests.spark.pipeline.conftest import File
from tests.spark.processes import HUNG_UP, java_below

pytestmark = pytest.mark.own_spark

SPARK = """
[spark]
master = "local[2]"
driver.memory = "512m"
driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
driver.bindAddress = "127.0.0.1"
driver.host = "127.0.0.1"
ui.enabled = false
sql.shuffle.partitions = 1
"""


def start(file: File) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kadence", "pipeline", "run", str(file.path)]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=file.directory,
        env=dict(os.environ),
        start_new_session=True,
    )


def told(file: File) -> dict[str, Any]:
    """What the checkpoint says, read by nobody who runs."""
    from kadence.errors import IllegalStateError
    from kadence_spark.pipeline.files import LocalFiles
    from kadence_spark.pipeline.status import status

    try:
        return status(LocalFiles(), str(file.directory / "checkpoint")).document()
    except IllegalStateError:
        return {"state": "not yet"}


def once(file: File, process: subprocess.Popen[str], seen: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the checkpoint says so. Spark's start, and that of the run, have a time of their own."""

    def wait(is_so: Callable[[dict[str, Any]], bool]) -> None:
        def done() -> bool:
            assert process.poll() is None, process.communicate()[1]
            return is_so(told(file))

        until(done, what=lambda: json.dumps(told(file)), every=0.05)

    wait(lambda now: java_below(process.pid) is not None)
    wait(lambda now: now.get("pid") == process.pid)
    wait(seen)


def offsets(place: Path, *names: str) -> list[tuple[int, int]]:
    table = ds.dataset(place, partitioning="hive").to_table(columns=list(names))
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def stop(file: File, process: subprocess.Popen[str], number: signal.Signals) -> None:
    """The batch at work ends, and nobody but the pipeline says a word."""
    os.killpg(process.pid, number)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number, errors
    assert told(file)["state"] == "stopped"
    assert told(file)["committed_batch"] >= told(file)["batch"]
    _, _, said = HUNG_UP.sub("", errors).partition('Setting Spark log level to "FATAL".\n')
    assert said, errors
    assert {line.partition(" ")[0] for line in said.splitlines()} <= {"numbers", "numbers:"}, errors


@pytest.mark.heavy
def test_kill_9_and_signals_to_the_group(cluster: Cluster, file: File) -> None:
    cluster.create(2)
    source = "maxOffsetsPerTrigger = 40"
    file.write(top='trigger = "every 10ms"', source=source)
    file.path.write_text(file.path.read_text() + SPARK)
    for partition in (0, 1):
        file.produce(range(200), partition=partition)
        file.send(b"{broken", partition=partition)

    process = start(file)
    once(file, process, lambda seen: seen.get("committed_batch", -1) >= 2)
    java = java_below(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not Path(f"/proc/{java}").exists(), what="the end of Java without its parent")
    assert told(file)["state"] == "killed"
    assert told(file)["committed_batch"] < 9

    process = start(file)
    once(file, process, lambda seen: seen.get("pid") == process.pid and seen["batches"] >= 2)
    stop(file, process, signal.SIGTERM)
    assert told(file)["committed_batch"] < 10

    process = start(file)
    ends = {f"{cluster.topic}-{partition}": 201 for partition in (0, 1)}
    once(file, process, lambda seen: seen.get("committed_offsets") == ends)
    stop(file, process, signal.SIGINT)
    wanted = [(partition, offset) for partition in (0, 1) for offset in range(200)]
    assert offsets(file.directory / "table", "_partition", "_offset") == wanted
    assert offsets(file.directory / "letters", "partition", "offset") == [(0, 200), (1, 200)]
