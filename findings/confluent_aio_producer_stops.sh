#!/usr/bin/env bash
# confluent-kafka 2.16.1: after one message that AIOProducer does not take, no later message is sent, and none fails.
#
# Guess: a message with a timestamp, which produce() has a parameter for, or with a value of a wrong type fails by itself,
#       when it is given or by its future. The next messages are sent.
# Seen: the future of the bad message fails after a second. That exception has ended the task that sends what lies in the
#       buffer. The futures of all later messages stay undecided, and nothing but a log line of asyncio says so.
#       flush() then raises the exception of the old message, and gives it to the good ones as theirs. None of them is
#       written.
# Who meets it: whoever awaits futures of AIOProducer in a service: it stands still. Give it bytes only, and no timestamp;
#       or use Producer in an executor.
# Needs nothing but Python: the broker is the mock of librdkafka. Takes half a minute. Exits with 0 when it sees the
# behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   first message: written
#   with a timestamp: NotImplementedError
#   1 s later: undecided after 5 s
#   flush: NotImplementedError
#   the undecided one then: NotImplementedError
#   a new producer, first message: written
#   value 5, an int: TypeError
#   1 s later: undecided after 5 s
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1 || exit 2
cat >produce.py <<'PY'
import asyncio
import logging
import os

from confluent_kafka import Producer
from confluent_kafka.aio import AIOProducer

logging.disable(logging.CRITICAL)


async def outcome(future, seconds=10):
    try:
        await asyncio.wait_for(asyncio.shield(future), seconds)
    except asyncio.TimeoutError:
        return f"undecided after {seconds} s"
    except BaseException as error:
        return type(error).__name__
    return "written"


async def main():
    mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    servers = ",".join(f"{each.host}:{each.port}" for each in mock.list_topics(timeout=10).brokers.values())

    producer = AIOProducer({"bootstrap.servers": servers})
    print("first message:", await outcome(await producer.produce("t", value=b"1")))
    print("with a timestamp:", await outcome(await producer.produce("t", value=b"2", timestamp=1_700_000_000_000)))
    await asyncio.sleep(1)
    later = await producer.produce("t", value=b"3")
    print("1 s later:", await outcome(later, 5))
    print("flush:", await outcome(asyncio.ensure_future(producer.flush())))
    print("the undecided one then:", await outcome(later, 5))

    producer = AIOProducer({"bootstrap.servers": servers})
    print("a new producer, first message:", await outcome(await producer.produce("t", value=b"1")))
    print("value 5, an int:", await outcome(await producer.produce("t", value=5)))
    await asyncio.sleep(1)
    print("1 s later:", await outcome(await producer.produce("t", value=b"3"), 5), flush=True)
    # close() would wait, and raise as flush() does.
    os._exit(0)


asyncio.run(main())
PY
timeout 120 venv/bin/python produce.py 2>/dev/null | tee seen || exit 2
sed -n 's/^#   \(first message\|with a timestamp\|1 s later\|flush\|the undecided one then\|a new producer, first message\|value 5, an int\): /\1: /p' \
    "$here/confluent_aio_producer_stops.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
