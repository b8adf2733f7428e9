"""Where another thread is, also when a collection would let it go on meanwhile."""

from __future__ import annotations

import itertools
import threading
from types import FrameType

from tests.collecting import at_collection

from kadence.whereabouts import frames_of

DEEP = 12


class Deep:
    """A thread far down in calls. Each `go_on` leaves all of them, and makes as many others."""

    def __init__(self) -> None:
        self.is_over = False
        self._waits, self._goes = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._waits.acquire()
        assert self._thread.ident is not None
        self.ident = self._thread.ident

    def go_on(self) -> None:
        self._goes.release()
        self._waits.acquire()

    def end(self) -> None:
        self.is_over = True
        self._goes.release()
        self._thread.join()

    def _run(self) -> None:
        while not self.is_over:
            self._first(DEEP)
            self._second(DEEP, object(), object(), object())

    def _first(self, depth: int) -> None:
        if depth:
            self._first(depth - 1)
        else:
            self._stop()

    def _second(self, depth: int, one: object, two: object, three: object) -> None:
        four, five, six = object(), object(), object()
        if depth:
            self._second(depth - 1, four, five, six)
        else:
            self._stop()
        del one, two, three

    def _stop(self) -> None:
        if not self.is_over:
            self._waits.release()
            self._goes.acquire()


def test_a_thread_that_goes_on_while_the_collector_runs() -> None:
    deep = Deep()
    try:
        for number in itertools.count():
            with at_collection(number, deep.go_on) as done:
                frames = frames_of(deep.ident)
            assert {type(frame) for frame, _ in frames} == {FrameType}
            names = {frame.f_code.co_name for frame, _ in frames}
            assert {"_run", "_stop"} < names, names
            if not done:
                break
    finally:
        deep.end()


def test_a_thread_that_has_ended_is_nowhere() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert frames_of(thread.ident) == []
