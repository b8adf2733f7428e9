"""Clocks and processor time inside a client's process, and the work that stands for the application's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.plan import Figures, Plan

FIRST_RECORDS_WITHIN = 60.0


def spin(turns: int) -> None:
    """The application's work on one record: Python that holds the interpreter."""
    for _ in range(turns):
        pass


def turns_for(microseconds: float) -> int:
    """Turns of `spin` that take so long in this process.

    Measured in each process and not once for all, because processes run at different speeds: where code happens to
    lie in memory is enough for a tenth. Measured by calls of that very length, because CPython keeps small integers
    and a short loop's turns are cheaper. By processor time and the best of many, so that neighbours do not shrink
    the work.
    """
    if not microseconds:
        return 0
    calls, turns = 500, 100
    for _ in range(4):
        best = float("inf")
        for _ in range(30):
            started = time.thread_time()
            for _ in range(calls):
                spin(turns)
            best = min(best, time.thread_time() - started)
        turns = max(1, round(turns * microseconds * 1e-6 / (best / calls)))
    return turns


class Timer:
    """Counts from its creation, which is the moment at which the first records have arrived.

    CPU is that of all threads of the process.

    Args:
        taken: those first records. They are not timed, but the plan counts them: one poll without a cap may return
            so many of them that waiting for the whole count after it would only end by the plan's time limit.
    """

    def __init__(self, plan: Plan, taken: int = 0) -> None:
        self.records = 0
        self._count = plan.count - taken
        self._started = time.perf_counter()
        self._stop_at = self._started + plan.seconds
        self._cpu = time.process_time()

    def running(self) -> bool:
        return self.records < self._count and time.perf_counter() < self._stop_at

    def figures(self, turns: int = 0) -> Figures:
        if not self.records:
            raise SystemExit("the records ended before there was anything to time")
        return {
            "records": self.records,
            "seconds": time.perf_counter() - self._started,
            "cpu": time.process_time() - self._cpu,
            "rss": peak_rss_mb(),
            "turns": turns,
        }


class Patience:
    """Ends the process with a reason when the first records do not come."""

    def __init__(self, plan: Plan) -> None:
        self._topic = plan.topic
        self._until = time.perf_counter() + FIRST_RECORDS_WITHIN

    def check(self) -> None:
        if time.perf_counter() > self._until:
            raise SystemExit(f"no record of {self._topic} within {FIRST_RECORDS_WITHIN:g} s")


def peak_rss_mb() -> float:
    """The most memory that this program ever held.

    Not getrusage's figure: on Linux that survives exec, and would be our parent's.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status does not tell the peak of memory; the benchmarks run on Linux")


def read(plan: Plan, take: Callable[[int], int]) -> Figures:
    """Call ``take(turns of work)``, which returns how many records it got, until the plan is fulfilled."""
    turns = turns_for(plan.work_us)
    patience = Patience(plan)
    while not (taken := take(0)):
        patience.check()
    timer = Timer(plan, taken)
    while timer.running():
        timer.records += take(turns)
    return timer.figures(turns)


@contextmanager
def busy_thread(plan: Plan) -> Iterator[None]:
    """Where the plan says so, another thread of this process computes in Python all the time."""
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            spin(1000)

    thread = threading.Thread(target=compute, name="busy", daemon=True)
    if plan.busy:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if plan.busy:
            thread.join()
