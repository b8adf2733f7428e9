"""Which process of a run takes which tests, and in what order.

A file stays in one process, since its tests share brokers. Files that use the shared session of Spark are one group,
which so starts it once. Files marked ``own_spark`` start Spark themselves and are another group: three Sparks at a time
would leave the other tests no processor.

What takes longest begins first, so that no process is left alone with it at the end. ``durations.json`` says how long
files take. ``make durations`` measures it; a file that is not in it comes after those that are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["DURATIONS", "arrange", "keep", "scheduler"]

DURATIONS: Final = Path(__file__).with_name("durations.json")

_LEAST: Final = 2
"""Files that take fewer seconds are not kept: their order does not matter."""

_SHARED: Final = "shared Spark"
_OWN: Final = "own Spark"


def arrange(items: list[pytest.Item], durations: Mapping[str, float] | None = None) -> None:
    """Mark the groups, and put the group or file that takes longest first; the order inside a file stays."""
    if durations is None:
        durations = json.loads(DURATIONS.read_text(encoding="utf-8"))
    groups: dict[str, str] = {}
    for item in items:
        group = _group_of(item)
        if group:
            groups[_file_of(item.nodeid)] = group
    seconds: Counter[str] = Counter()
    for file in {_file_of(item.nodeid) for item in items}:
        seconds[groups.get(file, file)] += round(durations.get(file, 0))

    def place(item: pytest.Item) -> tuple[float, str, float]:
        file = _file_of(item.nodeid)
        unit = groups.get(file, file)
        # Files without a duration stay in the order of collection.
        return -seconds[unit], unit if seconds[unit] else "", -durations.get(file, 0)

    items.sort(key=place)
    for item in items:
        if spark := groups.get(_file_of(item.nodeid)):
            item.add_marker(pytest.mark.xdist_group(spark))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """For pytest-xdist's ``--dist loadgroup``: hands out groups, and files that are in none."""
    from xdist.scheduler import LoadGroupScheduling

    class Files(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _file_of(super()._split_scope(nodeid))

    return Files(config, log)


def keep(reports: Iterable[pytest.TestReport]) -> None:
    """Write how long each file took to ``durations.json``."""
    taken: Counter[str] = Counter()
    for report in reports:
        taken[_file_of(report.nodeid)] += report.duration  # type: ignore[assignment]
    kept = {file: round(seconds) for file, seconds in sorted(taken.items()) if seconds >= _LEAST}
    DURATIONS.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def _group_of(item: pytest.Item) -> str:
    if item.get_closest_marker("own_spark"):
        return _OWN
    # The fixture of tests/spark/conftest.py.
    return _SHARED if "spark" in getattr(item, "fixturenames", ()) else ""


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
