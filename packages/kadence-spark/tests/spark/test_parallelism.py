"""What master and settings say of the tasks that run at once, and who is told."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from kadence_spark.parallelism import (
    VARIABLE,
    known_parallelism,
    parallelism_of,
    submitted_with,
    told,
)


@pytest.mark.parametrize(
    ("master", "conf", "tasks"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[4, 2]", {}, 4),
        ("local[*]", {}, os.cpu_count()),
        ("local-cluster[2,3,1024]", {}, 6),
        ("local-cluster[2,3,1024]", {"spark.task.cpus": "2"}, 3),
        ("yarn", {"spark.executor.instances": 5, "spark.executor.cores": "4"}, 20),
        ("spark://host:7077", {"spark.cores.max": "8"}, 8),
        (
            "spark://host:7077",
            {"spark.executor.instances": 5, "spark.executor.cores": "4", "spark.cores.max": 8},
            8,
        ),
        ("yarn", {"spark.default.parallelism": "64"}, 64),
        ("yarn", {"spark.executor.instances": "many"}, None),
        (
            "yarn",
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "50",
                "spark.executor.instances": "2",
                "spark.executor.cores": "4",
            },
            200,
        ),
        (
            "yarn",
            {
                "spark.dynamicAllocation.enabled": True,
                "spark.executor.instances": "2",
                "spark.executor.cores": "4",
            },
            None,
        ),
        ("spark://host:7077", {}, None),
        (None, {}, None),
    ],
)
def test_tasks_at_once(master: str | None, conf: dict[str, Any], tasks: int | None) -> None:
    assert parallelism_of(master, conf) == tasks


def test_the_environment_tells_the_processes_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("local[7]", {}) == {VARIABLE: "7"}
    assert told("spark://host:7077", {}) == {VARIABLE: ""}
    monkeypatch.setenv(VARIABLE, "7")
    assert known_parallelism() == 7
    for nothing in ("", "0", "all of them"):
        monkeypatch.setenv(VARIABLE, nothing)
        assert known_parallelism() is None
    monkeypatch.delenv(VARIABLE)
    assert known_parallelism() is None


JAVA = "/usr/bin/java -cp conf:jars/* -Xmx1g org.apache.spark.deploy.SparkSubmit"


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (f"{JAVA} --master local[4] job.py --master yarn", {"spark.master": "local[4]"}),
        (f"{JAVA} --verbose --conf spark.master=yarn --name x pyspark-shell", {"spark.master": "yarn"}),
        (f"{JAVA} --master=yarn --executor-cores 2 --num-executors 50 job.py", "yarn"),
        (f"{JAVA} --conf", {"": ""}),
        ("/usr/bin/java other.Main --master yarn", {}),
        ("", {}),
    ],
)
def test_what_java_was_started_with(command: str, settings: dict[str, str] | str) -> None:
    if settings == "yarn":
        settings = {"spark.master": "yarn", "spark.executor.cores": "2", "spark.executor.instances": "50"}
    assert submitted_with(command.split()) == settings


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a command line of others is not to be read so easily"
)
def test_descendants_of_java_read_its_command_line() -> None:
    """A worker, the daemon that started it, and what stands for Java."""
    start = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {!r}]))"
    worker = "from kadence_spark.parallelism import known_parallelism; print(known_parallelism())"
    java = [sys.executable, "-c", start.format(start.format(worker)), *JAVA.split()[-1:]]
    said = subprocess.run(
        [*java, "--master", "local[7]", "pyspark-shell"],
        env={name: text for name, text in os.environ.items() if name != VARIABLE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "7\n"
