"""Leaders that move: no partition stalls, and no member joins again."""

from __future__ import annotations

import pytest
from tests.consumer.served import Served
from tests.consumer.support import poll_until, read

from kadence import TopicPartition
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.offset_for_leader_epoch import OffsetForLeaderEpochRequest


@pytest.mark.parametrize("served", [(3, 3)], indirect=True)
def test_no_partition_stalls_when_leaders_move_and_answers_are_lost(served: Served) -> None:
    """kafka-python stalled after one batch while it awaited the validation of an epoch (KP #3106)."""
    consumer = served.consumer(metadata_max_age_ms=200, request_timeout_ms=1_000)
    consumer.assign([TopicPartition("t", number) for number in range(3)])
    nodes = served.broker.node_ids
    for turn in range(3):
        served.produce(30, start=30 * turn, partitions=3)
        assert {record.partition for record in read(consumer, 30)} == {0, 1, 2}
        with served.faults.drop(OffsetForLeaderEpochRequest, times=1):
            for partition in range(3):
                served.broker.move_leader("t", partition, nodes[(partition + turn + 1) % 3])
            poll_until(consumer, lambda: True)
            served.produce(3, start=1_000 + 3 * turn, partitions=3)
            assert {record.partition for record in read(consumer, 3)} == {0, 1, 2}


@pytest.mark.parametrize("served", [(6, 3)], indirect=True)
def test_leaders_that_move_make_nobody_rejoin(served: Served) -> None:
    """Changes of metadata that no assignor looks at rebalance groups (RDK #4742, #3306, CK #1090, KP #2605)."""
    served.produce(12, partitions=6)
    consumer = served.consumer(
        group_id="g", group_protocol="classic", heartbeat_interval_ms=100, metadata_max_age_ms=100
    )
    consumer.subscribe("t")
    read(consumer, 12)
    with served.faults.observe(JoinGroupRequest) as joins:
        for turn in range(3):
            for partition in range(6):
                served.broker.move_leader("t", partition, served.broker.node_ids[(partition + turn) % 3])
            served.produce(6, start=12 + 6 * turn, partitions=6)
            read(consumer, 6)
        poll_until(consumer, lambda: True)
    assert len(joins) == 0
    assert len(consumer.rebalances()) == 1
