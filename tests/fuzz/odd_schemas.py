"""Schemas by chance, and such that are nearly schemas, with bytes that are nearly theirs; every decoder gets both.

The input is what chance begins with. Records, columns and the decoders of Spark's source read the bytes as what wrote
them, as another version of it, and as something else. Whatever these are, only errors of ours leave a decoder, and a
column is of the type that was asked for.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

from tests.fuzz.mutation import Mutator
from tests.fuzz.registries import client_of
from tests.fuzz.target import Target
from tests.registry.parity.random_avro import Schemas, without_logical
from tests.registry.parity.random_json import JsonSchemas
from tests.registry.parity.random_json import arrow_of as arrow_of_json
from tests.registry.parity.random_protobuf import Definitions, class_of

from kadence.errors import KafkaError
from kadence_schemas import AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer
from kadence_schemas.framing import head_of
from kadence_schemas.settings import RegistryOptions
from kadence_spark.decode import formats
from kadence_spark.decode.options import Format, SideOptions

__all__ = ["ODD_SCHEMAS"]

_ID: Final = 7
_REGISTRY: Final = RegistryOptions(("http://registry.test:1",))
_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**400,
    1e308,
    -0.5,
    "",
    "null",
    "int",
    "record",
    "map",
    "R1",
    "ns.Inner",
    "\0",
    [],
    {},
    ["null"],
    ["null", "null"],
    [[]],
    {"type": "record"},
    {"type": "fixed", "size": -1},
    {"type": "enum"},
    {"type": {"type": "int"}},
    {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**9},
    {"type": "array"},
    {"type": "map", "values": None},
    {"type": "fixed", "name": "F", "size": 10**12},
    {"$ref": "#"},
    {"type": "long", "logicalType": []},
)
_NAMES: Final = ("type", "name", "fields", "items", "values", "size", "symbols", "default", "aliases", "namespace",
                 "logicalType", "precision", "scale", "properties", "required", "$schema", "$id")  # fmt: skip


def _nodes(made: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a document, with each key or place in it."""
    if isinstance(made, dict | list):
        for at in list(made) if isinstance(made, dict) else range(len(made)):
            yield made, at
            yield from _nodes(made[at])


def _bent(schema: Any, chance: Random) -> Any:
    """A schema of which some parts are others, are gone or have come."""
    made = json.loads(json.dumps([schema]))
    for _ in range(chance.choice([0, 0, 1, 1, 2, 4])):
        inside, at = chance.choice(list(_nodes(made)))
        way = chance.random()
        if way < 0.5:
            inside[at] = chance.choice(_ODD)
        elif way < 0.7 and inside is not made:
            del inside[at]
        elif way < 0.85 and isinstance(inside, dict):
            inside[chance.choice(_NAMES)] = chance.choice(_ODD)
        else:
            inside[at] = json.loads(json.dumps(chance.choice([each[at] for each, at in _nodes(made)])))
    return made[0] if made else None


def _near(body: bytes, chance: Random) -> list[bytes]:
    mutated = Mutator([body, chance.randbytes(20)], chance.getrandbits(32))
    return [body, b"", *(mutated()[:2_000] for _ in range(3))]


class _Reading:
    """What became of one attempt after the other: at least one error of ours, or something that was read."""

    def __init__(self) -> None:
        self.found: list[object] = []
        self.refused: KafkaError | None = None

    def attempt(self, call: Callable[[], object]) -> Any:
        try:
            made = call()
        except KafkaError as error:
            self.refused = error
            return None
        self.found.append(made)
        return made

    def columns(self, make: Callable[[], Any], values: list[bytes], kind: Any = None) -> None:
        """Decode a column with what is made; each of its values is null where it is bad."""
        import pyarrow as pa

        decoder = self.attempt(make)
        if decoder is None:
            return
        made = decoder.decode(pa.array([*values, None], pa.binary()))
        made.column.validate(full=True)
        assert len(made.column) == len(values) + 1
        assert kind is None or made.column.type == kind, (made.column.type, kind)
        assert len(values) not in made.bad

    def answer(self) -> object:
        return self.found or self.refused


def _spark(reading: _Reading, side: SideOptions, others: list[Any], values: list[bytes]) -> None:
    """By the type that the side's own schema gives, and by types that a query may ask for."""
    own = reading.attempt(lambda: formats.arrow_of_side(side, "t-value"))
    for kind in [own, *others]:
        if kind is not None:
            # Not by its cache, which would keep every schema.
            reading.columns(partial(formats.decoder_of.__wrapped__, side, kind), values, kind)


