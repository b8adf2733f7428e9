"""The class of one struct: its head, fields and constructor.

What a generated class looks like, and why:

* One class per struct, all versions in one `read` and one `write`. A version is a number to compare, not
  a class of its own, so managers and broker handlers never switch types.
* Neighbouring fields of fixed size become one `struct` call. Where versions differ in which of them they
  have, there is one branch per distinct layout, newest first.
* `read` ends in one positional constructor call, the cheapest way to fill an object with slots.
* Constructors are spelt out rather than left to `dataclass`, which would make them anew at every import.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from python_text import (
    FIXED,
    Lines,
    annotation,
    default,
    is_fixed,
    is_mutable,
    layout_name,
    versions_note,
)
from schema_text import NEVER, Field, Module, Span, StructDef


@dataclass
class Branch:
    """One layout of a run of fixed-size fields, and the versions that have it."""

    span: Span
    fields: list[Field]


class StructCode:
    """Knows one struct; `python_write` and `python_read` add its two methods."""

    def __init__(self, out: Lines, module: Module, struct: StructDef) -> None:
        self.out = out
        self.module = module
        self.struct = struct
        self.span = struct.versions
        self.plain = [f for f in struct.fields if f.tag is None]
        self.tagged = sorted((f for f in struct.fields if f.tag is not None), key=lambda f: f.tag or 0)
        self.layouts: set[str] = set()
        self.has_flexible = not struct.classic and self.span.last >= module.flexible_from
        """Some version is flexible."""
        self.always_flexible = not struct.classic and self.span.first >= module.flexible_from
        self.flexible_span = Span(max(self.span.first, module.flexible_from), self.span.last)

    def layout(self, fields: list[Field]) -> str:
        """The constant for a run's layout; remembers that the module needs it."""
        letters = "".join(FIXED[field.base] for field in fields)
        self.layouts.add(letters)
        return layout_name(letters)

    def call(self, owner: str, method: str, argument: str = "", *, classic: bool = False) -> str:
        """A call of a reader's or writer's method, in its compact form where the version wants that."""
        plain = f"{owner}.{method}({argument})"
        compact = f"{owner}.compact_{method}({argument})"
        if classic or method == "uuid" or not self.has_flexible:
            return plain
        return compact if self.always_flexible else f"{compact} if flexible else {plain}"

    def add_flexible(self) -> None:
        """A local that tells flexible versions, where there are both kinds."""
        if self.has_flexible and not self.always_flexible:
            self.out.add(f"flexible = version >= {self.module.flexible_from}")

    def steps(self) -> Iterator[list[Field]]:
        """The untagged fields in wire order, neighbours of fixed size together."""
        run: list[Field] = []
        for field in self.plain:
            if is_fixed(field):
                run.append(field)
                continue
            if run:
                yield run
                run = []
            yield [field]
        if run:
            yield run

    def branches(self, run: list[Field]) -> Iterator[tuple[str | None, Branch]]:
        """The distinct layouts of a run, newest first, each with the line that opens its branch.

        The line is None when all versions have the same layout.
        """
        found: list[Branch] = []
        for version in range(self.span.last, self.span.first - 1, -1):
            fields = [field for field in run if version in field.versions]
            if found and found[-1].fields == fields:
                found[-1].span = Span(version, found[-1].span.last)
            else:
                found.append(Branch(Span(version, version), fields))
        for index, branch in enumerate(found):
            if len(found) == 1:
                yield None, branch
            elif index == len(found) - 1:
                yield "else:", branch
            else:
                yield f"{'el' if index else ''}if version >= {branch.span.first}:", branch

    def head(self) -> None:
        """The class line, docstring, constants and fields."""
        out = self.out
        is_top = self.struct in self.module.tops
        out.add(f"class {self.struct.name}(Structure):")
        with out:
            out.add_doc(f"{self.struct.doc or self.struct.name}\n\n{versions_note(self.span)}")
            out.add()
            names = [f'"{field.name}"' for field in self.struct.fields]
            if self.has_flexible:
                names.append('"unknown_tags"')
            comma = "," if len(names) == 1 else ""
            out.add_all([f"__slots__ = ({', '.join(names)}{comma})", ""])
            if is_top:
                self._constants()
            for field in self.struct.fields:
                self._field(field)
            if self.has_flexible:
                out.add("unknown_tags: dict[int, bytes]")
            out.add()
            self._constructor()

    def _constants(self) -> None:
        module = self.module
        if module.key is not None:
            self.out.add(f"API_KEY: ClassVar[int] = {module.key}")
        if module.record_type is not None:
            self.out.add(f"RECORD_TYPE: ClassVar[int] = {module.record_type}")
        self.out.add(f"MIN_VERSION: ClassVar[int] = {self.span.first}")
        self.out.add(f"MAX_VERSION: ClassVar[int] = {self.span.last}")
        self.out.add(
            f"FLEXIBLE_FROM: ClassVar[int] = {NEVER if self.struct.classic else module.flexible_from}"
        )
        if module.key is not None and self.struct.name.endswith("Request"):
            self.out.add(f"RESPONSE: ClassVar[type] = {module.name}Response")
        self.out.add()

    def _field(self, field: Field) -> None:
        self.out.add(f"{field.name}: {annotation(field)}")
        notes = [field.doc]
        if not field.versions.covers(self.span):
            notes.append(versions_note(field.versions))
        if field.nullable and not field.nullable.covers(field.versions):
            notes.append(f"None only in {field.nullable}.")
        doc = " ".join(notes).strip()
        if doc:
            self.out.add_doc(doc)

    def _constructor(self) -> None:
        out = self.out
        if not self.struct.fields and not self.has_flexible:
            return
        out.add("def __init__(")
        with out:
            out.add("self,")
            for field in self.struct.fields:
                out.add(
                    f"{field.name}: {annotation(field)} = {'FRESH' if is_mutable(field) else default(field)},"
                )
            if self.has_flexible:
                out.add("unknown_tags: dict[int, bytes] = FRESH,")
        out.add(") -> None:")
        with out:
            for field in self.struct.fields:
                fresh = f"{default(field)} if {field.name} is FRESH else " if is_mutable(field) else ""
                out.add(f"self.{field.name} = {fresh}{field.name}")
            if self.has_flexible:
                out.add("self.unknown_tags = {} if unknown_tags is FRESH else unknown_tags")
        out.add()
