"""The order of a run, and which files share a process of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests import schedule


def collected(pytester: pytest.Pytester) -> list[pytest.Item]:
    """Two tests of the shared session in two files, one that starts Spark itself, and two plain files."""
    pytester.makeconftest(
        "import pytest\n\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'own_spark: x')\n"
        "    config.addinivalue_line('markers', 'xdist_group: x')\n\n"
        "@pytest.fixture\n"
        "def spark():\n"
        "    return 1\n"
    )
    pytester.makepyfile(
        test_a="def test_quick(): pass\n\ndef test_other(): pass\n",
        test_b="def test_1(spark): pass\n\ndef test_without(): pass\n",
        test_c="import pytest\n\npytestmark = pytest.mark.own_spark\n\ndef test_1(): pass\n",
        test_d="def test_1(): pass\n",
        test_e="def test_1(spark): pass\n",
    )
    items, _ = pytester.inline_genitems()
    return items


def order(items: list[pytest.Item]) -> list[str]:
    return list(dict.fromkeys(item.nodeid.partition("::")[0][5] for item in items))


def test_what_takes_longest_begins_first(pytester: pytest.Pytester) -> None:
    items = collected(pytester)
    schedule.arrange(items, {"test_b.py": 3, "test_c.py": 5, "test_d.py": 9, "test_e.py": 4})
    # The shared session's files count as one, and the longer one comes first.
    assert order(items) == ["d", "e", "b", "c", "a"]
    assert [item.name for item in items][-2:] == ["test_quick", "test_other"]


def test_files_with_spark_are_two_groups(pytester: pytest.Pytester) -> None:
    items = collected(pytester)
    schedule.arrange(items, {})

    def groups(file: str) -> set[Any]:
        marks = [item.get_closest_marker("xdist_group") for item in items if file in item.nodeid]
        return {mark and mark.args[0] for mark in marks}

    assert groups("test_b") == groups("test_e") == {"shared Spark"}, "those of its tests without Spark, too"
    assert groups("test_c") == {"own Spark"}
    assert groups("test_a") == groups("test_d") == {None}


def test_a_run_hands_out_files_and_groups(pytester: pytest.Pytester) -> None:
    scheduler = schedule.scheduler(pytester.parseconfig("--tx=popen", "--dist=loadgroup"), None)
    assert scheduler._split_scope("tests/test_a.py::test_1[a@b]") == "tests/test_a.py"
    assert scheduler._split_scope("tests/test_a.py::test_1[a@b]@shared Spark") == "shared Spark"
