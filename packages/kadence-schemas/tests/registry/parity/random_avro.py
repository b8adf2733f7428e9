"""Avro schemas at random, values of them, and other versions of them that may read what they wrote."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any, Final
from uuid import UUID

__all__ = ["Schemas", "branches", "named_types", "without_logical"]

PRIMITIVE: Final = ("boolean", "int", "long", "float", "double", "string", "bytes")
LOGICAL: Final = {
    "int": ("date", "time-millis"),
    "long": (
        "timestamp-millis",
        "timestamp-micros",
        "time-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    ),
    "string": ("uuid",),
    "bytes": ("decimal",),
    "fixed": ("decimal",),
}
WIDER: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SIMPLE: Final = ("boolean", "int", "long", "float", "double", "string")
_TEXTS: Final = ("", "a", "é", "\u0001", "✎✎", "𝕏", "x" * 70, "null", "2024-01-01")
_DAY_MS: Final = 86_400_000


def branches(schema: Any) -> list[Any]:
    """The types of a union; a type alone is one of one."""
    return schema if isinstance(schema, list) else [schema]


def kind_of(schema: Any) -> Any:
    return schema["type"] if isinstance(schema, dict) else schema


def without_logical(schema: Any) -> Any:
    """What the data is made of."""
    if isinstance(schema, dict):
        left_out = ("logicalType", "precision", "scale")
        return {name: without_logical(item) for name, item in schema.items() if name not in left_out}
    return [without_logical(each) for each in schema] if isinstance(schema, list) else schema


def named_types(schema: Any, space: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The records, enums and fixed types of a schema by their full names, in the order of their definitions."""
    if isinstance(schema, list):
        for each in schema:
            yield from named_types(each, space)
    elif isinstance(schema, dict):
        if "name" in schema:
            space = schema.get("namespace", space)
            yield f"{space}.{schema['name']}".lstrip("."), schema
        for name in ("items", "values"):
            if name in schema:
                yield from named_types(schema[name], space)
        for field in schema.get("fields", ()):
            yield from named_types(field["type"], space)


