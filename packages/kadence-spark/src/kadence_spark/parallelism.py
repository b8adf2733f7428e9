"""Finds out how many tasks Spark runs at once.

A source does not know Spark's cores: the processes that plan tasks have neither a SparkContext nor a session's settings
nor a TaskContext. So `kadence_spark.session` puts the number, from master and settings, into their environment. Without
it, the command line of Spark's Java process, their ancestor, may have these settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["VARIABLE", "known_parallelism", "parallelism_of", "submitted_with", "told"]

VARIABLE: Final = "KADENCE_SPARK_PARALLELISM"
"""The variable with the number of tasks; empty: the session does not know it, either."""

_LOCAL: Final = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_SETTING_OF: Final = {
    "--master": "spark.master",
    "--num-executors": "spark.executor.instances",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
}
_FLAGS: Final = ("--help", "--load-spark-defaults", "--supervise", "--usage-error", "--verbose", "--version")
_GENERATIONS: Final = 3
"""How many ancestors are checked: between Java and a worker there may be a daemon."""


def known_parallelism(environment: Mapping[str, str] = os.environ) -> int | None:
    """The session's number, else the one of Java's command line; None: unknown."""
    told = environment.get(VARIABLE)
    if told is None:
        conf = submitted_with(_command_of_java())
        return parallelism_of(conf.get("spark.master"), conf)
    return int(told) if told.isdigit() and int(told) > 0 else None


def told(master: str | None, conf: Mapping[str, Any]) -> dict[str, str]:
    """The environment for the processes of the source, as `parallelism_of`."""
    return {VARIABLE: str(parallelism_of(master, conf) or "")}


def submitted_with(command: Sequence[str]) -> dict[str, str]:
    """The relevant settings on the command line of a Java process that spark-submit started."""
    if _SUBMIT not in command:
        return {}
    found: dict[str, str] = {}
    arguments = iter(command[command.index(_SUBMIT) + 1 :])
    for argument in arguments:
        if not argument.startswith("--"):
            break  # the program; later arguments are for it
        name, is_joined, value = argument.partition("=")
        if name in _FLAGS:
            continue
        text = value if is_joined else next(arguments, "")
        if name in ("--conf", "-c"):
            setting, _, text = text.partition("=")
            found[setting] = text
        elif name in _SETTING_OF:
            found[_SETTING_OF[name]] = text
    return found


def _command_of_java() -> list[str]:
    """The command line of the Java process from which this one descends, on Linux."""
    try:
        process = os.getppid()
        for _ in range(_GENERATIONS):
            command = Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")
            if _SUBMIT in command:
                return command
            process = int(
                Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            )
    except (OSError, ValueError, IndexError):
        pass
    return []


def parallelism_of(master: str | None, conf: Mapping[str, Any]) -> int | None:
    """The number of tasks from a master URL and Spark's settings; None: unknown."""

    def number(name: str) -> int | None:
        text = str(conf.get(name, "")).strip()
        return int(text) if text.isdigit() and int(text) > 0 else None

    if given := number("spark.default.parallelism"):
        return given
    cores: int | None = None
    if master == "local":
        return 1
    if master and (local := _LOCAL.fullmatch(master.strip())):
        # In this mode a task has one core; spark.task.cpus has no effect.
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
    if master and (several := _LOCAL_CLUSTER.fullmatch(master.strip())):
        cores = int(several[1]) * int(several[2])
    elif (executors := number(_executors(conf))) and (each := number("spark.executor.cores")):
        cores = executors * each
    most = number("spark.cores.max")
    if cores is None or (most is not None and most < cores):
        cores = most
    return None if cores is None else max(1, cores // (number("spark.task.cpus") or 1))


def _executors(conf: Mapping[str, Any]) -> str:
    """The setting with the largest number of executors."""
    adapts = str(conf.get("spark.dynamicAllocation.enabled", "")).strip().lower() == "true"
    return "spark.dynamicAllocation.maxExecutors" if adapts else "spark.executor.instances"
