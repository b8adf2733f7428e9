"""What the end of the processing, or a revocation, waits for: handlers that run, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import Mock

import pytest
from tests.patience import PATIENCE, until

from kadence import Record, TopicPartition
from kadence.clock import SystemClock
from kadence.work import Retry
from kadence.work.desk import Desk
from kadence.work.frontier import Stretch
from kadence.work.processing import Processing
from kadence.work.settings import Settings, settings_of
from kadence.work.steps import Idle
from kadence.work.workers import ThreadWorkers, plain_call

GOES, STAYS = TopicPartition("goes", 0), TopicPartition("stays", 0)

_QUICK: Final = 31


class Desked:
    """A desk with one worker thread, whose handler has taken several records at once.

    Args:
        handler: of what comes behind 31 records that are quick. So the thread takes 1, 2, 4, 8 and 16, and then these.
    """

    def __init__(self, handler: Callable[[Record[Any, Any]], None]) -> None:
        self.settings: Settings = settings_of(
            lambda record: None if record.value == b"quick" else handler(record),
            workers=1,
            order="none",
            executor=None,
            retry=Retry(attempts=2, backoff=60),
            dead_letter=None,
            timeout=None,
            batch=None,
            halve=False,
            batch_format="records",
            max_records=10_000,
            max_bytes=1 << 20,
            drain=PATIENCE,
            transactional_id=None,
        )
        self.clock = SystemClock()
        # By this one the quick records take no time.
        still = Mock(now_ms=lambda: 0)
        self.changed = threading.Event()
        self.running_at_changes: list[int] = []
        self.desk = Desk(self.settings, still, still.now_ms, "g", Mock(), self._changed, Mock(), Mock())
        self.workers = ThreadWorkers(self.desk, self.settings, lambda: plain_call(self.settings, None))
        self.reading = Mock()
        self.processing = Processing(
            self.settings,
            self.desk,
            Mock(),
            Mock(),
            self.reading,
            self.clock,
            self.workers.wake,
            self.workers.look,
            in_group=True,
            commit_ms=1_000,
        )
        for partition in (GOES, STAYS):
            self.desk.scheduler.assign(partition)
            self.desk.scheduler.read_from(partition, Stretch(1, 0))

    def _changed(self) -> None:
        self.running_at_changes.append(len(self.desk.scheduler.running))
        self.changed.set()

    def begin(self, *slow: TopicPartition) -> None:
        """Give it quick records, and then one of each of these."""
        with self.desk.lock:
            add = self.desk.scheduler.add
            add(GOES, [Record("goes", 0, offset, value=b"quick") for offset in range(_QUICK)], 0)
            for offset, partition in enumerate(slow, _QUICK):
                add(partition, [Record(partition.topic, 0, offset, value=b"slow")], 0)
        self.workers.wake()


@pytest.mark.parametrize("why", ["ends", "stops", "goes"])
def test_records_that_a_thread_took_and_does_not_begin_are_not_waited_for(why: str) -> None:
    """The handler fails, which is told. What its thread gives back then is told, too: it would be waited for."""
    may_fail = threading.Event()
    begun: list[int] = []

    def fails(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        assert may_fail.wait(PATIENCE)
        raise ValueError("bad")

    with_desk = Desked(fails)
    desk = with_desk.desk
    with_desk.begin(*[GOES] * 10)
    until(lambda: begun)
    with desk.lock:
        assert len(desk.scheduler.running) > 1
        if why == "ends":
            desk.is_ended = True
        elif why == "stops":
            desk.is_stopping = lambda: True
        else:
            desk.scheduler.revoke([GOES])
    desk.is_waited_for = True
    may_fail.set()
    until(lambda: not desk.scheduler.running)
    until(lambda: with_desk.running_at_changes and with_desk.running_at_changes[-1] == 0)
    desk.is_ended = True
    with_desk.workers.end()


def test_a_revocation_does_not_wait_for_a_slow_record_of_another_partition() -> None:
    """Its thread has records of the one that goes, which are done or did not begin. Nobody else tells of these."""
    may_end, has_begun = threading.Event(), threading.Event()

    def slow(record: Record[Any, Any]) -> None:
        if record.topic == "stays":
            has_begun.set()
            assert may_end.wait(PATIENCE)

    with_desk = Desked(slow)
    with_desk.begin(STAYS, *[GOES] * 10)
    assert has_begun.wait(PATIENCE)
    before = with_desk.clock.now_ms()
    for step in with_desk.processing.revoked((GOES,)):
        assert isinstance(step, Idle)
        with_desk.changed.wait(max(step.until - with_desk.clock.now_ms(), 0) / 1000)
        with_desk.changed.clear()
    (read, _), how = with_desk.reading.commit_async.call_args
    assert read[GOES].at.offset >= _QUICK
    assert how == {"is_parting": True}
    assert with_desk.clock.now_ms() < before + PATIENCE * 1000
    may_end.set()
    with_desk.desk.is_ended = True
    with_desk.workers.end()


def test_of_records_that_are_reported_together_those_that_were_told_lost_are_not_done() -> None:
    desk = Desked(lambda record: None).desk
    with desk.lock:
        desk.scheduler.add(GOES, [Record("goes", 0, offset, value=b"quick") for offset in range(4)], 0)
        piece = desk.take(4)
        for task in piece[1:3]:
            task.told_lost = True
        desk.finish(piece)
    assert desk.done == 2
    assert list(desk.scheduler.running) == []
    assert desk.scheduler.frontiers()[GOES].at.offset == 1
    with desk.lock:
        assert desk.take(4) == piece[1:3]
