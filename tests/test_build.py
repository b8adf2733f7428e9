"""setup.py: what a build does with the extensions of the build before it."""

from __future__ import annotations

import os
import runpy
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

setuptools = pytest.importorskip("setuptools")

if shutil.which("cc") is None:
    pytest.skip("there is no compiler", allow_module_level=True)

SETUP = Path(__file__).parent.parent / "setup.py"
NAME = "kadence.tiny"
GOOD = """
#include <Python.h>
static struct PyModuleDef made = {PyModuleDef_HEAD_INIT, "tiny", 0, -1, 0};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&made); }
"""

Build = Callable[..., list[str]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Build:
    """Builds one extension in place, in a project of its own; gives the lines that setup.py says."""
    monkeypatch.chdir(tmp_path)
    # distutils keeps what it found out of the environment.
    monkeypatch.setattr("distutils.sysconfig._config_vars", None)
    source = tmp_path / "src" / "kadence" / "tiny.c"
    source.parent.mkdir(parents=True)
    source.write_text(GOOD)
    made: dict[str, Any] = runpy.run_path(str(SETUP), run_name="setup")

    def run(mode: str = "auto", *, compiler: str = "cc", in_place: bool = True) -> list[str]:
        monkeypatch.setenv("KADENCE_EXTENSION", mode)
        monkeypatch.setenv("CC", compiler)
        extension = setuptools.Extension(NAME, ["src/kadence/tiny.c"])
        extension.optional = mode == "auto"
        distribution = setuptools.Distribution(
            {"name": "tiny", "packages": ["kadence"], "package_dir": {"": "src"}, "ext_modules": [extension]}
        )
        command = made["BuildAndSay"](distribution)
        command.inplace = in_place
        command.ensure_finalized()
        command.run()
        return [line for line in capfd.readouterr().err.splitlines() if line.startswith("kadence: ")]

    return run


def built() -> list[Path]:
    return sorted(path for place in ("src", "build") for path in Path(place).rglob("tiny.*.so"))


def touch(path: str) -> None:
    later = time.time() + 10
    os.utime(path, (later, later))


COMPILED = ["kadence: compiled: kadence.tiny"]
NOT_COMPILED = ["kadence: NOT compiled: kadence.tiny; these parts run as plain Python, many times slower"]


@pytest.mark.parametrize("in_place", [True, False])
def test_an_extension_that_is_older_than_its_source_is_not_used_again(build: Build, in_place: bool) -> None:
    assert build(in_place=in_place) == COMPILED
    assert len(built()) == 1 + in_place
    assert build(in_place=in_place, compiler="/nonexistent/cc") == COMPILED, "it is not older"
    touch("src/kadence/tiny.c")
    assert build(in_place=in_place, compiler="/nonexistent/cc") == NOT_COMPILED
    assert built() == []


def test_require_fails_without_a_compiler_whatever_lies_there(build: Build) -> None:
    assert build("require") == COMPILED
    with pytest.raises(Exception, match="nonexistent"):
        build("require", compiler="/nonexistent/cc")
    assert built() == []
