#!/usr/bin/env bash
# ptars 0.0.25, protobuf 6.33.6: a Protobuf time before 1677 or after 2262 becomes another time.
#
# Guess: Protobuf's Timestamp reaches from 0001-01-01 to 9999-12-31. What a library cannot hold of it, it refuses, as
#       protarrow 0.16.0 does with an OverflowError; and messages that go to Arrow and back are what they were.
# Seen: the library keeps nanoseconds in 64 bits unless told otherwise. It stores each time and each duration outside their
#       range as the nearest that fits, without an error: 2500-01-01 and 9999-12-31 become one time of the year 2262, and
#       0001-01-01 one of 1677, which pandas shows as NaT. Back in Protobuf it is that time. A field without a Timestamp is
#       null, as it should be.
# Who meets it: whoever reads events of Go or .NET, whose "no time" is 0001-01-01, or rows that are valid until 9999-12-31:
#       filters for these find nothing, and periods that end are the same as those that do not. Give
#       PtarsConfig(timestamp_unit="us", duration_unit="us"), which holds all of them.
# Takes ten seconds. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   0001-01-01T00:00:00Z -> 1677-09-21T00:12:43.145224192Z, with us: 0001-01-01T00:00:00Z
#   1970-01-01T00:00:00Z -> 1970-01-01T00:00:00Z, with us: 1970-01-01T00:00:00Z
#   2500-01-01T00:00:00Z -> 2262-04-11T23:47:16.854775807Z, with us: 2500-01-01T00:00:00Z
#   9999-12-31T00:00:00Z -> 2262-04-11T23:47:16.854775807Z, with us: 9999-12-31T00:00:00Z
#   36525 days -> 36525 days, with us: 36525 days
#   365250 days -> 106751 days, with us: 365250 days
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check ptars==0.0.25 protobuf==6.33.6 pyarrow==26.0.1 || exit 2

cat >times.py <<'PY'
import ptars
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

file = descriptor_pb2.FileDescriptorProto(name="event.proto", syntax="proto3")
message = file.message_type.add(name="Event")
FIELDS = {"at": timestamp_pb2.Timestamp, "takes": duration_pb2.Duration}
for number, (name, kind) in enumerate(FIELDS.items(), 1):
    file.dependency.append(kind.DESCRIPTOR.file.name)
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(
        name=name,
        number=number,
        type=kinds.TYPE_MESSAGE,
        label=kinds.LABEL_OPTIONAL,
        type_name="." + kind.DESCRIPTOR.full_name,
    )
pool = descriptor_pool.Default()
pool.AddSerializedFile(file.SerializeToString())
descriptor = pool.FindMessageTypeByName("Event")
Event = message_factory.GetMessageClass(descriptor)


def there_and_back(event, **settings):
    """The event, after it was a row of Arrow."""
    handler = ptars.HandlerPool([descriptor.file], ptars.PtarsConfig(**settings)).get_for_message(descriptor)
    row = handler.list_to_record_batch([event.SerializeToString()])
    return Event.FromString(handler.record_batch_to_array(row)[0].as_py())


def show(event, said):
    after, in_us = there_and_back(event), there_and_back(event, timestamp_unit="us", duration_unit="us")
    print(f"{said(event)} -> {said(after)}, with us: {said(in_us)}")


for day in ("0001-01-01", "1970-01-01", "2500-01-01", "9999-12-31"):
    at = timestamp_pb2.Timestamp()
    at.FromJsonString(f"{day}T00:00:00Z")
    show(Event(at=at), lambda event: event.at.ToJsonString())
for days in (36_525, 365_250):
    takes = duration_pb2.Duration(seconds=days * 86_400)
    show(Event(takes=takes), lambda event: f"{event.takes.seconds // 86_400} days")
PY
venv/bin/python times.py | tee seen || exit 2
sed -n 's/^#   \([0-9]\)/\1/p' "$here/ptars_times_are_moved.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
