"""Kills of members of a share group that run `ShareConsumer.process`, and then an account of every record.

    make kill-queue ROUNDS=50
    make kill-queue ROUNDS=50 BROKER=kafka

A producer writes numbered records without a pause. Three members of one share group handle them, some slowly, some only
at the second attempt. One of the members is killed again and again, with SIGKILL, at a moment of chance, and started
anew. Each handler writes to a journal when it begins, with the delivery count, and when it ends.

In the end, or after Ctrl-C, the members run undisturbed until nothing is left in the queue. The journal must then say
of each record that it was handled. It also says how many were handled again, and how many deliveries no handler has
seen: no more than the killed members held.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from kadence import Admin, Consumer, Producer, Record, Retry, ShareConsumer, TopicPartition, stop_on_signals
from kadence.admin import ConfigResource
from kadence.work import Context
from killing import broker, kill_members, parser, scratch

TOPIC = "jobs"
PARTITIONS = 2
GROUP = "kill-queue"
MEMBERS = 3
IN_FLIGHT = 100
CONFIG = {
    "share.auto.offset.reset": "earliest",
    # Kills at the same record need more deliveries than the five of the default.
    "share.delivery.count.limit": "10",
}


def application(servers: str, journal: str) -> None:
    """One life of a member."""
    out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random()

    def handle(record: Record, context: Context) -> None:
        place = f"{record.partition} {record.offset} {context.delivery_count}"
        os.write(out, f"b {place}\n".encode())
        if chance.random() < 0.1:
            time.sleep(chance.random() / 20)
        if context.attempt == 1 and record.offset % 50 == 7:
            raise ValueError("not at the first attempt")
        os.write(out, f"e {place}\n".encode())

    with (
        stop_on_signals(grace=10),
        ShareConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer,
    ):
        consumer.subscribe(TOPIC)
        consumer.process(
            handle, workers=8, retry=Retry(attempts=3, backoff=0.05), max_records=IN_FLIGHT, drain=5
        )


def start(servers: str, member: int, journal: Path) -> subprocess.Popen[bytes]:
    log = journal.with_name(f"member-{member}.log").open("ab")
    command = [sys.executable, __file__, "--application", servers, str(journal)]
    return subprocess.Popen(command, stdout=log, stderr=log)


def hunt(servers: str, directory: Path, rounds: int, rate: int, seed: int) -> bool:
    """The kills, a run to the end, and the account; whether it is as it should be."""
    chance = random.Random(seed)
    journal = directory / "journal"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({TOPIC: PARTITIONS})
        admin.incremental_alter_configs({ConfigResource("group", GROUP): CONFIG})

    def anew(member: int) -> subprocess.Popen[bytes]:
        return start(servers, member, journal)

    lives = [anew(member) for member in range(MEMBERS)]
    with Producer(bootstrap_servers=servers) as producer:

        def send(number: int) -> None:
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)

        kills = kill_members(lives, anew, journal, rounds, chance, rate, send)
    wait_until_empty(servers)
    for life in lives:
        life.terminate()
        life.wait()
    return account(journal, servers, kills)


def wait_until_empty(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        while True:
            found = admin.list_share_group_offsets(GROUP)
            if len(found) == PARTITIONS and all(each.lag == 0 for each in found.values()):
                return
            time.sleep(0.5)


def account(journal: Path, servers: str, kills: int) -> bool:
    """What the journal says."""
    with Consumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = consumer.end_offsets(partitions)
    begun: dict[tuple[int, int], set[int]] = {}
    ended: Counter[tuple[int, int]] = Counter()
    for line in journal.read_text().splitlines():
        what, *numbers = line.split()
        partition, offset, count = map(int, numbers)
        if what == "b":
            begun.setdefault((partition, offset), set()).add(count)
        else:
            ended[partition, offset] += 1
    records = [(each.partition, offset) for each, end in ends.items() for offset in range(end)]
    lost = sum(not ended[each] for each in records)
    again = sum(count - 1 for count in ended.values())
    unseen = sum(max(counts) - len(counts) for counts in begun.values())
    print(
        f"{kills} kills, {len(records):,} records: {lost} not handled, {again:,} again, {unseen:,} deliveries that no "
        f"handler has seen ({(again + unseen) / max(kills, 1):.0f} a kill; {IN_FLIGHT} may be)"
    )
    return not lost and again + unseen <= kills * IN_FLIGHT


def main() -> int:
    given = parser(__doc__, arguments=2, rate=1_000).parse_args()
    if given.application:
        application(*given.application)
        return 0
    print(f"seed {given.seed}, {given.broker} broker", flush=True)
    with scratch(given.keep) as directory, broker(given.broker) as servers:
        return 0 if hunt(servers, directory, given.rounds, given.rate, given.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
