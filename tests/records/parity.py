"""What can be seen of a reader, and whether both halves of the decoder show the same of the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.records.conftest import COMPILED, PYTHON, Half, load_half

from kadence.errors import KafkaError
from kadence.records import ALL_COLUMNS, OWN_COLUMNS, _implementation, scan

__all__ = ["Outcome", "both", "buffers", "read"]

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


def read(half: Half, data: bytes, offset: int, steps: list[int], *, strict: bool, **options: Any) -> Outcome:
    """Read with one half: as records, as columns, and mixed, in steps of the sizes given."""
    seen = Outcome([], [], [], [])
    for shape, columns in SHAPES.items():
        reader = half.fetched.FetchedRecords(data, "t", 1, offset, check_crcs=strict, **options)
        for turn in range(10_000):
            limit = steps[turn % len(steps)]
            as_records = shape == "records" or (shape == "mixed" and turn % 2)
            try:
                if as_records:
                    got: list[Any] = [one._fields() for one in reader.take(limit)]
                    seen.records += got
                else:
                    got = [buffers(one) for one in reader.take_columns(limit, columns=columns)]
                    seen.columns += got
            except KafkaError as error:
                seen.errors.append(type(error).__name__)
                break
            if not got and limit:
                break
        seen.ends.append((reader.next_offset, reader.exhausted, reader.after))
        reader.close()
    return seen


def scans(data: bytes, offset: int) -> None:
    one, other = (load_half(name).records.scan for name in (COMPILED, PYTHON))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_implementation, "scan", other)
        assert one(data, offset) == scan(data, offset)


def both(data: bytes, offset: int, steps: list[int], **options: Any) -> Outcome:
    one, other = (read(load_half(name), data, offset, steps, **options) for name in (COMPILED, PYTHON))
    assert one == other
    scans(data, offset)
    return one
