"""The `write` method of a generated class."""

from __future__ import annotations

from python_struct import StructCode
from python_text import FIXED, differs, inside, is_fixed, is_struct, local, outside, unit
from schema_text import Field


class WriteCode:
    """Adds `write` to one struct's class."""

    def __init__(self, code: StructCode) -> None:
        self.code = code
        self.out = code.out

    def emit(self) -> None:
        out = self.out
        with out.block("def write(self, w: Writer, version: int) -> None:"):
            out.add('"""Writes the fields that this version has."""')
            before = len(out.lines)
            if any(is_fixed(field) for field in self.code.plain):
                out.add("put = w.put")
            self.code.add_flexible()
            for step in self.code.steps():
                if is_fixed(step[0]):
                    self._run(step)
                else:
                    self._field(step[0])
            self._tags()
            if len(out.lines) == before:
                out.add("del w, version  # no version has a field")
        out.add()

    def _changed(self, field: Field) -> str:
        return differs(field, f"self.{field.name}", self.code.module.structs)

    def _raise(self, field: Field, how: str) -> None:
        self.out.add(
            f'raise VersionError(f"{self.code.struct.name}.{field.name} cannot be {how} in version {{version}}")'
        )

    def _refuse(self, field: Field) -> None:
        """For a version that lacks the field: it must have its default."""
        with self.out.block(f"if {self._changed(field)}:"):
            self._raise(field, "sent")

    def _run(self, run: list[Field]) -> None:
        for opening, branch in self.code.branches(run):
            lines = [field for field in run if field not in branch.fields and not field.ignorable]
            if opening is None:
                self._pack(branch.fields)
            elif lines or branch.fields or opening != "else:":
                with self.out.block(opening):
                    for field in lines:
                        self._refuse(field)
                    if branch.fields:
                        self._pack(branch.fields)
                    elif not lines:
                        self.out.add("pass")

    def _pack(self, fields: list[Field]) -> None:
        values = ", ".join(f"self.{field.name}" for field in fields)
        self.out.add(f"put({self.code.layout(fields)}.pack({values}))")

    def _field(self, field: Field) -> None:
        test = inside(field.versions, self.code.span)
        if test is None:
            self._value(field)
            return
        with self.out.block(f"if {test}:"):
            self._value(field)
        if not field.ignorable:
            self.out.add(f"elif {self._changed(field)}:")
            with self.out:
                self._raise(field, "sent")

    def _value(self, field: Field) -> None:
        """Writes a field that the version has, null or not."""
        value = f"self.{field.name}"
        if field.nullable is None:
            self._present(field, value, "w")
            return
        never_null = outside(field.nullable, field.versions)
        if unit(field) and never_null is None:
            self._unit(field, value, "w", "nullable_")
            return
        name = local(field)
        self.out.add(f"{name} = {value}")
        if never_null is not None:
            with self.out.block(f"if {name} is None and {never_null}:"):
                self._raise(field, "null")
        if unit(field):
            # No null gets here in versions without; what is not null looks the same in both forms.
            self._unit(field, name, "w", "nullable_")
            return
        with self.out.block(f"if {name} is None:"):
            self.out.add(self.code.call("w", "count", "-1") if field.is_array else 'w.put(b"\\xff")')
        with self.out.block("else:"):
            if not field.is_array:
                self.out.add('w.put(b"\\x01")')
            self._present(field, name, "w")

    def _unit(self, field: Field, value: str, owner: str, nullable: str) -> None:
        method = "bytes" if field.base == "records" else unit(field)
        self.out.add(self.code.call(owner, f"{nullable}{method}", value, classic=field.classic))

    def _present(self, field: Field, value: str, owner: str) -> None:
        """Writes a value that is not null."""
        if unit(field):
            self._unit(field, value, owner, "")
        elif field.is_array:
            self.out.add(self.code.call(owner, "count", f"len({value})"))
            item = f"{field.name}_item"
            with self.out.block(f"for {item} in {value}:"):
                self._one(field, item, owner)
        else:
            self._one(field, value, owner)

    def _one(self, field: Field, value: str, owner: str) -> None:
        """Writes one value, or one element of an array."""
        if is_struct(field):
            self.out.add(f"{value}.write({owner}, version)")
        elif field.base in FIXED:
            self.out.add(f"{owner}.put({self.code.layout([field])}.pack({value}))")
        else:
            self.out.add(self.code.call(owner, field.base, value))

    def _tags(self) -> None:
        code = self.code
        if not code.has_flexible:
            return
        if code.always_flexible:
            self._flexible_tags()
            return
        with self.out.block("if flexible:"):
            self._flexible_tags()
        strict = [field for field in code.tagged if not field.ignorable]
        if strict:
            with self.out.block("else:"):
                for field in strict:
                    self._refuse(field)

    def _flexible_tags(self) -> None:
        if not self.code.tagged:
            self.out.add("w.tags(self.unknown_tags)")
            return
        self.out.add("tags = self.unknown_tags.copy()")
        for field in self.code.tagged:
            too_old = outside(field.versions, self.code.flexible_span)
            changed = self._changed(field)
            if too_old is not None and field.ignorable:
                changed = f"{inside(field.versions, self.code.flexible_span)} and ({changed})"
            with self.out.block(f"if {changed}:"):
                if too_old is not None and not field.ignorable:
                    with self.out.block(f"if {too_old}:"):
                        self._raise(field, "sent")
                self._tag(field)
        self.out.add("w.tags(tags)")

    def _tag(self, field: Field) -> None:
        self.out.add("part = Writer()")
        value = f"self.{field.name}"
        # Only flexible versions have tagged fields, so all is compact in here.
        if field.nullable is not None:
            self._nullable_tag(field, value)
        elif field.is_array:
            if not is_struct(field):
                raise ValueError(f"{field.name}: only arrays of structs are known as tagged fields")
            self.out.add(f"part.compact_count(len({value}))")
            with self.out.block(f"for {field.name}_item in {value}:"):
                self.out.add(f"{field.name}_item.write(part, version)")
        elif field.base in ("string", "bytes"):
            self.out.add(f"part.compact_{field.base}({value})")
        else:
            self._one(field, value, "part")
        self.out.add(f"tags[{field.tag}] = part.getvalue()")

    def _nullable_tag(self, field: Field, value: str) -> None:
        """Null is the default of all of these, so a struct that gets here is one; an unsigned varint says so."""
        if is_struct(field) and not field.is_array:
            self.out.add("part.uvarint(1)")
            self.out.add(f"{value}.write(part, version)")
        elif unit(field) in ("string", "int32s"):
            self.out.add(f"part.compact_nullable_{unit(field)}({value})")
        else:
            raise ValueError(f"{field.name}: a nullable type that is not known as a tagged field")
