"""Chooses the Python with which Spark starts its workers, and checks that it can load the source.

Spark uses the ``python3`` of PATH. A job that is run as ``/venv/bin/python job.py`` then has its workers outside of its
environment, and Spark's only error is "Failed to find data source: kadence". So importing `kadence_spark` sets the
variable to this interpreter unless it is set; Spark reads it when the first session starts. Under spark-submit it is
not set: spark-submit chose this interpreter by the same rule as those of the executors, where the path may differ.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from typing import Final

__all__ = ["choose", "is_submitted", "what_it_lacks"]

NAMED_BY: Final = "PYSPARK_PYTHON"

_WORKERS_NEED: Final = ("pyspark", "pyarrow", "pyspark_kadence")


def choose() -> str:
    """The interpreter of workers: that of ``PYSPARK_PYTHON``, or else this one."""
    if is_submitted():
        return os.environ.get(NAMED_BY, "python3")
    return os.environ.setdefault(NAMED_BY, sys.executable)


def is_submitted() -> bool:
    """Whether Spark has started this process (spark-submit, some notebooks) and not the other way round."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def what_it_lacks(python: str) -> str | None:
    """The reason why an interpreter cannot run the source; None: it can."""
    found = shutil.which(python)
    if found is None:
        return "there is no such program on this machine"
    if found != sys.executable:
        return _tried(found)
    missing = [name for name in _WORKERS_NEED if importlib.util.find_spec(name) is None]
    return f"no module named {missing[0]!r}" if missing else None


@cache
def _tried(python: str) -> str | None:
    command = [python, "-c", f"import {', '.join(_WORKERS_NEED)}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    return answer.stderr.strip().rpartition("\n")[2] if answer.returncode else None
