"""Which process of a run takes which tests, and in what order.

A file stays in one process, since its tests share brokers. Files marked ``shared_spark`` use the session of
tests/spark/conftest.py. They are one group, so it starts once. Files marked ``own_spark`` start Spark themselves. They
are another group: three Sparks at a time would leave the other tests no processor. Files marked ``secured_kafka`` use
the node of tests/security/conftest.py, which starts once, too.

pytest-xdist's own marks for groups do nothing with pytest 9.2 (findings/pytest_xdist_groups.sh), and the process that
hands out tests collects none. So it looks for these marks in the text of a file.

What takes longest begins first, so that no process is left alone with it at the end. ``durations.json`` says how long
files take. ``make durations`` measures it; a file that is not in it comes after those that are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
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
        durations = json.loads(DURATIONS.read_text(encoding="utf-8"))
    units = {_file_of(item.nodeid): _unit(item.config.rootpath, _file_of(item.nodeid)) for item in items}
    seconds: Counter[str] = Counter()
    for file, unit in units.items():
        seconds[unit] += round(durations.get(file, 0))
    for item in items:
        file = _file_of(item.nodeid)
        if "spark" in getattr(item, "fixturenames", ()) and units[file] != "shared_spark":
            raise pytest.UsageError(f"{file} uses the fixture spark: mark it with pytest.mark.shared_spark")

    def place(item: pytest.Item) -> tuple[float, str, float]:
        file = _file_of(item.nodeid)
        unit = units[file]
        # Files without a duration stay in the order of collection.
        return -seconds[unit], unit if seconds[unit] else "", -durations.get(file, 0)

    items.sort(key=place)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """For pytest-xdist's ``--dist loadfile``: hands out groups, and files that are in none."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _unit(config.rootpath, _file_of(nodeid))

    return Files(config, log)


def keep(reports: Iterable[pytest.TestReport]) -> None:
    """Write how long each file took to ``durations.json``."""
    taken: Counter[str] = Counter()
    for report in reports:
        taken[_file_of(report.nodeid)] += report.duration  # type: ignore[assignment]
    kept = {file: round(seconds) for file, seconds in sorted(taken.items()) if seconds >= _LEAST}
    DURATIONS.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


@cache
def _unit(root: Path, file: str) -> str:
    """The group that this file is in, or else the file."""
    text = (root / file).read_text(encoding="utf-8")
    return next((group for group in _GROUPS if f"pytest.mark.{group}" in text), file)


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
