#!/usr/bin/env bash
# aiokafka 0.14.0 on Apache Kafka 4.4.0: commit_transaction() commits a transaction of which a record has failed.
#
# Guess: a transaction of which a record cannot be written is not committed: commit_transaction() raises, as those of
#       Kafka's own client, librdkafka and kafka-python do, and readers see none of its records.
# Seen: the broker refuses one record, here for its size. commit_transaction() waits for it, returns, and the rest is
#       committed. Only the future that send() gave for that record has the error. A program that awaits the commit alone
#       has written half of a transaction, and abort_transaction() is not possible any more.
# Who meets it: whoever calls send() in a transaction and counts on the commit, as the documentation of transactions has
#       it. Await each future (or use send_and_wait) inside of the transaction.
# Needs Java 17, Maven. Takes half a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it
# could not tell.
# Output seen:
#   aiokafka: commit_transaction() returned; the refused record: MessageSizeTooLargeError; readers see 1 of 2
#   kafka-python: commit_transaction() raised MessageSizeTooLargeError; the refused record: MessageSizeTooLargeError; readers see 0 of 2
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check aiokafka==0.14.0 kafka-python==3.0.12 || exit 2
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work" transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 \
    transaction.state.log.num.partitions=1

cat >"$work/commit.py" <<'PY'
import asyncio
import logging
import os
import sys
import time
import warnings

from aiokafka import AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
SERVERS = sys.argv[1]


def seen(topic):
    consumer = KafkaConsumer(
        bootstrap_servers=SERVERS, auto_offset_reset="earliest", isolation_level="read_committed", group_id=None
    )
    consumer.assign([TopicPartition(topic, 0)])
    found, end = 0, time.monotonic() + 5
    while time.monotonic() < end:
        found += sum(len(each) for each in consumer.poll(timeout_ms=500).values())
    consumer.close()
    return found


def said(name, commit, record, topic):
    print(f"{name}: commit_transaction() {commit}; the refused record: {record}; readers see {seen(topic)} of 2", flush=True)


async def of_aiokafka(topic):
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, transactional_id=topic)
    await producer.start()
    await producer.begin_transaction()
    await producer.send(topic, b"small", partition=0)
    large = await producer.send("refusing", bytes(2_000), partition=0)
    try:
        await producer.commit_transaction()
        commit = "returned"
    except Exception as error:
        commit = f"raised {type(error).__name__}"
    said("aiokafka", commit, type(large.exception()).__name__, topic)


def of_kafka_python(topic):
    producer = KafkaProducer(bootstrap_servers=SERVERS, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"small", partition=0)
    large = producer.send("refusing", bytes(2_000), partition=0)
    try:
        producer.commit_transaction()
        commit = "returned"
    except Exception as error:
        commit = f"raised {type(error).__name__}"
        producer.abort_transaction()
    said("kafka-python", commit, type(large.exception).__name__, topic)


admin = KafkaAdminClient(bootstrap_servers=SERVERS)
admin.create_topics(
    [
        NewTopic("a", num_partitions=1, replication_factor=1),
        NewTopic("k", num_partitions=1, replication_factor=1),
        NewTopic("refusing", num_partitions=1, replication_factor=1, topic_configs={"max.message.bytes": "500"}),
    ]
)
time.sleep(2)
asyncio.run(of_aiokafka("a"))
of_kafka_python("k")
os._exit(0)
PY
timeout 120 "$work/venv/bin/python" "$work/commit.py" "$servers" 2>"$work/errors" | tee "$work/seen" || { cat "$work/errors"; exit 2; }
sed -n 's/^#   \(aiokafka\|kafka-python\): /\1: /p' "$here/aiokafka_commits_a_failed_transaction.sh" >"$work/expected"
[ -s "$work/expected" ] || exit 2
cmp -s "$work/seen" "$work/expected" || { echo changed; exit 1; }
