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
    pytester.mkdir("pipeline").joinpath("test_f.py").write_text(SHARED)
    assert scheduler._split_scope("pipeline/test_f.py::test_1") == "shared_spark of pipelines"


def test_half_of_the_processes_take_the_files_of_real_kafka(pytester: pytest.Pytester) -> None:
    collected(pytester)
    config = pytester.parseconfig("--tx=popen", "--dist=loadfile")
    scheduler = schedule.scheduler(config, None, kafka={"test_a.py", "test_c.py", "test_gone.py"})
    collection = [f"test_{each}.py::test_1" for each in "adbc"]
    nodes = [Process(collection) for _ in range(2)]
    for node in nodes:
        scheduler.assigned_work[node] = {}
        scheduler.registered_collections[node] = collection
    scheduler.workqueue.update({scheduler._split_scope(test): {test: False} for test in collection})
    for node in reversed(nodes):
        scheduler._assign_work_unit(node)
        scheduler._assign_work_unit(node)
    assert [node.files for node in nodes] == [["a", "c"], ["d", "b"]]
    scheduler.workqueue["test_a.py"] = {"test_a.py::test_1": False}
    scheduler._assign_work_unit(nodes[1])
    assert nodes[1].files == ["d", "b", "a"], "no process waits while there is work"


class Process:
    """What the scheduler asks of a process of pytest-xdist, which notes the files that it was given."""

    def __init__(self, collection: list[str]) -> None:
        self._collection = collection
        self.files: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.files += [self._collection[index][5] for index in indices]
