"""The pages whose snippets and commands start Spark. The others: `test_snippets.py`; how they are run: `pages.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import check_commands, check_snippets, named, pages_with

pytestmark = [pytest.mark.timeout(300), pytest.mark.own_spark]


@pytest.mark.parametrize("page", pages_with("python", spark=True), ids=named)
def test_snippets_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_snippets(page, tmp_path, request)


@pytest.mark.parametrize("page", pages_with("sh", spark=True), ids=named)
def test_commands_work(page: Path, tmp_path: Path) -> None:
    check_commands(page, tmp_path)
