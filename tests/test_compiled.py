"""A compiled module that does not fit the sources beside it says so, each time in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec

import pytest

PARTS = {
    "kadence.records._records_c": "Record",
    "kadence.records._buffers_c": "Record",
    "kadence.records._fetched_c": "Record",
    "kadence.records._columns_c": "Record",
    "kadence.producer._append_c": "Producer",
    "kadence.producer._rows_c": "Producer",
    "kadence.consumer._decoded_records_c": "Consumer",
    "kadence.consumer.fetch._steps_c": "Consumer",
    "kadence.consumer.fetch._iteration_c": "Consumer",
    "kadence.consumer.fetch._fetch_collector_c": "Consumer",
    "kadence.consumer.fetch._partition_reader_c": "Consumer",
    "kadence.net._drain_c": "Consumer",
    "kadence.net._native_heartbeat_c": "Consumer",
}
"""Compiled modules, and what needs them."""

PATCH = """
from importlib.machinery import ExtensionFileLoader
usual = ExtensionFileLoader.exec_module
def exec_module(self, module):
    if module.__name__ == {name!r}:
        raise {error}
    usual(self, module)
ExtensionFileLoader.exec_module = exec_module
"""


def run(code: str, mode: str = "auto") -> str:
    """What an interpreter has to say."""
    environment = {**os.environ, "KADENCE_EXTENSION": mode}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize(
    "error",
    [
        # As Cython raises them: a class, a C function or a layout is not what it was.
        "AttributeError('no attribute RecordEncoder')",
        "ImportError('does not export expected C function kd_x')",
        "ValueError('size changed, may indicate binary incompatibility')",
    ],
)
def test_one_that_was_built_from_other_sources_says_so(name: str, error: str) -> None:
    spec = find_spec(name)
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        pytest.skip("the extension is not built here")
    told = run(PATCH.format(name=name, error=error) + f"from kadence import {PARTS[name]}")
    assert f"ImportError: the compiled module {name} does not match the Python files beside it" in told
    assert error.split("'")[1] in told
    assert "python setup.py build_ext --inplace" in told


def test_sources_that_were_never_built_run_as_python_also_where_cython_is_installed() -> None:
    code = """
import sys
from importlib.util import spec_from_file_location

class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("kadence.") and name.endswith("_c"):
            return spec_from_file_location(name, path[0] + "/" + name.rpartition(".")[2] + ".py")

sys.meta_path.insert(0, Sources)
from kadence import Consumer, Producer, records
print(records.IMPLEMENTATION)
"""
    assert run(code) == "python\n"


def test_one_that_this_system_cannot_load_is_replaced_by_python() -> None:
    error = "ImportError('libc is too old', path='x.so')"
    code = PATCH.format(name="kadence.records._records_c", error=error)
    code += "from kadence import records; print(records.IMPLEMENTATION)"
    assert run(code) == "python\n"
    assert "KADENCE_EXTENSION=require, but the extension cannot be loaded (libc is too old)" in run(
        code, "require"
    )


@pytest.mark.parametrize(
    "error",
    [
        "Interpreter change detected - this module can only be loaded into one interpreter per process.",
        "module kadence.records._records_c does not support loading in subinterpreters",
    ],
    ids=["Cython", "CPython"],
)
@pytest.mark.parametrize("mode", ["auto", "require"])
def test_a_second_interpreter_is_told_that_it_is_one(error: str, mode: str) -> None:
    name = "kadence.records._records_c"
    spec = find_spec(name)
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        pytest.skip("the extension is not built here")
    code = PATCH.format(name=name, error=f"ImportError({error!r})")
    told = run(code + "from kadence import Consumer", mode).splitlines()[-1]
    assert told.startswith(
        "ImportError: this is a sub-interpreter, and only one interpreter of a process can load kadence."
    )
    assert "WSGIApplicationGroup %{GLOBAL}. KADENCE_EXTENSION=off" in told
    assert "build it again" not in told


def test_a_module_that_cannot_be_loaded_tells_why() -> None:
    """`from kadence import ...` takes an AttributeError for a name that Kadence does not have."""
    code = "import sys; sys.modules['kadence.clock'] = object(); from kadence import Producer"
    told = run(code)
    assert "cannot import name 'Producer'" not in told
    assert "ImportError" in told
