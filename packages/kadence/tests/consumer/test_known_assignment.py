"""A call that names a partition means the assignment of it that the last poll told of, and acts on no other (W2).

The member is away for longer than its session: another one reads 20 records, commits them and goes. The first one joins
again by itself and has the partition back, and no poll has told the program of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from typing import Any, Final

import pytest
from tests.consumer.support import poll_until
from tests.patience import until
from tests.virtual import VirtualCluster

from kadence import RebalanceListener, TopicPartition
from kadence.errors import CommitFailedError, IllegalStateError, KafkaError
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.heartbeat import HeartbeatRequest

_PARTITION: Final = TopicPartition("t", 0)
_RECORDS: Final = 30


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    with closing(VirtualCluster()) as made:
        made.create_topic("t", 1)
        made.produce("t", _RECORDS, partitions=1)
        yield made


class Listener(RebalanceListener):
    """Makes one call when a partition is lost."""

    def __init__(self, consumer: Any, when_lost: Callable[[Any], object]) -> None:
        self.told: list[str] = []
        self._consumer = consumer
        self._when_lost = when_lost

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.told.append("revoked")

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.told.append("assigned")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append("lost")
        self._when_lost(self._consumer)


_CALLS: Final[dict[str, Callable[[Any], object]]] = {
    "nothing": lambda consumer: None,
    "seek": lambda consumer: consumer.seek(_PARTITION, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning([_PARTITION]),
    "seek_to_beginning of all": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end([_PARTITION]),
    "pause": lambda consumer: consumer.pause([_PARTITION]),
    "resume": lambda consumer: consumer.resume([_PARTITION]),
    "position": lambda consumer: consumer.position(_PARTITION),
    "commit": lambda consumer: consumer.commit({_PARTITION: 1}),
    "commit of all": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async({_PARTITION: 1}),
    "committed": lambda consumer: consumer.committed([_PARTITION]),
    "current_lag": lambda consumer: consumer.current_lag(_PARTITION),
    "finished": lambda consumer: consumer.finished(),
    "enforce_rebalance": lambda consumer: consumer.enforce_rebalance(),
}


def _away(
    cluster: VirtualCluster, protocol: str, when_lost: Callable[[Any], object], *, hears: bool = True
) -> tuple[Any, Listener]:
    """A member that has read all, and has lost the partition and got it back since; the group has committed 20.

    Without ``hears`` it has only lost it, and its application side has not taken the event yet.
    """
    settings: dict[str, Any] = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
    away = cluster.consumer(**settings, client_id="away")
    other = cluster.consumer(**settings, client_id="other", max_poll_records=20)
    listener = Listener(away, when_lost)
    away.subscribe("t", listener=listener)
    poll_until(away, lambda: bool(away.assignment()) and away.position(_PARTITION) == _RECORDS)
    before = away._core.group
    faults = cluster.virtual_broker.faults
    lost = [faults.drop(kind, client_id="away") for kind in (HeartbeatRequest, ConsumerGroupHeartbeatRequest)]
    other.subscribe("t")
    poll_until(other, lambda: bool(other.assignment()) and other.position(_PARTITION) == 20)
    other.commit()
    other.close()
    for fault in lost:
        fault.remove()

    def is_back() -> bool:
        cluster.sleep(1)
        if not hears:
            return not away._core._shared_state.shared_partitions
        # Any call hears of the new membership.
        away.committed([_PARTITION])
        group = away._core.group
        return bool(group != before and group.generation_id > 0 and away._core.assigned)

    until(is_back, what=lambda: repr(away), every=0)
    assert listener.told == ["assigned"]
    return away, listener


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize(
    ("when", "protocol"),
    [
        ("before the poll", "consumer"),
        ("in on_partitions_lost", "classic"),
        pytest.param("before the poll", "classic", marks=pytest.mark.heavy),
        pytest.param("in on_partitions_lost", "consumer", marks=pytest.mark.heavy),
    ],
)
def test_no_call_moves_a_partition_that_was_lost_and_came_back(
    cluster: VirtualCluster, when: str, call: str, protocol: str
) -> None:
    def makes(consumer: Any) -> None:
        with suppress(KafkaError):
            _CALLS[call](consumer)

    away, listener = _away(cluster, protocol, makes if when == "in on_partitions_lost" else _CALLS["nothing"])
    with away:
        assert away.assignment() == {_PARTITION}, "as the last poll told"
        if when == "before the poll":
            makes(away)
        records = poll_until(away, lambda: len(listener.told) == 3)
        assert listener.told == ["assigned", "lost", "assigned"]
        while len(records) < _RECORDS - 20:
            records += away.poll(1)
        assert [record.offset for record in records] == list(range(20, _RECORDS))
        assert away.paused() == frozenset()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commit_of_all_is_refused_where_a_partition_is_lost_in_the_midst_of_it(
    cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The call has looked for news right before, so no news says that the partition was lost."""
    away, _ = _away(cluster, protocol, _CALLS["nothing"], hears=False)
    exchange = away._core.exchange
    look, calls = exchange.take_background_events, count()

    def looks_too_early() -> None:
        if next(calls):
            look()

    monkeypatch.setattr(exchange, "take_background_events", looks_too_early)
    with away, pytest.raises(CommitFailedError):
        away.commit()


def test_the_loop_of_the_guide_reads_nothing_again_that_others_have_billed(cluster: VirtualCluster) -> None:
    """`undo` of docs/transactions.md, after the commit was refused."""
    away, _ = _away(cluster, "consumer", _CALLS["nothing"])
    with away:
        for partition in away.assignment():
            away.seek(partition, 0)
        records: list[Any] = []
        while len(records) < 10:
            records += away.poll(1)
        assert [record.offset for record in records] == list(range(20, 30))


