"""Kills of members that run `Consumer.process`, and then an account of every record.

    make kill-work ROUNDS=100
    make kill-work ROUNDS=100 BROKER=kafka
    make kill-work ROUNDS=100 SINK=topic

A producer writes numbered records with keys without a pause. Two members of one group handle them, some slowly, some
only at the second attempt, and one record in each life hangs. One of the members is killed again and again, with
SIGKILL, at a moment of chance, and started anew. Each handler writes to a journal when it begins and when it ends.

In the end, or after Ctrl-C, the members run undisturbed until all is done. The journal must then say of each record
that it was handled, and that none began before all records of its key before it had ended. It also says how many were
handled again: no more than were in flight or done since the last commit.

With SINK=topic each handler returns a record, too, and the members have transactions. Whoever reads what is committed
of that topic must then see one record for each that was handled, those of a key in their order.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from kadence import (
    Admin,
    Consumer,
    Producer,
    ProducerRecord,
    Record,
    Retry,
    TopicPartition,
    stop_on_signals,
)
from kadence.work import Context
from killing import broker, kill_members, parser, scratch

TOPIC = "work"
OUT = "done"
PARTITIONS = 4
KEYS = 40
GROUP = "kill-work"
MEMBERS = 2
IN_FLIGHT = 200
COMMIT_MS = 500
SESSION_MS = 6_000


def application(servers: str, member: str, journal: str, kind: str, sink: str) -> None:
    """One life of a member."""
    out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random()
    hangs = kind == "hangs"

    def handle(record: Record, context: Context) -> ProducerRecord | None:
        nonlocal hangs
        place = f"{record.partition} {record.offset} {(record.key or b'').decode()}"
        os.write(out, f"b {place}\n".encode())
        if hangs and chance.random() < 0.01:
            hangs = False
            time.sleep(600)
        if chance.random() < 0.1:
            time.sleep(chance.random() / 20)
        if context.attempt == 1 and record.offset % 50 == 7:
            raise ValueError("not at the first attempt")
        os.write(out, f"e {place}\n".encode())
        return ProducerRecord(OUT, place.encode(), record.key) if sink == "topic" else None

    with (
        stop_on_signals(grace=10),
        Consumer(
            bootstrap_servers=servers,
            group_id=GROUP,
            group_instance_id=f"member-{member}",
            group_protocol="classic",
            session_timeout_ms=SESSION_MS,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            isolation_level="read_committed" if sink == "topic" else "read_uncommitted",
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        consumer.process(
            handle,
            workers=8,
            retry=Retry(attempts=3, backoff=0.05),
            max_records=IN_FLIGHT,
            drain=5,
            transactional_id=f"{GROUP}-{member}" if sink == "topic" else None,
        )


def start(servers: str, member: int, journal: Path, kind: str, sink: str) -> subprocess.Popen[bytes]:
    log = journal.with_name(f"member-{member}.log").open("ab")
    command = [sys.executable, __file__, "--application", servers, str(member), str(journal), kind, sink]
    return subprocess.Popen(command, stdout=log, stderr=log)


def hunt(servers: str, directory: Path, rounds: int, rate: int, seed: int, sink: str) -> bool:
    """The kills, a run to the end, and the account; whether it is as it should be."""
    chance = random.Random(seed)
    journal = directory / "journal"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({TOPIC: PARTITIONS, OUT: PARTITIONS})

    def anew(member: int) -> subprocess.Popen[bytes]:
        return start(servers, member, journal, "hangs", sink)

    lives = [anew(member) for member in range(MEMBERS)]
    with Producer(bootstrap_servers=servers) as producer:

        def send(number: int) -> None:
            producer.send(TOPIC, b"%d" % number, b"key-%d" % chance.randrange(KEYS))

        kills = kill_members(lives, anew, journal, rounds, chance, rate, send)
    for member, life in enumerate(lives):
        life.kill()
        life.wait()
        lives[member] = start(servers, member, journal, "to-the-end", sink)
    wait_until_done(servers)
    for life in lives:
        life.terminate()
        life.wait()
    is_well = account(journal, servers, kills + MEMBERS, rate)
    return (sink != "topic" or account_of_outputs(servers)) and is_well


def wait_until_done(servers: str) -> None:
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Admin(bootstrap_servers=servers) as admin, Consumer(bootstrap_servers=servers) as consumer:
        ends = consumer.end_offsets(partitions)
        while True:
            committed = admin.list_consumer_group_offsets(GROUP)
            left = sum(
                end - (at.offset if (at := committed.get(partition)) is not None else 0)
                for partition, end in ends.items()
            )
            if left == 0:
                return
            time.sleep(0.5)


def account_of_outputs(servers: str) -> bool:
    """What a reader of committed records sees of what the handlers returned."""
    seen: dict[bytes | None, list[bytes]] = defaultdict(list)
    rows = 0
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(OUT, number) for number in range(PARTITIONS)]
        consumer.assign({partition: (0, end) for partition, end in consumer.end_offsets(partitions).items()})
        for record in consumer:
            seen[record.key].append(record.value or b"")
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign({partition: (0, end) for partition, end in consumer.end_offsets(partitions).items()})
        expected: dict[bytes | None, list[bytes]] = defaultdict(list)
        for record in consumer:
            rows += 1
            expected[record.key].append(
                f"{record.partition} {record.offset} {(record.key or b'').decode()}".encode()
            )
    counts = Counter(value for values in seen.values() for value in values)
    lost = sum(value not in counts for values in expected.values() for value in values)
    twice = sum(count - 1 for count in counts.values())
    disordered = sum(list(dict.fromkeys(seen[key])) != expected[key] for key in expected)
    print(
        f"{rows:,} records, {counts.total():,} outputs: {lost} lost, {twice} twice, {disordered} keys out of order"
    )
    return not (lost or twice or disordered)


def account(journal: Path, servers: str, kills: int, rate: int) -> bool:
    """What the journal says."""
    offsets: dict[tuple[int, str], list[int]] = defaultdict(list)
    with Consumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign({partition: (0, end) for partition, end in consumer.end_offsets(partitions).items()})
        for record in consumer:
            offsets[record.partition, (record.key or b"").decode()].append(record.offset)
    ended: Counter[tuple[int, int]] = Counter()
    done = dict.fromkeys(offsets, 0)
    """Of each key, how many of its first records have ended."""
    early = 0
    for line in journal.read_text().splitlines():
        what, partition, offset, key = line.split()
        name, place = (int(partition), key), (int(partition), int(offset))
        of_key = offsets[name]
        if what == "e":
            ended[place] += 1
            while done[name] < len(of_key) and ended[name[0], of_key[done[name]]]:
                done[name] += 1
        elif done[name] < len(of_key) and of_key[done[name]] < place[1]:
            early += 1
    rows = sum(map(len, offsets.values()))
    skipped = sum(len(each) - done[name] for name, each in offsets.items())
    again = sum(count - 1 for count in ended.values())
    most = kills * (IN_FLIGHT + rate * COMMIT_MS // 1000)
    print(
        f"{kills} kills, {rows:,} records: {skipped} not handled, {early} before one of their key, {again:,} again "
        f"({again / kills:.0f} a kill; {most // kills} may be)"
    )
    return not (skipped or early or again > most)


def main() -> int:
    known = parser(__doc__, arguments=5, rate=1_000)
    known.add_argument("--sink", choices=("journal", "topic"), default="journal")
    given = known.parse_args()
    if given.application:
        application(*given.application)
        return 0
    print(f"seed {given.seed}, {given.broker} broker, {given.sink}", flush=True)
    with scratch(given.keep) as directory, broker(given.broker) as servers:
        return 0 if hunt(servers, directory, given.rounds, given.rate, given.seed, given.sink) else 1


if __name__ == "__main__":
    sys.exit(main())
