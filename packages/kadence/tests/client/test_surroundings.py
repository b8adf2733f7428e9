"""The helper thread: results in order, and a job that fails in any way costs nobody else anything."""

from __future__ import annotations

import sys
import threading

from tests.patience import PATIENCE

from kadence.client.surroundings import JobThread


def test_jobs_run_one_after_the_other_and_failures_are_results() -> None:
    woken = threading.Semaphore(0)
    jobs = JobThread("jobs", woken.release)
    results: list[tuple[object, str]] = []

    def done(now: int, result: object, error: Exception | None) -> None:
        results.append((result, repr(error)))

    def fails() -> object:
        raise KeyError("x")

    for work in (lambda: 1, fails, lambda: sys.exit(3), lambda: 2):
        jobs.submit(work, done)
    for _ in range(4):
        assert woken.acquire(timeout=PATIENCE)
    jobs.deliver(0)
    jobs.close()
    assert results == [
        (1, "None"),
        (None, "KeyError('x')"),
        (None, "RuntimeError('SystemExit(3)')"),
        (2, "None"),
    ]
