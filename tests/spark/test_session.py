"""The session helper. That a session made by it works is what all the Spark tests show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.core import context
from pyspark.sql import SparkSession
from tests.patience import PATIENCE
from tests.spark.conftest import Cluster
from tests.spark.processes import JOBS, environment, run_job

from kadence.errors import IllegalStateError, MissingDependencyError
from kadence.spark import session as make_session
from kadence.spark.home import home_without_zip
from kadence.spark.interpreter import choose
from kadence.spark.session import _check, _environment, _handlers_kept, _Interrupt, _on_ctrl_c, _surroundings
from kadence.spark.spawner import is_launcher


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has named a Python; what the test names is forgotten."""
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")


@pytest.mark.usefixtures("unnamed")
def test_workers_get_this_interpreter() -> None:
    surroundings = _surroundings("local[2]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert is_launcher(surroundings["PYSPARK_DRIVER_PYTHON"]) == (sys.platform == "linux")
    assert _surroundings("spark://somewhere:7077")["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.usefixtures("unnamed")
def test_options_of_java_that_somebody_has_set_are_kept_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert _surroundings("local[2]")["SPARK_SUBMIT_OPTS"] == "-Darrow.enable_null_check_for_get=false"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xss4m -Darrow.enable_null_check_for_get=true")
    # Java takes the last one.
    assert _surroundings("local[2]")["SPARK_SUBMIT_OPTS"].endswith(
        "=false -Xss4m -Darrow.enable_null_check_for_get=true"
    )
    assert "SPARK_SUBMIT_OPTS" not in _surroundings("spark://somewhere:7077")


def test_java_got_its_options(spark: SparkSession) -> None:
    assert spark._jvm is not None
    assert spark._jvm.java.lang.System.getProperty("arrow.enable_null_check_for_get") == "false"


@pytest.mark.usefixtures("unnamed")
def test_under_spark_submit_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert choose() == "python3"
    assert _surroundings("") == {}
    assert "PYSPARK_PYTHON" not in os.environ


def test_an_import_names_the_interpreter_where_nobody_has() -> None:
    program = "import os, kadence.spark; print(os.environ['PYSPARK_PYTHON'])"
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
    assert "SPARK_HOME" not in _surroundings("local[2]")  # its PySpark may be another one
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


def test_a_home_without_the_zip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = home_without_zip(tmp_path)
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()
    assert home_without_zip(tmp_path) == home  # made once
    (tmp_path / "file").touch()
    assert home_without_zip(tmp_path / "file") is None  # nowhere to write
    monkeypatch.setenv("SPARK_HOME", "/a/spark/of/the/user")
    assert home_without_zip(tmp_path) is None


def test_a_running_session_is_found_again(spark: SparkSession) -> None:
    assert make_session() is spark
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.python.daemon.module") == "kadence.spark.daemon"


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


def test_a_programs_own_handler_of_ctrl_c_stays() -> None:
    def own(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGINT, own)
    try:
        with _handlers_kept():
            # As PySpark does while it makes a context.
            vars(context)["signal"].signal(signal.SIGINT, lambda number, frame: None)
        _on_ctrl_c(cast("Any", None))
        assert signal.getsignal(signal.SIGINT) is own
        assert vars(context)["signal"] is signal
        for handler in (signal.default_int_handler, _Interrupt(cast("Any", None))):
            signal.signal(signal.SIGINT, handler)
            _on_ctrl_c(cast("Any", None))
            found = signal.getsignal(signal.SIGINT)
            assert isinstance(found, _Interrupt)
            assert found is not handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_beside_a_running_session_that_cannot_read(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'kadence'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(IllegalStateError) as caught:
        _check(cast("Any", SimpleNamespace(pythonExec=str(bare), master="local[2]")))
    assert str(caught.value) == (
        f"the running Spark session starts its workers with {bare}, which cannot load the source: "
        "ModuleNotFoundError: No module named 'kadence'; stop() that session and call kadence.spark.session(), "
        "which names the right Python"
    )


@pytest.mark.heavy
def test_a_job_of_an_environment_that_nobody_activated(cluster: Cluster, tmp_path: Path) -> None:
    """Batch, limit, availableNow, a stream that is stopped, the end: all work, and end without a traceback."""
    cluster.create(2)
    cluster.produce(range(20_000))
    done = run_job("plain.py", cluster.bootstrap_servers, cluster.topic, str(tmp_path))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    refused = said.pop("no servers")
    assert said == {"rows": 20_000, "some": 1, "available now": 20_000, "stopped while busy": True}
    assert "option kafka.bootstrap.servers is needed" in refused
    # Java may warn of an InterruptedException of Hadoop's where a busy stream is stopped: that is not ours.
    for noise in ("Traceback", "BrokenPipe", "EOFError", "ERROR", "Python", "PySpark"):
        assert noise not in done.stderr, done.stderr


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
