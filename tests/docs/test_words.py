"""What users read speaks their words: numbers of the design's rules stay in our own comments."""

from __future__ import annotations

import ast
import inspect
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import kadence

ROOT = Path(__file__).resolve().parents[2]
RULE = re.compile(r"\([A-G]\d{1,2}[,;)]")
"""A reference such as ``(C7)``. Names of partitions and the like have no parentheses around them."""

SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "protocol" not in path.parts)


def said(tree: ast.Module) -> Iterator[str]:
    """Every string of a module that is no docstring: errors, log lines, help."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def told_in(path: Path) -> Iterator[str]:
    """Comments and docstrings of a file."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT or (
                token.type == tokenize.STRING and token.string.startswith('"""')
            ):
                yield token.string


def documented(name: str) -> Iterator[str]:
    """The docstrings of a public name and of its public members."""
    found = getattr(kadence, name)
    yield inspect.getdoc(found) or ""
    if isinstance(found, type):
        for member in dir(found):
            if not member.startswith("_"):
                yield inspect.getdoc(getattr(found, member)) or ""


def test_errors_log_lines_and_help_name_no_rule() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), text)
        for path in SOURCES
        for text in said(ast.parse(path.read_text()))
        if RULE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("name", kadence.__all__)
def test_public_docstrings_name_no_rule(name: str) -> None:
    assert [text for text in documented(name) if RULE.search(text)] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_pages_name_no_rule(page: Path) -> None:
    assert RULE.findall(page.read_text()) == []


def test_nobody_refers_to_numbers_of_traps() -> None:
    """No document defines them; the reason is said instead."""
    numbered = re.compile(r"\b[Tt]raps? [TP]\d|\([TP]\d{1,2}[,)]")
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in files if numbered.search("\n".join(told_in(path)))}
    assert found == set()
