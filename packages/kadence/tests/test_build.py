"""setup.py: what a build does with the extensions of the build before it, and where there is no compiler."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kadence._native import refuse

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

Build = Callable[..., None]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds one extension, in a project of its own."""
    monkeypatch.chdir(tmp_path)
    # distutils keeps what it found out of the environment.
    monkeypatch.setattr("distutils.sysconfig._config_vars", None)
    source = tmp_path / "src" / "kadence" / "tiny.c"
    source.parent.mkdir(parents=True)
    source.write_text(GOOD)
    made: dict[str, Any] = runpy.run_path(str(SETUP), run_name="setup")

    def run(*, compiler: str = "cc", in_place: bool = True) -> None:
        monkeypatch.setenv("CC", compiler)
        extension = setuptools.Extension(NAME, ["src/kadence/tiny.c"])
        distribution = setuptools.Distribution(
            {"name": "tiny", "packages": ["kadence"], "package_dir": {"": "src"}, "ext_modules": [extension]}
        )
        command = made["Compile"](distribution)
        command.inplace = in_place
        command.ensure_finalized()
        command.run()

    return run


def built() -> list[Path]:
    return sorted(path for place in ("src", "build") for path in Path(place).rglob("tiny.*.so"))


@pytest.mark.parametrize("in_place", [True, False])
def test_an_extension_that_is_older_than_its_source_is_not_used_again(build: Build, in_place: bool) -> None:
    build(in_place=in_place)
    assert len(built()) == 1 + in_place
    Path("src/kadence/tiny.c").write_text("#error\n")
    later = time.time() + 10
    os.utime("src/kadence/tiny.c", (later, later))
    with pytest.raises(setuptools.errors.CompileError):
        build(in_place=in_place)
    assert built() == []


@pytest.mark.parametrize("compiler", ["/nonexistent/cc", "/bin/false"])
def test_without_a_compiler_one_sentence_says_so(build: Build, compiler: str) -> None:
    with pytest.raises(SystemExit) as ended:
        build(compiler=compiler)
    assert str(ended.value) == (
        "kadence: Kadence is compiled, and there is no C compiler here that finds Python's headers: install one "
        "(Debian: gcc and python3-dev), or a wheel of Kadence for this system"
    )
    assert built() == []


PLACES = """
import sys
import setuptools
from distutils.core import run_setup
made = run_setup(sys.argv[1], sys.argv[2:], stop_after="commandline")
build = made.get_command_obj("build_ext")
build.ensure_finalized()
print(made.get_name())
for each in made.ext_modules:
    print(each.name, each.sources[0], build.get_ext_fullpath(each.name))
"""
"""Where a command would put each module. It compiles nothing."""


def test_the_command_of_an_error_makes_each_module_beside_its_source() -> None:
    """Python finds it there. Without a checkout pip brings the package anew."""
    with pytest.raises(ImportError) as refused:
        refuse("kadence._native.records")
    found = re.search(
        r"run python (\S+) (.+) in (\S+) of a checkout, else pip install --force-reinstall (\S+)$",
        str(refused.value),
    )
    assert found is not None
    script, arguments, directory, package = found.groups()
    project = SETUP.parents[2] / directory
    done = subprocess.run(
        [sys.executable, "-c", PLACES, script, *arguments.split()],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    name, *lines = done.stdout.splitlines()
    assert name == package
    places = {each: (project / source, project / made) for each, source, made in map(str.split, lines)}
    assert {"kadence._native.records", "kadence.records.fetched"} <= places.keys()
    for source, made in places.values():
        assert source.exists()
        assert made.parent == source.parent
