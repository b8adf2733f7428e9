#!/usr/bin/env bash
# confluent-kafka 2.16.1: produce_batch() ignores the partition of each message.
#
# Guess: a message's "partition" says where it goes, and counts more than the argument partition of the call, as the
#       method's help says.
# Seen: it has no effect, and nothing says so. Without the argument all messages go where the partitioner puts them; with
#       it they all go to that partition. A partition that the topic does not have is accepted, too. The call counts
#       every message as queued, and each is delivered without an error.
# Who meets it: whoever moves from produce(partition=...) to produce_batch() because it is faster, and relies on the
#       partition: copies of topics, changelogs, records that belong beside others. Make one call for each partition, with
#       the argument, as AIOProducer does inside.
# Needs nothing but Python: the broker is the mock of librdkafka. Takes half a minute. Exits with 0 when it sees the
# behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   produce, partitions 0 1 2 3 0 1 2 3: found in 0 1 2 3 0 1 2 3
#   produce_batch, messages for 0 1 2 3 0 1 2 3: 8 queued, none failed; found in 1 2 1 1 3 1 2 1
#   produce_batch, the same with the argument 2: 8 queued, none failed; found in 2 2 2 2 2 2 2 2
#   produce_batch, a message for partition 99 of 4: 1 queued, none failed
#   SEEN
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1 || exit 2
cat >batch.py <<'PY'
import sys
import time

from confluent_kafka import Consumer, Producer

producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
servers = ",".join(f"{each.host}:{each.port}" for each in producer.list_topics(timeout=30).brokers.values())
WANTED = [0, 1, 2, 3] * 2
failed = []


def delivered(error, _message):
    if error is not None:
        failed.append(error)


def batch(topic, partitions, **arguments):
    messages = [{"value": b"%d" % number, "partition": each} for number, each in enumerate(partitions)]
    queued = producer.produce_batch(topic, messages, on_delivery=delivered, **arguments)
    left = producer.flush(30)
    assert not left, left
    return f"{queued} queued, {len(failed) or 'none'} failed"


for number, partition in enumerate(WANTED):
    producer.produce("single", b"%d" % number, partition=partition)
producer.flush(30)
alone, with_argument, beyond = batch("alone", WANTED), batch("argument", WANTED, partition=2), batch("beyond", [99])

consumer = Consumer(
    {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
)
consumer.subscribe(["single", "alone", "argument"])
places, end = {}, time.monotonic() + 60
while len(places) < 3 * len(WANTED) and time.monotonic() < end:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        places[message.topic(), message.value()] = message.partition()
consumer.close()


def found(topic):
    return [places.get((topic, b"%d" % number)) for number in range(len(WANTED))]


def said(topic):
    return f"found in {' '.join(map(str, found(topic)))}"


wanted = " ".join(map(str, WANTED))
print(f"produce, partitions {wanted}: {said('single')}")
print(f"produce_batch, messages for {wanted}: {alone}; {said('alone')}")
print(f"produce_batch, the same with the argument 2: {with_argument}; {said('argument')}")
print(f"produce_batch, a message for partition 99 of 4: {beyond}")
if len(places) < 3 * len(WANTED) or found("single") != WANTED:
    sys.exit(2)
seen = found("alone") != WANTED and found("argument") == [2] * len(WANTED) and not failed
print("SEEN" if seen else "CHANGED")
sys.exit(0 if seen else 1)
PY
status=0
timeout 120 venv/bin/python batch.py || status=$?
case $status in
    0 | 1) exit "$status" ;;
    *) exit 2 ;;
esac
