"""Where `auto.offset.reset` had reading begin is committed with the program's first commit, of whatever kind (W1).

Else a restart, or the partition's next owner, applies the policy again: with ``latest``, the default, what was written
meanwhile is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from tests.consumer.support import poll_until, read
from tests.virtual import VirtualCluster

from kadence import OffsetAndMetadata, RebalanceListener, TopicPartition
from kadence.protocol.error_codes import NOT_COORDINATOR
from kadence.protocol.offset_commit import OffsetCommitRequest

_QUIET: Final = TopicPartition("quiet", 0)
_BUSY: Final = TopicPartition("busy", 0)


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    with closing(VirtualCluster()) as made:
        for topic in ("quiet", "busy"):
            made.create_topic(topic, 1)
            made.produce(topic, 20, partitions=1)
        yield made


def _member(cluster: VirtualCluster, protocol: str = "consumer", **settings: Any) -> Any:
    return cluster.make(group_id="g", group_protocol=protocol, enable_auto_commit=False, **settings)


def _subscribed(cluster: VirtualCluster, *topics: str, protocol: str = "consumer", **settings: Any) -> Any:
    consumer = _member(cluster, protocol, **settings)
    consumer.subscribe(topics)
    poll_until(consumer, lambda: len(consumer.assignment()) == len(topics))
    for partition in consumer.assignment():
        consumer.position(partition)
    return consumer


def _committed(consumer: Any) -> int | None:
    at = consumer.committed([_QUIET])[_QUIET]
    return None if at is None else int(at.offset)


def _by_async(consumer: Any, records: Any) -> None:
    ends: list[Exception | None] = []
    consumer.commit_async(records, lambda offsets, error: ends.append(error))
    poll_until(consumer, lambda: ends == [None])


def _by_track(consumer: Any, records: Any) -> None:
    work = consumer.track(records)
    for record in records:
        work.done(record)
    consumer.commit(work)


_KINDS: Final[dict[str, Callable[[Any, Any], None]]] = {
    "records": lambda consumer, records: consumer.commit(records),
    "record": lambda consumer, records: consumer.commit(list(records)[-1]),
    "mapping": lambda consumer, records: consumer.commit(records.next_offsets()),
    "one of a mapping": lambda consumer, records: consumer.commit({_BUSY: 21}),
    "asynchronous": _by_async,
    "track": _by_track,
}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_commit_of_another_partition_brings_along_where_reading_began(
    cluster: VirtualCluster, kind: str, protocol: str
) -> None:
    with _subscribed(cluster, "quiet", "busy", protocol=protocol) as consumer:
        assert _committed(consumer) is None
        cluster.produce("busy", 1, partitions=1)
        records: Any = ()
        while not records:
            records = consumer.poll(1)
        _KINDS[kind](consumer, records)
        assert _committed(consumer) == 20
    cluster.produce("quiet", 5, partitions=1, start=20)
    with _member(cluster, protocol) as consumer:
        consumer.subscribe("quiet")
        assert [record.offset for record in read(consumer, 5)] == [20, 21, 22, 23, 24]


@pytest.mark.parametrize("commit", ["commit", "track"])
def test_a_loop_that_got_nothing_commits_where_it_began(cluster: VirtualCluster, commit: str) -> None:
    """The loop of the docs: it commits after each poll, be it empty."""
    with _subscribed(cluster, "quiet") as consumer:
        records = consumer.poll(1)
        assert not records
        consumer.commit(records if commit == "commit" else consumer.track(records))
        assert _committed(consumer) == 20


def test_what_retention_has_passed_is_committed_where_reading_went_on(cluster: VirtualCluster) -> None:
    with _subscribed(cluster, "quiet") as consumer:
        consumer.commit({_QUIET: 7})
    cluster.virtual_broker.delete_records("quiet", 0, 20)
    with _subscribed(cluster, "quiet", auto_offset_reset="latest") as consumer:
        consumer.commit(consumer.poll(1))
        assert _committed(consumer) == 20


def test_a_record_between_the_revocation_and_the_next_owner_is_read(cluster: VirtualCluster) -> None:
    class Writes(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            cluster.produce("quiet", 1, partitions=1)

    old = _member(cluster)
    old.subscribe(["quiet"], listener=Writes())
    poll_until(old, lambda: bool(old.assignment()))
    old.position(_QUIET)
    old.commit(old.poll(1))
    old.close()
    with _member(cluster) as new:
        new.subscribe("quiet")
        assert [record.offset for record in read(new, 1)] == [20]


def test_polls_tell_once_where_reading_begins(cluster: VirtualCluster) -> None:
    """So that a transaction commits it."""
    with _member(cluster) as consumer:
        consumer.subscribe("quiet")
        told = [consumer.poll(1).next_offsets() for _ in range(10)]
        assert [each for each in told if each] == [{_QUIET: OffsetAndMetadata(20)}]


@pytest.mark.parametrize("place", [5, None], ids=["seek", "seek_to_end"])
def test_where_the_program_sought_is_not_committed_unasked(
    cluster: VirtualCluster, place: int | None
) -> None:
    with _subscribed(cluster, "quiet", "busy") as consumer:
        if place is None:
            consumer.seek_to_end([_QUIET])
        else:
            consumer.seek(_QUIET, place)
        consumer.position(_QUIET)
        consumer.commit({_BUSY: 20})
        assert _committed(consumer) is None


def test_a_commit_that_no_longer_counts_leaves_the_place_to_be_committed(cluster: VirtualCluster) -> None:
    """Its records were read before `auto.offset.reset` chose another place."""
    with _subscribed(cluster, "quiet", "busy", auto_offset_reset="latest") as consumer:
        cluster.produce("quiet", 5, partitions=1, start=20)
        records = read(consumer, 5)
        consumer.pause([_QUIET])
        assert not consumer.poll(2), "the fetch that was on its way has ended"
        cluster.produce("quiet", 5, partitions=1, start=25)
        cluster.virtual_broker.delete_records("quiet", 0, 30)
        consumer.resume([_QUIET])
        poll_until(consumer, lambda: consumer.position(_QUIET) == 30)
        consumer.commit(records)
        consumer.commit({_BUSY: 20})
        assert _committed(consumer) == 30


def test_nothing_that_was_committed_is_taken_back(cluster: VirtualCluster) -> None:
    with _subscribed(cluster, "quiet", "busy", auto_offset_reset="earliest") as consumer:
        consumer.commit_async({_QUIET: 9})
        consumer.commit({_BUSY: 1})
        assert _committed(consumer) == 9
        consumer.commit({_BUSY: 2})
        assert _committed(consumer) == 9


def test_what_a_transaction_committed_is_not_taken_back(cluster: VirtualCluster) -> None:
    with (
        _subscribed(cluster, "quiet", "busy", auto_offset_reset="earliest") as consumer,
        closing(cluster.producer(transactional_id="tx")) as producer,
    ):
        poll_until(consumer, lambda: consumer.position(_QUIET) == 20)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({_QUIET: 20}, consumer.group_metadata())
        producer.commit_transaction()
        consumer.commit({_BUSY: 20})
        assert _committed(consumer) == 20


def test_it_is_committed_again_where_the_first_try_failed(cluster: VirtualCluster) -> None:
    with _subscribed(cluster, "quiet", "busy") as consumer:
        with cluster.virtual_broker.faults.error(OffsetCommitRequest, NOT_COORDINATOR, times=1):
            consumer.commit({_BUSY: 20})
        assert _committed(consumer) == 20


def test_it_is_no_part_of_the_programs_commit(cluster: VirtualCluster) -> None:
    """A topic that is deleted meanwhile does not make the commit of another fail."""
    with _subscribed(cluster, "quiet", "busy") as consumer:
        cluster.delete_topic("quiet")
        consumer.commit({_BUSY: 20})
        at = consumer.committed([_BUSY])[_BUSY]
        assert at is not None
        assert at.offset == 20
