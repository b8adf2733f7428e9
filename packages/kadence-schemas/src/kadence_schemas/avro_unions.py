"""The type of a union that a value is written as: the one of its own type, wherever it stands, as in Avro for Java.

fastavro takes the first type that could hold the value in some way: it writes a datetime as a date, a large whole
number as a double, and bytes as an array. So a value for a union with such types is converted first: each of its values
of unions becomes a pair, the name of the type and the value, which fastavro writes unchanged.

fastavro counts the digits of a decimal without its exponent: it writes 1E+5 as six digits where the schema has four, or
as another number where so many bytes do not hold it. So the decimals of a value are looked at, too. Other schemas need
nothing.

A union of null and one type is written like that type alone, with no more checks than a field of that type.
"""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from typing import Any, Final
from uuid import UUID

from kadence.errors import ConfigError, SerializationError
from kadence_schemas.avro_readers import READERS

__all__ = ["Unions"]

_OWN: Final = 0
"""How far a type is from a value's own; the nearest one is taken. These go up to `_LOSSY`, which changes the value."""

_RAW, _DOUBLE, _FLOAT, _ROUNDED, _LOSSY = 1, 2, 3, 4, 9

_MAP_FIELDS: Final = math.inf
"""A dict that fits a map is one, as in fastavro; else it is the record with the most of its fields."""

_RISKY: Final = {"float", "double"}

_LIMITS: Final = {"int": 1 << 31, "long": 1 << 63}

Weighed = tuple[int, Any]
"""How far a type is from the value's own, and the value for fastavro."""

_Weigh = Callable[[Any], "Weighed | None"]
_Convert = Callable[[Any], Any]


