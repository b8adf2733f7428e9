#!/usr/bin/env bash
# taskiq-aio-kafka 1.0.0 with taskiq 0.13.0: a task whose worker was killed is not run again, whatever the ack type.
#
# Guess: with --ack-type when_executed taskiq acknowledges a task after it has run, so another worker runs the tasks of one
#       that died. With the brokers for RabbitMQ and Redis streams it does.
# Seen: the broker for Kafka gives taskiq messages that cannot be acknowledged. Its consumer commits every five seconds what
#       it has read, which is the task that runs, and those that wait for their turn in the worker. No ack type changes that,
#       and nothing warns.
# Who meets it: whoever has tasks that take longer than a moment, at each crash, and each kill for lack of memory.
#       configure_consumer(enable_auto_commit=False) is no way out: nothing is committed then, and a restarted worker runs
#       all tasks of the topic again.
# Beside it: the package asks for kafka-python >= 2.0.2 and works with none of the last two series. With 3.0.12, which pip
#       chooses, each kiq() fails with "'DefaultPartitioner' object is not callable". With 2.3.3 no worker starts.
# Needs nothing but Python: the broker is the mock of librdkafka. Takes two minutes. Exits with 0 when it sees the behaviour,
# 1 when it has changed, 2 when it could not tell.
# Output seen:
#   sent 1; began 1, killed
#   sent 2; began 2, ended 2
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check taskiq==0.13.0 taskiq-aio-kafka==1.0.0 aiokafka==0.14.0 \
    kafka-python==2.2.15 confluent-kafka==2.16.1 || exit 2
cat >tasks.py <<'PY'
import asyncio
import os
from pathlib import Path

from taskiq_aio_kafka import AioKafkaBroker

broker = AioKafkaBroker(os.environ["SERVERS"], kafka_topic="jobs")
broker.configure_consumer(group_id="workers", auto_offset_reset="earliest")


def note(what):
    with Path("seen.txt").open("a") as file:
        file.write(what + "\n")


@broker.task
async def job(n: int, seconds: float) -> None:
    note(f"began {n}")
    await asyncio.sleep(seconds)
    note(f"ended {n}")
PY
cat >send.py <<'PY'
import asyncio
import sys

from tasks import broker, job


async def main():
    await broker.startup()
    await job.kiq(int(sys.argv[1]), float(sys.argv[2]))
    await broker.shutdown()


asyncio.run(main())
PY
cat >kill.py <<'PY'
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
servers = next(f"{each.host}:{each.port}" for each in mock.list_topics(timeout=10).brokers.values())
mock.list_topics("jobs", timeout=10)  # makes the topic: the mock has no request for that
os.environ["SERVERS"] = servers
seen = Path("seen.txt")
seen.touch()


def send(n, seconds):
    subprocess.run([sys.executable, "send.py", str(n), str(seconds)], check=True)


def worker():
    command = [Path(sys.executable).with_name("taskiq"), "worker", "tasks:broker", "--workers", "1"]
    with Path("worker.log").open("a") as log:
        return subprocess.Popen(
            [*command, "--ack-type", "when_executed"], stdout=log, stderr=log, start_new_session=True
        )


def until(line):
    end = time.monotonic() + 150
    while line not in seen.read_text().splitlines():
        if time.monotonic() > end:
            sys.exit(f"never: {line}; seen: {seen.read_text()!r}")
        time.sleep(0.2)


def noted():
    found = ", ".join(seen.read_text().splitlines())
    seen.write_text("")
    return found


send(1, 3600)
first = worker()
until("began 1")
time.sleep(8)
os.killpg(first.pid, signal.SIGKILL)
first.wait()
print(f"sent 1; {noted()}, killed")
send(2, 1)
second = worker()
until("ended 2")
print(f"sent 2; {noted()}", flush=True)
os.killpg(second.pid, signal.SIGKILL)
second.wait()
os._exit(0)
PY
timeout 400 venv/bin/python kill.py 2>errors | tee seen || { tail -5 errors worker.log; exit 2; }
sed -n 's/^#   sent/sent/p' "$here/taskiq_kafka_killed_task_is_lost.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
