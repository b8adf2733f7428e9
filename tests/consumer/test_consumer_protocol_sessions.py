"""KIP-848 members on a real broker with a short session: who is dead, and who is only busy (B1, B3)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.consumer.support import Cluster, numbers, poll_until, read

from kadence import RebalanceListener, TopicPartition
from kadence.testing.kafka import Kafka

SESSION = 2.5


@pytest.fixture(scope="module")
def quick(kafka: Kafka) -> Iterator[Cluster]:
    """A broker that misses a member after its session."""
    del kafka  # whose fixture says what is to happen where there is no Kafka
    with Kafka({"group.consumer.session.timeout.ms": str(int(SESSION * 1_000))}) as node:
        running = Cluster("kafka", node.bootstrap_servers)
        yield running
        for consumer in running.consumers:
            consumer.close(timeout=5)


class Lost(RebalanceListener):
    def __init__(self) -> None:
        self.partitions: list[TopicPartition] = []

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.partitions += partitions


def test_b3_a_member_that_processes_for_longer_than_its_session_stays(quick: Cluster) -> None:
    topic, group = quick.topic(), quick.name("g")
    quick.produce(topic, 40)
    listener = Lost()
    consumer = quick.consumer(group_id=group, group_protocol="consumer", enable_auto_commit=False)
    consumer.subscribe(topic, listener=listener)
    read(consumer, 40)
    before, rebalances = consumer.group_metadata(), len(consumer.rebalances())
    end = time.monotonic() + 1.5 * SESSION
    while time.monotonic() < end:
        sum(range(10_000))  # holds the interpreter, as processing does
    consumer.commit()
    consumer.poll(0.3)
    assert (consumer.group_metadata(), len(consumer.rebalances())) == (before, rebalances)
    assert listener.partitions == []


_CHILD = """
import sys, time
from kadence import Consumer
with Consumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2], group_protocol="consumer",
              auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=10) as consumer:
    consumer.subscribe(sys.argv[3])
    done = 0
    while done < 20:
        records = consumer.poll(1.0)
        for record in records:
            print(int(record.value), flush=True)
        if records:
            consumer.commit(records)
            done += len(records)
    in_hand = consumer.poll(10.0)
    print("in hand", *(int(record.value) for record in in_hand), flush=True)
    time.sleep(600)
"""


def test_b1_a_killed_member_is_missed_after_its_session_and_no_record_of_its_is(quick: Cluster) -> None:
    """What it had committed does not come again, what it had in hand does."""
    topic, group = quick.topic(), quick.name("g")
    quick.produce(topic, 200)
    command = [sys.executable, "-c", _CHILD, quick.bootstrap_servers, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            done: set[int] = set()
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("in hand"):
                    break
                done.add(int(line))
            in_hand = {int(word) for word in line.split()[2:]}
        finally:
            child.kill()
    assert len(done) >= 20
    assert in_hand
    survivor = quick.consumer(group_id=group, group_protocol="consumer")
    survivor.subscribe(topic)
    poll_until(survivor, lambda: survivor.group_metadata().generation_id > 0)
    found = numbers(read(survivor, 200 - len(done)))
    assert sorted(found) == sorted(set(range(200)) - done)
    assert in_hand <= set(found)
