"""The navigation of the site: each page stands in it once. `make site` checks the rest."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = ("index.md", "changelog.md", "contributing.md", "security-policy.md")
"""Pages that tools/site_pages.py makes of the texts at the top of the project."""


def test_each_page_stands_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    docs = ROOT / "docs"
    there = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    assert sorted(named) == sorted([*there, *MADE])
