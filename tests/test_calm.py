"""`make calm`: what its lines say, and its status."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import calm

TESTS = """
def test_good():
    pass

def test_bad():
    assert {good}
"""


def rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, good: bool, count: int = 1, command: str = ""
) -> int:
    """Rounds of two tests."""
    (tmp_path / "test_two.py").write_text(TESTS.format(good=good))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    script = tmp_path / "run.sh"
    # As make does it, which gives its shell the arguments as they were written.
    python = shlex.quote(sys.executable)
    script.write_text(f'eval "exec {python} -m pytest -p no:cacheprovider $ARGS test_two.py"')
    monkeypatch.setattr(calm, "ROOT", tmp_path)
    monkeypatch.setattr(calm, "FOLDER", tmp_path / "calm")
    # The plugins of this run would take most of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    given = ["--rounds", str(count), "--load", "1", "--command", command or f"sh {shlex.quote(str(script))}"]
    return calm.main([*given, "--", "-k", "good or bad"])


def test_rounds_without_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rounds(tmp_path, monkeypatch, good=True, count=2) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("round 1: 2 passed, 0 failed, ")
    assert first.endswith(" s, load 0")
    assert second.endswith(" s, load 1")
    assert last == "2 of 2 rounds were calm"


def test_a_failure_is_named_and_is_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rounds(tmp_path, monkeypatch, good=False) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("round 1: 1 passed, 1 failed, ")
    assert said[1] == "  test_two::test_bad"
    assert said[-1] == "0 of 1 rounds were calm"


def test_arguments_that_make_was_given_do_not_cost_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands on the command line of make holds in the make that it starts, too, above the environment."""
    (tmp_path / "Makefile").write_text("test:\n\t@sh run.sh\nexport ARGS\n")
    monkeypatch.setenv("MAKEFLAGS", r" -- ARGS=-k\ good")
    assert rounds(tmp_path, monkeypatch, good=False, command="make test") == 1
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "  test_two::test_bad"


@pytest.mark.parametrize("status", [0, 3])
def test_a_run_that_does_not_come_to_its_end_is_not_calm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    assert rounds(tmp_path, monkeypatch, good=True, command=f"sh -c 'exit {status}'") == 1
    assert "0 passed, 0 failed" in capsys.readouterr().out.splitlines()[0]
