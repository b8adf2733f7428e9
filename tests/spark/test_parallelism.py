"""What master and settings say of the tasks that run at once, and who is told."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kadence.spark.parallelism import VARIABLE, known_parallelism, parallelism_of, told


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
        ("spark://host:7077", {}, None),
        (None, {}, None),
    ],
)
def test_tasks_at_once(master: str | None, conf: dict[str, Any], tasks: int | None) -> None:
    assert parallelism_of(master, conf) == tasks


def test_the_environment_tells_the_processes_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("local[7]", {}) == {VARIABLE: "7"}
    assert told("spark://host:7077", {}) == {}
    monkeypatch.setenv(VARIABLE, "7")
    assert known_parallelism() == 7
    for nothing in ("", "0", "all of them"):
        monkeypatch.setenv(VARIABLE, nothing)
        assert known_parallelism() == os.cpu_count()
