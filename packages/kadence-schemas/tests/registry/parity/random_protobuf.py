"""Protobuf definitions at random, messages of them, and other versions of them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory

from kadence_schemas.descriptors import Messages

__all__ = ["Definitions", "class_of", "text_of"]

FIELD: Final = descriptor_pb2.FieldDescriptorProto
ONE, REPEATED = FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED

_ALIKE: Final = (
    (
        FIELD.TYPE_INT32,
        FIELD.TYPE_INT64,
        FIELD.TYPE_UINT32,
        FIELD.TYPE_UINT64,
        FIELD.TYPE_BOOL,
        FIELD.TYPE_ENUM,
    ),
    (FIELD.TYPE_SINT32, FIELD.TYPE_SINT64),
    (FIELD.TYPE_FIXED32, FIELD.TYPE_SFIXED32),
    (FIELD.TYPE_FIXED64, FIELD.TYPE_SFIXED64),
    (FIELD.TYPE_STRING, FIELD.TYPE_BYTES),
    (FIELD.TYPE_FLOAT,),
    (FIELD.TYPE_DOUBLE,),
)
"""Types whose data may be read as one another."""

_SCALARS: Final = [kind for group in _ALIKE for kind in group]
_KEYS: Final = [FIELD.TYPE_STRING, FIELD.TYPE_INT32, FIELD.TYPE_SINT64, FIELD.TYPE_BOOL, FIELD.TYPE_FIXED64]
_KNOWN: Final = ("Timestamp", "Duration", "Int64Value", "StringValue", "BoolValue", "DoubleValue")
_FILES: Final = ("timestamp", "duration", "wrappers")
_BITS: Final = {
    FIELD.TYPE_INT32: (-(2**31), 2**31 - 1),
    FIELD.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FIELD.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    FIELD.TYPE_UINT32: (0, 2**32 - 1),
    FIELD.TYPE_FIXED32: (0, 2**32 - 1),
    FIELD.TYPE_INT64: (-(2**63), 2**63 - 1),
    FIELD.TYPE_SINT64: (-(2**63), 2**63 - 1),
    FIELD.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    FIELD.TYPE_UINT64: (0, 2**64 - 1),
    FIELD.TYPE_FIXED64: (0, 2**64 - 1),
}


def class_of(file: Any) -> Any:
    """The class of message ``p.M`` of a file."""
    return message_factory.GetMessageClass(Messages([file]).named("p.M"))


def text_of(file: Any) -> str:
    """A message's definition, short."""
    return " ".join(str(file).split())