class Unions:
    """The unions of a parsed schema.

    Args:
        strict: a record of a union must have all its fields.
    """

    def __init__(self, schema: Any, *, strict: bool = False) -> None:
        from kadence_schemas.avro_schemas import definitions, library

        self._named = definitions(schema)
        self._prepare = library().write.LOGICAL_WRITERS
        self._strict = strict
        self._weighs: dict[str, _Weigh] = {}
        self._converts: dict[str, _Convert] = {}
        self._taking: dict[int, _Weigh] = {}
        self._needed: dict[str, bool] = {}
        self.convert: _Convert | None = self._convert(schema, "") if self._needs(schema) else None
        """Makes the value for fastavro, or raises SerializationError. None: fastavro writes each value rightly."""

    def takes(self, schema: Any, value: Any) -> bool:
        """Whether a type of the schema holds a value without loss.

        Args:
            schema: a part of the schema of these unions, the same object each time.
        """
        if id(schema) not in self._taking:
            self._taking[id(schema)] = self._weigh(schema)
        weighed = self._taking[id(schema)](value)
        return weighed is not None and weighed[0] < _LOSSY

    # ------------------------------------------------------------ which schemas

    def _needs(self, schema: Any) -> bool:
        """Whether fastavro may take the wrong type of a union somewhere in the schema, or write a wrong decimal."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._is_ambiguous(schema) or any(self._needs(each) for each in schema)
        if _is_decimal(schema):
            return True
        if "name" not in schema:
            return any(self._needs(each) for each in _parts(schema))
        name = schema["name"]
        if name not in self._needed:
            # A record inside itself.
            self._needed[name] = False
            self._needed[name] = any(self._needs(each) for each in _parts(schema))
            if self._needed[name]:
                # The records inside of it may hold it, and were judged before it.
                self._needed = {each: needed for each, needed in self._needed.items() if needed}
        return self._needed[name]

    def _is_ambiguous(self, union: list[Any]) -> bool:
        others = [self._resolved(each) for each in union if each != "null"]
        if len(others) < 2:
            return False
        if any(isinstance(each, list) for each in others):
            raise ConfigError("an Avro schema has a union right in a union")
        dicts = [each for each in others if each["type"] in ("record", "error", "map")]
        if len(dicts) > 1 and any(self._is_risky(each, set()) for each in dicts):
            return True
        kinds = {each["type"] for each in others}
        return {"array", "bytes"} <= kinds or {"array", "fixed"} <= kinds or any(map(_is_risky, others))

    def _is_risky(self, schema: Any, seen: set[str]) -> bool:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return any(self._is_risky(each, seen) for each in schema)
        if "name" in schema:
            if schema["name"] in seen:
                return False
            seen.add(schema["name"])
        return _is_risky(schema) or any(self._is_risky(each, seen) for each in _parts(schema))

    def _resolved(self, schema: Any) -> Any:
        """The definition of a type, as a dict, or the list of a union."""
        while isinstance(schema, str | dict):
            if isinstance(schema, str):
                if schema not in self._named:
                    return {"type": schema}
                schema = self._named[schema]
            elif isinstance(schema["type"], dict | list) or schema["type"] in self._named:
                schema = schema["type"]
            else:
                break
        return schema

    # ------------------------------------------------------------ outside of unions: types are as they are

    def _convert(self, schema: Any, path: str) -> _Convert:
        if not self._needs(schema):
            return lambda value: value
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._convert_union(schema, path)
        if _is_decimal(schema):
            return partial(_checked, schema, path)
        kind = schema["type"]
        if kind == "array":
            item = self._convert(schema["items"], f"{path}[]")
            return lambda value: [item(each) for each in value] if _is_sequence(value) else value
        if kind == "map":
            inner = self._convert(schema["values"], f"{path}[]")
            return lambda value: (
                {name: inner(each) for name, each in value.items()} if isinstance(value, Mapping) else value
            )
        made: _Convert = _once(self._converts, schema["name"], lambda: self._convert_record(schema, path))
        return made

    def _convert_record(self, schema: Any, path: str) -> _Convert:
        fields = [
            (field, self._convert(field["type"], f"{path}.{field['name']}" if path else field["name"]))
            for field in schema["fields"]
            if self._needs(field["type"])
        ]

        def convert(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            made = dict(value)
            for field, inner in fields:
                name = field["name"]
                if name in value:
                    made[name] = inner(value[name])
                elif "default" in field and not self._strict:
                    made[name] = inner(field["default"])
            return made

        return convert

    def _convert_union(self, union: list[Any], path: str) -> _Convert:
        weigh = self._weigh_union(union)
        named = {self._name(each): self._convert(each, path) for each in union}
        said = ", ".join(named)

        def convert(value: Any) -> Any:
            if (
                isinstance(value, tuple)
                and len(value) == 2
                and isinstance(value[0], str)
                and value[0] in named
            ):
                return value[0], named[value[0]](value[1])
            weighed = weigh(value)
            if weighed is None:
                raise SerializationError(
                    f"field {path or '(all)'}: no type of its union ({said}) holds {reprlib.repr(value)} of type "
                    f"{type(value).__name__} without loss"
                )
            return weighed[1]

        return convert

    # ------------------------------------------------------------ in unions

    def _weigh(self, schema: Any) -> _Weigh:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._weigh_union(schema)
        kind = schema["type"]
        if kind == "array":
            item = self._weigh(schema["items"])
            return lambda value: (
                _all([(place, item(each)) for place, each in enumerate(value)], list)
                if _is_sequence(value)
                else None
            )
        if kind == "map":
            inner = self._weigh(schema["values"])
            return lambda value: (
                _all([(name, inner(each)) for name, each in value.items()], dict)
                if isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
                else None
            )
        if kind not in ("record", "error"):
            return self._weigh_plain(schema)
        made: _Weigh = _once(self._weighs, schema["name"], lambda: self._weigh_record(schema))
        return made

    def _weigh_record(self, schema: Any) -> _Weigh:
        fields = [(field["name"], field, self._weigh(field["type"])) for field in schema["fields"]]

        def weigh(value: Any) -> Weighed | None:
            if not isinstance(value, Mapping) or value.get("-type", schema["name"]) != schema["name"]:
                return None
            made, worst = dict(value), _OWN
            for name, field, inner in fields:
                is_there = name in value
                if not is_there and "default" not in field and self._strict:
                    return None
                found = inner(value[name] if is_there else field.get("default"))
                if found is None:
                    return None
                if is_there or not self._strict:
                    made[name] = found[1]
                worst = max(worst, found[0])
            return worst, made

        return weigh

    def _weigh_union(self, union: list[Any]) -> _Weigh:
        branches = []
        for each in union:
            definition = self._resolved(each)
            names = {field["name"] for field in definition.get("fields", ())}
            branches.append((self._name(each), definition["type"] == "map", names, self._weigh(each)))
        is_alone = sum(name != "null" for name, *_ in branches) == 1

        def weigh(value: Any) -> Weighed | None:
            if value is None:
                return next(((_OWN, None) for name, *_ in branches if name == "null"), None)
            if isinstance(value, tuple):
                found = [each for each in branches if len(value) == 2 and each[0] == value[0]]
                made = found[0][3](value[1]) if found else None
                return None if made is None else (made[0], (value[0], made[1]))
            best: Any = None
            for name, is_map, names, inner in branches:
                made = inner(value)
                if made is None:
                    continue
                if (
                    made[0] >= _LOSSY
                    and not is_alone
                    and not (isinstance(value, Mapping) or _is_sequence(value))
                ):
                    # In a dict or list it is a field of its own that loses something, as it does outside of unions.
                    continue
                if made[0] == _OWN and not isinstance(value, Mapping):
                    # None is nearer.
                    return _OWN, (name, made[1])
                fields = _MAP_FIELDS if is_map else len(names.intersection(value)) if names else 0
                key = (made[0] >= _LOSSY, -fields, made[0])
                if best is None or key < best[0]:
                    best = key, (made[0], (name, made[1]))
            return None if best is None else best[1]

        return weigh

    def _name(self, schema: Any) -> str:
        definition = self._resolved(schema)
        name: str = definition.get("name", definition["type"])
        return name

    def _weigh_plain(self, schema: Any) -> _Weigh:
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal":
            prepare, read = self._prepare[f"{kind}-decimal"], READERS[f"{kind}-kadence-decimal"]

            def decimal(value: Any) -> int | None:
                if not isinstance(value, Decimal):
                    return _RAW if _of_kind(kind, schema, value) == _OWN else None
                try:
                    data = prepare(value, schema)
                except (ValueError, TypeError, OverflowError):
                    return None
                # Of a number that is too large for a fixed type it makes more bytes, or another number.
                fits = len(data) == schema.get("size", len(data)) and read(data, schema, None) == value
                fits = fits and _digits(value, schema) <= schema["precision"]
                return _OWN if fits else None

            return _with_value(decimal)
        if logical is None:
            return _with_value(lambda value: _of_kind(kind, schema, value))

        def of_logical(value: Any) -> int | None:
            found = _of_logical(logical, value)
            if found is None and (kind != "string" or _is_uuid(value)):
                found = _RAW if _of_kind(kind, schema, value) == _OWN else None
            return found

        return _with_value(of_logical)


def _once(made: dict[str, Callable[[Any], Any]], name: str, make: Callable[[], Callable[[Any], Any]]) -> Any:
    """The function of a named type; one that calls it later, while it is being made, for a type inside itself."""

    def later(value: Any) -> Any:
        return made[name](value)

    if name not in made:
        made[name] = later
        made[name] = make()
    return made[name]


def _with_value(weigh: Callable[[Any], int | None]) -> _Weigh:
    def weighed(value: Any) -> Weighed | None:
        found = weigh(value)
        return None if found is None else (found, value)

    return weighed


def _all(found: list[tuple[Any, Weighed | None]], make: type) -> Weighed | None:
    worst = _OWN
    made: list[Any] = []
    for name, each in found:
        if each is None:
            return None
        worst = max(worst, each[0])
        made.append(each[1] if make is list else (name, each[1]))
    return worst, make(made)


def _parts(schema: Mapping[str, Any]) -> list[Any]:
    parts = [schema[name] for name in ("items", "values") if name in schema]
    parts += [schema["type"]] if isinstance(schema["type"], list) else []
    return parts + [field["type"] for field in schema.get("fields", ())]


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    return schema.get("logicalType") == "decimal"


def _digits(value: Decimal, schema: Mapping[str, Any]) -> int:
    """How many digits it has with the scale of its type; it may end in zeros that its exponent stands for."""
    return value.adjusted() + 1 + int(schema.get("scale", 0)) if value and value.is_finite() else 0


def _checked(schema: Mapping[str, Any], path: str, value: Any) -> Any:
    """A value for a decimal, which fastavro does not refuse for its digits."""
    if isinstance(value, Decimal) and (digits := _digits(value, schema)) > schema["precision"]:
        raise SerializationError(
            f"field {path or '(all)'}: {reprlib.repr(value)} has {digits} digits with the scale of its type, whose "
            f"precision is {schema['precision']}"
        )
    return value


def _is_risky(schema: Mapping[str, Any]) -> bool:
    return schema["type"] in _RISKY or "logicalType" in schema


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _of_logical(logical: str, value: Any) -> int | None:
    """How near a logical type is to one of Python's values; None also for numbers and texts."""
    if isinstance(value, datetime):
        if "timestamp" in logical:
            return _OWN
        # At midnight nothing is lost.
        return None if logical != "date" else _RAW if value.timetz() == time() else _LOSSY
    if isinstance(value, date):
        return _OWN if logical == "date" else None
    if isinstance(value, time) and logical in ("time-millis", "time-micros"):
        return _OWN if logical == "time-micros" or not value.microsecond % 1000 else _ROUNDED
    if isinstance(value, str) and logical == "date":
        try:
            date.fromisoformat(value)
        except ValueError:
            return None
        return _RAW
    return _OWN if isinstance(value, UUID) and logical == "uuid" else None


