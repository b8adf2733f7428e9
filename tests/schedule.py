"""Which process of a run takes which tests, and in what order.

A file stays in one process, since its tests share brokers. Files marked ``shared_spark`` use the session of
tests/spark/conftest.py. They are two groups, those of pipelines and the others: one session would come to its end
last. Files marked ``own_spark`` start Spark themselves. They are one group: four Sparks at a time would leave the other
tests no processor. Files marked ``secured_kafka`` use the node of tests/security/conftest.py, which starts once.

pytest-xdist's own marks for groups do nothing with pytest 9.2 (findings/pytest_xdist_groups.sh), and the process that
hands out tests collects none. So it looks for these marks in the text of a file.

What takes longest begins first, so that no process is left alone with it at the end. Each process that has a test of
real Kafka starts a node, which costs as much as a hundred tests: half of the processes take these files first, and the
others take them last. ``durations.json`` says how long files take, and which ask for real Kafka. ``make durations``
measures it; a file that is not in it comes after those that are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["DURATIONS", "arrange", "keep", "scheduler"]

DURATIONS: Final = Path(__file__).with_name("durations.json")

_LEAST: Final = 2
"""Files that take fewer seconds are not kept: their order does not matter."""

_GROUPS: Final = ("shared_spark", "own_spark", "secured_kafka")


def arrange(items: list[pytest.Item], durations: Mapping[str, float] | None = None) -> None:
    """Put the group or file that takes longest first; the order inside a file stays.

    Raises:
        pytest.UsageError: a file uses the shared session, and is not marked so.
    """
    if durations is None:
        durations = _kept()["seconds"]
    units = {_file_of(item.nodeid): _unit(item.config.rootpath, _file_of(item.nodeid)) for item in items}
    seconds: Counter[str] = Counter()
    for file, unit in units.items():
        seconds[unit] += round(durations.get(file, 0))
    for item in items:
        file = _file_of(item.nodeid)
        if "spark" in getattr(item, "fixturenames", ()) and not units[file].startswith("shared_spark"):
            raise pytest.UsageError(f"{file} uses the fixture spark: mark it with pytest.mark.shared_spark")

    def place(item: pytest.Item) -> tuple[float, str, float]:
        file = _file_of(item.nodeid)
        unit = units[file]
        # Files without a duration stay in the order of collection.
        return -seconds[unit], unit if seconds[unit] else "", -durations.get(file, 0)

    items.sort(key=place)


def scheduler(config: pytest.Config, log: Any, kafka: AbstractSet[str] | None = None) -> Any:
    """For pytest-xdist's ``--dist loadfile``: hands out groups, and files that are in none."""
    from xdist.scheduler import LoadFileScheduling

    files = _kept()["kafka"] if kafka is None else kafka
    asks_for_kafka = {_unit(config.rootpath, file) for file in files if (config.rootpath / file).exists()}

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _unit(config.rootpath, _file_of(nodeid))

        def _assign_work_unit(self, node: Any) -> None:
            has_kafka = self.nodes.index(node) < (len(self.nodes) + 1) // 2
            wanted = (unit for unit in self.workqueue if (unit in asks_for_kafka) == has_kafka)
            self.workqueue.move_to_end(next(wanted, next(iter(self.workqueue))), last=False)
            super()._assign_work_unit(node)

    return Files(config, log)


def keep(reports: Iterable[pytest.TestReport]) -> None:
    """Write how long each file took, and which ask for real Kafka, to ``durations.json``."""
    taken: Counter[str] = Counter()
    kafka = set()
    for report in reports:
        taken[_file_of(report.nodeid)] += report.duration  # type: ignore[assignment]
        if "kafka" in report.keywords:
            kafka.add(_file_of(report.nodeid))
    seconds = {file: round(seconds) for file, seconds in sorted(taken.items()) if seconds >= _LEAST}
    kept = {"seconds": seconds, "kafka": sorted(kafka)}
    DURATIONS.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return kept


@cache
def _unit(root: Path, file: str) -> str:
    """The group that this file is in, or else the file."""
    text = (root / file).read_text(encoding="utf-8")
    group = next((group for group in _GROUPS if f"pytest.mark.{group}" in text), file)
    return (
        "shared_spark of pipelines" if group == "shared_spark" and "pipeline" in Path(file).parts else group
    )


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
