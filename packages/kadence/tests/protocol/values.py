"""Any message of the protocol in any version, as hypothesis strategies made from schema/.

The strategies read the schema, not the generated code, so a generator that loses a field is found out.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from schema_text import Field, Module, StructDef, parse_module

SCHEMA = Path(__file__).resolve().parents[4] / "schema"

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def ints(bits: int) -> SearchStrategy[int]:
    """All of the type, its ends and -1 more often than chance would."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.one_of(st.sampled_from([low, high, -1, 0, 1]), st.integers(low, high))


TEXTS = st.one_of(
    st.sampled_from(["", "a", "ü" * 70, "x" * 126, "x" * 127, "x" * 128, "€" * 5461, "\0", "😀"]),
    st.text(max_size=8),
)
BLOBS = st.one_of(st.sampled_from([b"", b"\0" * 126, b"\xff" * 127, bytes(20000)]), st.binary(max_size=12))
UUIDS = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))


@dataclass(frozen=True)
class Case:
    """One top-level message in one version."""

    module: Module
    struct: StructDef
    version: int

    def __str__(self) -> str:
        return f"{self.struct.name}-v{self.version}"

    @property
    def python(self) -> Any:
        """The generated class."""
        return getattr(
            importlib.import_module(f"kadence.protocol.{self.module.python_name}"), self.struct.name
        )

    @property
    def is_flexible(self) -> bool:
        return not self.struct.classic and self.version >= self.module.flexible_from


@functools.cache
def modules() -> tuple[Module, ...]:
    return tuple(parse_module(path) for path in sorted(SCHEMA.glob("*.txt")) if path.name != "errors.txt")


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every message in every version."""
    return tuple(
        Case(module, top, version)
        for module in modules()
        for top in module.tops
        for version in range(top.versions.first, top.versions.last + 1)
    )


@dataclass(frozen=True)
class Limits:
    """What a second implementation cannot represent, by field name; everything else is drawn in full."""

    by_field: tuple[tuple[str, SearchStrategy[Any]], ...] = ()
    unknown_tags: bool = True

    def get(self, field: Field) -> SearchStrategy[Any] | None:
        return dict(self.by_field).get(field.name)


def messages(case: Case, limits: Limits = Limits()) -> SearchStrategy[Any]:
    """Values of a message whose fields beyond the case's version have their defaults."""
    return _structs(case, case.struct, limits)


def _structs(case: Case, struct: StructDef, limits: Limits) -> SearchStrategy[Any]:
    cls = getattr(importlib.import_module(f"kadence.protocol.{case.module.python_name}"), struct.name)
    fields = {
        field.name: _values(case, field, limits) for field in struct.fields if case.version in field.versions
    }
    if case.is_flexible and limits.unknown_tags:
        # Tags from 100 on: no known field of Kafka's has such a number.
        tags = st.dictionaries(st.integers(100, 2**31), st.binary(max_size=5), max_size=2)
        fields["unknown_tags"] = st.one_of(st.just({}), tags)
    return st.builds(cls, **fields)


def _values(case: Case, field: Field, limits: Limits) -> SearchStrategy[Any]:
    limited = limits.get(field)
    one = _elements(case, field, limits) if limited is None else limited
    if field.is_array:
        one = st.lists(one, max_size=2)
    return st.none() | one if field.nullable and case.version in field.nullable else one


def _elements(case: Case, field: Field, limits: Limits) -> SearchStrategy[Any]:
    if field.base in INT_BITS:
        return ints(INT_BITS[field.base])
    if field.base in case.module.structs:
        return _structs(case, case.module.structs[field.base], limits)
    return {"bool": st.booleans(), "string": TEXTS, "bytes": BLOBS, "records": BLOBS, "uuid": UUIDS}[
        field.base
    ]


def encode(message: Any, version: int) -> bytes:
    from kadence.wire import Writer

    w = Writer()
    message.write(w, version)
    return w.getvalue()


def decode(cls: Any, version: int, data: bytes) -> Any:
    """Reads a message that must fill the data."""
    from kadence.wire import Reader

    r = Reader(data)
    message = cls.read(r, version)
    r.finish()
    return message
