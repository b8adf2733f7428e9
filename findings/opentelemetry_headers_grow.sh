#!/usr/bin/env bash
# OpenTelemetry's instrumentation 0.66b1 of confluent-kafka 2.16.1, kafka-python 3.0.12 and aiokafka 0.14.0: a list of headers
# that a program sends twice has two contexts the second time, and the consumer takes the first one.
#
# Guess: an instrumented send() adds its trace context to the record, and leaves the caller's list as it is. A record that
#       has a context already, because it is passed on with the headers that it came with, gets the new one in its place.
#       A consumer's span belongs to the send() that made its record.
# Seen: the context is appended to the caller's own list. Of three records that are sent with one list the third carries
#       three traceparents, and so on without end. Consumers take the first: the spans of all three belong to the first
#       send(). A record that a second program passes on with its headers belongs to the first program's send().
# Who meets it: programs with a constant list of headers (application, version, content type), whose records grow with each
#       send() until the brokers refuse them; and programs that pass records on. Send a new list each time, without
#       traceparent and tracestate.
# Needs Java 17 (JDK), Maven, Python. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   confluent-kafka: traceparents of each record: 1, 2, 3; the consumer's spans belong to send(): 1, 1, 1; the list has 4 headers
#   kafka-python: traceparents of each record: 1, 2, 3; the consumer's spans belong to send(): 1, 1, 1; the list has 4 headers
#   aiokafka: traceparents of each record: 1, 2, 3; the consumer's spans belong to send(): 1, 1, 1; the list has 4 headers
#   confluent-kafka, a record that was passed on: 2 traceparents; the consumer's span belongs to the first producer
#   SEEN
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work"

"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0 \
    opentelemetry-sdk==1.45.1 opentelemetry-instrumentation-{confluent-kafka,kafka-python,aiokafka}==0.66b1 || exit 2
cat >"$work/spans.py" <<'PY'
import asyncio
import logging
import sys

import aiokafka
import confluent_kafka
import kafka
from opentelemetry import trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

logging.disable(logging.CRITICAL)
SERVERS = sys.argv[1]
COUNT = 3
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)


def sends_of_consumed():
    """Of each span of a consumed record the send() whose span it is linked to, or a child of: 1 is the first."""
    finished = spans.get_finished_spans()
    spans.clear()
    sends = [each.context.span_id for each in finished if each.kind is SpanKind.PRODUCER]
    found = []
    for each in finished:
        if each.kind is SpanKind.CONSUMER:
            origins = [link.context.span_id for link in each.links] + ([each.parent.span_id] if each.parent else [])
            found += [sends.index(origin) + 1 for origin in origins if origin in sends]
    return found


def contexts(headers):
    return sum(key == "traceparent" for key, _ in headers)


def is_seen(client, headers, received):
    numbers, sends = [contexts(each) for each in received], sends_of_consumed()
    print(
        f"{client}: traceparents of each record: {', '.join(map(str, numbers))}; the consumer's spans belong to send(): "
        f"{', '.join(map(str, sends))}; the list has {len(headers)} headers"
    )
    return numbers == [1, 2, 3] and sends == [1, 1, 1] and len(headers) == 1 + COUNT


def read_confluent(topic, count):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": SERVERS, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages = []
    while len(messages) < count:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            messages.append(message)
    consumer.poll(0.1)  # ends the last record's span
    consumer.close()
    return messages


def confluent():
    headers = [("app", b"shop")]
    producer = confluent_kafka.Producer({"bootstrap.servers": SERVERS})
    for number in range(COUNT):
        producer.produce("c", b"%d" % number, headers=headers)
    producer.flush()
    return is_seen("confluent-kafka", headers, [each.headers() for each in read_confluent("c", COUNT)])


def of_kafka_python():
    headers = [("app", b"shop")]
    producer = kafka.KafkaProducer(bootstrap_servers=SERVERS)
    for number in range(COUNT):
        producer.send("k", b"%d" % number, headers=headers)
    producer.close()
    consumer = kafka.KafkaConsumer("k", bootstrap_servers=SERVERS, group_id="k", auto_offset_reset="earliest")
    received = [next(consumer).headers for _ in range(COUNT)]
    consumer.close()
    return is_seen("kafka-python", headers, received)


async def of_aiokafka():
    headers = [("app", b"shop")]
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=SERVERS) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("a", b"%d" % number, headers=headers)
    async with aiokafka.AIOKafkaConsumer(
        "a", bootstrap_servers=SERVERS, group_id="a", auto_offset_reset="earliest"
    ) as consumer:
        received = [(await consumer.getone()).headers for _ in range(COUNT)]
    return is_seen("aiokafka", headers, received)


def passed_on():
    producer = confluent_kafka.Producer({"bootstrap.servers": SERVERS})
    producer.produce("first", b"0")
    producer.flush()
    (message,) = read_confluent("first", 1)
    producer.produce("second", message.value(), headers=message.headers())
    producer.flush()
    (message,) = read_confluent("second", 1)
    number, sends = contexts(message.headers()), sends_of_consumed()
    which = {1: "first", 2: "second"}[sends[-1]]
    print(
        f"confluent-kafka, a record that was passed on: {number} traceparents; the consumer's span belongs to the {which} "
        "producer"
    )
    return number == 2 and which == "first"


ConfluentKafkaInstrumentor().instrument()
KafkaInstrumentor().instrument()
AIOKafkaInstrumentor().instrument()
seen = [confluent(), of_kafka_python(), asyncio.run(of_aiokafka()), passed_on()]
print("SEEN" if all(seen) else "CHANGED")
sys.exit(0 if all(seen) else 1)
PY
status=0
timeout 180 "$work/venv/bin/python" "$work/spans.py" "$servers" || status=$?
case $status in
    0 | 1) exit "$status" ;;
    *) exit 2 ;;
esac