def _of_kind(kind: str, schema: Mapping[str, Any], value: Any) -> int | None:
    if kind in _LIMITS:
        fits = _is_whole(value) and -_LIMITS[kind] <= value < _LIMITS[kind]
    elif kind in ("float", "double"):
        return _of_number(kind, value)
    elif kind == "fixed":
        fits = isinstance(value, bytes) and len(value) == schema["size"]
    elif kind == "enum":
        fits = isinstance(value, str) and value in schema["symbols"]
    else:
        types: dict[str, Any] = {"boolean": bool, "string": str, "bytes": (bytes, bytearray)}
        fits = isinstance(value, types[kind]) if kind in types else value is None
    return _OWN if fits else None


def _of_number(kind: str, value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    exact = int(value) if isinstance(value, Integral) else value
    try:
        near = float(exact)
        is_same = near == exact or math.isnan(near)
        if kind == "double":
            return _LOSSY if not is_same else _DOUBLE if isinstance(value, Integral) else _OWN
        short = struct.unpack("f", struct.pack("f", near))[0]
    except OverflowError:
        return _LOSSY
    if is_same and (short == near or math.isnan(near)):
        return _FLOAT
    # Python has no floats of 32 bits: a float is rounded to one, as in a field that is no union.
    return _LOSSY if isinstance(value, Integral) else _ROUNDED


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_uuid(value: Any) -> bool:
    try:
        UUID(value)
    except (ValueError, AttributeError, TypeError):
        return False
    return True
