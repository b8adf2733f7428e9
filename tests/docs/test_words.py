"""What users read speaks their words: numbers of the design's rules stay in our own comments."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.test_reference import ENTRIES

ROOT = Path(__file__).resolve().parents[2]
RULE = re.compile(r"(?<![\w-])[A-G]\d{1,2}(?![\w-])")
"""The code of a rule, such as C7, wherever it stands."""

OWN = re.compile(
    r"\b(?:pulses?|the border|stands? in for|stood in for|bears? (?:brokers|that)|ends? in order)\b"
    r"|\b(?:is|are) told\b(?! apart)"
    r"|(?<!dead[\s._-])(?<!<)\bletters?\b(?!,| and | \(| other)",
    re.IGNORECASE,
)
"""Words of our own for what has a name: heartbeat, buffer, dead letter, shutdown; and who is told, and by whom."""

PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "DESIGN.md"})
"""What users read. docs/DESIGN.md is for contributors, and lists the rules."""

SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "protocol" not in path.parts)


def said(tree: ast.Module) -> Iterator[str]:
    """Every string of a module that is no docstring: errors, log lines, help."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def told_in(path: Path, *, about: re.Pattern[str]) -> Iterator[str]:
    """Comments and docstrings of a file that has the pattern anywhere: to take all files apart would take long."""
    if not about.search(path.read_text()):
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT or (
                token.type == tokenize.STRING and token.string.startswith('"""')
            ):
                yield token.string


def documented(entry: str) -> Iterator[str]:
    """The docstrings of a name in the API reference and of its public members."""
    module, _, name = entry.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    yield inspect.getdoc(found) or ""
    if isinstance(found, type):
        for member in dir(found):
            if not member.startswith("_") and hasattr(found, member):
                yield inspect.getdoc(getattr(found, member)) or ""


def test_errors_log_lines_and_help_name_no_rule() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), text)
        for path in SOURCES
        if RULE.search(path.read_text())
        for text in said(ast.parse(path.read_text()))
        if RULE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name
)
def test_pages_have_the_usual_words(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```+$|`[^`\n]*`|\]\([^)]*\)", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    assert OWN.findall(text) == []


def test_errors_log_lines_and_help_have_the_usual_words() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), text)
        for path in SOURCES
        if OWN.search(path.read_text())
        for text in said(ast.parse(path.read_text()))
        if " " in text and OWN.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_public_docstrings_name_no_rule(entry: str) -> None:
    assert [text for text in documented(entry) if RULE.search(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_rule(page: Path) -> None:
    assert RULE.findall(page.read_text()) == []


def test_documents_that_comments_name_are_there() -> None:
    """Whoever looks for one finds it in the repository."""
    there = {path.name for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))}
    document = re.compile(r"\b[\w-]+\.md\b")
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for top in ("src", "tests", "tools")
        for path in (ROOT / top).rglob("*.py")
        for text in told_in(path, about=document)
        for name in document.findall(text)
    }
    assert {(path, name) for path, name in named if name not in there} == set()


def test_nobody_refers_to_numbers_of_traps() -> None:
    """No document defines them; the reason is said instead."""
    numbered = re.compile(r"\b[Tt]raps? [TP]\d|\([TP]\d{1,2}[,)]")
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if numbered.search("\n".join(told_in(path, about=numbered)))
    }
    assert found == set()


def test_docstrings_say_what_a_class_does_and_point_at_no_head() -> None:
    """A tooltip and the API reference show the docstring alone."""
    pointer = re.compile("head of this file")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if any(pointer.search(text) for text in told_in(path, about=pointer))
    ]
    assert found == []
