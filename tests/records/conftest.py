"""Both halves of the decoder, one after the other: every behaviour is asked of each."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

from kadence.records import fetched

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

    @staticmethod
    def _load(name: str) -> ModuleType:
        return importlib.import_module(f"kadence.records.{name}")


def load_half(name: str) -> Half:
    try:
        return Half(name)
    except ImportError as error:
        if os.environ.get("KADENCE_EXTENSION") == "require":
            raise
        pytest.skip(f"the extension is not built ({error}); run: python setup.py build_ext --inplace")


@pytest.fixture(params=[COMPILED, PYTHON])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Half:
    """A half, put in place for `FetchedRecords` too."""
    loaded = load_half(request.param)
    monkeypatch.setattr(fetched, "Cursor", loaded.records.Cursor)
    monkeypatch.setattr(fetched, "ColumnsBuilder", loaded.columns.ColumnsBuilder)
    return loaded


@pytest.fixture
def halves() -> tuple[Half, Half]:
    """Compiled and plain, to compare."""
    return load_half(COMPILED), load_half(PYTHON)
