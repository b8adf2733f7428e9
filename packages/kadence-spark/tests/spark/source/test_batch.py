"""From where to where a batch query reads."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.spark.source.memory import MemoryCluster, batch_options

from kadence.errors import ConfigError, UnknownTopicOrPartitionError
from kadence.types import TopicPartition
from kadence_spark.source.batch import plan_batch
from kadence_spark.source.loss import DataLossError


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


def test_an_end_before_the_start_is_refused(cluster: MemoryCluster) -> None:
    named = {"startingOffsets": '{"t":{"0":6,"1":6}}', "endingOffsets": '{"t":{"0":4,"1":6}}'}
    with pytest.raises(
        ConfigError, match=r"end before it starts \(startingOffsets, endingOffsets\): t-0 from 6 to 4$"
    ):
        planned(cluster, failOnDataLoss="false", **named)
    with pytest.raises(
        ConfigError, match=r"\(startingTimestamp, endingTimestamp\): t-0 from 8 to 6; t-1 from 8 to 6$"
    ):
        planned(cluster, startingTimestamp="1008", endingTimestamp="1006")
    cluster.group = dict.fromkeys(cluster.logs, 7)
    with pytest.raises(ConfigError, match=r"\(committed, endingOffsets\): t-0 from 7 to 4"):
        planned(cluster, kafka_group_id="g", **named | {"startingOffsets": "committed"})


def test_an_end_where_the_start_is_is_nothing(cluster: MemoryCluster) -> None:
    assert planned(cluster, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest") == []
    assert planned(cluster, startingTimestamp="1008", endingTimestamp="1008") == []


def test_a_big_partition_is_split_by_bytes(cluster: MemoryCluster) -> None:
    tasks = plan_batch(batch_options(maxBytesPerPartition="1000"), cluster)
    assert sorted([str(piece) for piece in task] for task in tasks) == [
        ["t-0 [0, 10)"],
        ["t-1 [12, 20)"],
        ["t-1 [5, 12)"],
    ]
    plan_batch(batch_options(), cluster)
    assert len(cluster.sampled) == 1, "nobody reads records to plan by offsets"


def test_all_that_an_end_left_was_deleted(cluster: MemoryCluster) -> None:
    ended = {"endingOffsets": '{"t":{"0":3,"1":4}}'}
    with pytest.raises(
        DataLossError, match="the log of t-1 begins at 5, above offset 4 where the query ends"
    ):
        planned(cluster, **ended)
    assert planned(cluster, failOnDataLoss="false", **ended) == ["t-0 [0, 3)"]


def test_both_ends_come_from_one_look(cluster: MemoryCluster) -> None:
    """Retention and producers at work between two looks would give a range that no log ever had."""
    planned(cluster)
    assert cluster.asked == ["partitions", "log_ranges"]


def test_a_record_that_comes_between_the_look_at_ends_and_at_times(cluster: MemoryCluster) -> None:
    late = {
        "startingTimestamp": "1012",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "1022",
    }
    ranges = cluster.log_ranges

    def and_then_more(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        found = ranges(partitions)
        cluster.produce("t-1", 5)
        return found

    cluster.log_ranges = and_then_more  # type: ignore[method-assign]
    assert planned(cluster, **late) == ["t-1 [12, 20)"]


def test_from_committed_offsets(cluster: MemoryCluster) -> None:
    cluster.group = dict.fromkeys(cluster.logs, 7)
    ranges = planned(cluster, startingOffsets="committed", kafka_group_id="g")
    assert ranges == ["t-0 [7, 10)", "t-1 [7, 20)"]
    assert cluster.commits == []
    # The group may go on committing: an offset looked up after the ends could lie beyond them.
    assert cluster.asked == ["partitions", "committed", "log_ranges"]


def test_offsets_that_the_log_does_not_hold(cluster: MemoryCluster) -> None:
    early = {"startingOffsets": '{"t":{"0":0,"1":0}}'}
    with pytest.raises(DataLossError, match=r"5 offsets of t-1 were deleted"):
        planned(cluster, **early)
    assert planned(cluster, failOnDataLoss="false", **early) == ["t-0 [0, 10)", "t-1 [5, 20)"]
    late = {"endingOffsets": '{"t":{"0":10,"1":99}}'}
    with pytest.raises(DataLossError, match=r"t-1 ends at 20, below offset 99"):
        planned(cluster, **late)
    assert planned(cluster, failOnDataLoss="false", **late) == ["t-0 [0, 10)", "t-1 [5, 20)"]


def test_all_that_is_there_is_read_as_the_error_says(cluster: MemoryCluster) -> None:
    for wrong in (
        {"startingOffsets": '{"t":{"0":0,"1":0}}'},
        {"endingOffsets": '{"t":{"0":10,"1":99}}'},
        {"endingOffsets": '{"t":{"0":3,"1":4}}'},
    ):
        with pytest.raises(
            DataLossError,
            match="To read all that is there begin with startingOffsets=earliest and no other start or end",
        ):
            planned(cluster, **wrong)
    assert planned(cluster, startingOffsets="earliest") == ["t-0 [0, 10)", "t-1 [5, 20)"]


def test_a_topic_that_does_not_exist(cluster: MemoryCluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"reads zz, which"):
        planned(cluster, subscribe="t,zz")
