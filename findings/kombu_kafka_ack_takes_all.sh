#!/usr/bin/env bash
# kombu 5.7.0 and confluent-kafka 2.15.1: on Kafka, the acknowledgement of one message acknowledges all that were received.
#
# Guess: kombu, and Celery on top of it, acknowledges single messages. What a consumer received and did not acknowledge comes
#       again when its connection ends, and what it requeues comes again at once. So it is with RabbitMQ and Redis.
# Seen: ack() of one message commits the consumer's position, which is behind each message that was received so far. Of ten
#       messages with the prefetch count 10, one is acknowledged, the connection ends, and the next consumer gets none of
#       the other nine, only what was put behind them. requeue() seeks to the committed offset: behind an acknowledgement
#       it brings nothing back.
# Who meets it: users of Celery with confluentkafka:// as broker: with task_acks_late a worker that dies loses the tasks that
#       it had received, but for those behind the last acknowledgement. With the prefetch count 1 each message is
#       acknowledged before the next one is received, so nothing is skipped.
# Needs nothing but Python: the broker is the mock of librdkafka. Takes two minutes. Exits with 0 when it sees the behaviour,
# 1 when it has changed, 2 when it could not tell.
# Output seen:
#   received 0 1 2 3 4 5 6 7 8 9, acknowledged 0
#   put 10, the next connection receives 10
#   received 0 1, acknowledged 0, requeued 1
#   put 2, then receives 2
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check "kombu[confluentkafka]==5.7.0" confluent-kafka==2.15.1 || exit 2
cat >ack.py <<'PY'
import os
import socket
import time

from confluent_kafka import Producer
from kombu import Connection, Consumer, Exchange, Queue


def drained(connection, received, count, seconds):
    """Receive until there are so many, or for so long."""
    end = time.monotonic() + seconds
    while len(received) < count and time.monotonic() < end:
        try:
            connection.drain_events(timeout=1)
        except socket.timeout:
            pass


def said(received):
    return " ".join(str(message.payload["n"]) for message in received) or "nothing"


class Messages:
    """One connection that consumes a queue."""

    def __init__(self, servers, name):
        self.connection = Connection(f"confluentkafka://{servers}", transport_options={"wait_time_seconds": 1})
        channel = self.connection.channel()
        channel.basic_qos(0, 10, False)
        self.received = []
        queue = Queue(name, Exchange(name), routing_key=name)
        self.consumer = Consumer(channel, [queue], on_message=self.received.append, accept=["json"])
        self.consumer.consume()

    def receive(self, count):
        before = len(self.received)
        drained(self.connection, self.received, before + count, 100)
        return self.received[before:]

    def close(self):
        self.connection.close()


def put(servers, name, *numbers):
    with Connection(f"confluentkafka://{servers}") as connection:
        queue = connection.SimpleQueue(name)
        for n in numbers:
            queue.put({"n": n})
        queue.close()


mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
servers = next(f"{each.host}:{each.port}" for each in mock.list_topics(timeout=10).brokers.values())
for name in ("jobs", "again"):
    mock.list_topics(name, timeout=10)  # makes the topic: the mock has no request for that

put(servers, "jobs", *range(10))
first = Messages(servers, "jobs")
received = first.receive(10)
received[0].ack()
print(f"received {said(received)}, acknowledged 0")
time.sleep(2)
first.close()
put(servers, "jobs", 10)
second = Messages(servers, "jobs")
print("put 10, the next connection receives", said(second.receive(1)))
second.close()

put(servers, "again", 0, 1)
third = Messages(servers, "again")
received = third.receive(2)
received[0].ack()
time.sleep(2)
received[1].requeue()
print(f"received {said(received)}, acknowledged 0, requeued 1")
put(servers, "again", 2)
print("put 2, then receives", said(third.receive(1)), flush=True)
os._exit(0)
PY
timeout 400 venv/bin/python ack.py 2>errors | tee seen || { tail -5 errors; exit 2; }
sed -n 's/^#   \(received\|put\)/\1/p' "$here/kombu_kafka_ack_takes_all.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
