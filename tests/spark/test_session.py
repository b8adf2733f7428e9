"""The session helper's preparations. That a session made by it works is what all the Spark tests show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kadence.errors import MissingDependencyError
from kadence.spark import session as make_session
from kadence.spark.session import _prepare_python


def test_workers_get_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    _prepare_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_another_interpreter_is_tried_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyarrow'\" >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    with pytest.raises(
        MissingDependencyError, match=r"cannot load the source: .*'pyarrow'.*kadence\[spark\]"
    ):
        _prepare_python()
    python.write_text("#!/bin/sh\nexit 0\n")
    _prepare_python()
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    with pytest.raises(MissingDependencyError, match="none"):
        _prepare_python()


def test_what_this_interpreter_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else name)
    with pytest.raises(MissingDependencyError, match="no module named 'pyarrow'"):
        _prepare_python()


def test_a_running_session_is_found_again(spark: SparkSession) -> None:
    assert make_session() is spark
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
