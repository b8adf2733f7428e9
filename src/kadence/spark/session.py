"""A Spark session that works: the settings that everybody needs and nobody guesses.

* Spark starts its workers with the ``python3`` of PATH, which in a virtual environment is the wrong one, and
  says no more of it than "Python worker failed to connect back".
* Java may have to be found, or to be brought along (`kadence.java`).
* Workers talk over TCP by default, where each task waits 34 ms for an acknowledgement; Unix sockets have no such wait.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import MissingDependencyError
from kadence.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]

_WORKERS_NEED: Final = ("pyspark", "pyarrow", "pyspark_kadence")

_UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"


def session(
    app_name: str = "kadence", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """The running session, or a new one that can read ``format("kadence")``.

    Args:
        app_name: shown in Spark's pages. master: e.g. ``local[4]``; spark-submit's or Spark's default if None.
        conf: further Spark settings; they go before those made here.

    Raises:
        MissingDependencyError: PySpark, Java, or in the workers' Python something that they need, is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as problem:
        raise MissingDependencyError(
            "a Spark session needs PySpark: pip install 'kadence[spark]'"
        ) from problem
    _prepare_python()
    if SparkSession.getActiveSession() is None and "SPARK_REMOTE" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java().home)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    settings = {_UNIX_SOCKETS: "true" if os.name == "posix" else "false", **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _prepare_python() -> None:
    """Workers get this interpreter unless another is chosen; what it lacks is said here, where it can be read."""
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if chosen == sys.executable:
        missing = [name for name in _WORKERS_NEED if importlib.util.find_spec(name) is None]
        reason = f"no module named {missing[0]!r}" if missing else None
    else:
        reason = _try_out(chosen)
    if reason is not None:
        raise MissingDependencyError(
            f"Spark's workers run {chosen}, which cannot load the source: {reason}. Install 'kadence[spark]' "
            "there, or set PYSPARK_PYTHON to a Python that has it"
        )


def _try_out(python: str) -> str | None:
    """Why another interpreter cannot run the source; None: it can."""
    command = [python, "-c", f"import {', '.join(_WORKERS_NEED)}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except OSError as problem:
        return str(problem)
    return answer.stderr.strip().rpartition("\n")[2] if answer.returncode else None
