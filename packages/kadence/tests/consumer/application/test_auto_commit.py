"""Automatic commits under a clock of our own: when they come, and what they cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest
from tests.consumer.application.test_interrupted_callbacks import Nobody

from kadence import TopicPartition
from kadence.config import ConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.shell import Shell
from kadence.consumer.assembly import aside, core_of
from kadence.consumer.shared_partition import Origin, SharedPartition, Start
from kadence.consumer.shared_state import SharedState
from kadence.types import OffsetAndMetadata
from kadence_testing import FakeClock

PARTITION = TopicPartition("t", 0)


class Subject:
    """The application side alone, with one partition assigned by hand whose position is 5."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.shared_state = SharedState(lambda: None)
        config = ConsumerConfig.parse({"group.id": "g", "bootstrap.servers": "nowhere:1"})
        self.core = core_of(
            config, self.shared_state, Nobody(), self.clock, lambda config: NotImplemented, aside
        )
        self.shell = Shell(self.core, self.shared_state, self.clock)
        self.core.chosen.by_hand = True
        shared_partition = SharedPartition(PARTITION, 1)
        shared_partition.origin = Origin(1, 5, None)
        self.shared_state.shared_partitions = {PARTITION: shared_partition}

    def poll(self, after_ms: int = 0) -> list[int]:
        """A poll so much later; the offsets that it commits, which succeeds."""
        self.clock.advance(after_ms)
        known = len(self.shared_state.application_events)
        with self.shell:
            self.shell.run(self.core.polls.poll(0, 10, list))
        found = []
        for call in list(self.shared_state.application_events)[known:]:
            if isinstance(call, m.Commit):
                found.append(call.offsets[PARTITION].offset)
                self.shared_state.tell(m.CommitCompleted(call.id, call.offsets, None))
        return found


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_offsets_that_do_not_change_are_committed_again_once_a_minute(subject: Subject) -> None:
    """The broker forgets what a group without members has not committed for long (offsets.retention.minutes)."""
    assert subject.poll(5_000) == [5]
    committed = [at for second in range(5, 305, 5) for at in [second] * len(subject.poll(5_000))]
    assert committed == [60, 120, 180, 240, 300]


def test_offsets_that_change_are_committed_each_interval(subject: Subject) -> None:
    assert subject.poll(5_000) == [5]
    shared_partition = subject.shared_state.shared_partitions[PARTITION]
    for offset in (7, 9):
        shared_partition.position = shared_partition.processed = Origin(1, offset, None)
        assert subject.poll(4_999) == []
        assert subject.poll(1) == [offset]


def test_after_a_seek_back_the_same_place_is_committed_again(subject: Subject) -> None:
    """A topic made anew, too, begins another stretch of reading."""
    assert subject.poll(5_000) == [5]
    assert subject.poll() == []
    shared_partition = subject.shared_state.shared_partitions[PARTITION]
    shared_partition.fetch_epoch = 2
    shared_partition.origin = Origin(2, 5, None)
    assert subject.poll(5_000) == [5]


WAYS: dict[str, Callable[[Subject], object]] = {
    "the interval": lambda subject: subject.poll(5_000),
    "a poll in which partitions are revoked": lambda subject: subject.core.commits.commit_parting(
        (PARTITION,), 60_000
    ),
    "an assignment by hand that ends": lambda subject: subject.core.commits.commit_soon(),
    "close": lambda subject: next(iter(subject.core.commits.commit_now(60_000, processed_only=False)), None),
    "commit() without offsets": lambda subject: next(iter(subject.core.commits.commit(None, 60_000)), None),
    "commit_async() without offsets": lambda subject: subject.core.commits.commit_async(None, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_c19_what_follows_from_reading_is_committed_under_its_fetch_epoch(subject: Subject, way: str) -> None:
    """Meanwhile the partition may have become one of another topic, which was created under the old name."""
    shared_partition = subject.shared_state.shared_partitions[PARTITION]
    shared_partition.origin = Origin(1, 3, None, start=Start(1, 3))
    subject.shared_state.starts = 1
    shared_partition.position = shared_partition.processed = Origin(1, 7, None)
    WAYS[way](subject)
    commits = [call for call in subject.shared_state.application_events if isinstance(call, m.Commit)]
    assert 7 in [call.offsets[PARTITION].offset for call in commits]
    assert [call.read_under for call in commits] == [{PARTITION: 1}] * len(commits)


def ends_of(count: int) -> int:
    """How many calls of Python it takes to take in the ends of so many commits with callbacks."""
    subject = Subject()
    ended: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
    for _ in range(count):
        subject.core.commits.commit_async(
            {PARTITION: OffsetAndMetadata(1)}, lambda offsets, error: ended.append(offsets)
        )
    for call in list(subject.shared_state.application_events):
        if isinstance(call, m.Commit):
            subject.shared_state.tell(m.CommitCompleted(call.id, call.offsets, None))
    calls = 0

    def counts(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counts)
    try:
        subject.poll()
    finally:
        sys.setprofile(None)
    assert len(ended) == count
    return calls


def test_the_ends_of_many_commits_cost_as_much_each_as_those_of_few() -> None:
    few, many = ends_of(100), ends_of(1_000)
    assert many < 11 * few
