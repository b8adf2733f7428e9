"""Both halves of the decoder, one after the other: every behaviour is asked of each."""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from kadence import records
from kadence.records import _implementation

COMPILED = "compiled"
PYTHON = "python"


class Half:
    """One half: its modules under common names."""

    def __init__(self, name: str) -> None:
        suffix = "c" if name == COMPILED else "py"
        self.name = name
        self.records = self._load(f"_records_{suffix}")
        self.columns = self._load(f"_columns_{suffix}")
        self.builder = self._load(f"_builder_{suffix}")
        self.fetched = self._load_fetched()

    @staticmethod
    def _load(name: str) -> ModuleType:
        return importlib.import_module(f"kadence.records.{name}")

    def _load_fetched(self) -> ModuleType:
        """`FetchedRecords` made of this half's cursor: plain that is `_fetched` with the plain cursor."""
        if self.name == COMPILED:
            return self._load("_fetched_c")
        name = "kadence.records._fetched"
        spec = importlib.util.spec_from_file_location(name, Path(records.__file__).with_name("_fetched.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_implementation, "Cursor", self.records.Cursor)
            patch.setattr(_implementation, "ColumnsBuilder", self.columns.ColumnsBuilder)
            spec.loader.exec_module(module)
        return module


@cache
def load_half(name: str) -> Half:
    try:
        return Half(name)
    except ImportError as error:
        if os.environ.get("KADENCE_EXTENSION") == "require":
            raise
        pytest.skip(f"the extension is not built ({error}); run: python setup.py build_ext --inplace")


@pytest.fixture(params=[COMPILED, PYTHON])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Half:
    """A half, whose `FetchedRecords` is in place of the one that is loaded."""
    loaded = load_half(request.param)
    monkeypatch.setattr(records, "FetchedRecords", loaded.fetched.FetchedRecords)
    return loaded


@pytest.fixture
def halves() -> tuple[Half, Half]:
    """Compiled and plain, to compare."""
    return load_half(COMPILED), load_half(PYTHON)
