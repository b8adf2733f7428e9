#!/usr/bin/env bash
# confluent-kafka 2.16.1: an AIOConsumer.poll() that is cancelled takes the next message with it, for the whole group.
#
# Guess: to cancel an await, as asyncio.wait_for() does when its time is over, loses nothing: the message comes with the
#       next poll(), as with queues of asyncio and with aiokafka's getone().
# Seen: poll() waits in a thread, and goes on there when the task is cancelled. The first message that comes is given to
#       nobody. It counts as read: the next poll() returns the one behind it, its offset is committed, and no other
#       member of the group gets it. aiokafka 0.14.0 returns it.
# Who meets it: whoever wraps poll() in wait_for(), in a TaskGroup that fails, or cancels the task of a consumer that goes
#       on elsewhere. Use poll()'s own timeout, and a flag in place of cancel().
# Needs nothing but Python: the broker is the mock of librdkafka. Takes a minute. Exits with 0 when it sees the behaviour,
# 1 when it has changed, 2 when it could not tell.
# Output seen:
#   confluent-kafka: 0, poll() cancelled, then 2 3 4 5
#   confluent-kafka, the next member: nothing
#   aiokafka: 0, getone() cancelled, then 1 2 3 4 5
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1 aiokafka==0.14.0 || exit 2
cat >poll.py <<'PY'
import asyncio
import logging
import os

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer
from confluent_kafka.aio import AIOConsumer

logging.disable(logging.CRITICAL)


async def rest(poll):
    """What comes until nothing has come for three seconds."""
    found = []
    while (value := await poll()) is not None:
        found.append(value.decode())
    return " ".join(found) or "nothing"


async def of_confluent(servers, group, topic, send):
    config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = AIOConsumer(config)
    await consumer.subscribe([topic])

    async def poll(seconds=3):
        message = await consumer.poll(seconds)
        return None if message is None else message.value()

    if send is None:
        found = await rest(lambda: poll(8))
        await consumer.close()
        return found
    send(0)
    while (first := await poll()) is None:
        pass
    try:
        await asyncio.wait_for(poll(10), 0.5)
    except asyncio.TimeoutError:
        pass
    send(1, 2, 3, 4, 5)
    await asyncio.sleep(2)
    found = await rest(poll)
    await consumer.close()
    return f"{first.decode()}, poll() cancelled, then {found}"


async def of_aiokafka(servers, topic, send):
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    send(0)
    first = await consumer.getone()
    try:
        await asyncio.wait_for(consumer.getone(), 0.5)
    except asyncio.TimeoutError:
        pass
    send(1, 2, 3, 4, 5)
    await asyncio.sleep(2)

    async def poll():
        found = await consumer.getmany(timeout_ms=3000, max_records=1)
        return next((each[0].value for each in found.values()), None)

    found = await rest(poll)
    await consumer.stop()
    return f"{first.value.decode()}, getone() cancelled, then {found}"


async def main():
    mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    servers = ",".join(f"{each.host}:{each.port}" for each in mock.list_topics(timeout=10).brokers.values())
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})

    def send_to(topic):
        def send(*values):
            for value in values:
                producer.produce(topic, b"%d" % value, partition=0)
            producer.flush(10)

        return send

    print("confluent-kafka:", await of_confluent(servers, "g", "a", send_to("a")))
    print("confluent-kafka, the next member:", await of_confluent(servers, "g", "a", None))
    print("aiokafka:", await of_aiokafka(servers, "b", send_to("b")), flush=True)
    os._exit(0)


asyncio.run(main())
PY
timeout 150 venv/bin/python poll.py 2>/dev/null | tee seen || exit 2
sed -n 's/^#   \(confluent-kafka\|aiokafka\)/\1/p' "$here/confluent_aio_poll_loses_a_message.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