def _avro(chance: Random) -> object:
    import pyarrow as pa

    schemas = Schemas(chance, simple=chance.random() < 0.3)
    good = schemas.new()
    body = _avro_body(good, schemas.value(good))
    writer, reader = _bent(good, chance), _bent(schemas.changed(good), chance)
    bodies = _near(body, chance)
    framed = [head_of(_ID) + each for each in bodies]
    client = client_of(
        {"schema": json.dumps(writer), "schemaType": "AVRO", "subject": "t", "version": 1, "id": _ID}
    )
    reading = _Reading()
    for schema in (None, json.dumps(reader)):
        rows = reading.attempt(partial(AvroDeserializer, client, schema))
        if rows is None:
            continue
        for each in framed:
            reading.attempt(partial(rows.deserialize, "t", (), each))
        reading.columns(rows.columns, framed)
    others = [pa.struct([("f2", pa.string()), ("f3", pa.decimal128(38, 2))]), pa.int64()]
    with mock.patch.object(formats, "client_of", return_value=client):
        for schema in (None, json.dumps(reader)):
            side = SideOptions("value", Format.AVRO, schema=schema, framed=True, registry=_REGISTRY)
            _spark(reading, side, others, framed)
        _spark(reading, SideOptions("value", Format.AVRO, schema=json.dumps(writer)), others, bodies)
    return reading.answer()


def _avro_body(schema: Any, value: Any) -> bytes:
    import io

    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical(schema)), value)
    return out.getvalue()


def _protobuf(chance: Random) -> object:
    import pyarrow as pa

    definitions = Definitions(chance)
    good = definitions.new()
    bodies = _near(definitions.fill(class_of(good)()).SerializeToString(), chance)
    file = definitions.changed(good)
    _bend_file(file, chance)
    framed = [head_of(_ID) + b"\0" + each for each in bodies]
    text = base64.b64encode(file.SerializeToString()).decode()
    client = client_of({"schema": text, "schemaType": "PROTOBUF", "subject": "t", "version": 1, "id": _ID})
    reading = _Reading()
    rows: Any = ProtobufDeserializer(client)
    for each in framed:
        reading.attempt(partial(rows.deserialize, "t", (), each))
    reading.columns(rows.columns, framed)
    others = [pa.struct([("f2", pa.string()), ("f3", pa.list_(pa.int64()))]), pa.struct([("f1", pa.int32())])]
    from google.protobuf import descriptor_pb2

    with (
        tempfile.NamedTemporaryFile() as held,
        mock.patch.object(formats, "client_of", return_value=client),
    ):
        Path(held.name).write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
        _spark(
            reading, SideOptions("value", Format.PROTOBUF, framed=True, registry=_REGISTRY), others, framed
        )
        by_file = SideOptions(
            "value", Format.PROTOBUF, schema=held.name, message=chance.choice(["p.M", "M", ""])
        )
        _spark(reading, by_file, others, bodies)
    return reading.answer()


def _bend_file(file: Any, chance: Random) -> None:
    messages = [file.message_type[0], *file.message_type[0].nested_type]
    for _ in range(chance.choice([0, 0, 1, 2])):
        message = chance.choice(messages)
        if not message.field:
            continue
        field = chance.choice(message.field)
        match chance.randrange(7):
            case 0:
                field.number = chance.choice([0, -1, 1, 2, 19_000, 2**29])
            case 1:
                field.type_name = chance.choice([".p.M", ".p.None", "", ".google.protobuf.Any", "M.M"])
            case 2:
                field.name = chance.choice(["", "f1", "\n", "a.b"])
            case 3:
                field.type = chance.randint(1, 18)
            case 4:
                field.oneof_index = chance.choice([-1, 0, 5])
            case 5:
                field.default_value = chance.choice(["", "x", "1e999"])
            case _:
                file.dependency.append(chance.choice(["", "m.proto", "google/protobuf/none.proto"]))


def _json(chance: Random) -> object:
    schemas = JsonSchemas(chance)
    good = schemas.new()
    bodies = _near(json.dumps(schemas.document(good)).encode(), chance)
    framed = [head_of(_ID) + each for each in bodies]
    schema = json.dumps(_bent(good, chance))
    client = client_of({"schema": schema, "schemaType": "JSON"})
    reading = _Reading()
    rows = reading.attempt(lambda: JsonSchemaDeserializer(client))
    for each in framed:
        reading.attempt(partial(rows.deserialize, "t", (), each))
    kind = arrow_of_json(good)
    if kind is None:
        return reading.answer()
    from kadence.reading.json_schema import SchemaColumns

    reading.columns(lambda: SchemaColumns(kind), bodies, kind)
    for form in (Format.JSON, Format.STRICT_JSON):
        plain, by_id = SideOptions("value", form), SideOptions("value", form, framed=True)
        reading.columns(partial(formats.decoder_of.__wrapped__, plain, kind), bodies, kind)
        reading.columns(partial(formats.decoder_of.__wrapped__, by_id, kind), framed, kind)
    return reading.answer()


_KINDS: Final = (_avro, _avro, _protobuf, _json)


def _check(data: bytes) -> object:
    chance = Random(data)
    return chance.choice(_KINDS)(chance)


ODD_SCHEMAS: Final = Target(
    "odd-schemas", lambda: [b"%d" % number for number in range(8)], _check, share=4_000
)
