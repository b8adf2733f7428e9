"""Starts Spark's Java process, and ends it where its start is interrupted.

PySpark waits for a file in which Java tells its port. Where a signal's exception ends that wait, PySpark deletes the
file's directory; Java then fails to write the file, and lives on for ever, without anybody who knows it. Only
PySpark's function knows the process, so this looks on while that starts it. Once Java has told its port, it ends with
this process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from kadence.spark.interpreter import is_submitted

__all__ = ["as_text", "end_half_started_java", "is_java_needed", "start_java"]

_half_started: Final[list[subprocess.Popen[Any]]] = []
"""Has not told its port yet."""


def start_java(settings: Mapping[str, Any], **how: Any) -> None:
    """Start it for this process, where `is_java_needed`.

    Args:
        settings: of Spark. how: further arguments of `subprocess.Popen`.
    """
    from pyspark import SparkConf, SparkContext, java_gateway

    if not is_java_needed():
        return

    def begin(*args: Any, **given: Any) -> subprocess.Popen[Any]:
        _half_started.append(subprocess.Popen(*args, **given))
        return _half_started[-1]

    conf = SparkConf().setAll([(key, as_text(value)) for key, value in settings.items()])
    java_gateway.Popen = begin  # type: ignore[attr-defined, assignment]
    try:
        SparkContext._ensure_initialized(gateway=java_gateway.launch_gateway(conf, how))  # type: ignore[no-untyped-call]
    except BaseException:
        end_half_started_java()
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]
        _half_started.clear()


def end_half_started_java() -> None:
    """End the Java process that `start_java` is at, if it is. Also in a signal's handler."""
    for each in _half_started:
        each.kill()


def is_java_needed() -> bool:
    """Whether none runs yet, and none has started this process; elsewhere than on POSIX PySpark starts it."""
    from pyspark import SparkContext

    return SparkContext._gateway is None and not is_submitted() and os.name == "posix"


def as_text(value: Any) -> str:
    """As Spark's builder writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
