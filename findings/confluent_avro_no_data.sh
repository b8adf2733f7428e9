#!/usr/bin/env bash
# confluent-kafka 2.16.1: its Avro deserialiser refuses what its own serialiser wrote, where few bytes or none follow.
#
# Guess: whatever the serialiser writes the deserialiser reads.
# Seen: the deserialiser refuses each value of fewer than six bytes before it looks for the schema's name. With the id
#       before the data that is a value whose data takes no bytes, such as an empty `bytes` or a record without fields.
#       With the GUID in a header it is each value of up to five bytes: a long, a boolean, a text of four letters.
# Who meets it: whoever has keys or events without content, or names schemas in headers and writes small values.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   id before the data, a record without fields: 5 bytes, Expecting data framing of length 6 bytes or more
#   id before the data, the long 5: read as 5
#   GUID in a header, the long 5: 1 bytes, Expecting data framing of length 6 bytes or more
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'confluent-kafka[avro]==2.16.1' || exit 2

cat >short.py <<'PY'
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry import topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

NOTHING = '{"type": "record", "name": "Nothing", "fields": []}'
TOPIC = {"subject.name.strategy": topic_subject_name_strategy}
client = SchemaRegistryClient.new_client({"url": "mock://"})


def read_back(said, schema, value, more):
    """Whether its own bytes are refused for their number."""
    at = SerializationContext(said, MessageField.VALUE, [])
    data = AvroSerializer(client, schema, conf=TOPIC | more)(value, at)
    try:
        found = AvroDeserializer(client, conf=TOPIC)(data, at)
    except SerializationError as problem:
        print(f"{said}: {len(data)} bytes, {str(problem).partition(' but ')[0]}")
        return "length 6" in str(problem)
    print(f"{said}: read as {found}")
    return False


seen = [
    read_back("id before the data, a record without fields", NOTHING, {}, {}),
    read_back("id before the data, the long 5", '"long"', 5, {}),
    read_back("GUID in a header, the long 5", '"long"', 5, {"schema.id.serializer": header_schema_id_serializer}),
]
sys.exit(0 if seen == [True, False, True] else 1)
PY
venv/bin/python short.py
