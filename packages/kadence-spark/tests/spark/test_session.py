"""The session helper. That a session made by it works is what all the Spark tests show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.patience import PATIENCE
from tests.spark.conftest import Cluster
from tests.spark.processes import HUNG_UP, JOBS, environment, run_job

from kadence.errors import IllegalStateError, MissingDependencyError
from kadence_spark import session as make_session
from kadence_spark.interpreter import choose
from kadence_spark.session import _check, _environment, _handlers_kept, _Interrupt, _on_ctrl_c, _surroundings

pytestmark = pytest.mark.shared_spark


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has named a Python; what the test names is forgotten."""
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")


@pytest.mark.usefixtures("unnamed")
def test_workers_get_this_interpreter() -> None:
    for master in ("local[2]", "spark://somewhere:7077"):
        assert _surroundings(master)["PYSPARK_DRIVER_PYTHON"] == sys.executable
        assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.usefixtures("unnamed")
def test_under_spark_submit_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert choose() == "python3"
    assert _surroundings("") == {}
    assert "PYSPARK_PYTHON" not in os.environ


def test_an_import_names_the_interpreter_where_nobody_has() -> None:
    program = "import os, kadence_spark; print(os.environ['PYSPARK_PYTHON'])"
    for variables, expected in (({}, sys.executable), ({"PYSPARK_PYTHON": "mine"}, "mine")):
        command = [sys.executable, "-c", program]
        said = subprocess.run(
            command, env=environment(**variables), capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == expected


def test_another_interpreter_is_tried_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def python(name: str, script: str) -> str:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return str(program)

    bare = python("bare", "echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2\nexit 1")
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    with pytest.raises(
        MissingDependencyError, match=r"cannot load the source: .*'pyarrow'.*kadence\[spark\]"
    ):
        _surroundings("local[2]")
    assert choose() == bare
    monkeypatch.setenv("PYSPARK_PYTHON", python("whole", "exit 0"))
    assert _surroundings("local[2]")["PYSPARK_DRIVER_PYTHON"] == sys.executable
    # Spark runs the tasks of a source with the Python that plans them.
    assert _surroundings("spark://somewhere:7077")["PYSPARK_DRIVER_PYTHON"] == str(tmp_path / "whole")
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    with pytest.raises(MissingDependencyError, match="no such program"):
        _surroundings("local")
    # There it may be.
    assert _surroundings("spark://somewhere:7077")["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.usefixtures("unnamed")
def test_what_this_interpreter_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else name)
    with pytest.raises(MissingDependencyError, match="no module named 'pyarrow'"):
        _surroundings("local")


def test_the_surroundings_are_gone_once_spark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KADENCE_ONE", "before")
    monkeypatch.delenv("KADENCE_TWO", raising=False)
    with _environment({"KADENCE_ONE": "1", "KADENCE_TWO": "2"}):
        assert os.environ["KADENCE_ONE"] + os.environ["KADENCE_TWO"] == "12"
    assert os.environ["KADENCE_ONE"] == "before"
    assert "KADENCE_TWO" not in os.environ


def test_a_running_session_is_found_again(spark: SparkSession) -> None:
    assert make_session() is spark
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_settings_that_come_too_late_are_named(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    late = {"spark.executor.cores": 3, "spark.sql.warehouse.dir": "/elsewhere", "spark.hadoop.fs.x": 1}
    in_force = {
        "spark.driver.memory": "512m",
        "spark.ui.enabled": False,
        "spark.app.id": spark.conf.get("spark.app.id"),
    }
    free = {"spark.sql.shuffle.partitions": 1, "spark.sql.catalog.mine": "a.Catalog", "mine": "1"}
    try:
        assert make_session(master="local[2]", conf=in_force | free) is spark
        assert caplog.messages == []
        assert make_session(master="local[7]", conf=free | late | in_force) is spark
    finally:
        for name in ("spark.sql.catalog.mine", "mine", "spark.hadoop.fs.x"):
            spark.conf.unset(name)
    (said,) = caplog.messages
    assert (
        ": spark.master, spark.executor.cores, spark.sql.warehouse.dir, spark.hadoop.fs.x; stop() it" in said
    )


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of signals are the test's, and afterwards what they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def as_pyspark_does() -> None:
    """When it has made a context."""
    signal.signal(signal.SIGINT, lambda number, frame: None)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("hold", [True, False])
def test_a_programs_own_handlers_stay_and_wait_while_spark_starts(*, hold: bool) -> None:
    steps: list[object] = []

    def own(number: int, frame: object) -> None:
        steps.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, own)
    with _handlers_kept(hold=hold):
        signal.raise_signal(signal.SIGTERM)
        steps.append("java")
        as_pyspark_does()
    _on_ctrl_c(cast("Any", None))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == [own, own]
    assert steps == (["java", signal.SIGTERM] if hold else [signal.SIGTERM, "java"])


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_while_spark_starts_raises_when_java_is_known() -> None:
    steps = []

    def start() -> None:
        with _handlers_kept(hold=True):
            signal.raise_signal(signal.SIGINT)
            steps.append("java")
            as_pyspark_does()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        start()
    assert steps == ["java"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_than_the_main_one_may_start_spark() -> None:
    def start() -> bool:
        with _handlers_kept(hold=True):
            return True

    with ThreadPoolExecutor() as threads:
        assert threads.submit(start).result()


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_is_of_the_session_that_runs_where_the_program_has_no_handler() -> None:
    for handler in (signal.default_int_handler, _Interrupt(cast("Any", None))):
        signal.signal(signal.SIGINT, handler)
        _on_ctrl_c(cast("Any", None))
        found = signal.getsignal(signal.SIGINT)
        assert isinstance(found, _Interrupt)
        assert found is not handler


def test_beside_a_running_session_that_cannot_read(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'kadence'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(IllegalStateError) as caught:
        _check(cast("Any", SimpleNamespace(pythonExec=str(bare), master="local[2]")))
    assert str(caught.value) == (
        f"the running Spark session starts its workers with {bare}, which cannot load the source: "
        "ModuleNotFoundError: No module named 'kadence'; stop() that session and call kadence_spark.session(), "
        "which names the right Python"
    )


@pytest.mark.heavy
def test_a_job_of_an_environment_that_nobody_activated(cluster: Cluster, tmp_path: Path) -> None:
    """Batch, limit, availableNow, a stream that is stopped, the end: all work."""
    cluster.create(2)
    cluster.produce(range(20_000))
    done = run_job("plain.py", cluster.bootstrap_servers, cluster.topic, str(tmp_path))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    refused = said.pop("no servers")
    assert said == {"rows": 20_000, "some": 1, "available now": 20_000, "stopped while busy": True}
    assert "option kafka.bootstrap.servers is needed" in refused
    # Java may warn of an InterruptedException of Hadoop's where a busy stream is stopped, and a worker of Spark's whose
    # reader has gone (a limit, a stop) tells of it: neither is ours.
    errors = HUNG_UP.sub("", done.stderr)
    for noise in ("Traceback", "BrokenPipe", "EOFError", "ERROR", "Python", "PySpark"):
        assert noise not in errors, errors


@pytest.mark.heavy
def test_ctrl_c_ends_a_program_without_a_page_of_traces(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(1)
    cluster.produce(range(3))
    command = [sys.executable, str(JOBS / "interrupted.py"), cluster.bootstrap_servers, cluster.topic]
    with subprocess.Popen(
        [*command, str(tmp_path / "checkpoint")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        os.killpg(program.pid, signal.SIGINT)
        said, errors = program.communicate(timeout=PATIENCE)
    assert (program.returncode, said) == (0, "stopped\nanother thread's connection is the same\n"), errors
    # The call that was interrupted, and nothing else.
    assert errors.count("ERROR:root:") == 1, errors
    assert "ERROR:root:KeyboardInterrupt while sending command" in errors
