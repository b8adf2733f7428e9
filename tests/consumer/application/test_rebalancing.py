"""Steps of a rebalance that had not begun when the membership ended are void, and told as lost (B11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.consumer.application.test_interrupted_callbacks import Subject

from kadence import RebalanceListener, TopicPartition
from kadence.consumer.border import messages as m
from kadence.consumer.border.cells import Cell, Origin

A, B, C = (TopicPartition("t", number) for number in range(3))
Told = list[tuple[str, list[TopicPartition]]]


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.told: Told = []
        self.raises: Mapping[str, Exception] = {}

    def _step(self, kind: str, partitions: list[TopicPartition]) -> None:
        self.told.append((kind, partitions))
        if kind in self.raises:
            raise self.raises[kind]

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._step("revoked", partitions)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._step("assigned", partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._step("lost", partitions)


@pytest.fixture
def subject() -> Subject:
    subject = Subject()
    subject.core.listener = Listener()
    return subject


def told(subject: Subject) -> Told:
    listener: Any = subject.core.listener
    found: Told = listener.told
    return found


def reading(subject: Subject, *partitions: TopicPartition) -> None:
    """These are assigned, and five records of each are proved processed."""
    cells = {}
    for number, partition in enumerate(partitions, 1):
        cell = cells[partition] = Cell(partition, number)
        cell.origin = Origin(number, 5, None)
    subject.border.assignment = cells


def commits(subject: Subject) -> list[m.Commit]:
    return [call for call in subject.border.imperatives if isinstance(call, m.Commit)]


def test_b11_what_had_not_begun_is_told_as_lost_and_nothing_else(subject: Subject) -> None:
    subject.border.tell(m.RevokePartitions(1, (A,)))
    subject.border.tell(m.AssignPartitions(2, (C,)))
    subject.border.tell(m.LosePartitions(3, (A, B, C), {1: (A,), 2: ()}))
    subject.poll()
    assert told(subject) == [("lost", [A, B, C])]
    assert subject.done() == [3]
    subject.poll()
    assert len(told(subject)) == 1


def test_b11_what_was_revoked_before_is_not_told_as_lost_too(subject: Subject) -> None:
    subject.border.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    subject.border.tell(m.LosePartitions(2, (A, B), {1: (A,)}))
    subject.poll()
    assert told(subject) == [("revoked", [A]), ("lost", [B])]


def test_b11_when_all_was_revoked_there_is_nothing_to_tell(subject: Subject) -> None:
    subject.border.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    subject.border.tell(m.LosePartitions(2, (A,), {1: (A,)}))
    subject.poll()
    assert told(subject) == [("revoked", [A])]


def test_b11_the_membership_ends_within_the_callback(subject: Subject) -> None:
    class Ends(Listener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            super().on_partitions_revoked(partitions)
            subject.border.tell(m.LosePartitions(3, (A, B, C), {1: (A,), 2: (B,)}))

    subject.core.listener = Ends()
    subject.border.tell(m.RevokePartitions(1, (A,)))
    subject.border.tell(m.RevokePartitions(2, (B,)))
    subject.poll()
    assert told(subject) == [("revoked", [A]), ("lost", [B, C])]


def test_b11_what_is_assigned_after_the_loss_is_assigned(subject: Subject) -> None:
    subject.border.tell(m.AssignPartitions(1, (A,)))
    subject.border.tell(m.LosePartitions(2, (A,), {1: ()}))
    subject.border.tell(m.AssignPartitions(3, (A,)))
    subject.poll()
    assert told(subject) == [("lost", [A]), ("assigned", [A])]


def test_b11_the_commit_of_a_revocation_that_never_began_is_not_taken_for_that_of_the_next(
    subject: Subject,
) -> None:
    reading(subject, A, B)
    subject.border.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    [first] = commits(subject)
    assert told(subject) == [], "it waits for what was proved to be committed"
    subject.border.tell(m.LosePartitions(2, (A,), {1: (A,)}))
    subject.border.tell(m.Answer(first.id))
    subject.border.tell(m.RevokePartitions(3, (B,)))
    subject.poll()
    assert told(subject) == [("lost", [A])]
    [_, second] = commits(subject)
    assert set(second.offsets) == {B}
    subject.border.tell(m.Answer(second.id))
    subject.poll()
    assert told(subject) == [("lost", [A]), ("revoked", [B])]
