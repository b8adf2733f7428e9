"""The driver's side of a stream, against a cluster in memory and under virtual time."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from tests.patience import until
from tests.spark.source.memory import FakePace, MemoryCluster, broker_failure, stream_options

from kadence.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kadence_spark import lag
from kadence_spark.source.cluster import DISCOVERY_MS
from kadence_spark.source.commits import REPEAT_MS, GroupInUseError
from kadence_spark.source.driver import StreamDriver
from kadence_spark.source.loss import DataLossError
from kadence_spark.source.offsets import NOT_BEGUN, Json, Point

COMMITTING = {"kafka_group_id": "g", "commitOffsets": "true"}


def driver_of(cluster: MemoryCluster, pace: FakePace | None = None, **more: str) -> StreamDriver:
    cluster.pace = pace or FakePace()
    return StreamDriver(stream_options(**more), cluster.connect, cluster.pace)


def planned(driver: StreamDriver, start: Json, end: Json) -> list[str]:
    return sorted(str(piece) for task in driver.plan(start, end) for piece in task)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.add("t-0", 10)
    made.add("t-1", 20, start=5)
    return made


def test_nothing_is_asked_before_the_first_offset(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster)
    assert cluster.connections == 0
    assert repr(driver) == "<StreamDriver Subscription(names=('t',)) not connected>"
    driver.close()
    assert cluster.closed == 0
    driver.latest(NOT_BEGUN)
    driver.close()
    driver.close()
    assert (cluster.connections, cluster.closed) == (1, 1)


def test_first_batch_from_earliest_carries_its_start(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, startingOffsets="earliest")
    end = driver.latest(NOT_BEGUN)
    assert end == {"#t": {"0": 0, "1": 5}, "t": {"0": 10, "1": 20}}
    assert planned(driver, NOT_BEGUN, end) == ["t-0 [0, 10)", "t-1 [5, 20)"]
    assert driver.report() == {"t": {"0": 10, "1": 20}}


def test_idle_returns_the_very_start(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, startingOffsets="earliest", idlePollMs="200")
    end = driver.latest(NOT_BEGUN)
    again = json.loads(json.dumps(end))
    waited = []
    for _ in range(6):
        before = pace.now_ms()
        assert driver.latest(again) is again
        waited.append(pace.now_ms() - before)
    assert waited == [0, 25, 50, 100, 200, 200]


def test_a_quiet_source_costs_the_batches_of_another_nothing(cluster: MemoryCluster) -> None:
    """A union: Spark asks this one before each batch, and the other one has news each time."""
    pace = FakePace()
    driver = driver_of(cluster, pace, startingOffsets="earliest")
    end = driver.latest(NOT_BEGUN)
    for _ in range(20):
        pace.advance(70)  # a batch
        before = pace.now_ms()
        assert driver.latest(end) is end
        assert pace.now_ms() == before


def test_of_idle_sources_the_first_waits_for_all(cluster: MemoryCluster) -> None:
    pace = FakePace()
    sources = [driver_of(cluster, pace, startingOffsets="earliest") for _ in range(5)]
    ends = [source.latest(NOT_BEGUN) for source in sources]
    waited = [0] * 5
    for _ in range(12):
        for place, source in enumerate(sources):
            before = pace.now_ms()
            source.latest(ends[place])
            waited[place] += pace.now_ms() - before
        pace.advance(10)
    assert waited[0] > 3_000
    assert sum(waited[1:]) < 300


def test_idle_wakes_early_on_new_data(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, startingOffsets="earliest", idlePollMs="10000")
    end = driver.latest(NOT_BEGUN)
    driver.latest(end)  # which returns at once: there may be other sources
    pace.on_sleep = lambda: cluster.produce("t-0", 1)
    following = driver.latest(end)
    assert following == {"t": {"0": 11, "1": 20}}
    assert len(pace.slept) == 1
    assert planned(driver, end, following) == ["t-0 [10, 11)"]


def test_a_batch_waits_for_one_look_and_an_idle_query_looks_twice(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, startingOffsets="earliest", idlePollMs="400")
    end = driver.latest(NOT_BEGUN)
    cluster.asked.clear()
    driver.latest(end)
    assert cluster.asked == ["log_ranges"]
    cluster.asked.clear()
    driver.latest(end)
    assert cluster.asked == ["log_ranges", "log_ranges"]  # before and after it has waited for records
    cluster.produce("t-0", 1)
    cluster.asked.clear()
    driver.latest(end)
    assert cluster.asked == ["log_ranges"]


def test_a_producer_at_work_while_the_start_is_looked_up_is_no_loss(cluster: MemoryCluster) -> None:
    cluster.on_question = lambda what: cluster.produce("t-0", 5) if what == "log_ends" else None
    assert driver_of(cluster).latest(NOT_BEGUN)["#t"] == {"0": 15, "1": 20}


def test_start_at_latest_survives_a_failed_first_batch(cluster: MemoryCluster) -> None:
    """The batch that pins the start down is empty; what comes later is read from there, whoever asks again."""
    first = driver_of(cluster)
    end = first.latest(NOT_BEGUN)
    assert end == {"#t": {"0": 10, "1": 20}, "t": {"0": 10, "1": 20}}
    assert planned(first, NOT_BEGUN, end) == []
    cluster.produce("t-0", 60)
    # The process dies with batch 0 in the log; the next one is asked to plan it again, then goes on.
    second = driver_of(cluster)
    assert planned(second, NOT_BEGUN, end) == []
    following = second.latest(end)
    assert planned(second, end, following) == ["t-0 [10, 70)"]


def test_a_first_batch_with_records_is_planned_again_the_same(cluster: MemoryCluster) -> None:
    """Batch 0 failed, the log moved on meanwhile: neither its start nor its end may."""
    end = driver_of(cluster, startingOffsets="earliest").latest(NOT_BEGUN)
    cluster.produce("t-0", 60)
    cluster.logs[next(iter(cluster.logs))].start = 3
    assert planned(driver_of(cluster, startingOffsets="earliest"), NOT_BEGUN, end) == [
        "t-0 [0, 10)",
        "t-1 [5, 20)",
    ]


def test_restart_with_no_new_data_is_no_batch(cluster: MemoryCluster) -> None:
    end = driver_of(cluster, startingOffsets="earliest").latest(NOT_BEGUN)
    again = json.loads(json.dumps(end))
    restarted = driver_of(cluster)
    restarted.prepare_available_now()
    assert restarted.latest(again) is again


def test_start_at_times_and_offsets(cluster: MemoryCluster) -> None:
    by_time = driver_of(cluster, startingTimestamp="1007")
    assert by_time.latest(NOT_BEGUN)["#t"] == {"0": 7, "1": 7}
    by_offset = driver_of(cluster, startingOffsets='{"t":{"0":4,"1":-1}}')
    assert by_offset.latest(NOT_BEGUN) == {"#t": {"0": 4, "1": 20}, "t": {"0": 10, "1": 20}}


def test_start_times_without_a_record(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match=r"no record of t-0 is as late as 1015"):
        driver_of(cluster, startingTimestamp="1015").latest(NOT_BEGUN)
    lenient = driver_of(cluster, startingTimestamp="1015", startingOffsetsByTimestampStrategy="latest")
    assert lenient.latest(NOT_BEGUN)["#t"] == {"0": 10, "1": 15}


def test_start_offsets_must_name_all_partitions(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match=r"lacks t-1 and names t-7"):
        driver_of(cluster, startingOffsets='{"t":{"0":4,"7":1}}').latest(NOT_BEGUN)


def test_start_at_committed_offsets_and_earliest_where_there_are_none(cluster: MemoryCluster) -> None:
    cluster.group[next(iter(cluster.logs))] = 6
    driver = driver_of(cluster, startingOffsets="committed", kafka_group_id="g")
    assert driver.latest(NOT_BEGUN) == {"#t": {"0": 6, "1": 5}, "t": {"0": 10, "1": 20}}


def test_a_missing_topic_is_named_at_once(cluster: MemoryCluster) -> None:
    pace = FakePace()
    with pytest.raises(UnknownTopicOrPartitionError, match=r"reads u, which"):
        driver_of(cluster, pace, subscribe="t,u").latest(NOT_BEGUN)
    assert pace.slept == []
    with pytest.raises(UnknownTopicOrPartitionError, match=r"reads t-9, which"):
        driver_of(cluster, assign='{"t":[0,9]}').latest(NOT_BEGUN)


def test_a_pattern_may_match_nothing_yet(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, subscribePattern="late.*")
    assert driver.latest(NOT_BEGUN) == {}
    cluster.add("later-0", 4)
    pace.advance(DISCOVERY_MS)
    assert driver.latest(NOT_BEGUN) == {"#later": {"0": 0}, "later": {"0": 4}}


STARTS_LATER = [
    {},
    {"startingTimestamp": "1"},
    {"startingOffsets": "committed", "kafka_group_id": "g"},
]


@pytest.mark.parametrize("start", STARTS_LATER, ids=["latest", "time", "committed"])
def test_a_query_without_partitions_has_begun_all_the_same(
    cluster: MemoryCluster, start: dict[str, str]
) -> None:
    """Its first batch is empty and holds no partition. What comes while the query is down begins at its earliest."""
    end = driver_of(cluster, None, subscribePattern="later.*", **start).latest(NOT_BEGUN)
    assert end == {}
    assert end != NOT_BEGUN, "Spark takes an end that equals the start for no batch"
    cluster.add("later-0", 50)
    restarted = driver_of(cluster, None, subscribePattern="later.*", **start)
    following = restarted.latest(json.loads(json.dumps(end)))
    assert planned(restarted, end, following) == ["later-0 [0, 50)"]


@pytest.mark.parametrize("pattern", ["later.*", "empty"], ids=["no topic", "no record"])
def test_a_query_that_began_at_earliest_reads_all_whatever_its_options_are_later(
    cluster: MemoryCluster, pattern: str
) -> None:
    """Options that say where a query begins have a say once, also where there was nothing to read then."""
    cluster.add("empty-0")
    first = driver_of(cluster, None, subscribePattern=pattern, startingOffsets="earliest")
    (end,) = run_available_now(first, NOT_BEGUN)
    for topic in ("later", "empty"):
        cluster.add(f"{topic}-0", 50)
    restarted = driver_of(cluster, None, subscribePattern=pattern)
    assert planned(restarted, end, restarted.latest(end)) == [f"{pattern.rstrip('.*')}-0 [0, 50)"]


def test_a_nightly_query_without_partitions_has_begun_all_the_same(cluster: MemoryCluster) -> None:
    night = driver_of(cluster, None, subscribePattern="later.*")
    assert run_available_now(night, NOT_BEGUN) == [{}]
    cluster.add("later-0", 50)
    next_night = driver_of(cluster, None, subscribePattern="later.*")
    assert run_available_now(next_night, {}) == [{"#later": {"0": 0}, "later": {"0": 50}}]


def test_a_query_whose_only_topic_was_deleted_reads_all_of_the_new_one_after_a_restart(
    cluster: MemoryCluster,
) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, failOnDataLoss="false")
    end = driver.latest(NOT_BEGUN)
    pace.advance(DISCOVERY_MS)
    cluster.drop("t-0")
    cluster.drop("t-1")
    gone = driver.latest(end)
    assert gone == {}
    cluster.add("t-0", 50)
    again = driver_of(cluster, None, failOnDataLoss="false")
    assert planned(again, gone, again.latest(gone)) == ["t-0 [0, 50)"]


def test_new_partitions_begin_at_their_earliest(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace)
    end = driver.latest(NOT_BEGUN)
    cluster.add("t-2", 9)
    pace.advance(DISCOVERY_MS)
    following = driver.latest(end)
    assert following == {"#t": {"2": 0}, "t": {"0": 10, "1": 20, "2": 9}}
    assert planned(driver, end, following) == ["t-2 [0, 9)"]
    # Retention goes on while that batch waits to be planned again: its range does not change.
    cluster.add("t-2", 9, start=5)
    assert planned(driver_of(cluster), end, following) == ["t-2 [0, 9)"]


def test_what_was_deleted_of_a_new_partition_is_a_loss_and_of_a_new_topic_it_is_not(
    cluster: MemoryCluster,
) -> None:
    """Spark's connector reports both. But whoever adds an old topic to a query expects what is left of it."""
    end = driver_of(cluster).latest(NOT_BEGUN)
    cluster.add("u-0", 9, start=3)
    following = driver_of(cluster, subscribe="t,u").latest(end)
    assert following == {"#u": {"0": 3}, "t": {"0": 10, "1": 20}, "u": {"0": 9}}
    cluster.add("t-2", 9, start=2)
    with pytest.raises(DataLossError, match=r"2 offsets of t-2 were deleted .* begins at 2"):
        driver_of(cluster, subscribe="t,u").latest(following)
    lenient = driver_of(cluster, failOnDataLoss="false", subscribe="t,u")
    assert planned(lenient, following, lenient.latest(following)) == ["t-2 [2, 9)"]


