"""The loop of `process`, step by step: its turns, and how it waits for handlers.

Meanwhile it polls nothing. Whatever else it does in each turn goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.patience import PATIENCE, until
from tests.work.worlds import Real, Simulated, World, become, is_going

from kadence import Record, TopicPartition
from kadence.errors import FencedInstanceIdError
from kadence.types import OffsetAndMetadata
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.desk import Desk
from kadence.work.frontier import Stretch
from kadence.work.processing import Processing
from kadence.work.scheduler import Task
from kadence.work.settings import settings_of
from kadence.work.steps import Hear, Idle, Poll
from kadence_testing import FakeClock

GOES, STAYS = TopicPartition("goes", 0), TopicPartition("stays", 0)

DRAIN_MS: Final = 20_000
COMMIT_MS: Final = 5_000


class Loop:
    """The loop, whose steps are carried out by hand. The test is its only worker.

    Attributes:
        woken: when (ms) workers were woken. committed: the offsets of each commit that is not waited for. refused: what
        such a commit raises. heard: called by a step `Hear`. idle: how many steps `Idle` there were. begun: see
        `take_when_woken`.
    """

    stopping = False

    def __init__(self, *, in_group: bool = True, **more: Any) -> None:
        given: dict[str, Any] = {
            "workers": 4,
            "order": "none",
            "executor": None,
            "retry": Retry(attempts=2, backoff=3, jitter=0),
            "dead_letter": None,
            "timeout": None,
            "batch": None,
            "halve": False,
            "batch_format": "records",
            "max_records": 100,
            "max_bytes": 1 << 20,
            "drain": DRAIN_MS / 1000,
            "transactional_id": None,
        }
        settings = settings_of(lambda record: None, **{**given, **more})
        self.clock = FakeClock()
        self.woken: list[int] = []
        self.committed: list[dict[TopicPartition, int]] = []
        self.heard: Callable[[], object] = lambda: None
        self.refused: Exception | None = None
        self.idle = 0
        self.begun: list[Task] = []
        nothing: Any = None
        around: Any = self
        self.desk = Desk(
            settings, self.clock, self.clock.now_ms, "g", nothing, lambda: None, nothing, nothing
        )
        self.processing = Processing(
            settings, self.desk, around, around, around, self.clock, self.wake, self.look, in_group, COMMIT_MS
        )
        self.steps = self.processing.run()
        self.step: Any = next(self.steps)
        self.desk.tell_lost = lambda: None

    # -- the consumer

    is_manual = False

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset((GOES, STAYS))

    def finished(self) -> frozenset[TopicPartition]:
        return frozenset()

    def has_moved(self) -> bool:
        return False

    def stretches(self, *, from_here: bool = False) -> dict[TopicPartition, Stretch]:
        return {partition: Stretch(1, 0) for partition in self.assignment()}

    def returned_under(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 1)

    def fetch_epochs(self) -> dict[TopicPartition, int]:
        return dict.fromkeys(self.assignment(), 1)

    def commit_async(self, read: Any, callback: Any, *, is_parting: bool = False) -> None:
        if self.refused is not None and not is_parting:
            raise self.refused
        self.committed.append({partition: each.at.offset for partition, each in read.items()})
        self.heard = lambda: callback({partition: each.at for partition, each in read.items()}, None)

    def wake(self) -> None:
        self.woken.append(self.clock.now_ms())

    def look(self, now: int, *, at_once: bool = False) -> bool:
        return False

    # -- the test

    def give(self, *partitions: TopicPartition, ms: int = 0) -> list[Task]:
        """The poll brings a record of each of these, after so long. Returns those that a worker takes then."""
        assert isinstance(self.step, Poll)
        brought: dict[TopicPartition, list[Record[Any, Any]]] = {}
        for partition in partitions:
            several = brought.setdefault(partition, [])
            several.append(Record(partition.topic, 0, len(several), value=b"x"))
        passed = {partition: OffsetAndMetadata(len(several)) for partition, several in brought.items()}
        self.clock.advance(ms)
        self.step = self.steps.send(
            SimpleNamespace(by_partition=lambda: brought, next_offsets=lambda: passed)
        )
        return self.taken()

    def taken(self) -> list[Task]:
        with self.desk.lock:
            return self.desk.take(10)

    def take_when_woken(self) -> list[Task]:
        """A worker that has been woken meanwhile takes records. Returns all that it has taken so."""
        if self.woken:
            self.woken.clear()
            self.begun += self.taken()
        return self.begun

    def done(self, *tasks: Task) -> None:
        with self.desk.lock:
            self.desk.finish(tasks)

    def begins(self, why: str) -> Any:
        """The wait for handlers begins, as the end, or as a revocation of `GOES`. Returns its steps, and the first."""
        if why == "ends":
            self.stopping = True
            return self.steps, self.steps.send(SimpleNamespace(by_partition=dict, next_offsets=dict))
        steps = self.processing.revoked((GOES,))
        return steps, next(steps)

    def carry(
        self, steps: Any, step: Any, until: Callable[[], object] = lambda: False, *, up_to: Any = ()
    ) -> Any:
        """Carry out steps until it is so, up to such a step, or to their end. Returns the next one, None at the end."""
        try:
            while not until() and not isinstance(step, up_to):
                if isinstance(step, Idle):
                    self.idle += 1
                    self.clock.advance(max(step.until - self.clock.now_ms(), 0))
                elif isinstance(step, Hear):
                    self.heard()
                step = steps.send(None)
        except StopIteration:
            return None
        return step


def test_without_a_group_the_loop_waits_after_the_commit_interval_too() -> None:
    loop = Loop(in_group=False)
    loop.give(GOES, ms=COMMIT_MS + 1)
    assert loop.step.ms > 0
    assert loop.committed == []


# ---------------------------------------------------------------- while it waits


@pytest.mark.parametrize("why", ["ends", "goes"])
def test_a_handler_learns_that_it_has_timed_out(why: str, caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(timeout=2.0)
    [task] = loop.give(GOES)
    context = Context([task])
    began = loop.clock.now_ms()
    steps, step = loop.begins(why)
    step = loop.carry(steps, step, lambda: context.timed_out)
    assert 2_000 <= loop.clock.now_ms() - began <= 3_000
    step = loop.carry(steps, step, lambda: loop.clock.now_ms() - began >= 15_000)
    assert caplog.text.count("goes-0@0 takes longer than timeout=2 s (attempt 1)") == 1
    # It returns, and is done.
    loop.done(task)
    assert loop.carry(steps, step) is None
    with loop.desk.lock:
        assert loop.desk.done == 1
    assert "gave up" not in caplog.text


@pytest.mark.parametrize("why", ["ends", "goes"])
def test_the_wait_does_not_spin(why: str, caplog: pytest.LogCaptureFixture) -> None:
    """A look a second, and one for each commit."""
    loop = Loop(timeout=2.0)
    loop.give(GOES, GOES, STAYS)
    steps, step = loop.begins(why)
    loop.carry(steps, step)
    assert DRAIN_MS / 1000 <= loop.idle <= DRAIN_MS / 1000 + DRAIN_MS / COMMIT_MS
    assert "gave up waiting for" in caplog.text


def test_a_retry_of_a_partition_that_stays_begins_when_it_is_due() -> None:
    loop = Loop()
    of_goes, of_stays = loop.give(GOES, STAYS)
    steps, step = loop.begins("goes")
    began = loop.clock.now_ms()
    loop.desk.fails((of_stays,), OSError("not now"))
    loop.carry(steps, step, loop.take_when_woken)
    assert loop.begun == [of_stays]
    assert loop.clock.now_ms() == began + 3_000
    loop.done(of_goes, of_stays)


def test_a_batch_that_has_waited_long_enough_begins() -> None:
    loop = Loop(batch=(2, 1.5), workers=2)
    [of_goes] = loop.give(GOES) or loop.give(ms=1_500)
    assert loop.give(STAYS) == []
    began = loop.clock.now_ms()
    steps, step = loop.begins("goes")
    loop.carry(steps, step, loop.take_when_woken)
    assert [task.record.topic for task in loop.begun] == ["stays"]
    assert loop.clock.now_ms() == began + 1_500
    loop.done(of_goes, *loop.begun)


def test_at_the_end_no_worker_is_woken() -> None:
    loop = Loop()
    failed, *_ = loop.give(GOES, STAYS, STAYS)
    loop.desk.fails((failed,), OSError("not now"))
    steps, step = loop.begins("ends")
    loop.woken.clear()
    loop.carry(steps, step)
    assert loop.woken == []


def test_a_record_that_holds_up_its_partition_is_named(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(drain=150.0)
    loop.give(GOES)
    steps, step = loop.begins("goes")
    loop.carry(steps, step)
    assert [record.getMessage() for record in caplog.records if "worked on for" in record.getMessage()] == [
        f"goes-0@0 has been worked on for {seconds} s, and holds up the committed offset of its partition"
        for seconds in (60, 120)
    ]


@pytest.mark.parametrize("why", ["ends", "goes"])
def test_h3_what_is_done_meanwhile_is_committed_every_interval(why: str) -> None:
    loop = Loop()
    slow, *others = loop.give(GOES, STAYS, STAYS, STAYS)
    steps, step = loop.begins(why)
    began = loop.clock.now_ms()
    for count, other in enumerate(others, 1):
        loop.done(other)
        loop.committed.clear()
        step = loop.carry(steps, step, lambda: loop.committed)
        assert loop.committed[0][STAYS] == count
        assert loop.clock.now_ms() - began <= count * COMMIT_MS
    loop.done(slow)
    assert loop.carry(steps, step) is None


@pytest.mark.parametrize("why", ["ends", "goes"])
def test_a_commit_that_fails_at_once_ends_no_wait(why: str) -> None:
    """The member is fenced, say. The commit after the wait, or the next poll, raises it."""
    loop = Loop()
    loop.give(GOES, STAYS)
    steps, step = loop.begins(why)
    began = loop.clock.now_ms()
    loop.refused = FencedInstanceIdError("another member has its group.instance.id")
    loop.carry(steps, step)
    assert loop.clock.now_ms() == began + DRAIN_MS


def test_a_callback_of_the_program_that_raises_meanwhile_ends_it_after_the_wait() -> None:
    loop = Loop()
    slow, other = loop.give(GOES, STAYS)
    steps, step = loop.begins("ends")
    loop.done(other)
    assert loop.carry(steps, step, up_to=Hear) is not None
    step = steps.throw(ValueError("of a callback"))
    assert isinstance(step, Idle)
    loop.done(slow)
    with pytest.raises(ValueError, match="of a callback"):
        loop.carry(steps, step)


def test_h10_a_stop_during_a_revocation_gives_drain_once() -> None:
    """Twice as long would not fit into the grace period of `stop`."""
    loop = Loop()
    loop.give(GOES, STAYS)
    steps, _ = loop.begins("goes")
    began = loop.clock.now_ms()
    loop.clock.advance(12_000)
    loop.stopping = True
    assert loop.carry(steps, steps.send(None)) is None
    assert loop.clock.now_ms() - began == DRAIN_MS
    loop.carry(*loop.begins("ends"))
    assert loop.clock.now_ms() - began == 12_000 + DRAIN_MS


# ---------------------------------------------------------------- with consumers


@pytest.mark.parametrize("transactional_id", [None, "first"])
def test_h3_what_stays_is_committed_while_a_revocation_waits(
    simulated: Simulated, transactional_id: str | None
) -> None:
    simulated.send("orders", [{"value": b"%d" % each, "partition": each} for each in range(4)])
    settings: dict[str, Any] = {"isolation_level": "read_committed", "group_protocol": "consumer"}
    contexts: dict[int, Context] = {}
    released: list[int] = []

    async def of_first(record: Record[Any, Any], context: Context) -> ProducerRecord:
        contexts[record.partition] = context
        await become(lambda: record.partition in released)
        return ProducerRecord("out", record.value)

    first = simulated.member(auto_commit_interval_ms=1_000, **settings)
    of_both = [first.processes(of_first, workers=4, drain=300, transactional_id=transactional_id)]
    simulated.until(lambda: len(contexts) == 4)
    second = simulated.member(**settings)
    of_both.append(second.processes(lambda record: None))
    simulated.until(lambda: any(map(is_going, contexts.values())))
    began = simulated.now
    stay = [partition for partition, context in contexts.items() if not is_going(context)]
    for partition in stay:
        released.append(partition)
        simulated.until(lambda partition=partition: simulated.committed("orders")[partition][0] == 1)  # type: ignore[misc]
        assert partition in simulated.values()
    assert len(stay) == 2
    assert simulated.now - began < 10
    released[:] = range(4)
    simulated.until(lambda: simulated.offset("orders") == 4)
    first.stop()
    second.stop()
    for each in of_both:
        each.result()


def test_what_is_done_while_the_end_waits_outlasts_a_crash(world: World) -> None:
    """Each record by itself: the loop hears of a commit's end though it does not poll."""
    world.write("one", 4, keys=4)
    member = world.member("one", auto_commit_interval_ms=100)
    begun: list[int] = []
    released: list[int] = []

    async def of_loop(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        await become(lambda: record.offset in released)

    call = member.processes(of_loop, workers=4, order="none", drain=300)
    world.until(lambda: len(begun) == 4)
    member.stop()
    for offset in range(3):
        released.append(offset)
        world.until(lambda offset=offset: world.offset() == offset + 1)  # type: ignore[misc]
        assert not call.is_done
    released.append(3)
    assert call.result().done == 4
    assert world.offset() == 4


def test_a_handler_on_a_thread_learns_that_it_has_timed_out(
    real: Real, caplog: pytest.LogCaptureFixture
) -> None:
    real.write("one", 1)
    member = real.member("one")

    def work(record: Record[Any, Any], context: Context) -> None:
        member.stop()
        until(lambda: context.timed_out)

    assert member.process(work, timeout=0.5, drain=PATIENCE).done == 1
    assert real.offset() == 1
    assert caplog.text.count("one-0@0 (key of 3 bytes) takes longer than timeout=0.5 s (attempt 1)") == 1
