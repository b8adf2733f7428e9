"""The table of weaknesses names tests that exist, and all of this room."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from tests.weaknesses.table import WEAKNESSES, Weakness

ROOT = Path(__file__).resolve().parents[2]


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_")
    )


@pytest.mark.parametrize("weakness", WEAKNESSES, ids=lambda each: each.hurts)
def test_each_weakness_names_tests_that_exist(weakness: Weakness) -> None:
    assert weakness.tests
    for path, name in weakness.tests:
        assert name in functions_in(path), f"{path} has no {name}"


def test_each_test_of_this_room_is_in_the_table() -> None:
    named = {test for weakness in WEAKNESSES for test in weakness.tests}
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name not in (Path(__file__).name, "test_peers.py"):
            path = file.relative_to(ROOT).as_posix()
            assert {(path, name) for name in functions_in(path)} <= named
