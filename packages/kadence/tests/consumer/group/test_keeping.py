"""A quiet topic's committed offset outlives the last member's close, under KIP-848 as in the classic protocol.

Offsets are forgotten a minute after their commit once nobody is in the group. The topic is quiet for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, cast

import pytest
from tests.consumer.support import poll_until
from tests.virtual import VirtualCluster

from kadence import OffsetAndMetadata, TopicPartition
from kadence.consumer.events import Commit
from kadence.consumer.group import committed
from kadence.consumer.group.committed import OffsetKeeper
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest

_PARTITION: Final = TopicPartition("t", 0)
_AT: Final = OffsetAndMetadata(3, 0, "what I know of it")


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    config = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1_000}
    with closing(VirtualCluster(config=config)) as made:
        made.create_topic("t", 1)
        made.produce("t", 10, partitions=1)
        yield made


def _member(cluster: VirtualCluster, protocol: str = "consumer", **settings: Any) -> Any:
    consumer = cluster.consumer(
        group_id="g", group_protocol=protocol, **{"enable_auto_commit": False, **settings}
    )
    consumer.subscribe("t")
    poll_until(consumer, lambda: bool(consumer.assignment()))
    return consumer


def _idle(cluster: VirtualCluster, consumer: Any, seconds: int = 80) -> None:
    for _ in range(seconds):
        consumer.poll(0)
        cluster.sleep(1)


def _left_behind(cluster: VirtualCluster) -> OffsetAndMetadata | None:
    cluster.sleep(5)
    with cluster.consumer(group_id="g") as reader:
        found: OffsetAndMetadata | None = reader.committed([_PARTITION])[_PARTITION]
        return found


@pytest.mark.parametrize("protocol", ["consumer", "auto", "classic"])
@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_what_was_committed_by_hand_is_there_after_the_end(
    cluster: VirtualCluster, end: str, protocol: str
) -> None:
    consumer = _member(cluster, protocol)
    consumer.commit({_PARTITION: _AT})
    _idle(cluster, consumer)
    getattr(consumer, end)()
    assert _left_behind(cluster) == _AT
    consumer.close()


def test_so_is_what_an_earlier_member_has_committed(cluster: VirtualCluster) -> None:
    """Each life is shorter than the retention, and the topic is quiet for all of them."""
    first = _member(cluster)
    first.commit({_PARTITION: _AT})
    first.close()
    for _ in range(3):
        with _member(cluster) as next_life:
            _idle(cluster, next_life, 50)
    assert _left_behind(cluster) == _AT


def _commit_in_a_transaction(cluster: VirtualCluster, consumer: Any, offset: int) -> None:
    """Polls have returned all ten records by then."""
    poll_until(consumer, lambda: consumer.position(_PARTITION) == 10)
    with closing(cluster.producer(transactional_id="tx")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({_PARTITION: offset}, consumer.group_metadata())
        producer.commit_transaction()


def test_so_is_what_a_transaction_has_committed(cluster: VirtualCluster) -> None:
    consumer = _member(cluster)
    _commit_in_a_transaction(cluster, consumer, 10)
    _idle(cluster, consumer)
    consumer.close()
    found = _left_behind(cluster)
    assert found is not None
    assert found.offset == 10


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_what_another_transaction_may_commit_just_now_is_not_taken_back(
    cluster: VirtualCluster, end: str
) -> None:
    """Another task may be about to commit the rest, between the look-up of what is committed and the commit of that."""
    consumer = _member(cluster)
    _commit_in_a_transaction(cluster, consumer, 3)
    _idle(cluster, consumer)
    with cluster.virtual_broker.faults.observe(OffsetCommitRequest) as seen:
        getattr(consumer, end)()
    assert not seen
    consumer.close()


@pytest.mark.parametrize(("isolation", "is_kept"), [("read_committed", False), ("read_uncommitted", True)])
def test_nor_is_the_first_transaction_of_a_program_that_has_committed_nothing_yet(
    cluster: VirtualCluster, isolation: str, is_kept: bool
) -> None:
    """Only its settings tell that it may work in transactions."""
    with _member(cluster) as earlier:
        earlier.commit({_PARTITION: _AT})
    consumer = _member(cluster, isolation_level=isolation)
    poll_until(consumer, lambda: consumer.position(_PARTITION) == 10)
    with cluster.virtual_broker.faults.observe(OffsetCommitRequest) as seen:
        consumer.close()
    assert bool(seen) == is_kept


def test_what_is_held_for_several_reasons_comes_when_all_are_over() -> None:
    """The assigned callback may end while an offset is still kept, and the other way round."""
    subscription = Subscription()
    subscription.assign([_PARTITION], held=True)
    state = subscription.partitions[_PARTITION]
    subscription.hold([state], "kept")
    subscription.release([_PARTITION])
    assert state.shared_partition.held
    subscription.let_go([state], "kept")
    assert not state.shared_partition.held


def test_nothing_comes_that_a_transaction_could_commit_while_an_offset_is_kept_for_the_next_day(
    cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "_EVERY_MS", 70_000)
    consumer = _member(cluster)
    _commit_in_a_transaction(cluster, consumer, 10)
    faults = cluster.virtual_broker.faults
    with faults.delay(OffsetCommitRequest, 3) as slow, faults.observe(OffsetCommitRequest) as seen:
        while not slow.hits:
            _idle(cluster, consumer, 1)
        cluster.produce("t", 1, partitions=1)
        before = cluster.now()
        records = consumer.poll(60)
        waited = (cluster.now() - before).total_seconds()
    assert [record.offset for record in records] == [10]
    assert 1 < waited < 10, waited
    assert len(seen) == 1
    consumer.close()


def test_what_is_committed_last_counts(cluster: VirtualCluster) -> None:
    consumer = _member(cluster)
    consumer.commit({_PARTITION: 2})
    _idle(cluster, consumer)
    consumer.commit_async({_PARTITION: _AT})
    consumer.close()
    assert _left_behind(cluster) == _AT


def test_where_nothing_is_committed_nothing_is_made_up(cluster: VirtualCluster) -> None:
    with _member(cluster) as consumer:
        _idle(cluster, consumer, 2)
    assert _left_behind(cluster) is None


def test_an_automatic_commit_needs_no_other(cluster: VirtualCluster) -> None:
    consumer = _member(cluster, enable_auto_commit=True)
    _idle(cluster, consumer, 10)
    with cluster.virtual_broker.faults.observe(OffsetCommitRequest) as seen:
        consumer.close()
    assert len(seen) <= 1


@pytest.mark.parametrize("request_kind", [OffsetFetchRequest, OffsetCommitRequest])
def test_a_coordinator_that_does_not_answer_holds_up_the_end_for_a_moment_only(
    cluster: VirtualCluster, request_kind: type
) -> None:
    consumer = _member(cluster)
    consumer.commit({_PARTITION: _AT})
    _idle(cluster, consumer)
    before = cluster.now()
    with cluster.virtual_broker.faults.error(request_kind, COORDINATOR_LOAD_IN_PROGRESS):
        consumer.close()
    assert (cluster.now() - before).total_seconds() < 5


class Commits:
    """The commit manager, as far as a keeper needs it: each look-up is answered at once."""

    is_stranded = False

    def __init__(self) -> None:
        self.given: list[Commit] = []

    def was_given(self, partition: TopicPartition, since: int) -> bool:
        return False

    def lookup(self, now: int, partitions: frozenset[TopicPartition], done: Any, deadline: int) -> None:
        done(now, dict.fromkeys(partitions, _AT))

    def commit(self, now: int, call: Commit) -> None:
        self.given.append(call)

    def after(self, now: int, partitions: Any, then: Any, *, patient: bool = True) -> None:
        then(now)


class Membership:
    managed = True
    known_session_ms = None

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def tenure(self, partition: TopicPartition) -> PartitionState:
        return self._subscription.partitions[partition]


def test_a_member_that_is_killed_has_committed_what_stood_still_within_the_last_day() -> None:
    other = TopicPartition("t", 1)
    subscription = Subscription()
    subscription.assign([_PARTITION, other])
    for partition in (_PARTITION, other):
        subscription.position(partition, 3, None)
    commits = Commits()
    keeper = OffsetKeeper(
        cast(Any, commits), cast(Any, Membership(subscription)), subscription, 30_000, lambda: False
    )
    hour = 3_600_000
    for now in range(0, 73 * hour, hour):
        # The busy one is committed by whoever reads it.
        subscription.partitions[other].offset += 1
        keeper.poll(now)
    assert len(commits.given) == 5, "at each look but the first"
    assert all(each.offsets == {_PARTITION: _AT} and each.id == 0 for each in commits.given)
