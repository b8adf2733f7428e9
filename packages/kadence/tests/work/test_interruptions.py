"""Ctrl-C, cancelled tasks, and consumers that are closed elsewhere: what was not done comes again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.patience import PATIENCE, once_inside, until
from tests.work.worlds import GROUP, ONE, Real, Simulated, become

from kadence import OffsetAndMetadata, Record, TopicPartition
from kadence.consumer.application.inside import Inside
from kadence.errors import ConcurrentAccessError
from kadence.work.frontier import encode
from kadence.work.processing import Processing


class Interrupted(BaseException):
    """As Ctrl-C, or a cancelled task."""


def test_an_interruption_commits_nothing_that_is_not_done(
    shells: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the end of the consumer, nor another call of `process`, may pass over what was read and not done."""
    shells.write("one", 20)
    member = shells.member("one", auto_commit_interval_ms=10)
    release = threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 0:
            # It raises in the loop, which polls in time meanwhile.
            monkeypatch.setattr(Inside, "commit_async", interrupted)
        if record.offset == 3:
            assert release.wait(PATIENCE)

    def interrupted(*_: Any) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        member.process(work, workers=1, order="none", max_records=8)
    monkeypatch.undo()
    release.set()
    position = member.do(lambda consumer: consumer.position(ONE))
    assert position <= 3
    again: list[int] = []
    member.process(
        lambda record: again.append(record.offset),
        until=lambda: shells.offset() == 20,
        workers=1,
        order="none",
    )
    assert again == list(range(position, 20))
    member.close()
    assert shells.committed()[0] == (20, "")


def test_an_interruption_right_after_a_poll_loses_none_of_its_records(shells: Real) -> None:
    """Ctrl-C came when the poll had returned, and before anybody had its records: they are beyond the position."""
    shells.write("one", 3)
    member = shells.member("one")
    poll = member.consumer.poll

    def interrupted(*arguments: Any, **settings: Any) -> Any:
        records = poll(*arguments, **settings)
        if records:
            raise Interrupted
        return records

    async def awaited(*arguments: Any, **settings: Any) -> Any:
        records = await poll(*arguments, **settings)
        if records:
            raise Interrupted
        return records

    member.consumer.poll = awaited if shells.kind == "asyncio" else interrupted
    with pytest.raises(Interrupted):
        member.process(print)
    del member.consumer.poll
    member.close()
    assert shells.committed() == {}


