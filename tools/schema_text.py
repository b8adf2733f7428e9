"""The grammar of schema/*.txt, as plain values.

    api NAME key N versions A-B [flexible C+]      or      message NAME versions A-B [flexible C+]
    or   record NAME type N versions A-B [flexible C+]

    request | response | body | key | value
        NAME  TYPE  [VERSIONS]  [= DEFAULT]  [tag N]  [ignorable] [classic]
            fields of the struct that TYPE names, when this is the first place that names it

TYPE is a primitive (bool int8 int16 uint16 int32 uint32 int64 float64 string bytes records uuid), a struct
(CamelCase), or either in brackets for an array. `?` after it allows null; `?7+` allows it from version 7 on.
VERSIONS is `4`, `4-12` or `4+`, and may be left out where it is the same as the enclosing field's. `tag N` makes it a
tagged field (KIP-482). `ignorable`: a version without the field drops the value silently; otherwise
writing a value that is not the default is an error. `classic`: keeps the classic encoding in flexible
versions. Comment lines describe what follows: the message at the head of the file, else the next field
(and, in the first place that names it, the field's struct).

A record is what a coordinator stores: a key, of which there is one version and which is never flexible, and a value,
which has the versions of the head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

NEVER = 32767
"""The first flexible version of a message that has none."""

PRIMITIVES = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "float64",
        "string",
        "bytes",
        "records",
        "uuid",
    }
)


class SchemaError(ValueError):
    """A schema file that does not follow the grammar; the message names file and line."""


@dataclass(frozen=True)
class Span:
    """A closed range of versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def covers(self, other: Span) -> bool:
        return self.first <= other.first and other.last <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass
class Field:
    """One field of a struct."""

    name: str
    base: str
    """Primitive or struct name; of the elements, for an array."""
    is_array: bool
    versions: Span
    nullable: Span | None = None
    default: str | None = None
    """The default as the schema writes it; None is the type's zero."""
    tag: int | None = None
    ignorable: bool = False
    classic: bool = False
    doc: str = ""


@dataclass
class StructDef:
    """A struct: a message's top, or the type of a field."""

    name: str
    versions: Span
    fields: list[Field] = field(default_factory=list)
    doc: str = ""
    classic: bool = False
    """It keeps the classic encoding, whatever its message does: the key of a record."""


@dataclass
class Module:
    """One schema file: an API's request and response, a record's key and value, or one message that is neither."""

    name: str
    """Kafka's name of the API, record or message."""
    key: int | None
    """Of an API."""
    versions: Span
    flexible_from: int
    doc: str
    tops: list[StructDef] = field(default_factory=list)
    structs: dict[str, StructDef] = field(default_factory=dict)
    """All structs by name, the inner ones before those that use them."""
    record_type: int | None = None
    """Of a record: what its key begins with in the log."""

    @property
    def python_name(self) -> str:
        name = self.name if self.record_type is None else f"{self.name}Record"
        return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class ErrorCode:
    """One line of errors.txt."""

    code: int
    name: str
    is_retriable: bool
    message: str


_HEAD = re.compile(
    r"(?:api (?P<api>\w+) key (?P<key>\d+)|message (?P<message>\w+)|record (?P<record>\w+) type (?P<type>\d+)) "
    r"versions (?P<versions>[\d-]+)(?: flexible (?P<flexible>\d+)\+)?"
)
_FIELD = re.compile(
    r"(?P<name>[a-z]\w*) +(?P<open>\[?)(?P<base>\w+)\]?(?P<null>\?[\d+-]*)?"
    r"(?: +(?P<versions>\d[\d+-]*))?(?: +(?P<attributes>[=a-z].*))?"
)
_ATTRIBUTE = re.compile(r"= (?P<default>\S+)|tag (?P<tag>\d+)|(?P<flag>ignorable|classic)")
_BLOCKS = {"request": "Request", "response": "Response", "body": "", "key": "Key", "value": "Value"}
_ERROR = re.compile(r"(?P<code>-?\d+) (?P<name>[A-Z0-9_]+)(?P<retriable> retriable)?: (?P<message>.+)")


def _span(text: str, outer: Span) -> Span:
    if text.endswith("+"):
        return Span(int(text[:-1]), outer.last)
    first, _, last = text.partition("-")
    return Span(int(first), int(last or first))


