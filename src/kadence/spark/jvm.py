"""Spark's Java process of a pipeline, out of reach of signals to this process's group.

PySpark starts Java in the group of its own process. ``timeout``, some service managers and ``kill`` of a job in a
shell send their signals to the whole group: SIGTERM then ends Java before Python has asked its query to stop. Here Java
gets a session of its own, in the system's sense. It ends with this process even so, after SIGKILL too: it reads its
stdin, a pipe whose other end only this process has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kadence.spark.interpreter import is_submitted
from kadence.spark.session import start_context, started

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["close_session", "session_apart"]


def session_apart(app_name: str, *, master: str | None, conf: Mapping[str, Any], hold: bool) -> SparkSession:
    """As `kadence.spark.session`; its Java process ends with this process, and before it by `close_session` alone.

    Args:
        hold: see `started`.
    """
    return started(app_name, master, conf, _start_apart, hold=hold)


def close_session(spark: SparkSession) -> None:
    """Stop Spark. If its Java process has ended already, there is nothing to stop."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        spark.stop()


def _start_apart(conf: SparkConf) -> None:
    """Start Java for this process, unless one runs already or has started this process. Only POSIX has sessions."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or is_submitted() or os.name != "posix":
        start_context(conf)
    else:
        SparkContext(conf=conf, gateway=launch_gateway(conf, {"start_new_session": True}))  # type: ignore[no-untyped-call]
