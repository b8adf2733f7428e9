#!/usr/bin/env bash
# confluent-kafka 2.16.1: a message without a value, such as a tombstone, counts as false.
#
# Guess: a message is an object that is there, so `if message:` is short for `if message is not None:`, as with the records
#       of kafka-python and aiokafka.
# Seen: len(message) is the size of its value, so Python takes a tombstone, and a message with an empty value, for false. A
#       loop with `if not message: continue` after poll() never sees them. Nothing says so: their offsets are stored and
#       committed like those of the others, and deletions of a compacted topic are lost for the program.
# Who meets it: whoever writes `if not message` or `if message and not message.error()`, or filters a batch of consume() by
#       `filter(None, messages)`. Compare with None.
# Needs nothing but Python: the broker is the mock of librdkafka. Takes half a minute. Exits with 0 when it sees the
# behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   confluent-kafka, `is not None`: value, tombstone, empty, value
#   confluent-kafka, truth: value, value; committed offset 4 of 4
#   aiokafka, truth: value, tombstone, empty, value
#   SEEN
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1 aiokafka==0.14.0 || exit 2
cat >truth.py <<'PY'
import asyncio
import logging
import sys
import time

from aiokafka import AIOKafkaConsumer, TopicPartition as Place
from confluent_kafka import Consumer, Producer, TopicPartition

logging.disable(logging.CRITICAL)
producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
servers = ",".join(f"{each.host}:{each.port}" for each in producer.list_topics(timeout=30).brokers.values())
VALUES = [b"1", None, b"", b"2"]
for value in VALUES:
    producer.produce("t", value, key=b"k", partition=0)
assert not producer.flush(30)


def kind(value):
    return "tombstone" if value is None else "value" if value else "empty"


def read(group, is_there):
    """The values for which the condition holds, until the end of the partition; the committed offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", 0)])
    values, end = [], time.monotonic() + 60
    while time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            break
        if not is_there(message):
            continue
        values.append(message.value())
    consumer.commit(asynchronous=False)
    (place,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
    consumer.close()
    return values, place.offset


async def of_aiokafka():
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([Place("t", 0)])
        await consumer.seek_to_beginning()
        records = [await asyncio.wait_for(consumer.getone(), 30) for _ in VALUES]
    return [record.value for record in records if record]


compared, _ = read("compared", lambda message: message is not None)
by_truth, committed = read("truth", bool)
others = asyncio.run(of_aiokafka())
print(f"confluent-kafka, `is not None`: {', '.join(map(kind, compared))}")
print(f"confluent-kafka, truth: {', '.join(map(kind, by_truth))}; committed offset {committed} of {len(VALUES)}")
print(f"aiokafka, truth: {', '.join(map(kind, others))}")
if compared != VALUES or others != VALUES:
    sys.exit(2)
seen = by_truth == [b"1", b"2"] and committed == len(VALUES)
print("SEEN" if seen else "CHANGED")
sys.exit(0 if seen else 1)
PY
status=0
timeout 180 venv/bin/python truth.py || status=$?
case $status in
    0 | 1) exit "$status" ;;
    *) exit 2 ;;
esac
