"""A message of any kind and version in which every field says something: one element in each array."""

from __future__ import annotations

import importlib
from typing import Any, Final

from tests.protocol.values import INT_BITS, Case

from schema_text import Field, StructDef

__all__ = ["full"]

_VALUES: Final = {"bool": True, "string": "t", "bytes": b"bytes", "records": b"records", "uuid": b"\1" * 16}


def full(case: Case) -> Any:
    """The message of ``case``."""
    return _struct(case, case.struct)


def _struct(case: Case, struct: StructDef) -> Any:
    made = getattr(importlib.import_module(f"kadence.protocol.{case.module.python_name}"), struct.name)
    return made(
        **{field.name: _value(case, field) for field in struct.fields if case.version in field.versions}
    )


def _value(case: Case, field: Field) -> Any:
    if field.base in INT_BITS:
        # No error: an answer that is one may be read in another version.
        one: Any = 0 if field.name == "error_code" else 1
    elif field.base in case.module.structs:
        one = _struct(case, case.module.structs[field.base])
    else:
        one = _VALUES[field.base]
    return [one] if field.is_array else one
