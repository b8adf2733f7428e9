"""The loop of `process` over a queue, step by step: outcomes, locks, timeouts, and how much it reads ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from kadence import ConfigError, ProducerRecord, Record, RecordDeserializationError, Retry, TopicPartition
from kadence.errors import HandlerTimeoutError, InvalidRecordStateError, WakeupError
from kadence.work.context import Context
from kadence.work.queue import QueueDesk, QueueProcessing, queue_settings
from kadence.work.scheduler import Task
from kadence.work.steps import Commit, Idle, Poll
from kadence_testing import FakeClock

JOBS = TopicPartition("jobs", 0)
ACCEPT, RELEASE, REJECT = 1, 2, 3


class Fetch:
    """What an answer acquired, until its locks end."""

    def __init__(self) -> None:
        self.locked = True

    def is_locked(self, now: int) -> bool:
        return self.locked


class World:
    """The loop, whose steps are carried out by hand, and a worker."""

    stopping = False

    def __init__(self, policy: str = "raise", **more: Any) -> None:
        given = {
            "workers": 2,
            "executor": None,
            "retry": None,
            "dead_letter": None,
            "timeout": None,
            "batch": None,
            "halve": False,
            "batch_format": "records",
            "max_records": 100,
            "max_bytes": 1 << 20,
            "drain": 5.0,
        }

        async def coroutine(record: object) -> None: ...

        is_coroutine = more.get("executor") == "loop"
        settings = queue_settings(coroutine if is_coroutine else lambda record: None, **{**given, **more})
        self.clock = FakeClock()
        nothing: Any = None
        caller: Any = SimpleNamespace(carry=lambda calls: [call() for call in calls], end=lambda: None)
        self.sender: Any = None
        self.policy = policy
        self.changes = 0
        self.desk = QueueDesk(
            settings,
            self.clock,
            self.clock.now_ms,
            "q",
            lambda: self.sender,
            self.changed,
            nothing,
            lambda name: caller,
            policy=policy,
        )
        self.settled: list[tuple[Any, int, int]] = []
        self.sent = 0
        self.rests = False
        self.taken: Sequence[Any] = ()
        around: Any = self
        self.processing = QueueProcessing(
            settings,
            self.desk,
            around,
            around,
            around,
            self.clock,
            lambda: None,
            self.look,
            True,
            5_000,
            source=around,
        )
        self.steps = self.processing.run()
        self.step: Any = next(self.steps)

    def changed(self) -> None:
        self.changes += 1

    def look(self, now: int, *, at_once: bool = False) -> bool:
        return False

    # -- the source

    def poll(self, ms: int, most: int) -> Any:
        raise AssertionError("the test answers polls")

    def settle(self, outcomes: Any) -> None:
        self.settled += [(fetch, *each) for fetch, said in outcomes.items() for each in said]
        outcomes.clear()

    def send(self) -> None:
        self.sent = len(self.settled)

    def rest(self) -> None:
        self.rests = True

    # -- the test

    def give(self, fetch: Fetch | None = None, offsets: Sequence[int] = ()) -> None:
        """The poll brings these records."""
        assert isinstance(self.step, Poll)
        records: list[Record[Any, Any]] = [
            Record("jobs", 0, offset, value=b"x", delivery_count=2) for offset in offsets
        ]
        self.clock.advance(20)
        self.taken = [(fetch, JOBS, records)] if fetch is not None else []
        self.step = self.steps.send(None)

    def take(self, most: int = 10) -> list[Task]:
        with self.desk.lock:
            return self.desk.take(most)

    def done(self, *tasks: Task) -> None:
        with self.desk.lock:
            self.desk.finish(tasks)

    def said(self) -> list[tuple[int, int]]:
        """Offsets and outcomes since this was asked last."""
        self.give()
        settled, self.settled = self.settled, []
        return [(offset, kind) for _, offset, kind in settled]

    def end(self) -> Exception | None:
        """Let it end, with all that it waits for."""
        self.stopping = True
        try:
            while True:
                if isinstance(self.step, Idle):
                    self.clock.advance(max(self.step.until - self.clock.now_ms(), 1))
                self.step = self.steps.send(None)
        except StopIteration:
            return None
        except Exception as error:  # noqa: BLE001 - looked at by the test
            return error


def test_what_is_done_is_accepted_together_and_what_failed_for_good_rejected() -> None:
    world = World()
    world.give(Fetch(), range(4))
    first, second, third, fourth = world.take()
    world.done(first, third)
    world.desk.fails([second], ValueError("no"))
    assert world.said() == [(0, ACCEPT), (2, ACCEPT), (1, REJECT)]
    assert (world.desk.done, world.desk.rejected, world.desk.failed) == (3, 1, 1)
    world.done(fourth)
    assert world.said() == [(3, ACCEPT)]
    assert world.end() is None


def test_an_attempt_that_failed_is_repeated_and_says_nothing_meanwhile() -> None:
    world = World(retry=Retry(attempts=2, backoff=1.0, jitter=0))
    world.give(Fetch(), [0])
    [task] = world.take()
    world.desk.fails([task], ValueError("no"))
    assert world.said() == []
    assert world.take() == []
    world.clock.advance(1_000)
    [again] = world.take()
    context = Context([again])
    assert (context.attempt, context.delivery_count) == (2, 2)
    world.done(again)
    assert world.said() == [(0, ACCEPT)]
    world.end()


@pytest.mark.parametrize(("policy", "kind"), [("release", RELEASE), ("reject", REJECT)])
def test_a_record_that_cannot_be_decoded_follows_the_policy(policy: str, kind: int) -> None:
    world = World(policy)
    world.give(Fetch(), [0])
    [task] = world.take()
    world.desk.fails([task], bad(task))
    assert world.said() == [(0, kind)]
    assert world.end() is None


def bad(task: Task) -> RecordDeserializationError:
    return RecordDeserializationError("bad", partition=JOBS, offset=0, field="value", record=task.record)


def test_with_raise_a_record_that_cannot_be_decoded_ends_it_and_is_released() -> None:
    world = World("raise")
    world.give(Fetch(), [0, 1])
    first, _ = world.take(1) + world.take(1)
    world.desk.fails([first], bad(first))
    error = world.end()
    assert isinstance(error, RecordDeserializationError)
    assert [(offset, kind) for _, offset, kind in world.settled] == [(0, RELEASE), (1, RELEASE)]


def test_records_whose_lock_is_gone_are_forgotten_and_their_handlers_count_for_nothing() -> None:
    world = World()
    fetch, other = Fetch(), Fetch()
    world.give(fetch, [0, 1])
    world.give(other, [7])
    [running] = world.take(1)
    context = Context([running])
    fetch.locked = False
    assert world.said() == []
    assert context.lost
    world.done(running)
    [left] = world.take()
    assert left.record.offset == 7
    world.done(left)
    assert world.said() == [(7, ACCEPT)]
    assert world.desk.scheduler.total == 0
    world.end()


def test_a_thread_that_takes_longer_than_timeout_gives_its_record_back() -> None:
    world = World(timeout=1.0)
    world.give(Fetch(), [0])
    [task] = world.take()
    context = Context([task])
    world.clock.advance(1_000)
    world.give()
    assert world.said() == [(0, RELEASE)]
    assert context.timed_out
    assert context.lost
    world.done(task)
    assert world.said() == []
    assert world.desk.scheduler.total == 0
    world.end()


@pytest.mark.parametrize("fails", [False, True])
def test_h7_brokers_that_take_longer_than_timeout_do_not_give_a_record_back(fails: bool) -> None:
    """Its handler has ended. Released, it came again until the group's limit, and had a dead letter each time."""
    world = World(timeout=1.0, dead_letter="dead")
    acknowledged: Future[None] = Future()
    world.sender = SimpleNamespace(send=lambda *what, **more: acknowledged)
    world.give(Fetch(), [0])
    [task] = world.take()
    if fails:
        world.desk.fails((task,), ValueError("no"))
    else:
        world.desk.sends((task,), [ProducerRecord("out", b"x")])
    world.clock.advance(5_000)
    assert world.said() == []
    acknowledged.set_result(None)
    assert world.said() == [(0, ACCEPT)]
    world.end()


