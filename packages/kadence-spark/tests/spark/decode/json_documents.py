"""Documents for the comparison with ``from_json``: hard ones written by hand in ``documents/``, and others by seed."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path
from typing import Final

__all__ = ["FIELDS", "ROOTS", "SCHEMA", "mutated", "packed", "roots", "single", "values", "whole"]

_HERE: Final = Path(__file__).with_name("documents")

_TYPES: Final = {
    "bo": "boolean",
    "by": "tinyint",
    "sh": "smallint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "de": "decimal(10,2)",
    "du": "decimal(38,18)",
    "s": "string",
    "bi": "binary",
    "da": "date",
    "ts": "timestamp",
    "tn": "timestamp_ntz",
    "ai": "array<int>",
    "as": "array<string>",
    "at": "array<timestamp>",
    "st": "struct<a:int,b:string,c:struct<d:double>>",
    "asc": "array<struct<a:int,b:string>>",
    "mi": "map<string,int>",
    "ms": "map<string,string>",
    "mst": "map<string,struct<a:int,b:string>>",
    "aa": "array<array<int>>",
}
FIELDS: Final = tuple(_TYPES)
SCHEMA: Final = ", ".join(f"`{name}` {kind}" for name, kind in _TYPES.items())
"""A field for each type that is decoded, and nested ones."""

ROOTS: Final = (
    "map<string,int>",
    "map<string,string>",
    "map<string,struct<a:int,b:string>>",
    "array<int>",
    "array<string>",
    "array<struct<a:int,b:string>>",
)
"""Schemas that are no objects."""


def values() -> list[str]:
    """JSON values, and texts that are nearly some."""
    return _lines("values.txt")


def packed() -> list[bytes]:
    """Each value in every field at once: ``from_json`` takes each field for itself as far as the value is JSON."""
    return [("{" + ",".join(f'"{name}":{value}' for name in FIELDS) + "}").encode() for value in values()]


def single(share: int = 1) -> list[bytes]:
    """Each value in a field alone, with two others behind it; every so manieth of these documents."""
    made = [f'{{"{name}":{value},"zz":1,"l":7}}' for name in FIELDS for value in values()]
    return [document.encode() for document in made[::share]]


def whole() -> list[bytes]:
    """Documents that are odd as a whole."""
    written: list[bytes] = [ast.literal_eval(line) for line in _lines("whole.txt")]
    long = [
        '{"i":1,"l":2' + " " * 5000 + "}",
        '{"s":"' + "x" * 9000 + '","i":1}',
        '{"i":' + "1" * 999 + ',"l":1}',
        '{"d":' + "1" * 1000 + ',"l":1}',
        '{"d":' + "1" * 1001 + ',"l":1}',
        '{"q":' + "1" * 1001 + ',"l":1}',
        '{"d":1.' + "1" * 999 + ',"l":1}',
        '{"s":1.' + "1" * 1200 + ',"l":1}',
        '{"du":' + "1" * 20 + "." + "3" * 300 + ',"l":1}',
        '{"d":1' + "0" * 400 + ',"l":1}',
        '{"l":1,"' + "n" * 50_001 + '":1,"i":2}',
        '{"l":1,"' + "n" * 50_000 + '":1,"i":2}',
        '{"q":' + "[" * 999 + "]" * 999 + ',"l":1}',
        '{"q":' + "[" * 1000 + "]" * 1000 + ',"l":1}',
        '{"q":' + '{"a":' * 1100 + "1" + "}" * 1100 + ',"l":1}',
        '{"s":' + "[" * 600 + "]" * 600 + ',"l":1}',
    ]
    return written + [document.encode() for document in long]


def roots() -> list[bytes]:
    """Documents for the schemas that are no objects."""
    return [line.encode() for line in _lines("roots.txt")]


def mutated(seed: int, count: int) -> list[bytes]:
    """Documents of several fields; half of them are hurt in some place."""
    chance = random.Random(seed)
    every = values()
    whole_ones = [text for text in every if text[0] in '"[{0123456789tfn-' and text.count('"') % 2 == 0]
    fitting = {name: [text for text in every if _FITS[name].fullmatch(text)] for name in FIELDS}
    made = [_chosen(chance, fitting) for _ in range(count // 2)]
    return made + [_mutated(chance, every, whole_ones) for _ in range(count - len(made))]


_NUMBER: Final = re.compile(r"-?(0|[1-9]\d{0,6})(\.\d+)?([eE][+-]?\d)?|null")
_SMALL: Final = re.compile(r"-?\d|100|null")
_TEXT: Final = re.compile(r'"[^"]*"|-?\d+|true|null|\{.*\}')
_TIME: Final = re.compile(r'"(19|20)\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^"]*"|null')
_LIST: Final = re.compile(r"\[.*\]|null")
_OBJECT: Final = re.compile(r"\{.*\}|null")
_FITS: Final = {
    **dict.fromkeys(FIELDS, _OBJECT),
    **dict.fromkeys(("by", "sh", "i", "l"), _SMALL),
    **dict.fromkeys(("f", "d", "de", "du"), _NUMBER),
    **dict.fromkeys(("ai", "as", "at", "asc", "aa"), _LIST),
    **dict.fromkeys(("ts", "tn"), _TIME),
    "bo": re.compile("true|false|null"),
    "s": _TEXT,
    "bi": re.compile(r'"[A-Za-z0-9+/]{2,3}=*"|null'),
    "da": re.compile(r'"\d{4}-\d\d-\d\d"|null'),
}
"""Which values are mostly good in a field: the compiled reader takes a document only where all of it is."""


def _chosen(chance: random.Random, fitting: dict[str, list[str]]) -> bytes:
    names = chance.sample(FIELDS[: chance.choice([10, len(FIELDS)])], chance.randint(1, 4))
    return ("{" + ",".join(f'"{name}":{chance.choice(fitting[name])}' for name in names) + "}").encode()


def _mutated(chance: random.Random, every: list[str], whole_ones: list[str]) -> bytes:
    members = [
        f'"{name}":{chance.choice(whole_ones if chance.random() < 0.85 else every)}'
        for name in chance.sample([*FIELDS, "q", "r"], chance.randint(1, 6))
    ]
    data = ("{" + chance.choice([",", ", ", " ,\n"]).join(members) + "}").encode()
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        place, other = chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)
        letter = bytes([chance.choice(b"{}[]\",:'\\ tfn0129.-+eE\n/*#\xc3\xa9")])
        kind = chance.randrange(5)
        if kind == 0:
            data = data[:place] + letter + data[place:]
        elif kind == 1:
            data = data[:place] + data[place + 1 :]
        elif kind == 2:
            data = data[:place] + letter + data[place + 1 :]
        elif kind == 3 and chance.random() < 0.3:
            data = data[:place]
        else:
            data = data[:place] + data[min(place, other) : max(place, other)][:12] + data[place:]
    return data


def _lines(name: str) -> list[str]:
    return (_HERE / name).read_text(encoding="utf-8").split("\n")[:-1]
