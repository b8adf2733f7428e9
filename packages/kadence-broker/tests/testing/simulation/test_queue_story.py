"""Queues under random trouble, and each rule of the simulation's history broken on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.luck import seeds
from tests.testing.simulation.queue_story import QueueStory

from kadence import AcknowledgeType, ConfigError, Record
from kadence.clock import FOREVER
from kadence.share.application.buffer import Buffer
from kadence.share.network.held import Held
from kadence.share.network.manager import ShareRequestManager
from kadence.share.share_state import AcquiredFetch
from kadence_broker.share import acknowledging
from kadence_broker.share.acquiring import _Acquiring
from kadence_broker.share.dead_letters import DeadLetters
from kadence_broker.share.delivery import DONE, Delivery, RecordState
from kadence_broker.share.led import Led
from kadence_broker.share.partition import SharePartition
from kadence_broker.share.sessions import ShareSessions
from kadence_broker.share.store import ShareStore
from kadence_testing.simulation import Program, Simulation, SimulationError, queue_member, writer

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", seeds(2))
def test_every_step_of_a_queue_is_one_of_kafkas(seed: int) -> None:
    QueueStory(seed).run()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [seed + 1_000 for seed in seeds(40)])
def test_every_step_of_more_queues_is_one_of_kafkas(seed: int) -> None:
    QueueStory(seed).run()


@pytest.mark.parametrize("seed", [772, *seeds(2)])
def test_q2_locks_become_shorter_and_longer_while_records_are_held(seed: int) -> None:
    QueueStory(seed, changes_locks=True).run()


def test_a_connection_that_ends_with_its_answer_and_the_next_in_one_turn() -> None:
    QueueStory(105).run()


def test_a_late_request_of_an_old_connection_uses_up_the_epoch_of_the_next_one() -> None:
    QueueStory(1_000_370).run()


@pytest.mark.heavy
def test_the_same_seed_is_the_same_story_of_a_queue() -> None:
    first, second = QueueStory(3), QueueStory(3)
    first.run()
    second.run()
    assert first.counts() == second.counts()
    assert first.simulation.history.fingerprint == second.simulation.history.fingerprint


# ---------------------------------------------------------------- the broker, broken


def locks_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "next_lock_end", lambda self: FOREVER)


def locks_are_too_long(patch: pytest.MonkeyPatch) -> None:
    lock = SharePartition.lock

    def longer(self: SharePartition, now: int, batch: Any, deliveries: Any, settings: Any) -> None:
        lock(self, now + 500, batch, deliveries, settings)

    patch.setattr(SharePartition, "lock", longer)


def a_renewal_moves_nothing(patch: pytest.MonkeyPatch) -> None:
    lock = SharePartition.lock

    def of_new_ones(self: SharePartition, now: int, batch: Any, deliveries: Any, settings: Any) -> None:
        if new := [each for each in deliveries if each.lock_ends == FOREVER]:
            lock(self, now, batch, new, settings)

    patch.setattr(SharePartition, "lock", of_new_ones)


def counts_stay(patch: pytest.MonkeyPatch) -> None:
    give = _Acquiring._give

    def give_alike(self: _Acquiring, batch: Any, first: int, last: int, delivery: Delivery) -> None:
        delivery.count -= 1
        give(self, batch, first, last, delivery)

    patch.setattr(_Acquiring, "_give", give_alike)


def no_limit(patch: pytest.MonkeyPatch) -> None:
    def release(self: SharePartition, delivery: Any, first: int, last: int, _: Any, changes: Any) -> None:
        self.change(delivery, first, last, RecordState.AVAILABLE, changes)

    patch.setattr(SharePartition, "release", release)


def nothing_is_released_at_a_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Led, "release_member", lambda self, member: None)


def the_start_moves_over_what_is_acquired(patch: pytest.MonkeyPatch) -> None:
    def is_done(self: Delivery) -> bool:
        return self.state in DONE or self.state is RecordState.ACQUIRED

    patch.setattr(Delivery, "is_done", property(is_done))


def anybody_may_acknowledge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delivery, "is_held_by", lambda self, member: self.state is RecordState.ACQUIRED)


def accepted_is_archived(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(acknowledging._STATES, acknowledging.AckType.ACCEPT, RecordState.ARCHIVED)


def nothing_is_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareStore, "write", lambda self, *_: 0)


def no_dead_letters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetters, "send", lambda self, led, letter: led.letter_written(letter))


def the_memory_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareSessions, "has_members", lambda self, *_: False)


def nobody_is_suspect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Acquiring, "_is_suspect", lambda self, *_: False)


# ---------------------------------------------------------------- the client, broken


def ended_locks_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AcquiredFetch, "is_locked", lambda self, now: self.void is None)


def locks_begin_too_late(patch: pytest.MonkeyPatch) -> None:
    make: Any = AcquiredFetch.__init__

    def late(self: AcquiredFetch, *given: Any) -> None:
        make(self, *given[:5], given[5] + 600)

    patch.setattr(AcquiredFetch, "__init__", late)


def nothing_is_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareRequestManager, "_renews_at", lambda self, node: FOREVER)


def fails(breaks: Break, first: int, what: str, patch: pytest.MonkeyPatch) -> None:
    """One of twenty stories meets it, and the first objection is the one that is meant."""
    breaks(patch)

    def run() -> None:
        for seed in range(first, first + 20):
            QueueStory(seed).run()

    with pytest.raises(SimulationError, match=what):
        run()


@pytest.mark.parametrize(
    ("breaks", "seed", "what"),
    [
        (the_start_moves_over_what_is_acquired, 0, "the start moved over it, and it was ACQUIRED"),
        (counts_stay, 0, "it was AVAILABLE, delivered 1 times, and is ACQUIRED, delivered 1 times"),
        (nothing_is_released_at_a_close, 1, "the session of .* has ended, and it still is ACQUIRED"),
    ],
)
def test_a_guard_that_is_missing(
    breaks: Break, seed: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(breaks, seed, what, monkeypatch)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("breaks", "seed", "what"),
    [
        (locks_never_end, 5, "its lock ended at .*, and it is still"),
        (locks_are_too_long, 0, "delivered 0 times, and is ACQUIRED"),
        (a_renewal_moves_nothing, 0, "says renew"),
        (no_limit, 0, "and is AVAILABLE, delivered 2 times"),
        (anybody_may_acknowledge, 3, "it was ACQUIRED.*and is AVAILABLE"),
        (accepted_is_archived, 0, "and is ARCHIVED.*says accept"),
        (nothing_is_stored, 1, "the disk should have ACKNOWLEDGED"),
        (no_dead_letters, 2, "has no dead letter"),
        (the_memory_forgets, 3, "left the memory of its leader, and members read it"),
        (nobody_is_suspect, 5, "the last delivery of a record is not alone"),
        (ended_locks_are_kept, 5, "its lock has ended, and .* counts on it"),
        (nothing_is_renewed, 14, "locks ended, though nothing was wrong"),
        (locks_begin_too_late, 5, "its lock has ended, and .* counts on it"),
    ],
)
def test_another_guard_that_is_missing(
    breaks: Break, seed: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(breaks, seed, what, monkeypatch)


# ---------------------------------------------------------------- by hand


async def quick(program: Program, record: Record) -> AcknowledgeType | None:
    """Accept a record in no time."""
    return None


def queue(handler: Any = quick, **config: Any) -> Simulation:
    """One member of a queue whose locks are short and not renewed, and a record for it."""
    simulation = Simulation(
        seed=1, topics={"t": 1}, config={"group.share.min.record.lock.duration.ms": 1_000}
    )
    simulation.broker.configure_group(
        "g", {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": 1_000}
    )
    settings = {"share.lock.renewal": False, **config}
    simulation.start("m", queue_member("g", ["t"], handler, settings, commits=True))
    simulation.start("w", writer(["t"], count=3, pause_s=0.0))
    return simulation


def a_late_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock ends while the acknowledgement is under way."""

    async def slow_line(program: Program, record: Record) -> None:
        simulation.network.delay_ms = (1_500, 1_500)

    with queue(slow_line) as simulation:
        simulation.run(20)


