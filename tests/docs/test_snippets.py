"""What README and docs/ say is done: each snippet runs, each command works, each path named is there.

The pages that start Spark: `test_documents.py`; how they are run: `pages.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, check_commands, check_snippets, named, pages_with

from kadence import Broker, Producer

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
    project = (ROOT / "packages" / "kadence" / "pyproject.toml").read_text()
    for page in PAGES:
        for extra in re.findall(r"kadence\[(\w+)\]", page.read_text()):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), (
                f"{named(page)} names kadence[{extra}]"
            )


def test_the_written_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
