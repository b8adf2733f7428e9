"""Steps of a rebalance that had not begun when the membership ended are void, and told as lost (B11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.consumer.application.test_interrupted_callbacks import Subject

from kadence import KafkaTimeoutError, OffsetAndMetadata, RebalanceListener, TopicPartition
from kadence.consumer import events as m
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.types import GroupMetadata

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
    """These are assigned, and five records of each are known to be processed."""
    shared_partitions = {}
    for number, partition in enumerate(partitions, 1):
        shared_partition = shared_partitions[partition] = SharedPartition(partition, number)
        shared_partition.origin = Origin(number, 5, None)
    subject.shared_state.shared_partitions = shared_partitions


def commits(subject: Subject) -> list[m.Commit]:
    return [call for call in subject.shared_state.application_events if isinstance(call, m.Commit)]


def test_b11_what_had_not_begun_is_told_as_lost_and_nothing_else(subject: Subject) -> None:
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    subject.shared_state.tell(m.AssignPartitions(2, (C,)))
    subject.shared_state.tell(m.LosePartitions(3, (A, B, C), {1: (A,), 2: ()}))
    subject.poll()
    assert told(subject) == [("lost", [A, B, C])]
    assert subject.done() == [3]
    subject.poll()
    assert len(told(subject)) == 1


def test_b11_what_was_revoked_before_is_not_told_as_lost_too(subject: Subject) -> None:
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    subject.shared_state.tell(m.LosePartitions(2, (A, B), {1: (A,)}))
    subject.poll()
    assert told(subject) == [("revoked", [A]), ("lost", [B])]


def test_b11_when_all_was_revoked_there_is_nothing_to_tell(subject: Subject) -> None:
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    subject.shared_state.tell(m.LosePartitions(2, (A,), {1: (A,)}))
    subject.poll()
    assert told(subject) == [("revoked", [A])]
    assert subject.done() == [1, 2], "the network thread waits for it before it looks up positions"


def test_b11_the_membership_ends_within_the_callback(subject: Subject) -> None:
    class Ends(Listener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            super().on_partitions_revoked(partitions)
            subject.shared_state.tell(m.LosePartitions(3, (A, B, C), {1: (A,), 2: (B,)}))

    subject.core.listener = Ends()
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    subject.shared_state.tell(m.RevokePartitions(2, (B,)))
    subject.poll()
    assert told(subject) == [("revoked", [A]), ("lost", [B, C])]


def test_b11_what_is_assigned_after_the_loss_is_assigned(subject: Subject) -> None:
    subject.shared_state.tell(m.AssignPartitions(1, (A,)))
    subject.shared_state.tell(m.LosePartitions(2, (A,), {1: ()}))
    subject.shared_state.tell(m.AssignPartitions(3, (A,)))
    subject.poll()
    assert told(subject) == [("lost", [A]), ("assigned", [A])]


@pytest.mark.parametrize("kind", [m.LosePartitions, m.RevokePartitions])
def test_what_a_poll_inside_a_callback_has_told_of_is_known_after_it(
    subject: Subject, kind: type[m.CallbackNeeded]
) -> None:
    """The end of the callback must not take the new assignment for the one that goes."""
    old, new = SharedPartition(A, 1), SharedPartition(A, 2)

    class Polls(Listener):
        def _step(self, kind: str, partitions: list[TopicPartition]) -> None:
            super()._step(kind, partitions)
            if kind != "assigned":
                assert dict(subject.core.known.partitions) == {A: old}
                subject.shared_state.tell(m.AssignPartitions(3, (A,), {A: new}))
                subject.poll()

    subject.core.listener = Polls()
    subject.shared_state.tell(m.AssignPartitions(1, (A,), {A: old}))
    subject.shared_state.tell(kind(2, (A,)))
    subject.poll()
    assert [step for step, _ in told(subject)][0::2] == ["assigned", "assigned"]
    assert dict(subject.core.known.partitions) == {A: new}


def test_b12_a_revocation_is_finished_by_the_poll_that_finds_it(subject: Subject) -> None:
    """The commit goes first, so the network thread gives the partitions up when that has ended; nobody waits here."""
    reading(subject, A, B)
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    assert told(subject) == [("revoked", [A])]
    [commit] = commits(subject)
    assert (set(commit.offsets), commit.retry, commit.parting) == ({A}, False, True)
    sent = list(subject.shared_state.application_events)
    assert sent.index(commit) < sent.index(m.CallbackDone(1, 0, None, (A,)))


def test_b12_a_revocation_is_finished_though_a_callback_of_a_commit_raises(subject: Subject) -> None:
    reading(subject, A, B)
    subject.core.commits.commit_async(None, raising)
    [commit] = commits(subject)
    subject.shared_state.tell(m.CommitCompleted(commit.id, commit.offsets, None))
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    with pytest.raises(ZeroDivisionError):
        subject.poll()
    assert told(subject) == [("revoked", [A])]


def raising(*_: object) -> None:
    raise ZeroDivisionError


def test_b12_a_commit_before_a_revocation_that_failed_is_told(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    reading(subject, A)
    subject.shared_state.tell(m.RevokePartitions(1, (A,)))
    subject.poll()
    [commit] = commits(subject)
    subject.shared_state.tell(m.CommitCompleted(commit.id, commit.offsets, KafkaTimeoutError("too late")))
    subject.poll()
    assert "auto-commit of 1 partition failed; their records may be processed again: too late" in caplog.text


def test_c12_records_keep_the_identity_of_their_poll_until_a_poll_has_told_of_its_loss(
    subject: Subject,
) -> None:
    """Other calls hear of a new membership, too: they must not give it to records of the old one."""
    old, new = GroupMetadata("g", 5, "one"), GroupMetadata("g", 1, "two")
    reading(subject, A)
    subject.shared_state.tell(m.IdentityChanged(old))
    subject.poll()
    assert subject.core.identity == old
    subject.shared_state.tell(m.LosePartitions(2, (A,)))
    subject.shared_state.tell(m.IdentityChanged(new))
    subject.core.check()
    assert (subject.core.group, subject.core.identity) == (new, old)
    seen: list[GroupMetadata] = []
    listener: Any = subject.core.listener
    listener.on_partitions_lost = lambda partitions: seen.append(subject.core.identity)
    subject.poll()
    assert seen == [old], "what the callback commits is of the membership that was lost"
    assert subject.core.identity == new


def test_c12_an_identity_without_a_loss_is_that_of_the_next_poll(subject: Subject) -> None:
    reading(subject, A)
    subject.shared_state.tell(m.IdentityChanged(GroupMetadata("g", 5, "one")))
    subject.core.check()
    assert subject.core.identity.generation_id == -1
    # The short way of a poll must not leave it out.
    assert subject.core.polls.poll_buffered(1) is None
    subject.poll()
    assert subject.core.identity.generation_id == 5


@pytest.mark.parametrize("named", [True, False])
def test_c12_what_was_lost_is_not_committed_before_a_poll_has_told_of_it(
    subject: Subject, named: bool
) -> None:
    """It may be assigned to this member again, and others have read it meanwhile."""
    reading(subject, A, B)
    subject.shared_state.tell(m.LosePartitions(2, (A,)))
    offsets = {A: OffsetAndMetadata(3), B: OffsetAndMetadata(4)} if named else None
    subject.core.commits.commit_async(offsets, None)
    [commit] = commits(subject)
    assert commit.lost == {A}
    subject.poll()
    subject.core.commits.commit_async(offsets, None)
    [_, after] = commits(subject)
    assert after.lost == frozenset()


# ---------------------------------------------------------------- what is shown


def ended(generation: int, *partitions: TopicPartition) -> m.RebalanceFinished:
    rebalance = m.Rebalance("first join", 0, 1, generation, partitions, partitions, ())
    return m.RebalanceFinished(rebalance, GroupMetadata("g", generation, "m"))


def generations(subject: Subject) -> list[int]:
    return [each.generation for each in subject.core.rebalances]


def test_c16_a_rebalance_is_shown_with_the_partitions_that_it_assigns(subject: Subject) -> None:
    subject.shared_state.tell(m.AssignPartitions(1, (A,), {A: SharedPartition(A, 1)}, ended(4, A)))
    subject.core.exchange.take_background_events()
    assert (generations(subject), dict(subject.core.known.partitions)) == ([], {})
    assert subject.core.identity.generation_id == -1
    subject.poll()
    assert (generations(subject), set(subject.core.known.partitions)) == ([4], {A})
    assert subject.core.identity.generation_id == 4


def test_c16_a_rebalance_whose_partitions_were_lost_untold_is_in_the_history_once(subject: Subject) -> None:
    subject.shared_state.tell(m.AssignPartitions(1, (A,), {A: SharedPartition(A, 1)}, ended(4, A)))
    subject.shared_state.tell(m.LosePartitions(2, (A,), {1: ()}))
    subject.shared_state.tell(m.AssignPartitions(3, (A,), {A: SharedPartition(A, 2)}, ended(5, A)))
    subject.poll()
    assert told(subject) == [("lost", [A]), ("assigned", [A])]
    assert generations(subject) == [4, 5]


def test_c16_the_loss_with_which_a_member_gives_up_is_shown_by_the_poll_that_tells(subject: Subject) -> None:
    subject.shared_state.tell(m.AssignPartitions(1, (A,), {A: SharedPartition(A, 1)}, ended(4, A)))
    subject.poll()
    subject.shared_state.tell(m.LosePartitions(2, (A,), {}))
    subject.shared_state.tell(ended(-1))
    subject.core.exchange.take_background_events()
    assert generations(subject) == [4]
    subject.poll()
    assert (generations(subject), dict(subject.core.known.partitions)) == ([4, -1], {})
