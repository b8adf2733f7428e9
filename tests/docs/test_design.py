"""The map and the tables of docs/DESIGN.md name what is there, no room is left out, and each cited rule is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.test_words import RULE, told_in

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "kadence"
TEXT = (ROOT / "docs" / "DESIGN.md").read_text()
NAME = re.compile(r"[\w*.-]+(/|\.py)|(src|docs)/\S*")


def mapped() -> list[str]:
    """Every file and folder that the map draws, from the top of the project."""
    drawing = TEXT.partition("## Map")[2].split("```")[1]
    found: list[str] = []
    parents: list[str] = []
    for line in drawing.strip().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = re.split(r"\s{2,}", line.strip())[0].split()
        if not names or not all(NAME.fullmatch(name) for name in names) or depth > len(parents):
            continue  # the end of the sentence above
        del parents[depth:]
        found += ["".join((*parents, name)) for name in names]
        if names[0].endswith("/"):
            parents.append(names[0])
    return found


def test_the_map_draws_what_is_there_each_once() -> None:
    drawn = mapped()
    assert len(drawn) == len(set(drawn))
    assert [path for path in drawn if not (ROOT / path).exists()] == []


def test_the_map_leaves_out_no_room_and_no_loose_file() -> None:
    rooms = {f"{init.parent.relative_to(ROOT)}/" for init in PACKAGE.rglob("__init__.py")}
    loose = {str(path.relative_to(ROOT)) for path in PACKAGE.glob("*.py")}
    assert sorted((rooms | loose) - set(mapped())) == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/(?:\w+\.(?:py|h))?|\w+\.py)`", TEXT))))
def test_paths_in_the_text_are_there(path: str) -> None:
    assert any((top / path).exists() for top in (PACKAGE, ROOT, PACKAGE / "consumer"))


def test_pages_that_it_names_are_there() -> None:
    pages = set(re.findall(r"[\w*-]+\.md", TEXT))
    assert {page for page in pages if not list((ROOT / "docs").glob(page))} == set()


def cited() -> set[str]:
    """The codes of rules in comments, docstrings and names of tests."""
    found: set[str] = set()
    for top in ("src", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            if "protocol" not in path.parts:
                found.update(code for text in told_in(path, about=RULE) for code in RULE.findall(text))
            if top == "tests":
                found.update(
                    code.upper() for code in re.findall(r"def test_([a-g]\d{1,2})_", path.read_text())
                )
    return found


def test_each_rule_that_is_cited_is_listed_once() -> None:
    listed = re.findall(r"^\| ([A-Z]\d{1,2}) \|", TEXT, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert cited() - set(listed) == set()
