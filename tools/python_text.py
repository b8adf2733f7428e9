"""Python source as lines, and the small expressions that generated code is made of."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from schema_text import Field, Span, StructDef

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
"""struct's letters. Not uuid: its "16s" would pad or cut a value of another length without a word."""

_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
    "uuid": "bytes",
}
_ZEROS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": 'b""',
    "uuid": "ZERO_UUID",
}
_WIDTH = 110
_TAKEN = frozenset({"r", "w", "cls", "self", "version", "flexible", "put", "tags", "tag", "end", "part", "n"})


class Lines:
    """Source lines; `with lines.block("if x:"):` indents what follows."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def add(self, text: str = "") -> None:
        self.lines.append("    " * self._depth + text if text else "")

    def add_all(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.add(text)

    def add_doc(self, text: str) -> None:
        """A docstring of one paragraph, or of several that are wrapped already."""
        if "\n" not in text and 4 * self._depth + len(text) + 6 <= _WIDTH:
            self.add(f'"""{text}"""')
            return
        lines = (
            text.split("\n")
            if "\n" in text
            else textwrap.wrap(text, _WIDTH - 4 * self._depth - 3, break_on_hyphens=False)
        )
        self.add(f'"""{lines[0]}')
        self.add_all(lines[1:])
        self.add('"""')

    def block(self, opening: str) -> Lines:
        self.add(opening)
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def local(field: Field) -> str:
    """The local variable of a field, clear of the names that generated methods use themselves."""
    return field.name + "_" if field.name in _TAKEN else field.name


def is_struct(field: Field) -> bool:
    return field.base[0].isupper()


def is_fixed(field: Field) -> bool:
    """Whether the field may be part of one `struct` call."""
    return field.base in FIXED and not field.is_array and field.tag is None


def unit(field: Field) -> str | None:
    """The reader's and writer's method for a field whose length, null included, they handle themselves."""
    if field.base == "int32" and field.is_array:
        return "int32s"
    return field.base if field.base in ("string", "bytes", "records") and not field.is_array else None


def annotation(field: Field) -> str:
    name = _PYTHON_TYPES.get(field.base) or (field.base if is_struct(field) else "int")
    if field.is_array:
        name = f"list[{name}]"
    return f"{name} | None" if field.nullable else name


def default(field: Field) -> str:
    """The default, as an expression that makes a fresh value."""
    if field.default is not None:
        return {"null": "None", "true": "True", "false": "False"}.get(field.default, field.default)
    if field.is_array:
        return "[]"
    if is_struct(field):
        return f"{field.base}()"
    return _ZEROS.get(field.base, "0")


def is_mutable(field: Field) -> bool:
    """Whether each object needs a default of its own."""
    return default(field).endswith(("[]", "()"))


def differs(field: Field, value: str, structs: dict[str, StructDef]) -> str:
    """A condition: the value is not the field's default."""
    zero = default(field)
    if zero == "None":
        return f"{value} is not None"
    if zero == "False":
        return value
    if zero == "True":
        return f"not {value}"
    if is_struct(field) and not field.is_array:
        # Spelt out: building a default object to compare with costs three times as much.
        inner = [differs(f, f"{value}.{f.name}", structs) for f in structs[field.base].fields]
        return " or ".join([*inner, f"{value}.unknown_tags"])
    return f"{value} != {zero}"


def inside(span: Span, outer: Span) -> str | None:
    """A condition: `version`, which lies in outer, lies in span. None when that is always so."""
    if span.covers(outer):
        return None
    if span.first <= outer.first:
        return f"version <= {span.last}"
    if span.last >= outer.last:
        return f"version >= {span.first}"
    if span.first == span.last:
        return f"version == {span.first}"
    return f"{span.first} <= version <= {span.last}"


def outside(span: Span, outer: Span) -> str | None:
    """The opposite of `inside`; None when `version` never lies outside."""
    test = inside(span, outer)
    if test is None:
        return None
    if span.first <= outer.first:
        return f"version > {span.last}"
    if span.last >= outer.last:
        return f"version < {span.first}"
    return f"not {test}"


def layout_name(layout: str) -> str:
    """The module constant for a `struct` layout."""
    return "_" + layout.replace("?", "t")


def versions_note(span: Span) -> str:
    return f"Version {span}." if span.first == span.last else f"Versions {span}."
