"""The order of a run, and which files share a process of it."""

from __future__ import annotations

import pytest
from tests import schedule

SHARED = "import pytest\n\npytestmark = pytest.mark.shared_spark\n\n"


def collected(pytester: pytest.Pytester) -> list[pytest.Item]:
    """Two files of the shared session, one that starts Spark itself, and two plain files."""
    pytester.makeconftest(
        "import pytest\n\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'own_spark: x')\n"
        "    config.addinivalue_line('markers', 'shared_spark: x')\n\n"
        "@pytest.fixture\n"
        "def spark():\n"
        "    return 1\n"
    )
    pytester.makepyfile(
        test_a="def test_quick(): pass\n\ndef test_other(): pass\n",
        test_b=f"{SHARED}def test_1(spark): pass\n\ndef test_without(): pass\n",
        test_c="import pytest\n\npytestmark = pytest.mark.own_spark\n\ndef test_1(): pass\n",
        test_d="def test_1(): pass\n",
        test_e=f"{SHARED}def test_1(spark): pass\n",
    )
    items, _ = pytester.inline_genitems()
    return items


def order(items: list[pytest.Item]) -> list[str]:
    return list(dict.fromkeys(item.nodeid.partition("::")[0][5] for item in items))


def test_what_takes_longest_begins_first(pytester: pytest.Pytester) -> None:
    items = collected(pytester)
    schedule.arrange(items, {"test_b.py": 3, "test_c.py": 5, "test_d.py": 9, "test_e.py": 4})
    # Together the shared session's files take 7.
    assert order(items) == ["d", "e", "b", "c", "a"]
    assert [item.name for item in items][-2:] == ["test_quick", "test_other"]


def test_a_file_that_uses_the_shared_session_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n\n@pytest.fixture\ndef spark(): return 1\n\ndef test_1(spark): pass\n"
    )
    items, _ = pytester.inline_genitems()
    with pytest.raises(pytest.UsageError, match=r"test_a_file.*: mark it with pytest.mark.shared_spark"):
        schedule.arrange(items, {})


def test_a_run_hands_out_files_and_groups(pytester: pytest.Pytester) -> None:
    collected(pytester)
    scheduler = schedule.scheduler(pytester.parseconfig("--tx=popen", "--dist=loadfile"), None)
    scopes = [scheduler._split_scope(f"test_{each}.py::test_1[a::b]") for each in "abcde"]
    assert scopes == ["test_a.py", "shared_spark", "own_spark", "test_d.py", "shared_spark"]
