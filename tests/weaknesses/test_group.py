"""Members thrown out, groups that rebalance for nothing, calls that stall in between."""

from __future__ import annotations

import time

import pytest
from tests.consumer.support import poll_until, read
from tests.patience import until
from tests.weaknesses.conftest import Served, busy

from kadence import RebalanceListener, TopicPartition
from kadence.errors import ConfigError
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.sync_group import SyncGroupRequest

PARTITION = TopicPartition("t", 0)


def test_work_that_keeps_the_processor_busy_keeps_the_membership(served: Served) -> None:
    """Long or CPU-bound work costs the membership (KP #2422, #1491, AIO #335, #406, CK #552, RDK #2971, faust #231)."""
    served.produce(4)
    consumer = served.consumer(
        group_id="g", group_protocol="classic", session_timeout_ms=2_500, heartbeat_interval_ms=200
    )
    consumer.subscribe("t")
    read(consumer, 4)
    member = consumer.group_metadata()
    with served.faults.observe(HeartbeatRequest) as beats:
        busy(3.5)
        assert len(beats) >= 5  # of seventeen; aiokafka sends none
    consumer.poll(0.3)
    assert consumer.group_metadata() == member
    assert len(consumer.rebalances()) == 1
    consumer.commit()


def test_whoever_processes_too_long_is_named_before_and_not_after(served: Served) -> None:
    """Without a report people learn of a slow loop from a lost membership (KP #2149, RDK #3381, #3732)."""
    served.produce(4)
    consumer = served.consumer(
        group_id="g", group_protocol="classic", session_timeout_ms=1_500, heartbeat_interval_ms=100,
        max_poll_interval_ms=1_500, stall_report_ratio=0.2,
    )  # fmt: skip
    consumer.subscribe("t")
    read(consumer, 4)
    # The processing that takes too long; a busy machine may have told of a stall before.
    until(lambda: [each for each in consumer.stalls() if each.records])
    stall = consumer.stalls()[-1]
    assert stall.records == 4
    assert "test_whoever_processes_too_long" in "".join(stall.stack)
    assert consumer.poll(0.1) is not None


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


def test_two_assignors_join_once(served: Served) -> None:
    """Aiokafka sends JoinGroup once per assignor: 4 and 2 SyncGroups where 1 and 1 are enough (AIO #108)."""

    def requests(*strategies: str) -> tuple[int, int]:
        with (
            served.faults.observe(JoinGroupRequest) as joins,
            served.faults.observe(SyncGroupRequest) as syncs,
            served.consumer(
                group_id="-".join(strategies),
                group_protocol="classic",
                partition_assignment_strategy=strategies,
            ) as consumer,
        ):
            consumer.subscribe("t")
            poll_until(consumer, lambda: bool(consumer.assignment()))
            return len(joins), len(syncs)

    alone = requests("range")
    assert alone[1] == 1
    assert requests("cooperative-sticky", "range") == alone


@pytest.mark.parametrize("served", [(6, 1)], indirect=True)
@pytest.mark.parametrize("slow", [0.0, 0.3])
def test_a_listener_that_seeks_leaves_no_partition_stuck(served: Served, slow: float) -> None:
    """Partitions stayed stuck after a listener had run (KP #3132, #2605, #1435, RDK #2933, AIO #983)."""
    served.produce(60, partitions=6)
    consumer = served.consumer(group_id="g", group_protocol="classic", heartbeat_interval_ms=100)

    class Seeking(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            time.sleep(slow)
            for partition in partitions:
                consumer.seek(partition, 5)

    consumer.subscribe("t", listener=Seeking())
    seen = [(record.partition, record.offset) for record in read(consumer, 30)]
    assert sorted(seen) == [(partition, offset) for partition in range(6) for offset in range(5, 10)]


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"session_timeout_ms": 6_000}, "group.consumer.session.timeout.ms on the broker"),
        ({"heartbeat_interval_ms": 500}, "group.consumer.heartbeat.interval.ms on the broker"),
        ({"partition_assignment_strategy": "range"}, "group.remote.assignor"),
    ],
)
def test_a_key_that_the_protocol_ignores_is_refused_with_advice(
    served: Served, settings: dict[str, object], advice: str
) -> None:
    """Conflicts of KIP-848 with classic keys end in obscure errors (wolverine #3486, arroyo #419, KP #3000)."""
    with pytest.raises(ConfigError, match=advice):
        served.consumer(group_id="g", group_protocol="consumer", **settings)


@pytest.mark.parametrize("served", [(4, 1)], indirect=True)
def test_positions_and_commits_work_while_partitions_are_taken_away(served: Served) -> None:
    """kafka-python forbids commit() in listeners, and has dropped the positions by then (KP #746, #1716, #2614)."""
    served.produce(40, partitions=4)
    settings = {"group_id": "g", "group_protocol": "classic", "heartbeat_interval_ms": 100}
    one = served.consumer(enable_auto_commit=False, **settings)
    given: list[dict[TopicPartition, int]] = []

    class Committing(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            given.append({partition: one.position(partition) for partition in partitions})
            one.commit(given[-1])

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            """A machine that stood still for a session: nothing to commit any more."""

    one.subscribe("t", listener=Committing())
    read(one, 40)
    two = served.consumer(**settings)
    two.subscribe("t")
    again: list[object] = []

    def shared() -> bool:
        again.extend(two.poll(0))
        return len(two.assignment()) == 2

    poll_until(one, shared)
    assert given[0] == dict.fromkeys(two.assignment(), 10)
    again.extend(two.poll(0.3))
    assert again == []
