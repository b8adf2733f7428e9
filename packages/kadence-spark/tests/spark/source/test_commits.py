"""Commits beside a running query: one at a time, told once, and another run's are noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from tests.spark.source.memory import FakePace, MemoryCluster, broker_failure

from kadence.types import TopicPartition
from kadence_spark.source.commits import LOOK_MS, PAUSE_MS, Commits, GroupInUseError, Start

T0 = TopicPartition("t", 0)


class ByHand:
    """Work begins when it is given and is done when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Future[set[str]], Callable[[], set[str]]]] = []
        self.at_once = False

    def __call__(self, work: Callable[[], set[str]]) -> Future[set[str]]:
        future: Future[set[str]] = Future()
        self.under_way.append((future, work))
        if self.at_once:
            self.finish()
        return future

    def finish(self) -> None:
        future, work = self.under_way.pop(0)
        try:
            future.set_result(work())
        except Exception as problem:  # noqa: BLE001 - as the thread does it
            future.set_exception(problem)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.add("t-0", 100)
    return made


def free(cluster: MemoryCluster, pace: FakePace, start: Start | None = None) -> Commits:
    """To a group that nobody else uses."""
    commits = Commits("g", cluster, pace) if start is None else Commits("g", cluster, pace, start)
    commits.check_free([T0])
    return commits


def test_a_commit_under_way_holds_nothing_up_and_the_newest_comes_next(cluster: MemoryCluster) -> None:
    hand = ByHand()
    commits = free(cluster, cluster.pace, hand)
    for offset in (1, 2, 3):
        commits.offer({T0: offset})
    assert (len(hand.under_way), cluster.commits) == (1, [])
    hand.finish()
    commits.offer({T0: 4})
    assert len(hand.under_way) == 1
    hand.finish()
    commits.offer({T0: 4})
    assert hand.under_way == []
    assert cluster.commits == [{T0: 1}, {T0: 4}]


def test_a_failure_is_told_once_and_puts_off_all_but_the_last(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.commit_failures = [broker_failure(), broker_failure()]
    hand = ByHand()
    commits = free(cluster, cluster.pace, hand)
    with caplog.at_level(logging.INFO, "kadence.spark"):
        for offset in (1, 2):
            commits.offer({T0: offset})
            hand.finish()
            commits.offer({T0: offset})
            assert hand.under_way == [], "not before a pause"
            cluster.pace.advance(PAUSE_MS)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert commits.failures == 2
        cluster.commit_failures = [broker_failure()]
        commits.offer({T0: 3})
        hand.finish()
        commits.offer({T0: 3})
        hand.at_once = True
        commits.settle({T0: 3})
        assert cluster.commits == [], "an idle query can wait"
        commits.settle({T0: 3}, is_last=True)
    assert cluster.commits == [{T0: 3}]
    assert "works again" in caplog.text


def test_two_queries_of_one_group_are_told_of_each_other_once(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    pace = cluster.pace
    commits = free(cluster, pace)
    # What a former run of the same query has left is nothing to tell.
    cluster.by_run[T0] = "former-run"
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        for offset in (1, 2, 3):
            commits.settle({T0: offset})
            pace.advance(LOOK_MS)
        assert caplog.text == ""
        for offset in (4, 5, 6):
            cluster.by_run[T0] = "other-run"
            commits.settle({T0: offset})
            pace.advance(LOOK_MS)
    assert [record.getMessage().split(". ")[0] for record in caplog.records] == [
        "two queries commit offsets to group g: this run this-run and run other-run"
    ]
    assert cluster.commits[-1] == {T0: 6}, "it goes on committing"
    cluster.by_run.clear()
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        commits.settle({T0: 7})
    assert caplog.messages[1].startswith(
        "a query and an application commit offsets to group g: this run this-run and one that is no query. "
    )


def test_work_on_a_thread_of_its_own_ends_as_it_ends(cluster: MemoryCluster) -> None:
    """The default; the other tests do it by hand."""
    pace = FakePace()
    commits = free(cluster, pace)
    cluster.commit_failures = [broker_failure()]
    commits.settle({T0: 1})
    assert (commits.failures, cluster.commits) == (1, [])
    cluster.commit_failures = [broker_failure()]
    commits.settle({T0: 1}, is_last=True)
    assert (commits.failures, cluster.commits) == (2, [{T0: 1}]), "the last one is tried again"


def test_offsets_that_no_query_has_committed_are_an_applications(cluster: MemoryCluster) -> None:
    other = TopicPartition("other", 0)
    cluster.group = {T0: 10, other: 4}
    with pytest.raises(GroupInUseError) as refused:
        free(cluster, cluster.pace)
    assert str(refused.value) == (
        "group.id 'g' has committed offsets of an application, e.g. of t-0, which a commit of this query would "
        "overwrite. Give the query a kafka.group.id of its own, or leave commitOffsets out. If those offsets are "
        "not needed any more, delete them first: kadence groups forget g --topic t"
    )
    del cluster.group[T0]
    free(cluster, cluster.pace)
    cluster.group[T0] = 10
    cluster.by_run[T0] = "former-run"
    free(cluster, cluster.pace).settle({T0: 12})  # a topic that this query does not read may be anybody's
    assert cluster.group == {T0: 12, other: 4}


def test_nothing_is_committed_until_it_is_known_whose_group_it_is(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.failures = [broker_failure()]
    commits = free(cluster, cluster.pace)
    commits.settle({T0: 1}, is_last=True)
    commits.check_free([T0])  # not so soon
    commits.settle({T0: 1}, is_last=True)
    assert cluster.commits == []
    assert ["group g failed" in message for message in caplog.messages] == [True]
    cluster.pace.advance(PAUSE_MS)
    commits.check_free([T0])
    commits.settle({T0: 1})
    assert cluster.commits == [{T0: 1}]