def test_an_acknowledgement_that_comes_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a_late_word(monkeypatch)


def test_an_acknowledgement_that_comes_too_late_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def had(self: Delivery, member: str) -> bool:
        return self.state in (RecordState.ACQUIRED, RecordState.AVAILABLE)

    monkeypatch.setattr(Delivery, "is_held_by", had)
    with pytest.raises(SimulationError, match="the start moved over it, and it was AVAILABLE, delivered 1"):
        a_late_word(monkeypatch)


def test_a_poll_returns_what_has_lost_its_lock_in_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Buffer, "_drop", lambda self, reading: None)
    monkeypatch.setattr(AcquiredFetch, "is_locked", lambda self, now: True)
    monkeypatch.setattr(Held, "is_locked", lambda self, now, ranges: True)

    async def slow(program: Program, record: Record) -> None:
        await asyncio.sleep(1.5)

    with (
        queue(slow, **{"max.poll.records": 1}) as simulation,
        pytest.raises(
            SimulationError, match=r"its lock has ended, and .* counts on it|its lock ended before"
        ),
    ):
        simulation.run(30)


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_q3_restarts_of_a_consumer_archive_nothing_that_nobody_saw(mode: str) -> None:
    async def slow(program: Program, record: Record) -> None:
        await asyncio.sleep(0.1)

    async def batches(program: Program) -> None:
        async with program.producer({"linger.ms": 5}) as producer:
            await asyncio.gather(*(producer.send_and_wait("t", b"%d" % number) for number in range(200)))

    config = {"max.poll.records": 3, "share.acquire.mode": mode, "share.lock.renewal": True}
    with queue(slow, **config) as simulation:
        simulation.start("batches", batches)
        worker = simulation.programs["m"]
        for _ in range(5):
            simulation.run(3)
            worker.kill()
            worker.restart()
        simulation.run_until(lambda: simulation.is_empty("g"))
        simulation.check()
        assert len(simulation.history.shares.fates("g")) == 203
        assert simulation.history.shares.unseen == []


def test_a_group_is_configured_as_an_operator_does_it() -> None:
    with Simulation(topics={"t": 1}) as simulation:
        with pytest.raises(ConfigError, match=r"Unknown group config name: share\.what"):
            simulation.broker.configure_group("g", {"share.what": 1})
        simulation.broker.crash()
        with pytest.raises(SimulationError, match="is down and configures no group"):
            simulation.broker.configure_group("g", {})
