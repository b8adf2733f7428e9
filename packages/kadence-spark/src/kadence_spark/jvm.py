"""Starts Spark's Java process of a pipeline so that signals to this process group do not reach it.

PySpark starts Java in the group of its own process. ``timeout``, some service managers and ``kill`` of a job in a
shell send their signals to the whole group: SIGTERM then ends Java before Python has asked its query to stop. Here Java
gets a POSIX session of its own. It still ends with this process, even after SIGKILL: it reads its stdin, a pipe whose
other end only this process has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kadence_spark.interpreter import is_submitted
from kadence_spark.session import start_context, started

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["close_session", "session_apart"]


def session_apart(app_name: str, *, master: str | None, conf: Mapping[str, Any], hold: bool) -> SparkSession:
    """As `kadence_spark.session`, but its Java process ends only by `close_session`, or with this process.

    Args:
        hold: see `started`.
    """
    return started(app_name, master, conf, _start_apart, hold=hold)


def close_session(spark: SparkSession) -> None:
    """Stop Spark, unless its Java process has ended already."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        spark.stop()


def _start_apart(conf: SparkConf) -> None:
    """Start Java in its own session, unless Java runs already or has started this process. Only on POSIX."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or is_submitted() or os.name != "posix":
        start_context(conf)
    else:
        SparkContext(conf=conf, gateway=launch_gateway(conf, {"start_new_session": True}))  # type: ignore[no-untyped-call]
