"""How many tasks Spark runs at once, as far as the processes of a source in Python can know it.

Spark tells a source nothing of its cores: no process that plans tasks has a SparkContext, a session's settings or a
TaskContext. All of them inherit the environment of the JVM, though, and that of the Python process which started it. So
`kadence.spark.session` leaves there what master and settings say, before it starts the JVM.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["VARIABLE", "known_parallelism", "parallelism_of", "told"]

VARIABLE: Final = "KADENCE_SPARK_PARALLELISM"

_LOCAL: Final = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def known_parallelism() -> int:
    """What was told, else the cores of this machine."""
    told = os.environ.get(VARIABLE, "")
    return int(told) if told.isdigit() and int(told) > 0 else os.cpu_count() or 1


def told(master: str | None, conf: Mapping[str, Any]) -> dict[str, str]:
    """The environment in which a JVM has to be started, as `parallelism_of`. Nothing that is known: nothing is told."""
    found = parallelism_of(master, conf)
    return {} if found is None else {VARIABLE: str(found)}


def parallelism_of(master: str | None, conf: Mapping[str, Any]) -> int | None:
    """Tasks at once by a master URL and Spark's settings; None: they do not say."""

    def number(name: str) -> int | None:
        text = str(conf.get(name, "")).strip()
        return int(text) if text.isdigit() and int(text) > 0 else None

    if given := number("spark.default.parallelism"):
        return given
    cores: int | None = None
    if master == "local":
        return 1
    if master and (local := _LOCAL.fullmatch(master.strip())):
        # In this mode a task has one core, whatever spark.task.cpus says.
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
    if master and (several := _LOCAL_CLUSTER.fullmatch(master.strip())):
        cores = int(several[1]) * int(several[2])
    elif (instances := number("spark.executor.instances")) and (each := number("spark.executor.cores")):
        cores = instances * each
    most = number("spark.cores.max")
    if cores is None or (most is not None and most < cores):
        cores = most
    return None if cores is None else max(1, cores // (number("spark.task.cpus") or 1))