class _Parser:
    """Reads one file; a stack of (indent, struct) mirrors the indentation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self.comment: list[str] = []
        self.module: Module | None = None
        self.stack: list[tuple[int, StructDef]] = []
        self.opened: StructDef | None = None

    def fail(self, what: str) -> SchemaError:
        return SchemaError(f"{self.path.name}:{self.number}: {what}")

    def take_comment(self, separator: str = " ") -> str:
        text = separator.join(self.comment)
        self.comment.clear()
        return text

    def parse(self) -> Module:
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            self.number = number
            text = line.strip()
            indent = len(line) - len(line.lstrip())
            if text.startswith("#"):
                self.comment.append(text[1:].removeprefix(" ").rstrip())
            elif not text:
                continue
            elif self.module is None:
                self.head(text)
            elif indent == 0:
                self.block(self.module, text)
            else:
                self.field(self.module, indent, text)
        if self.module is None:
            raise self.fail("no 'api', 'message' or 'record' line")
        for struct in self.module.structs.values():
            if not struct.fields and struct not in self.module.tops:
                raise self.fail(f"struct {struct.name} has no fields")
        return self.module

    def head(self, text: str) -> None:
        match = _HEAD.fullmatch(text)
        if not match:
            raise self.fail(
                "the file begins with 'api NAME key N versions A-B', 'record NAME type N versions A-B' "
                "or 'message NAME versions A-B'"
            )
        self.module = Module(
            name=match["api"] or match["message"] or match["record"],
            key=int(match["key"]) if match["key"] else None,
            versions=_span(match["versions"], Span(0, 0)),
            flexible_from=int(match["flexible"]) if match["flexible"] else NEVER,
            doc=self.take_comment("\n"),
            record_type=int(match["type"]) if match["type"] else None,
        )

    def block(self, module: Module, text: str) -> None:
        suffix = _BLOCKS.get(text)
        if suffix is None:
            raise self.fail(f"'request', 'response', 'body', 'key' or 'value' expected, not {text!r}")
        is_key = text == "key"
        versions = Span(0, 0) if is_key else module.versions
        top = StructDef(module.name + suffix, versions, doc=self.take_comment(), classic=is_key)
        module.tops.append(top)
        module.structs[top.name] = top
        self.stack = []
        self.opened = top

    def field(self, module: Module, indent: int, text: str) -> None:
        while self.stack and indent < self.stack[-1][0]:
            self.stack.pop()
            self.opened = None
        if not self.stack or indent > self.stack[-1][0]:
            if self.opened is None:
                raise self.fail("indented below something that is not a new struct")
            self.stack.append((indent, self.opened))
        struct = self.stack[-1][1]
        new = self.parse_field(text, struct.versions)
        struct.fields.append(new)
        self.opened = None
        if new.base not in PRIMITIVES:
            known = module.structs.get(new.base)
            if known is None:
                self.opened = StructDef(new.base, new.versions, doc=new.doc)
                # A struct is placed before the one that uses it, as Python wants its classes.
                after = {name: module.structs.pop(name) for name in [s.name for _, s in self.stack]}
                module.structs[new.base] = self.opened
                module.structs.update(reversed(after.items()))
            elif not known.versions.covers(new.versions):
                raise self.fail(f"{new.base} is described for versions {known.versions} only")

    def parse_field(self, text: str, outer: Span) -> Field:
        match = _FIELD.fullmatch(text)
        if not match:
            raise self.fail(f"not a field: {text!r}")
        if match["base"] not in PRIMITIVES and not match["base"][0].isupper():
            raise self.fail(f"unknown type {match['base']!r}")
        versions = _span(match["versions"], outer) if match["versions"] else outer
        if not outer.covers(versions):
            raise self.fail(f"versions {versions} reach beyond the enclosing {outer}")
        new = Field(
            match["name"],
            match["base"],
            bool(match["open"]),
            versions,
            doc=self.take_comment(),
        )
        if match["null"]:
            new.nullable = _span(match["null"][1:], versions) if match["null"] != "?" else versions
        rest = _ATTRIBUTE.sub(lambda found: self.attribute(new, found), match["attributes"] or "")
        if rest.strip():
            raise self.fail(f"not understood: {rest.strip()!r}")
        return new

    def attribute(self, new: Field, found: re.Match[str]) -> str:
        if found["default"]:
            new.default = found["default"]
        elif found["tag"]:
            new.tag = int(found["tag"])
        else:
            setattr(new, found["flag"], True)
        return ""


def parse_module(path: Path) -> Module:
    """The message or API that a schema file describes.

    Raises:
        SchemaError: the file does not follow the grammar.
    """
    return _Parser(path).parse()


def parse_errors(path: Path) -> list[ErrorCode]:
    """The error codes, in the file's order.

    Raises:
        SchemaError: a line does not follow the grammar, or a code comes twice.
    """
    codes: dict[int, ErrorCode] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _ERROR.fullmatch(line)
        if not match or int(match["code"]) in codes:
            raise SchemaError(f"{path.name}:{number}: not a new error code: {line!r}")
        code = ErrorCode(
            int(match["code"]),
            match["name"],
            bool(match["retriable"]),
            match["message"],
        )
        codes[code.code] = code
    return list(codes.values())
