"""What decoding a record costs in each format and with each library, on one core, without Kafka and Spark.

    python bench/formats.py

The records are bench/harness/flights.py's: 19 fields. Seconds are of CPU; best of five.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, message_factory

from harness.flights import departures
from kadence_schemas.columns.avro import AvroFormat, parsed
from kadence_schemas.columns.protobuf import ProtobufFormat
from kadence_schemas.descriptors import Messages
from kadence_schemas.schemas import ResolvedSchema
from kadence_spark.decode.json_shapes import Rules
from kadence_spark.decode.json_values import JsonFormat

ROWS = 8_000
FIELDS: dict[str, tuple[str, int, pa.DataType]] = {
    "int": ("int", descriptor_pb2.FieldDescriptorProto.TYPE_INT32, pa.int32()),
    "float": ("double", descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE, pa.float64()),
    "str": ("string", descriptor_pb2.FieldDescriptorProto.TYPE_STRING, pa.string()),
}


def rate(work: Callable[[], Any]) -> float:
    """Records a second."""
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return ROWS / best


def main() -> None:
    documents = departures(ROWS)
    rows = [json.loads(document) for document in documents]
    sample = {name: type(value or 0.0).__name__ for name, value in rows[0].items()}
    target = pa.struct([(name, FIELDS[kind][2]) for name, kind in sample.items()])
    values = pa.array(documents, pa.binary())
    mixed = pa.array([document.replace(b'"UA"', b"7") for document in documents], pa.binary())
    broken = pa.array(
        [documents[0][:-1] if row % 100 == 0 else document for row, document in enumerate(documents)]
    )
    form = JsonFormat(target, Rules(UTC))
    print(f"{documents[0].decode()}\n{sum(map(len, documents)) / ROWS:.0f} B of JSON on average")
    show("JSON: the compiled reader", lambda: form.decode(values))
    show("JSON: the same, one record in a hundred is bad", lambda: form.decode(broken))
    show("JSON: a number where a text is expected in every fifth record", lambda: form.decode(mixed))
    show("JSON: the reader in Python", lambda: form._careful(values))
    show("JSON: json.loads and pa.array", lambda: pa.array(map(json.loads, documents), target))

    schema = {
        "type": "record",
        "name": "Flight",
        "fields": [{"name": name, "type": ["null", FIELDS[kind][0]]} for name, kind in sample.items()],
    }
    writer = parsed(ResolvedSchema("AVRO", json.dumps(schema)))
    data = pa.array([avro(writer, row) for row in rows], pa.binary())
    both = AvroFormat(writer, None, target)
    show("Avro: pyruhvro", lambda: both.decode(data))
    show("Avro: fastavro and pa.array", lambda: both._careful(data))

    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3")
    flight = file.message_type.add(name="Flight")
    for number, (name, kind) in enumerate(sample.items(), start=1):
        flight.field.add(name=name, number=number, label=1, type=FIELDS[kind][1])
    message = Messages([file]).named("Flight")
    made = message_factory.GetMessageClass(message)
    present = [{name: value for name, value in row.items() if value is not None} for row in rows]
    data = pa.array([made(**row).SerializeToString() for row in present], pa.binary())
    messages = ProtobufFormat(message, target)
    names = list(sample)
    show("Protobuf: ptars", lambda: messages.decode(data))
    show(
        "Protobuf: Google's runtime and pa.array",
        lambda: pa.array(
            [
                {name: getattr(found, name) for name in names}
                for found in map(made.FromString, data.to_pylist())
            ],
            target,
        ),
    )


def avro(schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def show(name: str, work: Callable[[], Any]) -> None:
    print(f"{name:<62} {rate(work) / 1000:>8,.0f} k records/s", flush=True)


if __name__ == "__main__":
    main()
