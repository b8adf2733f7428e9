"""What README and docs/ say is done: each snippet runs, each command works, each path named is there.

The pages that start Spark: `test_documents.py`; how they are run: `pages.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, check_commands, check_snippets, named, pages_with

from kadence import Broker, Producer
from layout import CLIENT, PACKAGES

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def readers_broker() -> Iterator[str]:
    """The address of a broker that has what README reads."""
    with Broker(topics={"orders": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"first")
        yield broker.bootstrap_servers


@pytest.mark.parametrize("page", pages_with("python", spark=False), ids=named)
def test_snippets_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_snippets(page, tmp_path, request)


@pytest.mark.parametrize("page", pages_with("sh", spark=False), ids=named)
def test_commands_work(page: Path, tmp_path: Path) -> None:
    check_commands(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        linked = (page.parent / path) if path else page
        assert linked.exists(), f"{named(page)} links to {target}"
        if not anchor:
            continue
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
        # As GitHub makes them: without punctuation.
        anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert anchor in anchors


def test_the_extras_that_are_named_exist() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in PAGES:
        for extras in re.findall(r"kadence\[([\w,-]+)\]", page.read_text()):
            missing = set(extras.split(",")) - project.keys()
            assert not missing, f"{named(page)} names kadence[{extras}]"


def test_the_page_of_extras_has_all_of_them() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [table] = re.findall(
        r"^\| extra \| .*?\n\n", (ROOT / "docs/cluster.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert set(re.findall(r"`kadence\[([\w-]+)\]`", table)) == project.keys()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_what_a_package_index_shows_has_no_links_to_files(package: Path) -> None:
    """There is no file beside it there."""
    links = re.findall(r"\]\(([^)]+)\)", (package / "README.md").read_text())
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_written_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
