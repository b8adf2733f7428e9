"""What a static member that came back makes of the coordinator's answer; the rest stands in test_classic_group.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kadence.connection.request import Completed, Request
from kadence.consumer.group.classic_orphans import Orphans
from kadence.protocol.describe_groups import DescribedGroup, DescribeGroupsResponse
from kadence.types import TopicPartition


def asked(answer: DescribeGroupsResponse) -> list[TopicPartition]:
    """What is found in this answer, of a topic with two partitions."""
    topic = SimpleNamespace(partitions=[SimpleNamespace(partition=n) for n in range(2)])
    coordinator: Any = SimpleNamespace(node_id=1, check=lambda *given: None)
    subscription: Any = SimpleNamespace(topics=frozenset({"t"}))
    metadata: Any = SimpleNamespace(cluster=SimpleNamespace(topics={"t": topic}))
    config: Any = SimpleNamespace(
        group_id="g",
        heartbeat_interval_ms=3_000,
        request_timeout_ms=30_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1_000,
    )
    orphans = Orphans(coordinator, subscription, metadata, config)
    orphans.came_back(5)
    orphans.assigned(0, 5)
    requests: list[Request] = []
    assert orphans.poll(0, requests) == 6_000
    orphans.poll(6_000, requests)
    found = orphans.found(6_010, Completed(requests[0], answer, None, 5, 6_010))
    assert orphans.sent is None
    return found


def test_partitions_that_nobody_has() -> None:
    answer = DescribeGroupsResponse(groups=[DescribedGroup(group_state="Stable")])
    assert asked(answer) == [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.mark.parametrize(
    "groups",
    [[], [DescribedGroup(group_state="PreparingRebalance")], [DescribedGroup(error_code=30)]],
    ids=repr,
)
def test_an_answer_that_says_nothing_of_that(groups: list[DescribedGroup]) -> None:
    """Without any group, too, as no broker of Kafka's answers."""
    assert asked(DescribeGroupsResponse(groups=groups)) == []