class Definitions:
    """One chain of versions of message ``p.M``."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._number = 0

    def _name(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def new(self) -> Any:
        """A file."""
        file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
        file.dependency.extend(f"google/protobuf/{name}.proto" for name in _FILES)
        if self._chance.random() < 0.3:
            file.message_type.add(name="First")
        kinds = file.enum_type.add(name="Kind")
        for number, name in enumerate(("NONE", "ONE", "TWO", "MANY")):
            kinds.value.add(name=name, number=number * (1 if number < 3 else 40))
        message = file.message_type.add(name="M")
        for _ in range(self._chance.randint(1, 7)):
            self._add(message, ".p.M", 2)
        _number_oneofs(message)
        return file

    def _add(self, message: Any, path: str, depth: int) -> None:
        name = self._name("f")
        number = self._chance.choice(
            [self._number, 200 + self._number, 3000 + self._number, 2**28 + self._number]
        )
        field = message.field.add(name=name, number=number, label=ONE)
        draw = self._chance.random()
        if draw < 0.12:
            entry = message.nested_type.add(name=name.title() + "Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=ONE, type=self._chance.choice(_KEYS))
            value = entry.field.add(name="value", number=2, label=ONE)
            self._type(value, message, path, 0)
            field.type, field.type_name, field.label = FIELD.TYPE_MESSAGE, f"{path}.{entry.name}", REPEATED
            return
        self._type(field, message, path, depth)
        if draw < 0.35:
            field.label = REPEATED
        elif draw < 0.5:
            field.proto3_optional = field.type != FIELD.TYPE_MESSAGE
        elif draw < 0.6:
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0

    def _type(self, field: Any, message: Any, path: str, depth: int) -> None:
        draw = self._chance.random()
        if draw < 0.15:
            field.type = FIELD.TYPE_MESSAGE
            field.type_name = f".google.protobuf.{self._chance.choice(_KNOWN)}"
        elif depth and draw < 0.3:
            inner = message.nested_type.add(name=self._name("I"))
            for _ in range(self._chance.randint(0, 3)):
                self._add(inner, f"{path}.{inner.name}", depth - 1)
            _number_oneofs(inner)
            field.type, field.type_name = FIELD.TYPE_MESSAGE, f"{path}.{inner.name}"
        else:
            self._scalar(field, self._chance.choice(_SCALARS))

    @staticmethod
    def _scalar(field: Any, kind: Any) -> None:
        field.type = kind
        if kind == FIELD.TYPE_ENUM:
            field.type_name = ".p.Kind"
        else:
            field.ClearField("type_name")

    # ------------------------------------------------------------ other versions

    def changed(self, file: Any) -> Any:
        """Another version, which reads what the first wrote, or what is left of it."""
        made = descriptor_pb2.FileDescriptorProto()
        made.CopyFrom(file)
        if self._chance.random() < 0.3:
            made.enum_type[0].value.add(name=self._name("LATE"), number=self._number + 1000)
        if self._chance.random() < 0.2 and len(made.enum_type[0].value) > 2:
            del made.enum_type[0].value[2]
        self._change(made.message_type[-1], ".p.M", 2)
        return made

    def _change(self, message: Any, path: str, depth: int) -> None:
        for inner in message.nested_type:
            if not inner.options.map_entry:
                self._change(inner, f"{path}.{inner.name}", depth - 1)
        for field in list(message.field):
            draw = self._chance.random()
            is_map = field.label == REPEATED and field.type_name.endswith("Entry")
            if draw < 0.1:
                message.field.remove(field)
            elif draw < 0.2:
                field.name = self._name("f")
            elif draw < 0.35 and field.type != FIELD.TYPE_MESSAGE:
                [group] = [group for group in _ALIKE if field.type in group]
                self._scalar(field, self._chance.choice(group))
            elif draw < 0.45 and _may_repeat(field, is_map=is_map):
                field.label = REPEATED if field.label == ONE else ONE
                field.ClearField("proto3_optional")
            elif draw < 0.55 and field.label == ONE and field.type != FIELD.TYPE_MESSAGE:
                field.ClearField("oneof_index")
                field.proto3_optional = not field.proto3_optional
        for _ in range(2):
            if self._chance.random() < 0.3:
                self._add(message, path, max(depth, 0))
        if self._chance.random() < 0.3:
            fields = list(message.field)
            self._chance.shuffle(fields)
            copies = [FIELD.FromString(field.SerializeToString()) for field in fields]
            del message.field[:]
            message.field.extend(copies)
        _number_oneofs(message)

    # ------------------------------------------------------------ messages

    def fill(self, message: Any, depth: int = 0) -> Any:
        """Put values into some fields."""
        for field in message.DESCRIPTOR.fields:
            if self._chance.random() < 0.25:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(message, field.name), field.message_type, depth)
            elif field.is_repeated:
                into = getattr(message, field.name)
                for _ in range(self._chance.choice([0, 1, 2, 3])):
                    if field.message_type is None:
                        into.append(self._value(field))
                    else:
                        self._fill_message(into.add(), depth)
            elif field.message_type is not None:
                into = getattr(message, field.name)
                into.SetInParent()
                self._fill_message(into, depth)
            else:
                setattr(message, field.name, self._value(field))
        return message

    def _fill_map(self, into: Any, entry: Any, depth: int) -> None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        for _ in range(self._chance.choice([0, 1, 2])):
            made = self._value(key)
            if value.message_type is None:
                into[made] = self._value(value)
            else:
                self._fill_message(into[made], depth)

    def _fill_message(self, message: Any, depth: int) -> None:
        name = message.DESCRIPTOR.full_name
        if name == "google.protobuf.Timestamp":
            message.seconds = self._chance.choice([0, -1, 1_700_000_000, 253_402_300_799, -62_135_596_800])
            message.nanos = self._chance.choice([0, 1, 999, 1_000, 999_999_999])
        elif name == "google.protobuf.Duration":
            message.seconds = self._chance.choice([0, 1, 86_400])
            message.nanos = self._chance.choice([0, 1, 999_999_999])
        else:
            self.fill(message, depth + 1)

    def _value(self, field: Any) -> Any:
        kind, pick = field.type, self._chance.choice
        if kind in _BITS:
            low, high = _BITS[kind]
            return pick([0, 1, low, high, self._chance.randint(low, high), min(high, 2**31), 120])
        if kind == FIELD.TYPE_BOOL:
            return pick([True, False])
        if kind == FIELD.TYPE_ENUM:
            return pick([0, 1, 2, 120, 7, -1])
        if kind == FIELD.TYPE_STRING:
            return pick(["", "a", "é✎𝕏", "x" * 200, "\0"])
        if kind == FIELD.TYPE_BYTES:
            return pick([b"", b"a", b"\xff\xfe", "é".encode()])
        numbers = [0.0, -0.0, 1.5, float("nan"), float("inf"), -2.25]
        return pick([*numbers, 1e300, 5e-324] if kind == FIELD.TYPE_DOUBLE else [*numbers, 2.0**-149])


def _may_repeat(field: Any, *, is_map: bool) -> bool:
    """Whether it may be repeated, or alone, in another version.

    Many of Google's own messages do not become one.
    """
    if is_map or field.HasField("oneof_index"):
        return False
    return not (field.label == REPEATED and field.type_name.startswith(".google."))


def _number_oneofs(message: Any) -> None:
    """An optional field is alone in a oneof, and those come behind the others."""
    in_choice = [
        field for field in message.field if field.HasField("oneof_index") and not field.proto3_optional
    ]
    del message.oneof_decl[:]
    if in_choice:
        message.oneof_decl.add(name="choice")
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
        elif field.HasField("oneof_index"):
            field.oneof_index = 0
