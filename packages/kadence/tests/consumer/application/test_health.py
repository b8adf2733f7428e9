"""`ready`: what keeps a consumer from reading, and what the application itself ends by its next poll."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.virtual import VirtualCluster

from kadence import TopicPartition
from kadence.consumer.shared_partition import NotFetchedReason, Unfetched

READS_ON = {
    NotFetchedReason.PAUSED,
    NotFetchedReason.BUFFERED,
    NotFetchedReason.MEMORY,
    NotFetchedReason.RANGE_FETCHED,
    NotFetchedReason.AWAITING_TURN,
    NotFetchedReason.REVOKING,
}
"""An application that works for long between two polls has these. Others: it does not read, or has not begun to."""


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    made = VirtualCluster()
    made.create_topic("t", 2)
    yield made
    made.close()


@pytest.mark.parametrize("reason", NotFetchedReason, ids=lambda reason: reason.name)
def test_ready_by_the_reason_that_all_partitions_have(
    cluster: VirtualCluster, reason: NotFetchedReason
) -> None:
    consumer = cluster.consumer(group_id="g")
    consumer.subscribe("t")
    while not consumer.health().ready:
        consumer.poll(0.1)
    partitions = consumer._calls._shared_state.shared_partitions
    for number in range(2):
        partitions[TopicPartition("t", number)].unfetched = Unfetched(reason, 0, "")
        # One of two that is read is enough.
        assert consumer.health().ready is (number == 0 or reason in READS_ON)
    consumer.close()
