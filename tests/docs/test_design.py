"""The map and the tables of docs/DESIGN.md lead to what is there, and no room is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/(?:\w+\.\w+)?|\w+\.py)`", TEXT))))
def test_paths_in_the_text_are_there(path: str) -> None:
    assert any((top / path).exists() for top in (PACKAGE, ROOT, PACKAGE / "consumer"))
