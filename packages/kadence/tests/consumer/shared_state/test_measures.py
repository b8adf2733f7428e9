"""What is measured at the shared state, under virtual time; values computed by hand."""

from __future__ import annotations

from math import isnan

import pytest

from kadence.consumer.events import AssignPartitions, LosePartitions, Rebalance, RevokePartitions
from kadence.consumer.measures import Fetches, Group, PollMeasures, Queue
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.metrics.sensors import rate_of
from kadence.types import TopicPartition


def test_time_between_polls_is_between_their_beginnings_and_the_first_counts_zero() -> None:
    poll_measures = PollMeasures()
    for now in (1_000, 1_100, 1_400):
        poll_measures.polled(now)
    assert poll_measures.polls.average(1_400) == pytest.approx(400 / 3)
    assert poll_measures.polls.highest(1_400) == 300
    assert poll_measures.last_at == 1_400


def test_a_poll_that_waits_is_idle_and_one_from_the_buffer_is_not() -> None:
    """Java: time inside poll over that time plus the time since the poll before it began."""
    poll_measures = PollMeasures()
    poll_measures.polled(1_000)
    poll_measures.waited(1_100)
    poll_measures.polled(1_200)
    poll_measures.waited(1_300)
    poll_measures.polled(1_300)
    assert poll_measures.idle.average(1_300) == pytest.approx((100 / 100 + 100 / 300 + 0) / 3)


def test_windows_of_polls_are_cut_by_the_first_poll_after_their_end() -> None:
    poll_measures = PollMeasures()
    poll_measures.polled(0)
    topic = poll_measures.topic("t")
    topic.records.total += 300
    poll_measures.polled(20_000)
    topic.records.total += 300
    assert topic.records.rate(20_000) == pytest.approx(600 / 50)
    poll_measures.polled(40_000)
    topic.records.total += 300
    assert topic.records.rate(40_000) == pytest.approx(900 / 40)
    # The first two polls' sample ended with the poll at 20 s.
    assert topic.records.rate(80_000) == pytest.approx(300 / 40)
    assert topic.records.rate(100_000) == 0
    assert topic.records.total == 900


def test_the_rate_of_a_client_is_that_of_its_topics_together() -> None:
    poll_measures = PollMeasures()
    poll_measures.polled(0)
    poll_measures.topic("a").records.total += 100
    poll_measures.polled(10_000)
    poll_measures.topic("b").records.total += 200
    assert poll_measures.topic("b").records.rate(20_000) == pytest.approx(200 / 40)
    both = [topic.records for topic in poll_measures.topics.values()]
    assert rate_of(both, 20_000) == pytest.approx(300 / 50)
    assert rate_of([], 20_000) == 0


def test_each_callback_is_measured_as_what_it_was() -> None:
    poll_measures = PollMeasures()
    poll_measures.called(AssignPartitions(1, ()), 100, 5)
    poll_measures.called(RevokePartitions(2, ()), 100, 7)
    poll_measures.called(LosePartitions(3, ()), 100, 9)
    assert [
        meter.highest(100) for meter in (poll_measures.assigned, poll_measures.revoked, poll_measures.lost)
    ] == [5, 7, 9]


def test_a_fetch_is_measured_as_a_whole_and_by_topic() -> None:
    fetches = Fetches()
    fetches.count(1_000, [{"a": (400, 4), "b": (600, 2)}])
    fetches.count(2_000, [])  # An empty response says nothing about sizes.
    fetches.count(3_000, [{"b": (200, 4)}])
    assert (fetches.bytes.average(3_000), fetches.bytes.highest(3_000)) == (600, 1_000)
    assert fetches.records.average(3_000) == 5
    assert fetches.topics["a"].bytes.average(3_000) == 400
    assert fetches.topics["b"].records.average(3_000) == 3


def test_lag_and_lead_are_those_of_the_position_and_not_of_what_was_fetched() -> None:
    fetches, shared_partition = Fetches(), SharedPartition(TopicPartition("t", 0), 1)
    fetches.heard(0, shared_partition, 100, 0)
    assert isnan(shared_partition.lags.highest(0)), "there is no position yet"
    shared_partition.origin = Origin(1, 40, None)
    fetches.heard(1_000, shared_partition, 100, 10)
    fetches.count(1_000, [])
    shared_partition.position = Origin(1, 90, None)
    fetches.heard(2_000, shared_partition, 120, 10)
    fetches.count(2_000, [])
    assert (shared_partition.lags.average(2_000), shared_partition.lags.highest(2_000)) == (45, 60)
    assert (
        shared_partition.leads.lowest(2_000),
        fetches.leads.lowest(2_000),
        fetches.lags.highest(2_000),
    ) == (
        30,
        30,
        60,
    )


def test_rebalances_are_counted_by_cause_and_causes_are_bounded() -> None:
    group = Group()
    for number in range(100):
        cause = "first join" if number < 50 else f"cause {number}: what is different each time"
        group.rebalanced(Rebalance(cause, 1_000 * number, 1_000 * number + 40, 1, (), (), ()))
    assert group.causes["first join"] == 50
    assert group.causes["other"] == 50 - 31
    assert len(group.causes) == 33
    assert (group.rebalances.count, group.rebalances.total, group.last_at) == (100, 4_000, 99_040)


def test_the_queues_of_the_shared_state_tell_how_long_something_lay_there() -> None:
    queue = Queue()
    queue.put(100)
    queue.put(130)
    queue.taken(150, 153)
    assert (queue.waits.average(150), queue.waits.highest(150), queue.works.highest(150)) == (35, 50, 3)
