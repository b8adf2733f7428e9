"""From where to where a batch query reads."""

from __future__ import annotations

import pytest
from tests.spark.source.memory import MemoryCluster, batch_options

from kadence.errors import UnknownTopicOrPartitionError
from kadence.spark.source.batch import plan_batch
from kadence.spark.source.loss import DataLossError


def planned(cluster: MemoryCluster, **more: str) -> list[str]:
    tasks = plan_batch(batch_options(**more), cluster)
    return sorted(str(piece) for task in tasks for piece in task)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.add("t-0", 10)
    made.add("t-1", 20, start=5)
    made.add("u-0", 3)
    return made


def test_all_of_it(cluster: MemoryCluster) -> None:
    assert planned(cluster) == ["t-0 [0, 10)", "t-1 [5, 20)"]
    assert planned(cluster, subscribePattern="[tu]") == ["t-0 [0, 10)", "t-1 [5, 20)", "u-0 [0, 3)"]
    assert planned(cluster, assign='{"t":[1]}') == ["t-1 [5, 20)"]
    assert planned(cluster, subscribePattern="none") == []


def test_between_offsets_and_times(cluster: MemoryCluster) -> None:
    ranges = planned(cluster, startingOffsets='{"t":{"0":2,"1":-2}}', endingOffsets='{"t":{"0":4,"1":-1}}')
    assert ranges == ["t-0 [2, 4)", "t-1 [5, 20)"]
    assert planned(cluster, startingTimestamp="1003", endingTimestamp="1012") == [
        "t-0 [3, 10)",
        "t-1 [5, 12)",
    ]


def test_an_end_before_the_start_is_nothing(cluster: MemoryCluster) -> None:
    assert planned(cluster, startingTimestamp="1008", endingTimestamp="1006") == []


def test_from_committed_offsets(cluster: MemoryCluster) -> None:
    cluster.group = dict.fromkeys(cluster.logs, 7)
    ranges = planned(cluster, startingOffsets="committed", kafka_group_id="g")
    assert ranges == ["t-0 [7, 10)", "t-1 [7, 20)"]
    assert cluster.commits == []


def test_offsets_that_the_log_does_not_hold(cluster: MemoryCluster) -> None:
    early = {"startingOffsets": '{"t":{"0":0,"1":0}}'}
    with pytest.raises(DataLossError, match=r"5 offsets of t-1 were deleted"):
        planned(cluster, **early)
    assert planned(cluster, failOnDataLoss="false", **early) == ["t-0 [0, 10)", "t-1 [5, 20)"]
    late = {"endingOffsets": '{"t":{"0":10,"1":99}}'}
    with pytest.raises(DataLossError, match=r"t-1 ends at 20, below offset 99"):
        planned(cluster, **late)
    assert planned(cluster, failOnDataLoss="false", **late) == ["t-0 [0, 10)", "t-1 [5, 20)"]


def test_a_topic_that_does_not_exist(cluster: MemoryCluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"reads zz, which"):
        planned(cluster, subscribe="t,zz")
