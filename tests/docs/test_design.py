"""The map and the tables of docs/DESIGN.md lead to existing files, and have all rooms and all cited rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "packages").glob("*/src"))
TOPS = [
    ROOT,
    ROOT / "packages" / "kadence",
    *SOURCES,
    SOURCES[0] / "kadence",
    SOURCES[0] / "kadence" / "consumer",
]
TEXT = (ROOT / "docs" / "DESIGN.md").read_text()
RULES = re.findall(r"^\| ([A-Z]\d{1,2}) \| .+ \| (.+) \|$", TEXT, re.MULTILINE)
CITED = re.compile(r"\b([A-HQS]\d{1,2})\b(?!-)|\bdef test_([a-hqs]\d{1,2})_")
KINDS = {".py", ".pyx", ".pxd", ".h", ".c"}
NAME = re.compile(r"[\w*.-]+(/|\.py)|(packages|docs)/\S*")


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
    rooms = {
        f"{init.parent.relative_to(ROOT)}/" for source in SOURCES for init in source.rglob("__init__.py")
    }
    loose = {str(path.relative_to(ROOT)) for path in (SOURCES[0] / "kadence").glob("*.py")}
    assert sorted((rooms | loose) - set(mapped())) == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/(?:\w+\.\w+)?|\w+\.py)`", TEXT))))
def test_paths_in_the_text_are_there(path: str) -> None:
    assert any((top / path).exists() for top in TOPS)


def test_each_rule_has_one_row_with_a_home() -> None:
    codes = [code for code, _ in RULES]
    assert len(codes) > 60
    assert len(codes) == len(set(codes))
    assert [code for code, home in RULES if not re.fullmatch(r"`[^`]+`(, `[^`]+`)*", home)] == []


@pytest.mark.parametrize("top", ["packages", "tests", "tools"])
def test_each_rule_that_is_cited_has_a_row(top: str) -> None:
    known = {code for code, _ in RULES}
    lacking = set()
    for path in (ROOT / top).rglob("*"):
        if path.suffix in KINDS and "build" not in path.parts:
            cited = {(found[1] or found[2]).upper() for found in CITED.finditer(path.read_text())}
            lacking |= {f"{path.relative_to(ROOT)}: {code}" for code in cited - known}
    assert sorted(lacking) == []


def test_pages_for_users_cite_no_rules() -> None:
    pages = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "DESIGN.md"]
    cited = re.compile(r"\([A-HQS]\d{1,2}(?:, [A-HQS]\d{1,2})*\)")
    assert [page.name for page in pages if cited.search(page.read_text())] == []
