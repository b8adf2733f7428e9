"""`process` under random trouble, and each rule of its journal broken on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.luck import seeds
from tests.testing.simulation.work_story import WorkStory

from kadence.types import GroupMetadata
from kadence.work import Context, following
from kadence.work.desk import Desk
from kadence.work.frontier import Frontier
from kadence.work.processing import Processing
from kadence.work.rounds import Round
from kadence.work.scheduler import Scheduler, Task
from kadence.work.transactions import Transactions
from kadence_testing.simulation import SimulationError
from kadence_testing.simulation.producer import SimulatedProducer


@pytest.mark.parametrize("seed", seeds(1))
def test_every_record_ends_in_one_way_whatever_happens(seed: int) -> None:
    WorkStory(seed).run()


@pytest.mark.parametrize("seed", seeds(1))
def test_in_transactions_every_record_leads_to_one_thing(seed: int) -> None:
    WorkStory(seed, transactional=True).run()


def test_the_same_seed_is_the_same_story_of_work() -> None:
    first, second = WorkStory(105), WorkStory(105)
    first.run()
    second.run()
    assert repr(first.journal) == repr(second.journal)
    assert first.simulation.history.fingerprint == second.simulation.history.fingerprint


def breaks(what: str, *seeds: int, transactional: bool = False) -> None:
    """One of these stories ends with such an objection."""

    def run() -> None:
        for seed in seeds:
            WorkStory(seed, transactional=transactional).run()

    with pytest.raises(SimulationError, match=what):
        run()


def test_a_commit_of_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Frontier, "offset", property(lambda self: self.position))
    breaks("is committed as done, and is not", 0, 1)


def test_what_was_done_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "decode", lambda offset, metadata: [])
    breaks("began, and was committed as done before", 7, 8, 13)


def test_a_key_whose_records_run_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Scheduler.__init__

    def without_order(self: Scheduler, order: Any, *more: Any) -> None:
        init(self, "none", *more)

    monkeypatch.setattr(Scheduler, "__init__", without_order)
    breaks("began (beside|before) .* of its key", 0, 1, 2)


def test_a_dead_letter_that_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def letter(self: Desk, task: Task, *_more: Any) -> None:
        self._finished([task])

    monkeypatch.setattr(Desk, "_letter", letter)
    breaks("is committed as done, and is not", 1, 3)


def test_outputs_that_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def sends(self: Desk, tasks: Sequence[Task], _outputs: Any) -> None:
        self._finished(tasks)

    monkeypatch.setattr(Desk, "sends", sends)
    breaks("is committed as done, and is not", 1)


def test_commits_that_come_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Processing.__init__

    def lazy(self: Processing, *given: Any) -> None:
        init(self, *given)
        self._commit_ms *= 20

    monkeypatch.setattr(Processing, "__init__", lazy)
    breaks("ms ago, and is not committed", 1)


def test_attempts_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Scheduler.again

    def uncounted(self: Scheduler, task: Task, due: int, now: int) -> None:
        again(self, task, due, now)
        task.attempts -= 1

    monkeypatch.setattr(Scheduler, "again", uncounted)
    breaks("began with attempt 1 after 1 attempts", 4, 5, 2)


@pytest.mark.parametrize("transactional", [False, True])
def test_handlers_that_stopped_taken_for_done(monkeypatch: pytest.MonkeyPatch, transactional: bool) -> None:
    monkeypatch.setattr(Context, "lost", property(Context._is_lost))
    breaks("is committed as done, and is not", 19, 36, transactional=transactional)


def test_halves_that_overtake_a_record_of_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "first_of", lambda self, tasks, now: list(tasks))
    breaks("began before .* of its key had ended", 200019, 200057, 200076)


def test_no_half_begins_of_a_partition_that_went() -> None:
    """Its first record failed and is nobody's, so the second one would be the first of its key."""
    WorkStory(200183).run()


def test_no_half_begins_when_the_processing_has_ended() -> None:
    """Its first record failed and comes again, at another member or in another life."""
    WorkStory(100179).run()


def test_offsets_that_are_not_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        return

    monkeypatch.setattr(SimulatedProducer, "send_offsets_to_transaction", nothing)
    breaks("is committed twice in out", 200000, transactional=True)


def test_offsets_without_what_their_records_led_to(monkeypatch: pytest.MonkeyPatch) -> None:
    carry = Transactions._carry

    def without_outputs(self: Transactions, producer: Any, this: Round, group: GroupMetadata) -> Any:
        for each in this.finished:
            each.outputs = ()
        return carry(self, producer, this, group)

    monkeypatch.setattr(Transactions, "_carry", without_outputs)
    breaks("is committed as done, and is not", 200000, transactional=True)


def test_transactions_of_members_that_are_no_longer_in_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transactions.commit

    def as_nobody(self: Transactions, this: Round, group: GroupMetadata) -> None:
        commit(self, this, GroupMetadata(group.group_id))

    monkeypatch.setattr(Transactions, "commit", as_nobody)
    breaks("a commit from the past was accepted in a transaction", 200000, transactional=True)


def test_a_member_that_is_killed_before_its_listener_hears_of_an_assignment() -> None:
    """It leaves its consumer then, which gives up what the listener has not heard of."""
    WorkStory(210353, transactional=True).run()


def test_a_member_that_was_cut_off_begins_what_another_one_did_meanwhile() -> None:
    """Its first records come before the answer that it is out: it had the partition before they were done."""
    WorkStory(110552).run()


def test_a_transaction_fails_after_its_member_has_lost_the_partition_and_got_it_again() -> None:
    """What was handled since then is not handled once more."""
    WorkStory(120140, transactional=True).run()
