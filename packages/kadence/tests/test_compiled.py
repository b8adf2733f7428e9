"""Compiled modules that are not there, or not of the sources beside them, say so, in interpreters of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PATCH = """
from importlib.machinery import ExtensionFileLoader
usual = ExtensionFileLoader.exec_module
def exec_module(self, module):
    if module.__name__ == "kadence._native.records":
        raise {error}
    usual(self, module)
ExtensionFileLoader.exec_module = exec_module
"""

SOURCES = """
import sys
from importlib.machinery import ExtensionFileLoader, PathFinder
from importlib.util import spec_from_file_location

class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path)
        if name.startswith("kadence.{room}") and isinstance(spec.loader, ExtensionFileLoader):
            return spec_from_file_location(name, path[0] + "/" + name.rpartition(".")[2] + ".py")

sys.meta_path.insert(0, Sources)
"""
"""As in a checkout in which a room was not built."""

CURE = (
    "run python setup.py build_ext --inplace in packages/kadence of a checkout, "
    "else pip install --force-reinstall kadence"
)


def told(code: str) -> str:
    """What an interpreter says last."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["Consumer", "Producer", "Admin", "Broker"])
def test_a_checkout_that_was_not_built_says_what_to_run(name: str) -> None:
    assert told(SOURCES.format(room="") + f"from kadence import {name}") == (
        "ImportError: kadence._native.records cannot be loaded (it is not compiled): " + CURE
    )


def test_a_compiled_module_that_is_missing_alone_says_so() -> None:
    assert told(SOURCES.format(room="_native.append") + "from kadence import Producer") == (
        "ImportError: kadence._native.append cannot be loaded (it is not compiled): " + CURE
    )


def test_a_source_that_is_compiled_as_it_stands_does_not_run_as_it_stands() -> None:
    pytest.importorskip("cython")
    assert told(SOURCES.format(room="consumer") + "from kadence import Consumer") == (
        "ImportError: kadence.consumer._decoded_records cannot be loaded (it is not compiled): " + CURE
    )


@pytest.mark.parametrize(
    "error",
    [
        # As Cython raises them: a class, a C function or a layout is not what it was.
        "AttributeError('no attribute RecordEncoder')",
        "ImportError('does not export expected C function kd_x')",
        "ValueError('size changed, may indicate binary incompatibility')",
    ],
)
def test_one_that_was_built_from_other_sources_says_so(error: str) -> None:
    last = told(PATCH.format(error=error) + "from kadence import Consumer")
    assert last.startswith("ImportError: kadence._native.records cannot be loaded (")
    assert error.split("'")[1] in last
    assert last.endswith(CURE)


@pytest.mark.parametrize(
    "error",
    [
        "Interpreter change detected - this module can only be loaded into one interpreter per process.",
        "module kadence._native.records does not support loading in subinterpreters",
    ],
    ids=["Cython", "CPython"],
)
def test_a_second_interpreter_is_told_that_it_is_one(error: str) -> None:
    last = told(PATCH.format(error=f"ImportError({error!r})") + "from kadence import Consumer")
    assert last.startswith(
        "ImportError: kadence._native.records cannot be loaded here: only one interpreter of a process can load it"
    )
    assert "WSGIApplicationGroup %{GLOBAL}" in last
    assert CURE not in last


ANOTHER = """
try:
    import _interpreters as interpreters
    another = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    another = interpreters.create(isolated=False)
run = getattr(interpreters, "run_string", None) or interpreters.exec
try:
    run(another, USE)
finally:
    interpreters.destroy(another)
"""
USE = """
try:
    from kadence import Consumer
    Consumer(bootstrap_servers="127.0.0.1:1").close()
    print("used")
except ImportError as error:
    print(error)
"""


def test_one_interpreter_of_a_process_uses_kadence() -> None:
    """A real second one is told so; where only one uses it, it may be any."""

    def said(code: str) -> list[str]:
        program = f"USE = {USE!r}\n{code}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    used, refused = said("exec(USE)" + ANOTHER)
    assert used == "used"
    assert "Use Kadence in one interpreter of each process" in refused
    assert said("exec(USE)") == said(ANOTHER) == ["used"]


def test_a_module_that_cannot_be_loaded_tells_why() -> None:
    """`from kadence import ...` takes an AttributeError for a name that Kadence does not have."""
    last = told("import sys; sys.modules['kadence.clock'] = object(); from kadence import Producer")
    assert "cannot import name 'Producer'" not in last
    assert "ImportError" in last
