#!/usr/bin/env bash
# confluent-kafka 2.16.1, FastStream 0.7.8: a commit passes the record to which the consumer has just gone back.
#
# Guess: after seek() to a record whose handling failed, the consumer stands before this record: commit(), and the commit
#       at close() with enable.auto.commit, store its offset. The Java client and aiokafka do that, for they commit the
#       position.
# Seen: commit() stores the offset behind the last record that poll() gave, and seek() leaves that alone: each commit from
#       then on passes the record. If the consumer ends, the next one does not get it. FastStream goes back in this way for
#       AckPolicy.NACK_ON_ERROR: where a record of partition 0 fails and one of partition 1 succeeds, the acknowledgement
#       of the second commits the first. With its aiokafka broker the record comes again.
# Who meets it: whoever waits for a database with seek() or with NACK_ON_ERROR, and deploys meanwhile. Commit offsets or
#       messages by name, or set enable.auto.offset.store=false and store each offset after its record succeeded.
# Needs nothing but Python: the broker is the mock of librdkafka. Takes a minute. Exits with 0 when it sees the behaviour,
# 1 when it has changed, 2 when it could not tell.
# Output seen:
#   commit(): went back to offset 1, committed 2, the next consumer gets b
#   close(): went back to offset 1, committed 2, the next consumer gets b
#   FastStream, confluent: a, bad and c are handled, bad fails; after a restart bad does not come
#   FastStream, aiokafka: a, bad and c are handled, bad fails; after a restart bad comes
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check \
    "faststream[confluent,kafka]==0.7.8" confluent-kafka==2.16.1 aiokafka==0.14.0 || exit 2
cat >seek.py <<'PY'
import asyncio
import os
import time

import faststream.confluent
import faststream.kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from faststream import AckPolicy

SETTINGS = {"auto_offset_reset": "earliest", "session_timeout_ms": 6_000}

mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
servers = next(f"{each.host}:{each.port}" for each in mock.list_topics(timeout=10).brokers.values())
producer = Producer({"bootstrap.servers": servers, "log_level": 0})


def put(topic, *records):
    for partition, value in records:
        producer.produce(topic, value, partition=partition)
    producer.flush()


def consumer(topic, **settings):
    settings |= {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    settings |= {"session.timeout.ms": 6_000}  # the mock waits that long for a member that has left
    made = Consumer(settings)
    made.subscribe([topic])
    return made


def polled(from_consumer):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        message = from_consumer.poll(1)
        if message is not None and not message.error():
            return message
    raise SystemExit(2)


def goes_back(topic, ends, **settings):
    """A consumer that goes back to its second record and ends. What was committed, and what does the next one get?"""
    put(topic, (0, "a"), (0, "bad"))
    first = consumer(topic, **settings)
    polled(first)
    bad = polled(first)
    first.seek(TopicPartition(topic, 0, bad.offset()))
    if ends == "commit()":
        first.commit(asynchronous=False)
    first.close()
    put(topic, (0, "b"))
    second = consumer(topic, **{"enable.auto.commit": False})
    (committed,) = second.committed([TopicPartition(topic, 0)], timeout=30)
    message = polled(second)
    second.close()
    print(
        f"{ends}: went back to offset {bad.offset()}, committed {committed.offset}, "
        f"the next consumer gets {message.value().decode()}",
        flush=True,
    )


async def handled(make, topic, fails, enough):
    """The records that a FastStream application handles until it has the one named. c is written after bad has failed."""
    broker = make(servers, logger=None, allow_auto_create_topics=False)
    values, done = [], asyncio.Event()

    @broker.subscriber(topic, group_id=topic, ack_policy=AckPolicy.NACK_ON_ERROR, **SETTINGS)
    async def handle(body: str):
        values.append(body)
        if body == enough:
            done.set()
        if fails and body == "bad":
            if values.count(body) == 1:
                put(topic, (1, "c"))
            await asyncio.sleep(0.1)
            raise ValueError("the database is away")

    await broker.start()
    await asyncio.wait_for(done.wait(), 90)
    await asyncio.sleep(1)
    await broker.stop()
    return values


async def restarts(name, make):
    """An application whose handler fails for one record, and one that does not, after it."""
    topic = f"with-{name}"
    put(topic, (0, "a"), (0, "bad"))
    first = set(await handled(make, topic, True, "c"))
    if first != {"a", "bad", "c"}:
        raise SystemExit(2)
    put(topic, (0, "end"))
    comes = "bad" in await handled(make, topic, False, "end")
    print(
        f"FastStream, {name}: a, bad and c are handled, bad fails; after a restart bad "
        f"{'comes' if comes else 'does not come'}",
        flush=True,
    )


for topic in ("explicit", "automatic", "with-confluent", "with-aiokafka"):
    mock.list_topics(topic, timeout=10)  # makes the topic: the mock has no request for that
goes_back("explicit", "commit()", **{"enable.auto.commit": False})
goes_back("automatic", "close()")
asyncio.run(restarts("confluent", faststream.confluent.KafkaBroker))
asyncio.run(restarts("aiokafka", faststream.kafka.KafkaBroker))
os._exit(0)
PY
timeout 280 venv/bin/python seek.py 2>errors | tee seen || { tail -5 errors; exit 2; }
sed -n 's/^#   \(commit()\|close()\|FastStream\)/\1/p' "$here/confluent_commit_forgets_a_seek.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
