"""Members whose process is busy for longer than a session, or dead, in virtual time (B1, B3)."""

from __future__ import annotations

import pytest
from tests.consumer.support import numbers, poll_until, read
from tests.virtual import VirtualCluster

from kadence import RebalanceListener, TopicPartition

pytestmark = [pytest.mark.needs("groups"), pytest.mark.brokers("virtual")]

SESSION_S = 45
"""That of KIP-848's members; those of classic ones are shorter by default."""


class Lost(RebalanceListener):
    def __init__(self) -> None:
        self.partitions: list[TopicPartition] = []

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.partitions += partitions


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_b3_a_member_that_processes_for_longer_than_its_session_stays(
    cluster: VirtualCluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    listener = Lost()
    consumer = cluster.consumer(group_id=group, group_protocol=protocol, enable_auto_commit=False)
    consumer.subscribe(topic, listener=listener)
    read(consumer, 40)
    before, rebalances = consumer.group_metadata(), len(consumer.rebalances())
    cluster.sleep(2 * SESSION_S)
    consumer.commit()
    consumer.poll(1)
    assert (consumer.group_metadata(), len(consumer.rebalances())) == (before, rebalances)
    assert listener.partitions == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_b1_a_killed_member_is_missed_after_its_session_and_no_record_of_its_is(
    cluster: VirtualCluster, protocol: str
) -> None:
    """What it had in hand comes again, and what it had committed does not."""
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 200)
    goes = cluster.consumer(
        group_id=group, group_protocol=protocol, enable_auto_commit=False, max_poll_records=10
    )
    goes.subscribe(topic)
    done: set[int] = set()
    while len(done) < 20:
        if records := goes.poll(1):
            goes.commit(records)
            done |= set(numbers(records))
    in_hand = set(numbers(goes.poll(10)))
    assert in_hand
    goes.program.kill()
    died = cluster.now()
    survivor = cluster.consumer(group_id=group, group_protocol=protocol)
    survivor.subscribe(topic)
    found = numbers(poll_until(survivor, lambda: len(survivor.assignment()) == 4))
    assert (cluster.now() - died).total_seconds() <= SESSION_S + 10
    found += numbers(read(survivor, 200 - len(done) - len(found)))
    assert sorted(found) == sorted(set(range(200)) - done)
    assert in_hand <= set(found)
