"""What can be seen of a reader, and whether the compiled decoder shows the same of the same bytes as a plain one.

The plain one is `kadence.records.fetched` as Python runs it, over the cursor and the columns of `oracle`.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.records.oracle import columns, records

import kadence._native
from kadence._native import columns as native_columns
from kadence._native import records as native_records
from kadence.errors import KafkaError
from kadence.records import ALL_COLUMNS, OWN_COLUMNS, FetchedRecords, scan

__all__ = ["OURS", "PLAIN", "Outcome", "both", "buffers", "read"]


class _Cython(ModuleType):
    """Cython's words as Python runs them."""

    compiled = False

    def __getattr__(self, name: str) -> Any:
        return lambda kind: kind


def _load_plain() -> Any:
    source = Path(kadence.records.__file__).with_name("fetched.py")
    spec = importlib.util.spec_from_file_location("tests.records.oracle.fetched", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cython", _Cython("cython"))
        patch.setattr(kadence._native, "refuse", lambda name: None)
        patch.setattr(native_records, "Cursor", records.Cursor)
        patch.setattr(native_columns, "ColumnsBuilder", columns.ColumnsBuilder)
        spec.loader.exec_module(module)
    return module.FetchedRecords


OURS: Any = FetchedRecords
PLAIN: Any = _load_plain()

SHAPES = {
    "records": (),
    "columns": OWN_COLUMNS,
    "with headers": ALL_COLUMNS,
    "some columns": ("value", "timestamp"),
    "other columns": ("timestampType", "key"),
    "mixed": ALL_COLUMNS,
}


@dataclass
class Outcome:
    """Everything that can be seen of a reader."""

    records: list[tuple[Any, ...]]
    columns: list[Any]
    errors: list[str]
    ends: list[tuple[int, bool, int]]


def buffers(value: Any) -> Any:
    """Columns as plain comparable values."""
    if hasattr(value, "__dataclass_fields__"):
        return [(name, buffers(getattr(value, name))) for name in value.__dataclass_fields__]
    return value if value is None or isinstance(value, int | str) else bytes(value)


def read(kind: Any, data: bytes, offset: int, steps: list[int], *, strict: bool, **options: Any) -> Outcome:
    """Read with one of them: as records, as columns, and mixed, in steps of the sizes given."""
    seen = Outcome([], [], [], [])
    for shape, names in SHAPES.items():
        reader = kind(data, "t", 1, offset, check_crcs=strict, **options)
        for turn in range(10_000):
            limit = steps[turn % len(steps)]
            as_records = shape == "records" or (shape == "mixed" and turn % 2)
            try:
                if as_records:
                    got: list[Any] = [one._fields() for one in reader.take(limit)]
                    seen.records += got
                else:
                    got = [buffers(one) for one in reader.take_columns(limit, columns=names)]
                    seen.columns += got
            except KafkaError as error:
                seen.errors.append(type(error).__name__)
                break
            if not got and limit:
                break
        seen.ends.append((reader.next_offset, reader.exhausted, reader.after))
        reader.close()
    return seen


def both(data: bytes, offset: int, steps: list[int], **options: Any) -> Outcome:
    one, other = (read(kind, data, offset, steps, **options) for kind in (OURS, PLAIN))
    assert one == other
    assert scan(data, offset) == records.scan(data, offset)
    return one
