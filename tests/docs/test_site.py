"""The navigation of the site: each page stands in it once. `make site` checks the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MADE = ("index.md", "changelog.md", "contributing.md", "security-policy.md")
"""Pages that tools/site_pages.py makes of the texts at the top of the project."""


def test_each_page_stands_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    docs = ROOT / "docs"
    there = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    assert sorted(named) == sorted([*there, *MADE])


def test_the_readme_links_to_each_page() -> None:
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(docs/([^)#]+\.md)", (ROOT / "README.md").read_text()))
    assert linked == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}


@pytest.mark.parametrize(
    "page",
    ["consumer.md", "metrics.md", "top.md", "production.md", "rebalancing.md", "how-it-works.md", "work.md"],
)
def test_where_one_looks_is_a_link_to_what_to_do_about_lag(page: str) -> None:
    assert "](lagging.md" in (ROOT / "docs" / page).read_text()


def test_pages_of_the_reference_are_plain_markdown() -> None:
    """On GitHub nobody fills in what mkdocstrings would."""
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        text = page.read_text()
        assert ":::" not in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL), page.name
        for name in re.findall(r"^<!-- ::: [\w.]+?(\w+)(?: |$)", text, re.MULTILINE):
            assert re.search(rf"^\| `{name}[`(]", text, re.MULTILINE), f"{page.name} has no line for {name}"


def test_the_index_for_programs_has_each_page_with_its_first_sentence() -> None:
    """llms.txt. `make site` installs mkdocs, whose hook writes it."""
    pytest.importorskip("mkdocs")
    from site_pages import llms_index

    pages = {
        "index.md": "# Kadence\n\n![it](a.svg)\n\n```python\nx = 1\n\ny = 2\n```\n\nIt reads [topics](t.md). More.\n",
        "reference/a.md": "# A table\n\n| a |\n|---|\n",
    }
    assert llms_index("Kadence", "A client", pages) == (
        "# Kadence\n\n> A client\n\n## Pages\n\n"
        "- [Kadence](index.html): It reads topics.\n- [A table](reference/a.html)\n"
    )