def test_an_empty_new_partition_makes_no_batch(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace)
    end = driver.latest(NOT_BEGUN)
    cluster.add("t-2")
    pace.advance(DISCOVERY_MS)
    assert driver.latest(end) is end
    cluster.produce("t-0", 1)
    assert driver.latest(end) == {"#t": {"2": 0}, "t": {"0": 11, "1": 20, "2": 0}}


# ---------------------------------------------------------------- limits


def test_max_offsets_per_trigger(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert driver.latest(NOT_BEGUN)["t"] == {"0": 4, "1": 11}
    assert driver.latest(NOT_BEGUN, unlimited=True)["t"] == {"0": 10, "1": 20}


def test_max_bytes_per_partition_splits_by_sizes_at_both_ends(cluster: MemoryCluster) -> None:
    """``t-0`` grows from 100 to 300 bytes a record on its way, ``t-1`` has 100."""
    cluster.add("t-0", 10_000, late_bytes=300)
    cluster.add("t-1", 5_000)
    driver = driver_of(cluster, startingOffsets="earliest", maxBytesPerPartition="500k")
    end = driver.latest(NOT_BEGUN)
    assert cluster.sampled == []
    assert planned(driver, NOT_BEGUN, end) == [
        "t-0 [0, 2500)",
        "t-0 [2500, 5000)",
        "t-0 [5000, 7500)",
        "t-0 [7500, 10000)",
        "t-1 [0, 5000)",
    ]
    tails = {str(p): ends for p, ends in cluster.sampled[-1].items()}
    assert tails == {"t-0": (9_000, 10_000), "t-1": (4_000, 5_000)}


def test_max_bytes_per_trigger_follows_samples(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, startingOffsets="earliest", maxBytesPerTrigger="1000")
    assert driver.latest(NOT_BEGUN)["t"] == {"0": 4, "1": 11}
    both = driver_of(cluster, startingOffsets="earliest", maxBytesPerTrigger="1000", maxOffsetsPerTrigger="5")
    assert both.latest(NOT_BEGUN)["t"] == {"0": 2, "1": 8}


def test_min_offsets_wait_for_volume_or_delay(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(
        cluster,
        pace,
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="10s",
        idlePollMs="0",
    )
    end = driver.latest(NOT_BEGUN)
    cluster.produce("t-0", 4)
    assert driver.latest(end) is end
    cluster.produce("t-0", 1)
    end = driver.latest(end)
    assert end["t"]["0"] == 15
    cluster.produce("t-0", 1)
    assert driver.latest(end) is end
    pace.advance(10_000)
    assert driver.latest(end)["t"]["0"] == 16


# ---------------------------------------------------------------- availableNow


def run_available_now(driver: StreamDriver, start: Json) -> list[Json]:
    driver.prepare_available_now()
    seen = [start]
    while (end := driver.latest(seen[-1])) is not seen[-1]:
        seen.append(end)
        assert len(seen) < 100
    return seen[1:]


def test_available_now_ends_under_constant_production(cluster: MemoryCluster) -> None:
    driver = driver_of(
        cluster, startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="3"
    )
    original = cluster.log_ends

    def busy(partitions: Any) -> Any:
        cluster.produce("t-0", 100)
        cluster.add("t-9", 50)
        return original(partitions)

    driver.prepare_available_now()
    cluster.log_ends = busy  # type: ignore[method-assign]
    seen: list[Json] = [NOT_BEGUN]
    while (end := driver.latest(seen[-1])) is not seen[-1]:
        seen.append(end)
    assert seen[-1]["t"] == {"0": 10, "1": 20}
    assert len(seen) == 4


def test_available_now_commits_its_last_offsets(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, None, startingOffsets="earliest", maxOffsetsPerTrigger="10", **COMMITTING)
    run_available_now(driver, NOT_BEGUN)
    assert {str(p): offset for p, offset in cluster.group.items()} == {"t-0": 10, "t-1": 20}


def test_trigger_once_reads_what_is_there(cluster: MemoryCluster) -> None:
    """Spark then asks without a limit: minOffsetsPerTrigger must not make it read nothing, and end."""
    driver = driver_of(cluster, startingOffsets="earliest", minOffsetsPerTrigger="1000", idlePollMs="0")
    end = driver.latest(NOT_BEGUN)
    cluster.produce("t-0", 4)
    assert driver.latest(end) is end
    assert driver.latest(end, unlimited=True)["t"] == {"0": 14, "1": 20}


def test_available_now_tries_the_last_commit_even_after_a_failure(cluster: MemoryCluster) -> None:
    cluster.commit_failures = [broker_failure()]
    driver = driver_of(cluster, None, startingOffsets="earliest", **COMMITTING)
    run_available_now(driver, NOT_BEGUN)
    assert {str(p): offset for p, offset in cluster.group.items()} == {"t-0": 10, "t-1": 20}


def test_available_now_from_latest_pins_the_start_down(cluster: MemoryCluster) -> None:
    assert run_available_now(driver_of(cluster), NOT_BEGUN) == [
        {"#t": {"0": 10, "1": 20}, "t": {"0": 10, "1": 20}}
    ]


def test_available_now_with_a_start_above_its_target_is_no_loss(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster)
    driver.prepare_available_now()
    cluster.produce("t-0", 5)
    assert driver.latest(NOT_BEGUN) == {"#t": {"0": 15, "1": 20}, "t": {"0": 15, "1": 20}}


# ---------------------------------------------------------------- data loss


START: Json = {"t": {"0": 4, "1": 20}}


def test_retention_gap(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.add("t-0", 10, start=7)
    with pytest.raises(
        DataLossError, match=r"3 offsets of t-0 .* offset 4 was next, .* begins at 7.*failOnDataLoss"
    ):
        driver_of(cluster).latest(START)
    lenient = driver_of(cluster, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        end = lenient.latest(START)
    assert "data loss, going on" in caplog.text
    assert end == {"#t": {"0": 7}, "t": {"0": 10, "1": 20}}
    assert planned(lenient, START, end) == ["t-0 [7, 10)"]


def test_retention_of_everything(cluster: MemoryCluster) -> None:
    cluster.add("t-0", 10, start=10)
    lenient = driver_of(cluster, failOnDataLoss="false")
    end = lenient.latest(START)
    assert end["t"] == {"0": 10, "1": 20}
    assert planned(lenient, START, end) == []
    assert lenient.latest(end) is end


def test_a_log_cut_short_where_no_ids_are_known(cluster: MemoryCluster) -> None:
    cluster.add("t-0", 2)
    with pytest.raises(DataLossError, match=r"t-0 ends at 2, below offset 4.*recreated, or an unclean"):
        driver_of(cluster).latest(START)
    lenient = driver_of(cluster, failOnDataLoss="false")
    end = lenient.latest(START)
    assert end == {"#t": {"0": 2}, "t": {"0": 2, "1": 20}}
    assert planned(lenient, START, end) == []
    cluster.produce("t-0", 3)
    following = lenient.latest(end)
    assert planned(lenient, end, following) == ["t-0 [2, 5)"]


def test_a_log_cut_short_of_the_same_topic_is_an_unclean_election(cluster: MemoryCluster) -> None:
    cluster.ids["t"] = "one"
    cluster.add("t-0", 2)
    start = {"@t=one": {}, **START}
    with pytest.raises(
        DataLossError, match=r"t-0 ends at 2.*the same \(id one\), so an unclean leader election"
    ):
        driver_of(cluster).latest(start)
    end = driver_of(cluster, failOnDataLoss="false").latest(start)
    assert end == {"#t": {"0": 2}, "@t=one": {}, "t": {"0": 2, "1": 20}}


@pytest.mark.parametrize("ends", [(50, 60), (2, 3), (4, 20), (0, 0), (9,), (9, 9, 9)])
def test_a_topic_made_anew_is_a_loss_whatever_its_length(
    cluster: MemoryCluster, ends: tuple[int, ...]
) -> None:
    cluster.ids["t"] = "one"
    end = driver_of(cluster, startingOffsets="earliest").latest(NOT_BEGUN)
    assert end == {"#t": {"0": 0, "1": 5}, "@t=one": {}, "t": {"0": 10, "1": 20}}
    cluster.make_anew("t", *ends)
    with pytest.raises(DataLossError, match=r"'t' was deleted and recreated.* id one, .* id one'") as caught:
        driver_of(cluster).latest(end)
    assert "gone" not in str(caught.value).split(". ")[1]  # its missing partitions are the same loss
    lenient = driver_of(cluster, failOnDataLoss="false")
    following = lenient.latest(end)
    # All of the new topic, and its id.
    assert following == {
        "#t": {str(number): 0 for number in range(len(ends))},
        "@t=one'": {},
        "t": {str(number): until for number, until in enumerate(ends)},
    }
    expected = [f"t-{number} [0, {until})" for number, until in enumerate(ends) if until]
    assert planned(lenient, end, following) == expected
    assert {piece.topic_id for task in lenient.plan(end, following) for piece in task} <= {"one'"}
    assert lenient.latest(following) is following
    assert driver_of(cluster).latest(following) is following


ONE, TWO, THREE = ("Zc3yHpHcQ-SEaDD5bUYm7w", "Yc3yHpHcQ-SEaDD5bUYm7w", "Xc3yHpHcQ-SEaDD5bUYm7w")


def moved(cluster: MemoryCluster, *ends: int) -> Json:
    """The end of a query's first batch; then a copy of its topic is in place of it."""
    cluster.ids["t"] = ONE
    end = driver_of(cluster, startingOffsets="earliest").latest(NOT_BEGUN)
    cluster.make_anew("t", *ends)
    cluster.ids["t"] = TWO
    return end


def test_a_copy_with_the_same_offsets_is_read_on(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    end = moved(cluster, 12, 20)
    with pytest.raises(
        DataLossError, match=rf"start the query once with the option adoptTopicIds=t={TWO}, or a"
    ):
        driver_of(cluster).latest(end)
    adopting = driver_of(cluster, adoptTopicIds=f"t={TWO}")
    following = adopting.latest(end)
    assert following == {f"@t={TWO}": {}, "t": {"0": 12, "1": 20}}
    assert planned(adopting, end, following) == ["t-0 [10, 12)"]
    assert {piece.topic_id for task in adopting.plan(end, following) for piece in task} == {TWO}
    assert f"in the one with id {TWO} (adoptTopicIds)" in caplog.text
    assert adopting.latest(following) is following
    # Once is enough, and an option that stays takes no other topic.
    assert driver_of(cluster).latest(following) is following
    caplog.clear()
    assert driver_of(cluster, adoptTopicIds=f"t={TWO}").latest(following) is following
    assert caplog.text.count("option adoptTopicIds has nothing to do") == 1
    cluster.make_anew("t", 50, 50)
    cluster.ids["t"] = THREE
    with pytest.raises(DataLossError, match=f"id {TWO}, .* id {THREE}"):
        driver_of(cluster, adoptTopicIds=f"t={TWO}").latest(following)


def test_a_copy_without_news_gets_into_the_checkpoint(cluster: MemoryCluster) -> None:
    end = moved(cluster, 10, 20)
    for prepare in (False, True):
        driver = driver_of(cluster, adoptTopicIds=f"t={TWO}")
        if prepare:
            driver.prepare_available_now()
        following = driver.latest(end)
        assert following == {f"@t={TWO}": {}, "t": {"0": 10, "1": 20}}
        assert planned(driver, end, following) == []
        assert driver.latest(following) is following


ALL_THAT_IS_THERE = (
    "To read all that is there begin with startingOffsets=earliest and no other start or end; "
    "a stream needs a new checkpointLocation for it"
)


@pytest.mark.parametrize(
    ("point", "options"),
    [
        ({"t": {"0": 10, "1": 7}}, {}),
        ({"t": {"0": 15, "1": 20}}, {}),
        (NOT_BEGUN, {"startingOffsets": '{"t":{"0":99,"1":15}}'}),
    ],
    ids=["deleted records", "a log cut short", "a start above the end"],
)
def test_all_that_is_there_is_read_as_the_error_says(
    cluster: MemoryCluster, point: Json, options: dict[str, str]
) -> None:
    cluster.add("t-1", 20, start=12)
    with pytest.raises(DataLossError, match=ALL_THAT_IS_THERE):
        driver_of(cluster, None, **options).latest(point)
    anew = driver_of(cluster, startingOffsets="earliest")
    assert planned(anew, NOT_BEGUN, anew.latest(NOT_BEGUN)) == ["t-0 [0, 10)", "t-1 [12, 20)"]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_copy_that_lacks_what_was_read_is_refused(cluster: MemoryCluster, fail: str) -> None:
    end = moved(cluster, 9, 30)
    driver = driver_of(cluster, adoptTopicIds=f"t={TWO}", failOnDataLoss=fail)
    with pytest.raises(
        DataLossError,
        match=rf"t-0 with topic id {TWO} ends at 9, below offset 10 .* start the query again later",
    ):
        driver.latest(end)
    # It is no copy: without the option it is a topic of its own.
    own = driver_of(cluster, failOnDataLoss="false")
    assert planned(own, end, own.latest(end)) == ["t-0 [0, 9)", "t-1 [0, 30)"]
    # It is one, which has come further.
    cluster.produce("t-0", 3)
    later = driver_of(cluster, adoptTopicIds=f"t={TWO}", failOnDataLoss=fail)
    assert planned(later, end, later.latest(end)) == ["t-0 [10, 12)", "t-1 [20, 30)"]


def test_a_batch_that_was_begun_before_is_read_from_the_copy(cluster: MemoryCluster) -> None:
    """Spark repeats it first, with the offsets and ids that it noted."""
    end = moved(cluster, 12, 20)
    again = driver_of(cluster, adoptTopicIds=f"t={TWO}")
    assert planned(again, NOT_BEGUN, end) == ["t-0 [0, 10)", "t-1 [5, 20)"]
    assert {piece.topic_id for task in again.plan(NOT_BEGUN, end) for piece in task} == {TWO}
    short = driver_of(cluster, adoptTopicIds=f"t={TWO}")
    cluster.add("t-0", 8)
    with pytest.raises(DataLossError, match="ends at 8, below offset 10"):
        short.plan(NOT_BEGUN, end)
    cluster.ids["t"] = THREE
    other = driver_of(cluster, adoptTopicIds=f"t={TWO}")
    assert {piece.topic_id for task in other.plan(NOT_BEGUN, end) for piece in task} == {ONE}


def test_all_topics_to_adopt_are_named_at_once(cluster: MemoryCluster) -> None:
    cluster.add("u-0", 7)
    cluster.ids["u"] = ONE
    end = driver_of(cluster, None, subscribe="t,u", startingOffsets="earliest").latest(NOT_BEGUN) | {
        f"@t={ONE}": {}
    }
    cluster.ids |= {"t": TWO, "u": THREE}
    with pytest.raises(DataLossError, match=rf"'t' was deleted .*adoptTopicIds=t={TWO},u={THREE}, or"):
        driver_of(cluster, None, subscribe="t,u").latest(end)


def test_a_topic_made_anew_since_it_was_listed_is_told_as_that(cluster: MemoryCluster) -> None:
    """The list of partitions may be a second old; what looks like a truncated log is looked at again."""
    cluster.ids["t"] = "one"
    driver = driver_of(cluster, startingOffsets="earliest")
    end = driver.latest(NOT_BEGUN)
    cluster.make_anew("t", 2, 2)
    with pytest.raises(DataLossError, match="recreated"):
        driver.latest(end)


def test_a_topic_made_anew_during_available_now_is_read_to_its_end(cluster: MemoryCluster) -> None:
    pace = FakePace()
    cluster.ids["t"] = "one"
    driver = driver_of(
        cluster, pace, startingOffsets="earliest", maxOffsetsPerTrigger="10", failOnDataLoss="false"
    )
    driver.prepare_available_now()
    seen: list[Json] = [NOT_BEGUN, driver.latest(NOT_BEGUN)]
    cluster.make_anew("t", 3, 30)
    pace.advance(DISCOVERY_MS)
    while (end := driver.latest(seen[-1])) is not seen[-1]:
        cluster.produce("t-1", 5)
        seen.append(end)
    assert seen[-1] == {"@t=one'": {}, "t": {"0": 3, "1": 30}}


def test_a_checkpoint_without_ids_gets_them_with_its_next_batch(cluster: MemoryCluster) -> None:
    """An older one of ours, or the JVM connector's."""
    cluster.ids["t"] = "one"
    pace = FakePace()
    driver = driver_of(cluster, pace)
    start: Json = {"t": {"0": 10, "1": 20}}
    assert driver.latest(start) is start  # no batch for an id alone
    cluster.produce("t-0", 1)
    end = driver.latest(start)
    assert end == {"@t=one": {}, "t": {"0": 11, "1": 20}}
    assert json.dumps(Point.from_json(end).to_json()) == json.dumps(end)
    # What the process has seen counts until then.
    cluster.make_anew("t", 99, 99)
    pace.advance(DISCOVERY_MS)
    with pytest.raises(DataLossError, match="recreated"):
        driver.latest(start)


def test_deleted_partitions(cluster: MemoryCluster) -> None:
    cluster.drop("t-0")
    with pytest.raises(DataLossError, match=r"do not exist any more: t-0"):
        driver_of(cluster).latest(START)
    lenient = driver_of(cluster, failOnDataLoss="false")
    end = lenient.latest(START)
    assert end == {"t": {"1": 20}}
    assert planned(lenient, START, end) == []


def test_a_partition_that_is_missing_for_a_moment_is_not_gone(cluster: MemoryCluster) -> None:
    pace = FakePace()
    cluster.drop("t-0")

    def come_back() -> None:
        if len(pace.slept) == 2:
            cluster.add("t-0", 10)

    pace.on_sleep = come_back
    driver = driver_of(cluster, pace)
    assert driver.latest(START)["t"] == {"0": 10, "1": 20}
    assert len(pace.slept) == 2


def test_start_option_above_the_end(cluster: MemoryCluster) -> None:
    with pytest.raises(DataLossError, match=r"t-0 ends at 10, below offset 99"):
        driver_of(cluster, startingOffsets='{"t":{"0":99,"1":5}}').latest(NOT_BEGUN)
    lenient = driver_of(cluster, startingOffsets='{"t":{"0":99,"1":5}}', failOnDataLoss="false")
    end = lenient.latest(NOT_BEGUN)
    assert planned(lenient, NOT_BEGUN, end) == ["t-1 [5, 20)"]


# ---------------------------------------------------------------- committing


def test_start_is_committed_when_it_changes(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, startingOffsets="earliest", **COMMITTING, idlePollMs="0")
    end = driver.latest(NOT_BEGUN)
    assert cluster.commits == []  # nothing is in the sink yet
    driver.latest(end)
    driver.latest(end)
    assert [{str(p): o for p, o in offsets.items()} for offsets in cluster.commits] == [
        {"t-0": 10, "t-1": 20}
    ]
    pace.advance(REPEAT_MS)  # an idle query's offsets must not expire
    driver.latest(end)
    assert len(cluster.commits) == 2


def test_without_a_group_nothing_is_committed(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, startingOffsets="earliest", idlePollMs="0")
    driver.latest(driver.latest(NOT_BEGUN))
    refusing = driver_of(cluster, startingOffsets="earliest", kafka_group_id="g", idlePollMs="0")
    refusing.latest(refusing.latest(NOT_BEGUN))
    assert cluster.commits == []
    assert "live_members" not in cluster.asked


def test_a_failing_commit_is_told_once_and_tried_later(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    pace = FakePace()
    cluster.commit_failures = [broker_failure(), broker_failure()]
    driver = driver_of(cluster, pace, startingOffsets="earliest", **COMMITTING, idlePollMs="0")
    end = driver.latest(NOT_BEGUN)
    with caplog.at_level(logging.INFO, "kadence.spark"):
        for _ in range(4):
            driver.latest(end)
            pace.advance(20_000)
        assert caplog.text.count("committing offsets to group g failed") == 1
        pace.advance(30_000)
        driver.latest(end)
    assert "works again" in caplog.text
    assert len(cluster.commits) == 1


def test_a_group_with_live_members_is_refused_before_anything_is_read(cluster: MemoryCluster) -> None:
    cluster.members = 2
    with pytest.raises(GroupInUseError, match=r"'g' is in use by a live consumer group \(2 members\)"):
        driver_of(cluster, None, **COMMITTING).latest(NOT_BEGUN)


def test_not_being_allowed_to_look_at_the_group_is_no_reason_to_fail(cluster: MemoryCluster) -> None:
    def refuse(what: str) -> None:
        if what == "live_members":
            raise broker_failure(retriable=False)

    cluster.on_question = refuse
    driver_of(cluster, None, startingOffsets="earliest", **COMMITTING).latest(NOT_BEGUN)
    assert "live_members" in cluster.asked


@pytest.mark.parametrize("fail", ["true", "false"])
def test_offsets_of_a_topic_that_is_gone_are_not_committed_to_another_of_its_name(
    cluster: MemoryCluster, fail: str
) -> None:
    """``u`` is recreated, ``v`` is deleted, and ``t`` stays."""
    cluster.ids = {"t": "id-t", "u": "id-u", "v": "id-v"}
    cluster.add("u-0", 7)
    cluster.add("v-0", 3)

    def driver_with(fail: str) -> StreamDriver:
        group = {"kafka_group_id": "g", "commitOffsets": "true", "failOnDataLoss": fail}
        return driver_of(
            cluster, None, subscribe="t,u,v", startingOffsets="earliest", idlePollMs="0", **group
        )

    end = driver_with("true").latest(NOT_BEGUN)
    cluster.make_anew("u", 9)
    cluster.drop("v-0")
    driver = driver_with(fail)
    try:
        following = driver.latest(end)
    except DataLossError:
        assert fail == "true"
        until(lambda: len(cluster.by_run) == 2, what="the commit's last step")
        assert {str(p): offset for p, offset in cluster.group.items()} == {"t-0": 10, "t-1": 20}
        assert cluster.commit_ids == [{"t": "id-t"}]
    else:
        assert driver.latest(following) is following
        assert {str(p): offset for p, offset in cluster.group.items()} == {"t-0": 10, "t-1": 20, "u-0": 9}
        assert cluster.commit_ids[-1] == {"t": "id-t", "u": "id-u'"}


def test_an_idle_query_commits(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, None, startingOffsets="earliest", **COMMITTING)
    end = driver.latest(NOT_BEGUN)
    assert driver.latest(end) is end
    assert {str(p): offset for p, offset in cluster.group.items()} == {"t-0": 10, "t-1": 20}


# ---------------------------------------------------------------- progress


def test_the_lag_of_a_new_partition_counts_from_its_start(cluster: MemoryCluster) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, minOffsetsPerTrigger="100", idlePollMs="0", failOnDataLoss="false")
    end = driver.latest(NOT_BEGUN)
    assert driver.report() == {"t": {"0": 10, "1": 20}}
    cluster.add("t-2", 9, start=2)
    pace.advance(DISCOVERY_MS)
    assert driver.latest(end) is end  # too few for a batch
    report = driver.report()
    assert report == {"#t": {"2": 2}, "t": {"0": 10, "1": 20, "2": 9}}
    seen = lag({"sources": [{"endOffset": end, "latestOffset": report}]})
    assert {str(p): offsets for p, offsets in seen.items()} == {"t-0": 0, "t-1": 0, "t-2": 7}


# ---------------------------------------------------------------- brokers that go away


def away() -> KafkaError:
    return KafkaTimeoutError("ListOffsets was not answered in time by localhost:9092")


def test_brokers_that_go_away_make_the_lag_unknown_and_end_the_query_after_brokerTimeoutMs(  # noqa: N802
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    pace = FakePace()
    driver = driver_of(cluster, pace, startingOffsets="earliest", brokerTimeoutMs="120000", idlePollMs="500")
    end = driver.latest(NOT_BEGUN)

    def no_answer(what: str) -> None:
        pace.advance(10_000)
        raise away()

    cluster.on_question = no_answer
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        assert driver.latest(end) is end
        assert driver.report() == {}
        unknown = lag({"sources": [{"endOffset": end, "latestOffset": driver.report()}]})
        assert set(unknown.values()) == {None}
        assert len(unknown) == 2
        for _ in range(9):
            assert driver.latest(end) is end
        assert len(caplog.messages) == 2, "once at first, then once a minute"
        with pytest.raises(
            KafkaTimeoutError, match=r"no answer from any broker for 120 s.*brokerTimeoutMs allows 120000 ms"
        ):
            driver.latest(driver.latest(end))
        cluster.on_question = lambda what: None
        cluster.produce("t-0", 1)
        assert driver.latest(end)["t"]["0"] == 11
    assert "answer again" in caplog.text
    assert driver.report() == {"t": {"0": 11, "1": 20}}


def test_brokers_that_never_answered_end_the_query_at_once(cluster: MemoryCluster) -> None:
    cluster.failures = [away()]
    with pytest.raises(KafkaTimeoutError, match="not answered in time"):
        driver_of(cluster, brokerTimeoutMs="120000").latest(START)


def test_available_now_does_not_end_while_brokers_are_away(cluster: MemoryCluster) -> None:
    driver = driver_of(cluster, startingOffsets="earliest")
    driver.prepare_available_now()
    cluster.failures = [away(), away()]
    assert driver.latest(NOT_BEGUN)["t"] == {"0": 10, "1": 20}


# ---------------------------------------------------------------- failures


def test_retriable_failures_are_repeated_as_the_options_say(cluster: MemoryCluster) -> None:
    pace = FakePace()
    cluster.failures = [broker_failure(), broker_failure()]
    driver = driver_of(cluster, pace, startingOffsets="earliest", fetchOffset_retryIntervalMs="10")
    assert driver.latest(NOT_BEGUN)["t"] == {"0": 10, "1": 20}
    assert pace.slept == [10, 10]
    cluster.failures = [broker_failure() for _ in range(9)]
    with pytest.raises(BrokerError):
        driver.latest(NOT_BEGUN)


def test_other_failures_are_not(cluster: MemoryCluster) -> None:
    pace = FakePace()
    cluster.failures = [broker_failure(retriable=False)]
    with pytest.raises(BrokerError):
        driver_of(cluster, pace).latest(NOT_BEGUN)
    assert pace.slept == []


def test_a_checkpoint_of_sparks_own_connector_goes_on(cluster: MemoryCluster) -> None:
    """It notes no start for partitions that it met in a batch; then the earliest has to do."""
    driver = driver_of(cluster)
    assert planned(driver, {"t": {"0": 4}}, {"t": {"0": 10, "1": 20}}) == ["t-0 [4, 10)", "t-1 [5, 20)"]


@pytest.mark.parametrize(
    "start", [{}, {"startingTimestamp": "1"}, {"startingOffsets": '{"t":{"0":4,"1":-1}}'}]
)
def test_a_first_batch_of_the_connector_that_did_not_end_is_refused(
    cluster: MemoryCluster, start: dict[str, str]
) -> None:
    """Spark asks for the start again, and where the connector began stands where a source in Python does not see it."""
    end: Json = {"t": {"0": 10, "1": 20}}
    with pytest.raises(IllegalStateError, match="let the connector end this batch once"):
        driver_of(cluster, None, **start).plan(NOT_BEGUN, end)
    earliest = driver_of(cluster, startingOffsets="earliest")
    assert planned(earliest, NOT_BEGUN, end) == ["t-0 [0, 10)", "t-1 [5, 20)"]
    # The connector has ended the batch: the query goes on behind it.
    cluster.produce("t-0", 3)
    following = driver_of(cluster, None, **start)
    assert planned(following, end, following.latest(end)) == ["t-0 [10, 13)"]


def test_a_checkpoint_of_the_connector_that_met_no_partition_has_begun(cluster: MemoryCluster) -> None:
    """The connector writes {} where its pattern matched nothing."""
    cluster.add("later-0", 50)
    driver = driver_of(cluster, None, subscribePattern="later.*")
    assert planned(driver, {}, driver.latest({})) == ["later-0 [0, 50)"]


@pytest.mark.parametrize("still_there", [True, False])
def test_a_topic_that_the_options_no_longer_name_is_not_called_deleted(
    cluster: MemoryCluster, still_there: bool
) -> None:
    cluster.add("u-0", 3)
    end = driver_of(cluster, None, subscribe="t,u", startingOffsets="earliest").latest(NOT_BEGUN)
    if not still_there:
        cluster.drop("u-0")
    with pytest.raises(
        DataLossError, match=r"partitions that the options no longer name: u-0\. If they belong"
    ):
        driver_of(cluster, None, subscribe="t").latest(end)
    going_on = driver_of(cluster, None, subscribe="t", failOnDataLoss="false")
    assert going_on.latest(end) == {"t": {"0": 10, "1": 20}}
    if still_there:
        assert driver_of(cluster, None, subscribe="t,u").latest(end)["u"] == {"0": 3}
