"""Ctrl-C at any point of a poll, or another task, loses no step of a rebalance and no end of a commit."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.consumer.fetch.test_fetch_collector import put, shared_partition

from kadence import RebalanceListener, TopicPartition
from kadence.client.waits import Run
from kadence.clock import FOREVER, Clock, SystemClock
from kadence.config import ConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.shell import Shell
from kadence.consumer.assembly import aside, core_of
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import ConcurrentAccessError, IllegalStateError, WakeupError
from kadence.types import GroupMetadata, OffsetAndMetadata

PARTITION = TopicPartition("t", 0)
AT = {PARTITION: OffsetAndMetadata(1)}


class Nobody:
    """A network side that does nothing."""

    has_thread = True

    def start(self) -> None: ...

    def join(self, seconds: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return True

    def runs_here(self) -> bool:
        return False


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.count += 1

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.count += 1


class Subject:
    """The application side alone; what it says to the network side is looked at."""

    def __init__(self, clock: Clock | None = None, **settings: object) -> None:
        self.shared_state = SharedState(lambda: None)
        config = ConsumerConfig.parse({"group.id": "g", "bootstrap.servers": "nowhere:1"}, **settings)
        clock = clock or SystemClock()
        self.core = core_of(config, self.shared_state, Nobody(), clock, lambda config: NotImplemented, aside)
        self.shell = Shell(self.core, self.shared_state, clock)
        self.listener = self.core.listener = Listener()
        self.core.chosen.subscribed = frozenset(("t",))

    def poll(self) -> None:
        """As `Consumer.poll` does it."""
        with self.shell:
            if self.core.polls.poll_buffered(10) is None:
                self.shell.run(self.core.polls.poll(0, 10, list))

    def interrupted_poll(self, interruption: Interruption) -> Interruption:
        with contextlib.suppress(KeyboardInterrupt), interruption:
            self.poll()
        # As `Consumer.poll` does; it had taken nothing.
        self.core.polls.put_back(None)
        return interruption

    def done(self) -> list[int]:
        return [call.id for call in self.shared_state.application_events if isinstance(call, m.CallbackDone)]


def steps() -> Iterable[int]:
    at = 0
    while True:
        at += 1
        yield at


def test_ctrl_c_anywhere_in_a_poll_never_loses_the_end_of_a_callback() -> None:
    for at in steps():
        subject = Subject()
        subject.shared_state.tell(m.RevokePartitions(1, (PARTITION,)))
        finished = m.RebalanceFinished(
            m.Rebalance("first join", 0, 1, 1, (PARTITION,), (PARTITION,), ()), GroupMetadata("g", 1, "m")
        )
        assigned = {PARTITION: SharedPartition(PARTITION, 1)}
        subject.shared_state.tell(m.AssignPartitions(2, (PARTITION,), assigned, finished))
        interruption = subject.interrupted_poll(Interruption(at))
        subject.poll()
        assert set(subject.done()) == {1, 2}, interruption.where
        assert subject.core.known.partitions == assigned, interruption.where
        assert subject.core.rebalances == [finished.rebalance], interruption.where
        assert subject.listener.count <= 2, f"a callback ran twice: {interruption.where}"
        assert subject.listener.count >= 1 + (not interruption.happened), interruption.where
        said = len(subject.shared_state.application_events)
        subject.poll()
        assert len(subject.shared_state.application_events) == said
        if not interruption.happened:
            break
    assert at > 30


def test_ctrl_c_anywhere_in_a_poll_never_loses_the_end_of_a_commit() -> None:
    ends: list[int] = []
    for at in steps():
        subject = Subject()
        ends.clear()
        subject.core.commits.commit_async(AT, lambda offsets, error: ends.append(len(offsets)))
        [commit] = subject.shared_state.application_events
        subject.shared_state.tell(m.CommitCompleted(commit.id, AT, None))
        interruption = subject.interrupted_poll(Interruption(at))
        subject.poll()
        assert len(ends) == 1 or (not ends and "_run_first" in interruption.where), interruption.where
        if not interruption.happened:
            break
    assert at > 30


@pytest.mark.parametrize("entry", ["call", "close"])
def test_c7_ctrl_c_in_the_doors_of_a_call_leaves_the_consumer_to_others(entry: str) -> None:
    def enter(shell: Shell) -> None:
        if entry == "call":
            with shell:
                pass
        elif shell.claim(FOREVER):
            shell.release()

    def free() -> bool:
        with contextlib.suppress(ConcurrentAccessError), subject.shell:
            return True
        return False

    for at in steps():
        subject = Subject()
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            enter(subject.shell)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(free).result(), interruption.where
        if not interruption.happened:
            break
    assert at > 2


def test_c7_close_may_be_called_again_after_ctrl_c_in_the_last_of_it() -> None:
    def interrupted(offsets: object, error: Exception | None) -> None:
        raise KeyboardInterrupt

    subject = Subject()
    subject.core.commits.commit_async(AT, interrupted)
    [commit] = subject.shared_state.application_events
    subject.shared_state.ended = True
    subject.shared_state.tell(m.CommitCompleted(commit.id, AT, None))
    with pytest.raises(KeyboardInterrupt):
        subject.shell.run(subject.core.close(FOREVER, processed_only=True, leave=None))
    subject.shell.run(subject.core.close(FOREVER, processed_only=True, leave=None))
    assert subject.core.exchange.closed


def test_unsubscribe_is_done_though_a_callback_raised() -> None:
    def revoked(partitions: object) -> None:
        raise ZeroDivisionError

    subject = Subject()
    subject.listener.on_partitions_revoked = revoked  # type: ignore[method-assign]
    subject.shared_state.tell(m.RevokePartitions(1, (PARTITION,)))
    leaving = subject.core.unsubscribe(FOREVER)
    step = next(leaving)
    assert isinstance(step, Run)
    with contextlib.suppress(ZeroDivisionError):
        step.work()
    leaving.throw(ZeroDivisionError())
    [unsubscribe, done] = subject.shared_state.application_events
    assert done == m.CallbackDone(1, 0, "ZeroDivisionError()")
    subject.shared_state.tell(m.Answer(unsubscribe.id))
    with pytest.raises(ZeroDivisionError):
        leaving.send(None)
    assert subject.core.chosen.subscribed is None
    assert subject.core.listener is None


def test_an_unsubscribe_whose_wait_is_interrupted_takes_effect_and_the_callback_still_runs() -> None:
    """The network thread has it. A poll that waited for records would wait for ever: nobody joins any more."""
    subject = Subject()
    leaving = subject.core.unsubscribe(FOREVER)
    next(leaving)
    with pytest.raises(KeyboardInterrupt):
        leaving.throw(KeyboardInterrupt)
    assert subject.core.chosen.subscribed is None
    with pytest.raises(IllegalStateError, match="nothing to poll"):
        subject.poll()
    subject.shared_state.tell(m.RevokePartitions(1, (PARTITION,)))
    again = subject.core.unsubscribe(FOREVER)
    step = next(again)
    assert isinstance(step, Run)
    step.work()
    again.send(None)
    assert subject.listener.count == 1
    assert subject.done() == [1]


def test_a5_a_poll_that_raised_before_it_took_anything_says_nothing_of_a_round() -> None:
    subject = Subject(max_poll_records="auto")
    pace = subject.core.polls.pace
    assert pace is not None
    one = shared_partition(0)
    subject.shared_state.shared_partitions = {one.partition: one}
    put(subject.shared_state, one, 10)
    subject.poll()
    assert pace.polls(subject.core.clock.now_ms() + 1_000_000) == 1, "ten records took very long"
    subject.core.wakeup()
    with pytest.raises(WakeupError):
        subject.poll()
    assert pace.polls(subject.core.clock.now_ms()) == 1


def test_a4_a_truncation_in_the_instant_in_which_records_are_taken_loses_none_that_wait_to_be_decoded() -> (
    None
):
    def interrupted(data: bytes) -> bytes:
        """The network thread has its turn, between the look at the records and their count."""
        at = one.current()
        if at is not None and one.fetch_epoch == 1:
            one.fetch_epoch = 2
            one.origin = Origin(2, at.offset, None, (0, None))
        return data

    subject = Subject(value_deserializer=interrupted)
    one = shared_partition(0)
    subject.shared_state.shared_partitions = {one.partition: one}
    put(subject.shared_state, one, 10)
    subject.poll()
    now = one.current()
    assert now is not None
    assert now.offset == 0, "nothing was returned"


def test_the_time_of_a_poll_that_never_began_is_not_that_of_the_next_one() -> None:
    subject = Subject()
    with subject.shell:
        assert subject.core.polls.poll_buffered(10) is None
    assert subject.core.polls.counted_at >= 0
    # Its timeout was no number, say. The next one has something else to look at first.
    subject.shared_state.tell(m.Failed(ZeroDivisionError("told once")))
    with subject.shell:
        assert subject.core.polls.poll_buffered(10) is None
    assert subject.core.polls.counted_at == -1


def test_b6_ctrl_c_anywhere_in_a_poll_never_loses_an_error_of_the_background() -> None:
    for at in steps():
        subject = Subject()
        subject.shared_state.tell(m.Failed(ZeroDivisionError("told once")))
        interruption = Interruption(at)
        told = False
        for around in (interruption, contextlib.nullcontext()):
            try:
                with around:
                    subject.poll()
            except ZeroDivisionError:
                told = True
            except KeyboardInterrupt as error:
                # It came when the other one was on its way already, and is told as what happened during that.
                told = "told once" in "".join(traceback.format_exception(error))
        assert told, interruption.where
        if not interruption.happened:
            break
    assert at > 10