class Schemas:
    """One chain of versions.

    Args:
        chance: what all is drawn from. simple: only types that the fast decoder of whole batches knows.
    """

    def __init__(self, chance: Random, *, simple: bool = False) -> None:
        self._chance = chance
        self._simple = simple
        self._number = 0
        self._open: list[str] = []

    # ------------------------------------------------------------ schemas

    def new(self) -> Any:
        """A record, mostly."""
        if not self._simple and self._chance.random() < 0.08:
            return self._type(1)
        made = self._record(2, self._chance.randint(1, 6))
        if self._chance.random() < 0.4:
            made["namespace"] = self._chance.choice(["ns", "a.b"])
        return made

    def _name(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def _record(self, depth: int, fields: int) -> dict[str, Any]:
        name = self._name("R")
        self._open.append(name)
        made = {"type": "record", "name": name, "fields": [self._field(depth) for _ in range(fields)]}
        self._open.pop()
        return made

    def _field(self, depth: int) -> dict[str, Any]:
        return {"name": self._name("f"), "type": self._type(depth)}

    def _type(self, depth: int, *, in_union: bool = False) -> Any:
        draw = self._chance.random()
        if depth and draw < 0.25:
            return self._composed(depth)
        if not in_union and draw < 0.5:
            return self._union(depth)
        if draw < 0.62:
            if self._simple or self._chance.random() < 0.5:
                symbols = [f"S{place}" for place in range(self._chance.randint(1, 4))]
                return {"type": "enum", "name": self._name("E"), "symbols": symbols}
            return self._logical(
                {"type": "fixed", "name": self._name("F"), "size": self._chance.choice([1, 2, 5, 16])}
            )
        return self._logical(self._chance.choice(_SIMPLE if self._simple else PRIMITIVE))

    def _composed(self, depth: int) -> Any:
        kind = self._chance.choice(["array", "map", "record"])
        if kind == "record":
            if self._open and not self._simple and self._chance.random() < 0.1:
                return ["null", self._open[-1]]
            return self._record(depth - 1, self._chance.randint(0 if self._chance.random() < 0.1 else 1, 3))
        return {"type": kind, "items" if kind == "array" else "values": self._type(depth - 1)}

    def _union(self, depth: int) -> list[Any]:
        several = not self._simple and self._chance.random() < 0.3
        made: list[Any] = ["null"] if self._chance.random() < 0.9 else []
        for _ in range(self._chance.randint(2, 3) if several else 1):
            self._add_branch(made, self._type(depth, in_union=True))
        self._chance.shuffle(made)
        # A record inside itself brings a union, and is no branch.
        return made or ["string"]

    @staticmethod
    def _add_branch(union: list[Any], branch: Any) -> None:
        """Unless the union has such a type: two of one kind must be named."""
        if isinstance(branch, list):
            return
        kind = kind_of(branch)
        if {kind, *map(str, map(kind_of, union))} >= {"float", "double"}:
            # Py4J makes one type of both, so that nobody could say which it was.
            return
        if kind in ("record", "enum", "fixed") or kind not in [kind_of(each) for each in union]:
            union.append(branch)

    def _logical(self, schema: Any, often: float = 0.4) -> Any:
        kind = kind_of(schema)
        if kind not in LOGICAL or self._chance.random() > often:
            return schema
        logical = self._chance.choice(LOGICAL[kind])
        if self._simple and logical not in ("date", "timestamp-millis", "timestamp-micros"):
            return schema
        made = {**(schema if isinstance(schema, dict) else {"type": schema}), "logicalType": logical}
        if logical == "decimal":
            digits = {1: 2, 2: 4, 5: 11, 16: 38}.get(made.get("size", 16), 38)
            made["precision"] = self._chance.randint(max(1, digits - 8), digits)
            made["scale"] = self._chance.randint(0, min(6, made["precision"]))
        return made

    # ------------------------------------------------------------ other versions

    def changed(self, schema: Any, *, changes: float = 0.25) -> Any:
        """Another version.

        Args:
            changes: how likely each type and each field is another.
        """
        made = deepcopy(schema)
        self._renames: dict[str, str] = {}
        self._changes = changes
        return self._other(made)

    def _happens(self, share: float = 1.0) -> bool:
        return self._chance.random() < self._changes * share

    def _other(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self._other_union([self._other_branch(each) for each in schema])
        made = self._other_branch(schema)
        if (self._happens(0.4) and not self._simple) or self._happens(0.2):
            wider: list[Any] = ["null"]
            self._add_branch(wider, made)
            if not self._simple and self._chance.random() < 0.3:
                self._add_branch(wider, self._type(0, in_union=True))
            self._chance.shuffle(wider)
            return wider
        return made

    def _other_union(self, union: list[Any]) -> Any:
        made: list[Any] = []
        for each in union:
            self._add_branch(made, each)
        if self._happens(0.5):
            self._add_branch(made, self._type(0, in_union=True))
        if self._happens(0.5):
            self._chance.shuffle(made)
        if (
            self._happens(0.15)
            and len(made) > 1
            and not any("name" in each for each in made if isinstance(each, dict))
        ):
            made.pop(self._chance.randrange(len(made)))
        if self._happens(0.1) and len(made) == 1:
            return made[0]
        return made

    def _other_branch(self, schema: Any) -> Any:
        kind = kind_of(schema)
        if isinstance(schema, str) and schema in self._renames:
            return self._renames[schema]
        if kind == "record":
            return self._other_record(schema)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {**schema, inner: self._other(schema[inner])}
        if kind in ("enum", "fixed"):
            return self._other_named(schema)
        if kind in WIDER and self._happens(0.6):
            return self._logical(self._chance.choice(WIDER[kind]), 0.2)
        if kind in LOGICAL and self._happens():
            return (
                kind if isinstance(schema, dict) and self._chance.random() < 0.5 else self._logical(kind, 1)
            )
        return schema

    def _rename(self, schema: dict[str, Any]) -> None:
        if not self._happens(0.3):
            return
        before, schema["name"] = schema["name"], self._name(schema["name"][0])
        self._renames[before] = schema["name"]
        if self._chance.random() < 0.7:
            schema["aliases"] = [before]

    def _other_named(self, schema: dict[str, Any]) -> dict[str, Any]:
        made = dict(schema)
        self._rename(made)
        if made["type"] == "fixed":
            if self._happens():
                for name in ("logicalType", "precision", "scale"):
                    made.pop(name, None)
                return dict(self._logical(made, 0.5))
            return made
        if self._happens():
            made["symbols"] = [*made["symbols"], self._name("T")]
            self._chance.shuffle(made["symbols"])
        if self._happens(0.5):
            made["default"] = self._chance.choice(made["symbols"])
            others = [each for each in made["symbols"] if each != made["default"]]
            if others:
                made["symbols"].remove(self._chance.choice(others))
        return made

    def _other_record(self, schema: dict[str, Any]) -> dict[str, Any]:
        made = dict(schema)
        self._rename(made)
        self._open.append(made["name"])
        fields = []
        for field in made["fields"]:
            # A type that is defined here and named later stays.
            if self._happens(0.4) and not list(named_types(field["type"])) and len(made["fields"]) > 1:
                continue
            other = {**field, "type": self._other(field["type"])}
            if "default" in other:
                other.pop("default")
            if self._happens(0.4):
                other |= {"name": self._name("f"), "aliases": [field["name"]]}
            fields.append(other)
        for _ in range(2):
            if self._happens(0.8):
                fields.insert(self._chance.randint(0, len(fields)), self._new_field())
        if self._happens(0.5) and not any(list(named_types(field["type"])) for field in fields):
            self._chance.shuffle(fields)
        self._open.pop()
        made["fields"] = fields
        return made

    def _new_field(self) -> dict[str, Any]:
        if self._chance.random() < 0.4:
            kind = self._type(0, in_union=True)
            return {"name": self._name("f"), "type": ["null", kind], "default": None}
        made = self._field(1)
        first = branches(made["type"])[0]
        if isinstance(made["type"], list):
            first = made["type"][0]
        made["default"] = self._default(first)
        return made

    def _default(self, schema: Any) -> Any:
        """A value as JSON has it in a schema."""
        kind = kind_of(schema)
        if isinstance(schema, list):
            return self._default(schema[0])
        if kind == "record":
            return {field["name"]: self._default(field["type"]) for field in schema["fields"]}
        if kind == "array":
            return [self._default(schema["items"]) for _ in range(self._chance.randint(0, 2))]
        if kind == "map":
            return {
                f"k{place}": self._default(schema["values"]) for place in range(self._chance.randint(0, 2))
            }
        made = self._leaf(schema, calm=True)
        if isinstance(made, bytes):
            return made.decode("latin-1")
        return made

    # ------------------------------------------------------------ values

    def value(self, schema: Any) -> Any:
        """A value, as fastavro takes it: numbers and bytes for times and decimals."""
        self._defined = dict(named_types(schema))
        self._short = {name.rpartition(".")[2]: name for name in self._defined}
        return self._value(schema, 0)

    def _value(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            there = [each for each in schema if each == "null"] if depth > 6 else []
            chosen = self._chance.choice(there or schema)
            return self._value(chosen, depth + 1)
        if isinstance(schema, str) and schema in self._short:
            return self._value(self._defined[self._short[schema]], depth + 1)
        kind = kind_of(schema)
        if kind == "record":
            return {field["name"]: self._value(field["type"], depth + 1) for field in schema["fields"]}
        size = self._chance.choice([0, 1, 1, 2, 3]) if depth < 6 else 0
        if kind == "array":
            return [self._value(schema["items"], depth + 1) for _ in range(size)]
        if kind == "map":
            keys = self._chance.sample(["", "a", "b", "é", "k" * 20], size)
            return {key: self._value(schema["values"], depth + 1) for key in keys}
        return self._leaf(schema)

    def _leaf(self, schema: Any, *, calm: bool = False) -> Any:
        kind = kind_of(schema)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        pick = self._chance.choice
        if kind == "null":
            return None
        if kind == "boolean":
            return pick([True, False])
        if kind == "enum":
            return pick(schema["symbols"])
        if kind == "fixed":
            return (
                self._chance.randbytes(schema["size"])
                if not logical
                else self._digits(schema["size"], schema)
            )
        if kind == "bytes":
            if logical:
                return self._digits(pick([1, 2, 5, 12]), schema)
            return pick([b"", b"\x00\xff", "é✎".encode(), b"abc", self._chance.randbytes(3)])
        if kind == "string":
            return str(UUID(int=self._chance.getrandbits(128))) if logical else pick(_TEXTS)
        if kind == "int":
            if logical == "time-millis":
                return self._chance.randrange(_DAY_MS)
            if logical == "date":
                return self._chance.randint(-100_000, 100_000)
            return pick(
                [0, 1, -1, 2**31 - 1, -(2**31), 16_777_217, self._chance.randint(-(2**31), 2**31 - 1)]
            )
        if kind == "long":
            return self._long(logical)
        numbers = [0.0, -0.0, 1.5, -2.25, 1e10]
        if not calm:
            numbers += [float("nan"), float("inf"), float("-inf"), 1e-45, 3.4028234663852886e38]
            numbers += [0.1, self._chance.gauss(0, 1e3)] if kind == "float" else [0.1, 1e300, 5e-324]
        return pick(numbers)

    def _long(self, logical: str | None) -> int:
        seconds = self._chance.choice(
            [0, -1, 1_700_000_000, self._chance.randint(-62_000_000_000, 250_000_000_000)]
        )
        if logical is None:
            edges = [0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), self._chance.getrandbits(40)]
            return self._chance.choice(edges)
        if logical == "time-micros":
            return self._chance.randrange(_DAY_MS * 1_000)
        unit = 1_000 if logical.endswith("millis") else 1_000_000
        if self._chance.random() < 0.03:
            return self._chance.choice([2**62, -(2**62), 253_402_300_800 * unit])
        return seconds * unit + self._chance.randrange(unit)

    def _digits(self, size: int, schema: dict[str, Any]) -> bytes:
        most = min(10 ** schema["precision"] - 1, 2 ** (8 * size - 1) - 1)
        number: int = self._chance.choice([0, 1, -1, most, -most, self._chance.randint(-most, most)])
        return number.to_bytes(size, "big", signed=True)
