"""Each stub of a compiled module says what the module has, no more and no less (mypy's stubtest)."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kadence
import kadence._native

pytest.importorskip("mypy.stubtest")

FOLDER = Path(kadence._native.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.pyx"))

ALLOWED = r"""
# Cython makes these.
.*\.__pyx_capi__
.*\.__test__
# Python shows it since 3.12.
.*\.__buffer__
# Of `shared`, which has no stub.
.*\.MOST_HEADERS
.*\.OWN_COLUMNS
# Of `Generic`, which no compiled class can have.
kadence\._native\.records\.Record\.__class_getitem__
# Cython shows none of its arguments, for it has none.
kadence\._native\.drain\.Wake\.__init__
"""
"""What stubtest finds that is no fault, as patterns of names."""


def test_each_compiled_module_has_a_stub() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.pyi")) == MODULES


def test_stubs_are_true(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    names = [f"kadence._native.{name}" for name in MODULES]
    options = [
        "--ignore-unused-allowlist",
        "--allowlist",
        str(allowed),
        "--ignore-disjoint-bases",
        "--concise",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", *options, *names],
        env={"PYTHONPATH": str(FOLDER.parents[1]), "PATH": "", "MYPYPATH": str(FOLDER.parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_of_a_record_has_its_docstring() -> None:
    """Editors and the reference read the stub, `help()` the module."""
    stub = ast.parse((FOLDER / "records.pyi").read_text(encoding="utf-8"))
    [record] = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Record"]
    assert ast.get_docstring(record) == inspect.getdoc(kadence.Record)
