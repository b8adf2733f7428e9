"""Groups: sharing, moving, leaving, being slow (B3, B4, B7, C5). In virtual time; what Kafka decides, on Kafka."""

from __future__ import annotations

import time

import pytest
from tests.consumer.support import (
    Cluster,
    has_settled,
    member_settings,
    numbers,
    partitions,
    poll_until,
    read,
)
from tests.patience import PATIENCE

from kadence import RebalanceListener, TopicPartition
from kadence.errors import CommitFailedError, InvalidGroupIdError, InvalidSessionTimeoutError

pytestmark = pytest.mark.needs("groups")


class Recorder(RebalanceListener):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", sorted(partitions)))

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", sorted(partitions)))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", sorted(partitions)))

    def of(self, kind: str) -> set[TopicPartition]:
        return {partition for name, given in self.events if name == kind for partition in given}


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The group protocol; "consumer" implies the need of "kip-848"."""
    return str(request.param)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
@pytest.mark.needs("classic rebalances")
def test_two_members_share_and_the_one_that_stays_takes_all(
    cluster: Cluster, protocol: str, strategy: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    settings = member_settings(
        protocol, group_id=group, partition_assignment_strategy=strategy, heartbeat_interval_ms=200
    )
    if protocol == "consumer" and strategy == "range":
        settings["group_remote_assignor"] = "range"
    one, two = cluster.consumer(**settings), cluster.consumer(**settings)
    one.subscribe(topic)
    first = read(one, 40)
    two.subscribe(topic)

    def shared() -> bool:
        two.poll(0)
        return len(one.assignment()) == len(two.assignment()) == 2

    poll_until(one, shared)
    assert one.assignment() | two.assignment() == set(partitions(topic))
    one.commit()
    one.close()
    poll_until(two, lambda: len(two.assignment()) == 4)
    cluster.produce(topic, 8, start=40)
    # At least once: what a member had not committed when it lost its partitions comes again.
    seen = set(numbers(first))
    end = time.monotonic() + PATIENCE
    while len(seen) < 48:
        assert time.monotonic() < end, f"never came: {set(range(48)) - seen}"
        seen |= set(numbers(two.poll(0.2)))
    assert seen == set(range(48))


@pytest.mark.needs("classic rebalances")
def test_c5_partitions_that_stay_keep_flowing_while_another_member_joins(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40_000)
    settings = member_settings(protocol, group_id=group, heartbeat_interval_ms=200, max_poll_records=1)
    one, two = cluster.consumer(**settings), cluster.consumer(**settings)
    one.subscribe(topic)
    read(one, 10)
    two.subscribe(topic)
    end = time.monotonic() + PATIENCE
    while not two.assignment():
        assert time.monotonic() < end
        two.poll(0.01)  # not faster, or the records run out
        assert one.poll(PATIENCE), (
            "records of partitions that stay come with every poll, all through both rounds"
        )
    assert {record.partition for record in read(one, 50)} == {p.partition for p in one.assignment()}


@pytest.mark.brokers("virtual")
def test_b4_a_member_that_does_not_poll_leaves_and_the_next_poll_rejoins(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    listener = Recorder()
    consumer = cluster.consumer(
        enable_auto_commit=False, max_poll_interval_ms=60_000, group_id=group, group_protocol=protocol
    )
    consumer.subscribe(topic, listener=listener)
    read(consumer, 4)
    before = consumer.group_metadata()
    cluster.until(lambda: not consumer._core.assigned)
    with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
        consumer.commit({TopicPartition(topic, 0): 1})
    assert numbers(read(consumer, 4)) is not None
    assert listener.of("lost") == set(partitions(topic))
    after = consumer.group_metadata()
    assert after.member_id != before.member_id
    assert "poll" in consumer.rebalances()[-1].cause


@pytest.mark.needs("classic rebalances")
def test_b7_close_leaves_the_group_at_once(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    # Before a session ends (45 s with KIP-848, which the broker decides) only a LeaveGroup explains a hand-over.
    settings = member_settings(protocol, group_id=group, session_timeout_ms=300_000)
    one, two = cluster.consumer(**settings), cluster.consumer(**settings)
    one.subscribe(topic)
    read(one, 4)
    one.close()
    two.subscribe(topic)
    poll_until(two, lambda: len(two.assignment()) == 4, seconds=30)


@pytest.mark.needs("classic rebalances")
@pytest.mark.brokers("virtual")
def test_callbacks_run_on_the_polling_thread_and_may_commit(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)

    class Committing(Recorder):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            super().on_partitions_revoked(partitions)
            one.commit({partition: one.position(partition) for partition in partitions})

    listener = Committing()
    settings = member_settings(protocol, group_id=group, heartbeat_interval_ms=200)
    one = cluster.consumer(enable_auto_commit=False, **settings)
    one.subscribe(topic, listener=listener)
    read(one, 40)
    two = cluster.consumer(**settings)
    two.subscribe(topic)

    def handed_over() -> bool:
        two.poll(0)
        return len(two.assignment()) == 2

    poll_until(one, handed_over)
    moved = listener.of("revoked")
    assert moved == set(two.assignment())
    assert {at.offset for at in two.committed(moved).values() if at is not None} == {10}
    # What one had read and committed does not come again.
    assert not two.poll(0.3)


@pytest.mark.brokers("virtual")
def test_an_exception_in_a_callback_surfaces_from_poll_and_the_group_goes_on(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)

    class Failing(Recorder):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise RuntimeError("my bug")

    consumer = cluster.consumer(group_id=group, group_protocol=protocol)
    consumer.subscribe(topic, listener=Failing())
    with pytest.raises(RuntimeError, match="my bug"):
        read(consumer, 4)
    assert len(read(consumer, 4)) == 4


@pytest.mark.brokers("virtual")
def test_unsubscribe_leaves_and_subscribe_joins_again(cluster: Cluster, protocol: str) -> None:
    topic, other, group = cluster.topic(), cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    cluster.produce(other, 4)
    listener = Recorder()
    consumer = cluster.consumer(group_id=group, group_protocol=protocol)
    consumer.subscribe(topic, listener=listener)
    read(consumer, 4)
    consumer.commit()
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    assert listener.of("revoked") == set(partitions(topic))
    consumer.subscribe([topic, other])
    assert {record.topic for record in read(consumer, 4)} == {other}
    assert consumer.assignment() == set(partitions(topic)) | set(partitions(other))


def test_a_change_of_topics_rejoins_and_keeps_what_stays(cluster: Cluster, protocol: str) -> None:
    topic, other, group = cluster.topic(), cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    cluster.produce(other, 4)
    consumer = cluster.consumer(group_id=group, group_protocol=protocol)
    consumer.subscribe(topic)
    read(consumer, 4)
    consumer.subscribe([topic, other])
    assert {record.topic for record in read(consumer, 4)} == {other}


@pytest.mark.brokers("virtual")
def test_commits_end_in_the_order_in_which_they_were_given(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    consumer = cluster.consumer(group_id=group, group_protocol=protocol, enable_auto_commit=False)
    consumer.subscribe(topic)
    read(consumer, 40)
    ended: list[int] = []
    first = TopicPartition(topic, 0)
    for offset in range(1, 8):
        consumer.commit_async({first: offset}, lambda offsets, error: ended.append(offsets[first].offset))
    consumer.commit({TopicPartition(topic, 0): 8})
    assert ended == list(range(1, 8))
    committed = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert committed is not None
    assert committed.offset == 8


@pytest.mark.brokers("virtual")
def test_commit_takes_records(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer(group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    records = read(consumer, 10)
    consumer.commit(records[3])
    committed = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert committed is not None
    assert committed.offset == 4


@pytest.mark.brokers("virtual")
def test_without_a_group_nothing_of_a_group_works(cluster: Cluster) -> None:
    consumer = cluster.consumer()
    for call in (consumer.commit, consumer.group_metadata, lambda: consumer.subscribe("t")):
        with pytest.raises(InvalidGroupIdError, match=r"group\.id"):
            call()


@pytest.mark.needs("session bounds")
def test_a_session_outside_the_brokers_bounds_is_said(cluster: Cluster) -> None:
    topic = cluster.topic()
    consumer = cluster.consumer(
        group_id=cluster.name("g"), session_timeout_ms=7_200_000, heartbeat_interval_ms=100
    )
    consumer.subscribe(topic)
    with pytest.raises(InvalidSessionTimeoutError, match=r"session\.timeout\.ms"):
        read(consumer, 1)


@pytest.mark.needs("classic rebalances")
def test_c4_auto_takes_what_the_broker_has_and_loses_nothing(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    one = cluster.consumer(group_id=group, group_protocol="auto")
    two = cluster.consumer(group_id=group, group_protocol="auto")
    one.subscribe(topic)
    first = read(one, 40)
    two.subscribe(topic)

    def shared() -> bool:
        two.poll(0)
        return len(one.assignment()) == len(two.assignment()) == 2

    poll_until(one, shared)
    assert cluster.group_type(group) == "consumer"
    one.commit()
    one.close()
    poll_until(two, lambda: len(two.assignment()) == 4)
    cluster.produce(topic, 8, start=40)
    # At least once: what a member had not committed when it lost its partitions comes again.
    seen = set(numbers(first))
    end = time.monotonic() + PATIENCE
    while len(seen) < 48:
        assert time.monotonic() < end, f"never came: {set(range(48)) - seen}"
        seen |= set(numbers(two.poll(0.2)))
    assert seen == set(range(48))


@pytest.mark.needs("classic rebalances")
def test_c4_auto_joins_a_live_classic_group_as_one_of_its_members(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    one = cluster.consumer(group_id=group, group_protocol="classic", heartbeat_interval_ms=200)
    two = cluster.consumer(group_id=group, group_protocol="auto")
    one.subscribe(topic)
    read(one, 40)
    generation = one.group_metadata().generation_id
    two.subscribe(topic)

    def shared() -> bool:
        two.poll(0)
        return len(one.assignment()) == len(two.assignment()) == 2

    poll_until(one, shared)
    assert one.group_metadata().generation_id > generation
    assert "lost" not in one.rebalances()[-1].cause
    assert cluster.group_type(group) == "classic"


@pytest.mark.needs("static members")
def test_kip_345_a_static_member_gets_its_partitions_back_at_once(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    settings = member_settings(protocol, group_id=group, heartbeat_interval_ms=200)
    stays = cluster.consumer(group_instance_id="stays", **settings)
    goes = cluster.consumer(group_instance_id="goes", **settings)
    stays.subscribe(topic)
    goes.subscribe(topic)

    def shared() -> bool:
        goes.poll(0)
        return len(stays.assignment()) == len(goes.assignment()) == 2 and has_settled(stays)

    poll_until(stays, shared)
    rebalances, owned = len(stays.rebalances()), goes.assignment()
    goes.close()
    back = cluster.consumer(group_instance_id="goes", **settings)
    back.subscribe(topic)
    poll_until(back, lambda: len(back.assignment()) == 2)
    stays.poll(0)
    assert back.assignment() == owned
    assert len(stays.rebalances()) == rebalances