def test_what_is_done_above_the_committed_offset_outlasts_a_process_that_is_interrupted(
    shells: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has committed nothing, and the end of its consumer commits nothing for it: that would have no metadata."""
    shells.write("one", 5)
    done = encode(5, [(6, 8)])
    shells.admin.alter_consumer_group_offsets(GROUP, {ONE: OffsetAndMetadata(5, None, done)})
    member = shells.member("one")

    def interrupted(self: Any, partitions: tuple[TopicPartition, ...]) -> Any:
        # When the partition comes.
        yield from ()
        if partitions:
            raise Interrupted

    monkeypatch.setattr(Processing, "assigned", interrupted)
    with pytest.raises(Interrupted):
        member.process(print)
    monkeypatch.undo()
    assert member.do(lambda consumer: consumer.position(ONE)) == 5
    member.close()
    assert shells.committed()[0] == (5, done)


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_task_that_is_cancelled_again_and_again_leaves_a_consumer_that_works(
    real: Real, transactional_id: str | None
) -> None:
    """So anyio cancels: in each turn of the loop, until the task has ended."""
    real.write("one", 20)
    real.kind = "asyncio"
    member = real.member("one", isolation_level="read_committed")
    begun: list[int] = []
    done: list[int] = []

    async def waits(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        await asyncio.Event().wait()

    async def works(record: Record[Any, Any]) -> None:
        done.append(record.offset)
        if len(done) == 20:
            member.stop()

    async def cancelled(consumer: Any) -> None:
        task = asyncio.create_task(
            consumer.process(waits, workers=4, order="none", transactional_id=transactional_id)
        )
        await become(lambda: len(begun) == 4)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        await consumer.process(works, transactional_id=transactional_id)

    member.do(cancelled)
    assert done == list(range(20))
    assert real.committed()[0] == (20, "")


def test_after_a_second_interruption_close_waits_for_no_handler(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while records are put back because of the first one, so the partitions are still those of `process`."""
    real.write("one", 1)
    member = real.member("one")
    has_begun, release, has_ended = threading.Event(), threading.Event(), threading.Event()
    turn = Processing._turn

    def interrupted(processing: Processing) -> Any:
        yield from turn(processing)
        if has_begun.is_set():
            raise KeyboardInterrupt

    def interrupted_again(processing: Processing, *, is_interrupted: bool) -> Any:
        raise KeyboardInterrupt

    def work(record: Record[Any, Any]) -> None:
        has_begun.set()
        release.wait(PATIENCE / 2)
        has_ended.set()

    monkeypatch.setattr(Processing, "_turn", interrupted)
    monkeypatch.setattr(Processing, "put_back", interrupted_again)
    with pytest.raises(KeyboardInterrupt):
        member.process(work, drain=PATIENCE * 2)
    member.do(lambda consumer: consumer.close(PATIENCE * 3))
    assert not has_ended.is_set()
    release.set()
    assert real.offset() == 0


def test_coroutines_are_cancelled_with_their_process(simulated: Simulated) -> None:
    """Otherwise another call of `process` would begin their records again beside them."""
    simulated.write("one", 4)
    running: list[int] = []

    async def waits(record: Record[Any, Any]) -> None:
        running.append(record.offset)
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(record.offset)

    async def cancelled(consumer: Any) -> None:
        task = asyncio.create_task(consumer.process(waits, workers=4, order="none"))
        await become(lambda: len(running) == 4)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert running == []

    simulated.member("one").do(cancelled)


def test_handlers_may_not_poll_even_while_the_loop_does_not(simulated: Simulated) -> None:
    """The range is read, so the loop is in no call of the consumer: it waits for the handler."""
    simulated.write("one", 1)
    member = simulated.member(None, group_id=None)
    member.do(lambda consumer: consumer.assign({ONE: (0, 1)}))
    refused: list[str] = []

    async def work(record: Record[Any, Any]) -> None:
        await become(lambda: member.consumer.finished() == {ONE})
        for _ in range(20):
            await asyncio.sleep(0.005)
            with pytest.raises(ConcurrentAccessError) as raised:
                await member.consumer.poll(0)
            refused.append(str(raised.value))

    assert member.process(work).done == 1
    assert len(refused) == 20
    assert all("process()" in each for each in refused), refused


def test_handlers_on_threads_may_not_poll_either(real: Real) -> None:
    real.write("one", 1)
    member = real.member(None, group_id=None)
    member.do(lambda consumer: consumer.assign({ONE: (0, 1)}))
    refused: list[str] = []

    def work(record: Record[Any, Any]) -> None:
        until(lambda: member.consumer.finished() == {ONE})
        for _ in range(20):
            with pytest.raises(ConcurrentAccessError) as raised:
                member.consumer.poll(0)
            refused.append(str(raised.value))

    assert member.process(work).done == 1
    assert len(refused) == 20
    assert all("process()" in each for each in refused), refused


@pytest.mark.parametrize("by_handler", [False, True])
def test_a_close_elsewhere_ends_it_in_order(simulated: Simulated, by_handler: bool) -> None:
    """By another task. A handler waits so for itself, until ``drain`` is over."""
    simulated.write("one", 3)
    member = simulated.member("one", auto_commit_interval_ms=int(PATIENCE * 1000))
    begun: list[int] = []
    released: list[bool] = []

    async def work(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        if record.offset == 1 and by_handler:
            await member.consumer.close()
        elif record.offset == 1:
            await become(lambda: released)

    call = member.processes(work, workers=1, drain=20)
    simulated.until(lambda: 1 in begun)
    closing = member.begin(lambda consumer: consumer.close())
    simulated.simulation.run(1)
    assert not call.is_done
    assert not closing.is_done
    released.append(True)
    done = 1 if by_handler else 2
    assert call.result().done == done
    closing.result()
    assert simulated.committed()[0] == (done, "")


def test_a_close_on_another_thread_ends_it_before_it_has_begun(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still asks for its topics, of brokers that are away."""
    asks = threading.Event()
    partitions_of = Inside.partitions_of

    def asked(inside: Inside, topic: str) -> Any:
        asks.set()
        return partitions_of(inside, topic)

    monkeypatch.setattr(Inside, "partitions_of", asked)
    member = real.member("one")
    real.broker.close()
    call = member.processes(lambda record: None, dead_letter="dead")
    assert asks.wait(PATIENCE)
    member.consumer.close()
    assert call.result().done == 0


@pytest.mark.parametrize("by_handler", [False, True])
def test_a_close_on_another_thread_ends_it_in_order(real: Real, by_handler: bool) -> None:
    real.write("one", 3)
    member = real.member("one", auto_commit_interval_ms=int(PATIENCE * 1000))
    second, release = threading.Event(), threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 1:
            second.set()
            if by_handler:
                member.consumer.close()
            else:
                assert release.wait(PATIENCE)

    call = member.processes(work, workers=1, drain=0.2 if by_handler else PATIENCE)
    assert second.wait(PATIENCE)
    releasing = once_inside(release.set)
    member.consumer.close()
    releasing.join(PATIENCE)
    done = 1 if by_handler else 2
    assert call.result().done == done
    assert real.committed()[0] == (done, "")
