"""The rules that make the asyncio consumer of the threads' one, and that each says so when it no longer fits (G1).

That the tree holds what they make is checked with all generated files (tests/protocol/test_generate.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kadence
from async_rules import CONSUMER
from async_text import RuleError, async_source

TEXT = (Path(kadence.__file__).parent / "consumer" / "consumer.py").read_text()


def test_a_call_that_waits_is_awaited_and_its_callers_wait_too() -> None:
    changed = async_source(
        TEXT
        + "\n    def first(self) -> int:\n        return self.second()\n"
        + "\n    def second(self) -> int:\n        return self._run(self._calls.second())\n"
        + "\n    def third(self) -> int:\n        return self._calls.third()\n",
        CONSUMER,
    )
    assert "async def first(self) -> int:\n        return await self.second()" in changed
    assert "async def second(self) -> int:\n        return await self._run(" in changed
    assert "\n    def third(self) -> int:\n        return self._calls.third()" in changed


def test_places_are_found_behind_letters_of_several_bytes() -> None:
    changed = async_source(
        TEXT + '\n    def first(self) -> str:\n        return "é" + self._run("é")  # é\n', CONSUMER
    )
    assert 'return "é" + await self._run("é")  # é\n' in changed


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("self._shell.polling()", "self._shell", "nothing"),
        ("self._shell.close(", "self._close(", "nothing"),
        ("def __iter__", "def iterate", "nothing"),
        ("def __enter__", "def enter", "nothing"),
        ("None removes the listener of an earlier call.", "", "say once"),
        ("return self._shell.run(", "return self._shell.run(iter()).first(", "a name"),
        (
            "def _run",
            "def third(self) -> None:\n        with self._shell.polling():\n            pass\n\n    def _run",
            "alone",
        ),
    ],
)
def test_a_rule_that_does_not_fit_the_text_is_an_error(old: str, new: str, complaint: str) -> None:
    assert old in TEXT
    with pytest.raises(RuleError, match=complaint):
        async_source(TEXT.replace(old, new), CONSUMER)
