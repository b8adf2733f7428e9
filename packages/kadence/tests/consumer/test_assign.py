"""Manual assignment, whole and by steps (KIP-429's incremental calls, for assign())."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.consumer.support import Cluster, partitions, read
from tests.patience import PATIENCE
from tests.virtual import VirtualCluster

from kadence import AsyncConsumer, Broker, OffsetAndMetadata, Producer, TopicPartition
from kadence.errors import IllegalStateError

A, B, C, D = partitions("t")
unchecked: Any = OffsetAndMetadata


@pytest.fixture
def served() -> Iterator[VirtualCluster]:
    """Ten records in each of four partitions."""
    with closing(VirtualCluster()) as cluster:
        cluster.create_topic("t", 4)
        cluster.produce("t", 40)
        yield cluster


def consumer(cluster: VirtualCluster, **settings: Any) -> Any:
    return cluster.consumer(**settings)


@pytest.mark.needs("reading")
def test_partitions_come_and_go_one_by_one_and_the_others_go_on(cluster: Cluster) -> None:
    topic = cluster.topic(3)
    cluster.produce(topic, 30, partitions=3)
    first, second, third = partitions(topic, 3)
    subject = cluster.consumer(max_poll_records=5)
    subject.incremental_assign([first])
    assert [record.offset for record in read(subject, 5)] == [0, 1, 2, 3, 4]
    subject.incremental_assign({second: 7, third: OffsetAndMetadata(9)})
    assert subject.assignment() == {first, second, third}
    assert subject.position(first) == 5
    found = read(subject, 9)
    assert sorted((record.partition, record.offset) for record in found) == [
        *((0, offset) for offset in range(5, 10)),
        *((1, offset) for offset in range(7, 10)),
        (2, 9),
    ]
    subject.incremental_unassign([first, third])
    assert subject.assignment() == {second}
    assert subject.position(second) == 10


def test_what_is_read_already_goes_on_where_it_is_or_from_the_offset_given(served: VirtualCluster) -> None:
    with consumer(served, max_poll_records=4) as subject:
        subject.assign([A])
        read(subject, 4)
        subject.incremental_assign([A, B])
        assert subject.position(A) == 4
        subject.incremental_assign({A: 2})
        assert subject.position(A) == 2


def test_the_last_one_may_go_and_another_come(served: VirtualCluster) -> None:
    with consumer(served) as subject:
        subject.assign([A])
        read(subject, 10)
        subject.incremental_unassign([A])
        assert not subject.poll(0.05)
        subject.incremental_assign([B])
        assert {record.partition for record in read(subject, 10)} == {1}


def test_unassign_commits_what_was_proved_and_drops_what_is_buffered(served: VirtualCluster) -> None:
    with consumer(served, group_id="g", max_poll_records=4) as subject:
        subject.assign([A])
        read(subject, 4)
        read(subject, 4)
        subject.incremental_unassign([A])
        assert not subject.poll(0.05)
        found = subject.committed([A])[A]
        assert found is not None
        assert found.offset == 4


def test_steps_need_manual_assignment(served: VirtualCluster) -> None:
    with consumer(served, group_id="g") as subject:
        with pytest.raises(IllegalStateError, match=r"no partitions by assign\(\)"):
            subject.incremental_unassign([A])
        subject.subscribe("t")
        with pytest.raises(IllegalStateError, match="the group says what it reads"):
            subject.incremental_assign([A])
        subject.unsubscribe()
        subject.assign([A])
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            subject.incremental_unassign([B])
        with pytest.raises(ValueError, match=">= 0, not -1"):
            subject.incremental_assign({B: -1})
        assert subject.assignment() == {A}


def test_assign_replaces_keeps_what_stays_and_forgets_the_rest(served: VirtualCluster) -> None:
    with consumer(served, max_poll_records=4) as subject:
        subject.assign([A, B])
        subject.pause([B])
        read(subject, 4)
        subject.assign([A, C])
        assert subject.assignment() == {A, C}
        assert subject.position(A) == 4
        subject.assign([A, B])
        assert subject.paused() == frozenset()


@pytest.mark.needs("reading")
def test_assign_takes_a_mapping_with_the_offset_where_each_partition_begins(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    cluster.produce(topic, 20, partitions=2)
    first, second = partitions(topic, 2)
    subject = cluster.consumer()
    subject.assign({first: 7, second: OffsetAndMetadata(9)})
    assert (subject.position(first), subject.position(second)) == (7, 9)
    found = read(subject, 4)
    assert sorted((record.partition, record.offset) for record in found) == [(0, 7), (0, 8), (0, 9), (1, 9)]
    subject.assign({first: 8})
    assert subject.assignment() == {first}
    assert [record.offset for record in read(subject, 2)] == [8, 9]


def test_assign_with_an_offset_that_cannot_be_changes_nothing(served: VirtualCluster) -> None:
    with consumer(served) as subject:
        with pytest.raises(ValueError, match=">= 0, not -1"):
            subject.assign({A: -1})
        assert subject.assignment() == frozenset()


def test_an_assign_whose_wait_is_interrupted_takes_effect_all_the_same(served: VirtualCluster) -> None:
    """The network thread has it: the next poll reads, and subscribe() is still refused."""
    with consumer(served, group_id="g") as subject:
        call = subject._calls.assign([A], None)
        next(call)
        with pytest.raises(KeyboardInterrupt):
            call.throw(KeyboardInterrupt)
        assert len(read(subject, 10)) == 10
        assert subject.assignment() == {A}
        with pytest.raises(IllegalStateError, match=r"partitions by assign\(\)"):
            subject.subscribe("t")


def test_the_same_with_asyncio(broker: Broker) -> None:
    broker.create_topic("t", 4)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(40):
            producer.send("t", b"%d" % number, partition=number % 4)

    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as subject:
            await subject.incremental_assign({A: 8, B: 9})
            seen: list[tuple[int, int]] = []
            while len(seen) < 3:
                seen += [(record.partition, record.offset) for record in await subject.poll(PATIENCE)]
            assert sorted(seen) == [(0, 8), (0, 9), (1, 9)]
            await subject.incremental_unassign([A])
            assert subject.assignment() == {B}
            await subject.assign({A: 9})
            assert [record.offset for record in await subject.poll(PATIENCE)] == [9]

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_records_of_a_poll_know_their_partitions_and_next_offsets(served: VirtualCluster) -> None:
    with consumer(served, group_id="g", enable_auto_commit=False) as subject:
        subject.assign([A, B])
        records = subject.poll(PATIENCE)
        while len(records) < 10:
            records = subject.poll(PATIENCE)
        expected = {partition: OffsetAndMetadata(10, 0) for partition in records.partitions()}
        assert records.next_offsets() == expected
        subject.commit(records.next_offsets())
        assert subject.committed(records.partitions()) == expected


def test_assigning_an_unknown_partition_says_nothing_and_reads_the_others(served: VirtualCluster) -> None:
    with consumer(served) as subject:
        subject.assign([A, TopicPartition("t", 99)])
        assert {record.partition for record in read(subject, 10)} == {0}


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.assign([("t", "0")]),
        lambda c: c.assign(["t0"]),
        lambda c: c.assign([(5, 0)]),
        lambda c: c.assign([("t", 1.0)]),
        lambda c: c.assign([("t", -1)]),
        lambda c: c.assign([("t", 2**31)]),
        lambda c: c.assign({TopicPartition("t", 0): 1.5}),
        lambda c: c.assign({TopicPartition("t", 0): 2**63}),
        lambda c: c.assign({TopicPartition("t", 0): (1,)}),
        lambda c: c.assign({TopicPartition("t", 0): (1, 2, 3)}),
        lambda c: c.assign({TopicPartition("t", 0): (1, None)}),
        lambda c: c.assign({TopicPartition("t", 0): ("1", "2")}),
        lambda c: c.assign({TopicPartition("t", 0): (2, 1)}),
        lambda c: c.incremental_assign({TopicPartition("t", 1): [0, 5]}),
        lambda c: c.seek(TopicPartition("t", 0), "5"),
        lambda c: c.seek(TopicPartition("t", 0), unchecked(1, "x")),
        lambda c: c.seek("t", 5),
        lambda c: c.position("t"),
        lambda c: c.pause([("t", "0")]),
        lambda c: c.commit({TopicPartition("t", 0): "5"}),
        lambda c: c.commit({TopicPartition("t", 0): None}),
        lambda c: c.commit({TopicPartition("t", 0): unchecked(1, None, 5)}),
        lambda c: c.commit({(5, 0): 5}),
        lambda c: c.commit([("t", 0)]),
        lambda c: c.commit("t"),
        lambda c: c.commit_async({TopicPartition("t", 0): 1.5}),
        lambda c: c.committed([("t", "0")]),
        lambda c: c.end_offsets([("t", "0")]),
        lambda c: c.beginning_offsets([(5, 0)]),
        lambda c: c.offsets_for_times({TopicPartition("t", 0): 1.5}),
        lambda c: c.partitions_for(5),
    ],
)
def test_what_is_no_partition_offset_or_name_is_refused_and_the_consumer_goes_on(
    served: VirtualCluster, call: Callable[[Any], object]
) -> None:
    with consumer(served, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([TopicPartition("t", 0)])
        with pytest.raises((TypeError, ValueError)) as raised:
            call(reader)
        assert any(
            word in str(raised.value)
            for word in ("partition", "offset", "range", "epoch", "name", "timestamp")
        )
        assert "positional" not in str(raised.value)
        assert len(reader.poll(PATIENCE)) > 0, "the network thread lives"
        assert reader.assignment() == {TopicPartition("t", 0)}
