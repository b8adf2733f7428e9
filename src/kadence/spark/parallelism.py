"""How many tasks Spark runs at once, as far as the processes of a source in Python can know it.

Spark tells a source nothing of its cores: no process that plans tasks has a SparkContext, a session's settings or a
TaskContext. So `kadence.spark.session` leaves in their environment what master and settings say. In a job without it
the command line of Spark's Java process, from which all of them descend, may say it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["VARIABLE", "known_parallelism", "parallelism_of", "submitted_with", "told"]

VARIABLE: Final = "KADENCE_SPARK_PARALLELISM"
"""Tasks at once; empty: the session does not know either."""

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
"""Between Java and a worker may be a daemon."""


def known_parallelism(environment: Mapping[str, str] = os.environ) -> int | None:
    """What the session has told, else what the command line of Java says; None: nobody knows."""
    told = environment.get(VARIABLE)
    if told is None:
        conf = submitted_with(_command_of_java())
        return parallelism_of(conf.get("spark.master"), conf)
    return int(told) if told.isdigit() and int(told) > 0 else None


def told(master: str | None, conf: Mapping[str, Any]) -> dict[str, str]:
    """The environment for the processes of the source, as `parallelism_of`."""
    return {VARIABLE: str(parallelism_of(master, conf) or "")}


def submitted_with(command: Sequence[str]) -> dict[str, str]:
    """The settings that count here, of those on the command line of a Java process that spark-submit started."""
    if _SUBMIT not in command:
        return {}
    found: dict[str, str] = {}
    arguments = iter(command[command.index(_SUBMIT) + 1 :])
    for argument in arguments:
        if not argument.startswith("--"):
            break  # the program; what follows is for it
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
    """Of the Java process from which this one descends, where the system shows it (Linux)."""
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
    elif (executors := number(_executors(conf))) and (each := number("spark.executor.cores")):
        cores = executors * each
    most = number("spark.cores.max")
    if cores is None or (most is not None and most < cores):
        cores = most
    return None if cores is None else max(1, cores // (number("spark.task.cpus") or 1))


def _executors(conf: Mapping[str, Any]) -> str:
    """The setting with the most executors that there will be."""
    adapts = str(conf.get("spark.dynamicAllocation.enabled", "")).strip().lower() == "true"
    return "spark.dynamicAllocation.maxExecutors" if adapts else "spark.executor.instances"
