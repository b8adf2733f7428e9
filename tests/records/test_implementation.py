"""KADENCE_EXTENSION at import, each in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.records.conftest import COMPILED, load_half

SAY = "import kadence.records as r; print(r.IMPLEMENTATION, r.Record.__module__, r.KERNEL)"


def run(mode: str | None, code: str = SAY) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KADENCE_EXTENSION"}
    if mode is not None:
        environment["KADENCE_EXTENSION"] = mode
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_off_loads_nothing_compiled() -> None:
    code = SAY + "; import sys; print([name for name in sys.modules if name.endswith('_c')])"
    done = run("off", code)
    assert done.stdout.splitlines() == ["python kadence.records._records_py crc32c", "[]"]


@pytest.mark.parametrize("mode", [None, "auto", "require"])
def test_the_extension_is_taken_where_it_is(mode: str | None) -> None:
    load_half(COMPILED)
    assert run(mode).stdout.startswith("compiled kadence.records._records_c ")


def test_require_without_it_says_how_to_build() -> None:
    hide = "import sys; sys.modules['kadence.records._records_c'] = None; "
    done = run("require", hide + SAY)
    assert "KADENCE_EXTENSION=require" in done.stderr
    assert "build it with" in done.stderr
    assert run("auto", hide + SAY).stdout.startswith("python ")


def test_other_words_are_refused() -> None:
    assert "must be one of auto, require, off, not 'yes'" in run("yes").stderr


def test_pickles_cross_between_the_halves() -> None:
    load_half(COMPILED)
    write = (
        "import kadence.records as r, pickle; "
        "print(pickle.dumps(r.Record('t', 1, 2, 3, 1, b'k', None, (('h', None),), 4)).hex())"
    )
    for writer, reader in (("require", "off"), ("off", "require")):
        text = run(writer, write).stdout.strip()
        done = run(reader, f"import pickle; print(pickle.loads(bytes.fromhex({text!r}))._fields())")
        assert done.stdout == "('t', 1, 2, 3, 1, b'k', None, (('h', None),), 4)\n"