@pytest.mark.parametrize("executor", ["loop", "processes"])
def test_h5_a_coroutine_or_process_that_takes_longer_than_timeout_has_failed_an_attempt(
    executor: str,
) -> None:
    """Released, it came again until the group's limit, without its retries and without its dead letter."""
    world = World(timeout=1.0, executor=executor, retry=Retry(attempts=2, backoff=1.0, jitter=0))
    world.give(Fetch(), [0])
    for attempt in (1, 2):
        [task] = world.take()
        assert Context([task]).attempt == attempt
        world.clock.advance(1_000)
        world.give()
        assert world.said() == []
        world.desk.fails((task,), HandlerTimeoutError("too long"))
        world.clock.advance(2_000)
        world.give()
    assert world.said() == [(0, REJECT)]
    world.end()


def test_an_outcome_that_brokers_refuse_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.give(Fetch(), [0])
    world.done(*world.take())
    world.stopping = True
    world.step = world.steps.send([])
    assert isinstance(world.step, Commit)
    refused = InvalidRecordStateError("its lock had ended")
    with pytest.raises(StopIteration):
        world.steps.send({TopicPartition("jobs", 0): refused, TopicPartition("jobs", 1): None})
    assert caplog.text.count("some records will be redelivered") == 1
    assert "its lock had ended" in caplog.text


