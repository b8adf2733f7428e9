"""The `read` method of a generated class."""

from __future__ import annotations

from python_struct import StructCode
from python_text import FIXED, annotation, default, inside, is_fixed, is_struct, local, unit
from schema_text import Field


class ReadCode:
    """Adds `read` to one struct's class."""

    def __init__(self, code: StructCode) -> None:
        self.code = code
        self.out = code.out

    def emit(self) -> None:
        out = self.out
        out.add("@classmethod")
        with out.block("def read(cls, r: Reader, version: int) -> Self:"):
            out.add('"""Reads one; fields that this version lacks get their defaults."""')
            self.code.add_flexible()
            for step in self.code.steps():
                if is_fixed(step[0]):
                    self._run(step)
                else:
                    self._field(step[0])
            self._tags()
            values = [local(field) for field in self.code.struct.fields]
            if self.code.has_flexible:
                values.append("tags")
            if not values:
                out.add("del r, version  # no version has a field")
            out.add(f"return cls({', '.join(values)})")
        out.add()

    def _default(self, field: Field) -> None:
        self.out.add(f"{local(field)}: {annotation(field)} = {default(field)}")

    def _run(self, run: list[Field]) -> None:
        for field in run:
            if not field.versions.covers(self.code.span):
                self._default(field)
        for opening, branch in self.code.branches(run):
            if opening is None:
                self._unpack(branch.fields)
            elif branch.fields or opening != "else:":
                with self.out.block(opening):
                    if branch.fields:
                        self._unpack(branch.fields)
                    else:
                        self.out.add("pass")

    def _unpack(self, fields: list[Field]) -> None:
        if len(fields) == 1:
            self.out.add(f"{local(fields[0])} = r.{fields[0].base}()")
            return
        names = ", ".join(local(field) for field in fields)
        self.out.add(f"{names} = r.unpack({self.code.layout(fields)})")

    def _field(self, field: Field) -> None:
        test = inside(field.versions, self.code.span)
        if test is None:
            self._value(field, annotate=True)
            return
        self._default(field)
        with self.out.block(f"if {test}:"):
            self._value(field, annotate=False)

    def _value(self, field: Field, *, annotate: bool) -> None:
        """Reads a field that the version has, null or not."""
        out = self.out
        name = local(field)
        if field.nullable is None:
            out.add(f"{name} = {self._present(field)}")
            return
        if annotate:
            out.add(f"{name}: {annotation(field)}")
        may_be_null = inside(field.nullable, field.versions)
        method = unit(field)
        if method:
            prefix = "" if method == "records" else "nullable_"
            nullable = f"{name} = {self.code.call('r', prefix + method, classic=field.classic)}"
            never = f"{name} = {self._present(field)}"
        elif field.is_array:
            nullable = f"n = {self.code.call('r', 'nullable_count')}"
            never = f"n = {self.code.call('r', 'count')}"
        else:
            nullable = f"{name} = None if r.int8() < 0 else {self._present(field)}"
            never = f"{name} = {self._present(field)}"
        if may_be_null is None:
            out.add(nullable)
        else:
            with out.block(f"if {may_be_null}:"):
                out.add(nullable)
            with out.block("else:"):
                out.add(never)
        if field.is_array and not method:
            out.add(f"{name} = None if n < 0 else {self._elements(field, 'n')}")

    def _present(self, field: Field) -> str:
        """An expression for a value that is not null."""
        method = unit(field)
        if method:
            value = self.code.call("r", method, classic=field.classic)
            # Of records the reader has one method, which allows null; without a batch it is the same as none.
            return f'{value} or b""' if method == "records" else value
        if field.is_array:
            return self._elements(field, self.code.call("r", "count"))
        return self._one(field)

    def _elements(self, field: Field, count: str) -> str:
        return f"[{self._one(field)} for _ in range({count})]"

    def _one(self, field: Field) -> str:
        """An expression for one value, or one element of an array."""
        if is_struct(field):
            return f"{field.base}.read(r, version)"
        if field.base in FIXED:
            return f"r.{field.base}()"
        return self.code.call("r", field.base)

    def _tags(self) -> None:
        code = self.code
        if not code.has_flexible:
            return
        if not code.tagged:
            self.out.add("tags = r.unknown_tags()" + ("" if code.always_flexible else " if flexible else {}"))
            return
        for field in code.tagged:
            self._default(field)
        self.out.add("tags: dict[int, bytes] = {}")
        if code.always_flexible:
            self._flexible_tags()
        else:
            with self.out.block("if flexible:"):
                self._flexible_tags()

    def _flexible_tags(self) -> None:
        with self.out.block("for _ in range(r.tag_count()):"):
            self.out.add("tag, end = r.tag()")
            for index, field in enumerate(self.code.tagged):
                test = inside(field.versions, self.code.flexible_span)
                also = f" and {test}" if test else ""
                with self.out.block(f"{'el' if index else ''}if tag == {field.tag}{also}:"):
                    self.out.add(f"{local(field)} = {self._tag(field)}")
            with self.out.block("else:"):
                self.out.add("tags[tag] = r.until(end)")
            self.out.add("r.at(end)")

    def _tag(self, field: Field) -> str:
        """An expression for a tagged field's value; only flexible versions have those, so all is compact."""
        if field.nullable and is_struct(field):
            return f"{self._one(field)} if r.uvarint() else None"
        if unit(field) == "int32s":
            return f"r.compact_{'nullable_' if field.nullable else ''}int32s()"
        if field.is_array:
            return f"[{self._one(field)} for _ in range(r.compact_count())]"
        if field.base in ("string", "bytes"):
            return f"r.compact_{'nullable_' if field.nullable else ''}{field.base}()"
        return self._one(field)
