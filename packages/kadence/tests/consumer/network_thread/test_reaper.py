"""Deadlines of calls hold, whatever the network does (C2)."""

from __future__ import annotations

from kadence.clock import FOREVER
from kadence.consumer.background_events import Reaper
from kadence.consumer.events import CallbackDone, Commit, FetchCommitted, Seek, TopicMetadata
from kadence.consumer.shared_partition import SharedPartition
from kadence.errors import ClosedError, ConnectError, KafkaTimeoutError
from kadence.types import TopicPartition


def call(call_id: int, deadline: int) -> FetchCommitted:
    return FetchCommitted(call_id, deadline, frozenset({TopicPartition("t", 9)}))


def test_c2_an_overdue_call_fails_with_what_stood_in_the_way() -> None:
    reaper = Reaper(lambda: "a commit waits", lambda: "localhost:1: TCP refused")
    reaper.watch(call(1, 100))
    reaper.watch(call(2, 200))
    assert reaper.next_deadline == 100
    assert reaper.reap(99) == []
    (answer,) = reaper.reap(100)
    assert answer.id == 1
    assert isinstance(answer.error, KafkaTimeoutError)
    assert "localhost:1: TCP refused" in str(answer.error)
    assert isinstance(answer.error.__cause__, ConnectError)
    assert reaper.next_deadline == 200


def test_c2_an_overdue_call_says_what_it_still_waits_for() -> None:
    reaper = Reaper(lambda: None)
    reaper.missing = {1: "t-9 does not exist"}.get
    reaper.watch(call(1, 100))
    reaper.watch(TopicMetadata(2, 100, tuple("fdecba")))
    assert [str(answer.error) for answer in reaper.reap(100)] == [
        "looking up committed offsets (topic 't') did not finish in time: t-9 does not exist",
        "looking up topics (topics 'a', 'b', 'c', 'd', 'e' and 1 more) did not finish in time",
    ]


def test_a_call_that_waits_for_a_broker_that_is_there_has_no_such_cause() -> None:
    reaper = Reaper(lambda: "a commit waits", lambda: None)
    reaper.watch(call(1, 100))
    (answer,) = reaper.reap(100)
    assert "a commit waits" in str(answer.error)
    assert answer.error is not None
    assert answer.error.__cause__ is None


def test_a_call_is_answered_once() -> None:
    reaper = Reaper(lambda: None)
    reaper.watch(call(1, 100))
    assert reaper.answered(1)
    assert not reaper.answered(1)
    assert reaper.reap(1000) == []
    assert reaper.next_deadline == FOREVER


def test_calls_without_an_id_are_not_watched() -> None:
    reaper = Reaper(lambda: None)
    reaper.watch(Seek(0, 5, SharedPartition(TopicPartition("t", 0), 1), 1, None))
    assert reaper.next_deadline == FOREVER


def test_the_end_of_the_thread_tells_everybody() -> None:
    reaper = Reaper(lambda: None)
    reaper.watch(call(1, FOREVER))
    (answer,) = reaper.fail_all(lambda: ClosedError("closed"))
    assert isinstance(answer.error, ClosedError)
    assert reaper.fail_all(lambda: ClosedError("closed")) == []


def test_the_end_of_a_callback_does_not_end_the_call_of_the_same_number() -> None:
    """Steps of a rebalance are numbered by themselves: unsubscribe() must not be timed out by its own callback."""
    reaper = Reaper(lambda: None)
    reaper.watch(call(1, 100))
    reaper.watch(CallbackDone(1, 0, None))
    assert reaper.reap(50) == []
    assert reaper.answered(1)


def test_an_asynchronous_commit_is_not_watched_for_no_answer_ends_it() -> None:
    reaper = Reaper(lambda: None)
    reaper.watch(Commit(1, 100, {}, retry=False))
    assert reaper.next_deadline == FOREVER
    assert reaper.reap(1_000) == []
    reaper.watch(Commit(2, 100, {}, retry=True))
    assert reaper.next_deadline == 100
