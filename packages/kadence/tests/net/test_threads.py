"""The native heartbeat and the poller under ThreadSanitizer, without an interpreter (threads.c).

make check-threads does the same with the whole extension.
"""

from __future__ import annotations

import pytest

import check_threads


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    try:
        return check_threads.compiled(tmp_path_factory.mktemp("threads"))
    except check_threads.MissingError as missing:
        pytest.skip(f"nothing runs under ThreadSanitizer: {missing}")


@pytest.mark.parametrize("part", check_threads.PARTS)
def test_no_thread_meets_another_without_a_lock(command: list[str], part: str) -> None:
    assert check_threads.run_program(command, part) == ""
