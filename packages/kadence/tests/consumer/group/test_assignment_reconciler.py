"""How a member's rebalances are told one after the other."""

from __future__ import annotations

from kadence.consumer.events import BackgroundEvent, RebalanceFailed
from kadence.consumer.group.assignment_reconciler import RebalanceHistory
from kadence.types import GroupMetadata, TopicPartition

GROUP = GroupMetadata("g", 3, "m")


def test_a_rebalance_that_the_identity_does_not_survive_is_told_as_failed() -> None:
    told: list[BackgroundEvent] = []
    history = RebalanceHistory(told.append)
    history.begin(100, "first join")
    history.abandon()
    assert told == [RebalanceFailed()]
    history.abandon()
    assert len(told) == 1, "none was under way"


def test_leaving_by_our_own_will_fails_no_rebalance() -> None:
    told: list[BackgroundEvent] = []
    history = RebalanceHistory(told.append)
    history.begin(100, "first join")
    history.forget()
    history.abandon()
    assert told == []


def test_one_that_begins_again_before_it_ends_keeps_its_first_cause_and_time() -> None:
    told: list[BackgroundEvent] = []
    history = RebalanceHistory(told.append)
    history.begin(100, "subscription changed")
    history.begin(150, "the coordinator asked (heartbeat)")
    rebalance = history.finish(180, GROUP, frozenset({TopicPartition("t", 0)})).rebalance
    assert told == [], "it is told with the partitions that it assigns"
    assert rebalance.cause == "subscription changed"
    assert (rebalance.started_monotonic_ms, rebalance.ended_monotonic_ms) == (100, 180)
    assert rebalance.added == (TopicPartition("t", 0),)