def test_in_the_callback_the_new_assignment_is_known(cluster: VirtualCluster) -> None:
    places: list[int] = []

    class Seeks(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            assert consumer.assignment() == set(partitions) == {_PARTITION}
            consumer.seek(_PARTITION, 25)
            consumer.pause([_PARTITION])
            consumer.resume([_PARTITION])
            places.append(consumer.position(_PARTITION))

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            assert consumer.assignment() == set(partitions)
            consumer.seek(_PARTITION, 3)
            consumer.commit({_PARTITION: consumer.position(_PARTITION)})

    consumer = cluster.consumer(group_id="g", enable_auto_commit=False)
    consumer.subscribe("t", listener=Seeks())
    records = poll_until(consumer, lambda: bool(consumer.assignment()))
    while len(records) < 5:
        records += consumer.poll(1)
    assert [record.offset for record in records] == list(range(25, 30))
    assert places == [25]
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    at = consumer.committed([_PARTITION])[_PARTITION]
    assert at is not None
    assert at.offset == 3


def test_what_no_poll_has_told_of_is_not_assigned_yet(cluster: VirtualCluster) -> None:
    with cluster.consumer(group_id="g") as consumer:
        consumer.subscribe("t")
        consumer.poll(0)
        cluster.until(lambda: consumer._core.assigned)
        assert consumer.assignment() == frozenset()
        with pytest.raises(IllegalStateError, match="before the next poll reports it"):
            consumer.seek(_PARTITION, 5)
        consumer.poll(0)
        assert consumer.assignment() == {_PARTITION}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_c16_assignment_identity_and_history_change_with_the_poll_that_tells(
    cluster: VirtualCluster, protocol: str
) -> None:
    """The network thread has lost the partition and got it back, and another call has heard of that."""
    away, listener = _away(cluster, protocol, _CALLS["nothing"])

    def shown() -> list[object]:
        return [away.assignment(), away.group_metadata(), away.rebalances()[-1].generation, repr(away)]

    with away:
        [first] = away.rebalances()
        assert away.group_metadata().generation_id == first.generation
        assert f"generation={first.generation} " in repr(away)
        before = shown()
        away.committed([_PARTITION])
        assert shown() == before
        poll_until(away, lambda: len(listener.told) == 3)
        last = away.rebalances()[-1]
        assert len(away.rebalances()) == 2
        assert away.assignment() == set(last.assigned) == {_PARTITION}
        assert away.group_metadata().generation_id == last.generation != first.generation
        assert f"generation={last.generation} " in repr(away)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_c16_in_the_callback_all_are_those_of_the_new_assignment(
    cluster: VirtualCluster, protocol: str
) -> None:
    seen: list[int] = []

    class Looks(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            if not partitions:
                return
            last = consumer.rebalances()[-1]
            assert consumer.assignment() == set(last.assigned) == set(partitions)
            assert consumer.group_metadata().generation_id == last.generation
            seen.append(last.generation)

    consumer = cluster.consumer(group_id="g", group_protocol=protocol)
    with consumer:
        consumer.subscribe("t", listener=Looks())
        poll_until(consumer, lambda: bool(consumer.assignment()))
        assert seen == [consumer.group_metadata().generation_id]


# ---------------------------------------------------------------- by hand


def test_c16_partitions_that_are_made_later_are_shown_by_a_poll(cluster: VirtualCluster) -> None:
    one, two = (TopicPartition("t", number) for number in (0, 1))
    with cluster.consumer(metadata_max_age_ms=5_000) as consumer:
        consumer.assign_topics("t", start="earliest")
        cluster.add_partitions("t", 2)
        cluster.until(lambda: two in consumer._core.assigned)
        assert consumer.assignment() == {one}
        with pytest.raises(IllegalStateError, match="before the next poll reports it"):
            consumer.pause([two])
        consumer.poll(0, max_records=1)
        assert consumer.assignment() == {one, two}
        consumer.pause([two])


@pytest.fixture
def many(cluster: VirtualCluster) -> list[TopicPartition]:
    cluster.create_topic("many", 8)
    return [TopicPartition("many", number) for number in range(8)]


def test_tasks_that_add_and_take_partitions_at_once_lose_none(
    cluster: VirtualCluster, many: list[TopicPartition]
) -> None:
    """Two tasks that add and remove partitions at the same time do not undo each other's changes."""
    consumer = cluster.make()
    consumer.assign([many[0]])

    def at_once(name: str, partitions: list[TopicPartition]) -> None:
        tasks = [consumer.begin(name, [partition]) for partition in partitions]
        cluster.until(lambda: all(task.done() for task in tasks))
        for task in tasks:
            task.result()

    at_once("incremental_assign", many[1:])
    assert consumer.assignment() == set(many)
    at_once("incremental_unassign", many[:4])
    assert consumer.assignment() == set(many[4:])


def test_a_task_that_assigns_while_another_unsubscribes_keeps_its_partitions(
    cluster: VirtualCluster, many: list[TopicPartition]
) -> None:
    consumer = cluster.make()
    consumer.assign(many[:2])
    tasks = [consumer.begin("unsubscribe"), consumer.begin("incremental_assign", {many[5]: 0})]
    cluster.until(lambda: all(task.done() for task in tasks))
    assert consumer.assignment() == {many[5]}
    assert not consumer.poll(0)
