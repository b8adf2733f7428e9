"""Commits of partitions that are not this member's, and of more than one request takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from tests.consumer.support import poll_until
from tests.virtual import VirtualCluster

from kadence import OffsetAndMetadata, TopicPartition
from kadence.errors import CommitFailedError, OffsetMetadataTooLargeError
from kadence.protocol.error_codes import NOT_COORDINATOR
from kadence.protocol.offset_commit import OffsetCommitRequest

_OTHER: Final = TopicPartition("other", 0)


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    with closing(VirtualCluster()) as made:
        made.create_topic("t", 2)
        made.create_topic("other", 1)
        yield made


def _member(cluster: VirtualCluster, protocol: str, *topics: str) -> Any:
    consumer = cluster.consumer(group_id="g", group_protocol=protocol, enable_auto_commit=False)
    consumer.subscribe(topics)
    poll_until(consumer, lambda: bool(consumer.assignment()))
    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_partition_of_another_topic_is_committed_as_any_client_may(
    cluster: VirtualCluster, protocol: str
) -> None:
    with _member(cluster, protocol, "t") as consumer:
        consumer.commit({_OTHER: 5, TopicPartition("t", 0): 1})
        assert consumer.committed([_OTHER])[_OTHER] == OffsetAndMetadata(5)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_partition_that_was_never_given_to_this_member_is_refused_with_the_right_words(
    cluster: VirtualCluster, protocol: str
) -> None:
    settings = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
    with _member(cluster, protocol, "t") as one, cluster.consumer(**settings) as two:
        two.subscribe("t")

        def is_shared() -> bool:
            two.poll(0)
            return len(one.assignment()) == 1 == len(two.assignment())

        poll_until(one, is_shared)
        (theirs,) = one.assignment()
        with pytest.raises(
            CommitFailedError, match=r"^t-\d not assigned to this member\. It never was"
        ) as raised:
            two.commit({theirs: 5})
        assert "max.poll.interval.ms" not in str(raised.value)


def test_a_partition_of_a_topic_that_left_the_subscription_is_refused(cluster: VirtualCluster) -> None:
    """Another member may read it by now."""
    with _member(cluster, "consumer", "t", "other") as consumer:
        poll_until(consumer, lambda: _OTHER in consumer.assignment())
        consumer.subscribe("t")
        poll_until(consumer, lambda: _OTHER not in consumer.assignment())
        with pytest.raises(CommitFailedError, match=r"other-0 not assigned to this member \(any more\)"):
            consumer.commit({_OTHER: 5})


@pytest.mark.parametrize("protocol", ["classic", "consumer", "by hand"])
def test_a_commit_that_one_request_cannot_take_goes_out_in_parts(
    cluster: VirtualCluster, protocol: str
) -> None:
    cluster.create_topic("many", 400)
    partitions = [TopicPartition("many", number) for number in range(400)]
    offsets = {p: OffsetAndMetadata(p.partition, metadata="x" * 4_000) for p in partitions}
    if protocol == "by hand":
        consumer = cluster.consumer(group_id="g", enable_auto_commit=False)
        consumer.assign(partitions)
    else:
        consumer = _member(cluster, protocol, "many")
    with consumer:
        with cluster.virtual_broker.faults.observe(OffsetCommitRequest) as seen:
            consumer.commit(offsets)
            assert len(seen) == 4
        assert consumer.committed(partitions) == offsets
        # What comes meanwhile is later, and wins.
        later = {partitions[-1]: OffsetAndMetadata(7)}
        consumer.commit_async(offsets)
        consumer.commit(later)
        assert consumer.committed(partitions) == offsets | later
        with cluster.virtual_broker.faults.error(OffsetCommitRequest, NOT_COORDINATOR, times=1):
            consumer.commit(offsets)
        assert consumer.committed(partitions) == offsets
        wrong = {**offsets, partitions[399]: OffsetAndMetadata(1, metadata="x" * 5_000)}
        with pytest.raises(OffsetMetadataTooLargeError):
            consumer.commit(wrong)