def test_at_the_end_running_handlers_are_waited_for_and_the_rest_is_released() -> None:
    world = World()
    world.give(Fetch(), range(3))
    running, stuck = world.take(2)
    world.stopping = True
    world.step = world.steps.send([])
    assert isinstance(world.step, Idle)
    assert world.rests, "Q3: nothing is fetched that nobody will see"
    world.done(running)
    world.clock.advance(5_000)
    world.step = world.steps.send(None)
    assert isinstance(world.step, Commit)
    assert sorted(each[1:] for each in world.settled) == [(0, ACCEPT), (1, RELEASE), (2, RELEASE)]
    # A wakeup ends the processing, but not the commit.
    world.step = world.steps.throw(WakeupError("wakeup() was called"))
    assert isinstance(world.step, Commit)
    with pytest.raises(WakeupError):
        world.steps.send(None)
    world.done(stuck)
    assert world.desk.scheduler.outcomes == {}


def waits(world: World, until: Callable[[], object]) -> None:
    """It was stopped, and waits for handlers until this is so; each wait ends when it would by itself."""
    world.stopping = True
    if isinstance(world.step, Poll):
        world.step = world.steps.send(None)
    while not until():
        assert isinstance(world.step, Idle)
        world.clock.advance(world.step.until - world.clock.now_ms())
        world.step = world.steps.send(None)


def test_what_is_done_while_the_end_waits_is_sent_at_once() -> None:
    world = World()
    world.give(Fetch(), range(3))
    first, second, slow = world.take()
    began = world.clock.now_ms()
    world.done(first)
    waits(world, lambda: world.sent)
    assert world.clock.now_ms() <= began + 20
    world.done(second)
    assert world.changes, "it ends the wait"
    world.step = world.steps.send(None)
    waits(world, lambda: world.sent == 2)
    assert world.clock.now_ms() <= began + 40
    assert [each[1:] for each in world.settled] == [(0, ACCEPT), (1, ACCEPT)]
    world.done(slow)
    assert world.end() is None


def test_a_thread_that_takes_longer_than_timeout_while_the_end_waits_gives_its_record_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(timeout=1.0)
    world.give(Fetch(), [0])
    [task] = world.take()
    context = Context([task])
    waits(world, lambda: context.timed_out)
    assert context.lost
    waits(world, lambda: world.sent)
    assert [each[1:] for each in world.settled] == [(0, RELEASE)]
    world.done(task)
    assert world.end() is None
    assert [each[1:] for each in world.settled] == [(0, RELEASE)]
    assert caplog.text.count("takes longer than timeout=1 s") == 1


def test_a_lock_that_ends_while_the_end_waits_is_told() -> None:
    world = World()
    fetch = Fetch()
    world.give(fetch, [0])
    [task] = world.take()
    context = Context([task])
    began = world.clock.now_ms()
    fetch.locked = False
    waits(world, lambda: context.lost)
    assert world.clock.now_ms() <= began + 1_000
    world.done(task)
    assert world.end() is None
    assert world.settled == []


def test_the_wait_for_handlers_does_not_spin() -> None:
    world = World(timeout=1.0)
    world.give(Fetch(), range(2))
    done, _ = world.take()
    world.done(done)
    count = 0

    def is_over() -> bool:
        nonlocal count
        count += 1
        return isinstance(world.step, Commit)

    waits(world, is_over)
    # For 5 s, one for each second, and some for what is acknowledged.
    assert count <= 10


def test_it_reads_ahead_what_the_workers_hold_twice_and_more_when_they_are_quick() -> None:
    world = World()
    assert world.step.max_records == 4
    world.give(Fetch(), range(4))
    assert world.step.max_records == 0
    changes = world.changes
    world.done(*world.take())
    assert world.changes > changes
    for start in range(4, 400, 4):
        world.give(Fetch(), range(start, start + 4))
        world.done(*world.take())
    # Four in 20 ms: a hundred in the half second that is read ahead.
    assert 80 <= world.step.max_records <= 100
    world.end()


def test_a_retry_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not for a queue"):
        World(retry=Retry(topic="again"))


def test_what_ctrl_c_kept_from_being_taken_in_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    line_up = world.desk.scheduler._line_up

    def interrupted(lane: Any, now: int) -> None:
        if lane.tasks[0].record.offset == 2:
            raise KeyboardInterrupt
        line_up(lane, now)

    monkeypatch.setattr(world.desk.scheduler, "_line_up", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.give(Fetch(), range(4))
    for _ in world.processing.put_back(is_interrupted=True):
        raise AssertionError("it needs no broker")
    settled = [(offset, kind) for _, offset, kind in world.settled]
    assert sorted(settled) == [(offset, RELEASE) for offset in range(4)]
