"""A child that user code forks on a thread of ours ends with that call, and the thread goes on in the parent alone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence import Broker, Producer
from kadence.client.aside import Calls, ThreadsAside
from kadence.client.surroundings import JobThread
from kadence.forked import ThisProcess
from kadence.net.tokens import TokenLogin
from kadence.security import Token

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


class Forks:
    """User code that forks, and then does the same in both processes.

    Attributes:
        code: how the child has ended.
    """

    def __init__(self, returns: Any = None, raises: BaseException | None = None) -> None:
        self.code: int | None = None
        self._returns = returns
        self._raises = raises

    def __call__(self, *_: object) -> Any:
        child = os.fork()
        if child:
            self.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if self._raises is not None:
            raise self._raises
        return self._returns


@pytest.mark.parametrize(
    ("raises", "code"),
    [
        (None, 0),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 1),
        (SystemExit(), 0),
        (SystemExit(3), 3),
        (SystemExit(-1), 255),
        (SystemExit(1 << 70), 0),
        (SystemExit("no"), 1),
    ],
)
def test_a_child_ends_with_the_call_by_pythons_code(raises: BaseException | None, code: int) -> None:
    forks, here = Forks(17, raises), ThisProcess()
    if raises is None:
        assert here.call(forks) == 17
    else:
        with pytest.raises(type(raises)):
            here.call(forks)
    assert forks.code == code


def test_a_child_waits_for_the_threads_that_it_has_started(tmp_path: Path) -> None:
    """As at the end of every program."""

    def work() -> int:
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        threading.Thread(target=(tmp_path / "there").touch).start()
        return 17

    assert ThisProcess().call(work) == 0
    assert (tmp_path / "there").exists()


class Locked:
    """A stream whose lock a thread of the parent held at the fork: nobody gives it back in the child."""

    def write(self, text: str) -> int:
        threading.Event().wait()
        return 0

    def flush(self) -> None: ...


@pytest.mark.parametrize("locked", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_a_child_that_cannot_write_to_a_stream_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], locked: list[str]
) -> None:
    monkeypatch.setattr("kadence.forked._TELLING_S", 0.01)
    for name in locked:
        monkeypatch.setattr(sys, name, Locked())
    forks = Forks(raises=ValueError("of the child"))
    with pytest.raises(ValueError, match="of the child"):
        ThisProcess().call(forks)
    assert forks.code == 1
    assert "ValueError: of the child\n" in capfd.readouterr().err


def test_a_coroutine_is_watched_at_each_of_its_steps() -> None:
    """What it awaits, and what is thrown into it, passes through."""
    forks, later = Forks(), Forks()

    async def work() -> str:
        forks()
        await asyncio.sleep(0)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            later()
        return "done"

    async def main() -> str:
        task = asyncio.ensure_future(ThisProcess().awaits(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) == "done"
    # A child has no event loop to await on, and may return.
    assert (forks.code, later.code) == (1, 0)


@contextmanager
def ended(thread: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    finally:
        thread()


def test_a_job_that_forks_has_one_helper_thread() -> None:
    """A custom assignor, say."""
    forks, woken = Forks(17), threading.Event()
    jobs = JobThread("jobs", woken.set)
    results: list[object] = []
    with ended(jobs.close):
        jobs.submit(forks, lambda now, result, error: results.append(result))
        assert woken.wait(PATIENCE)
        jobs.deliver(0)
    assert (results, forks.code) == ([17], 0)


def test_a_provider_of_tokens_that_forks_has_one_thread() -> None:
    forks, woken = Forks(Token("value")), threading.Event()
    login = TokenLogin(forks, "me", woken.set)
    with ended(login.close):
        assert login.begin(0) is None
        assert woken.wait(PATIENCE)
        assert login.deliver(0)
    assert forks.code == 0


def test_a_call_that_may_block_and_forks_has_one_thread() -> None:
    forks, has_ended = Forks(17), threading.Event()
    results: list[object] = []

    def calls() -> Calls:
        results.append((yield forks))
        has_ended.set()

    caller = ThreadsAside().caller("caller")
    with ended(caller.end):
        caller.carry(calls())
        assert has_ended.wait(PATIENCE)
    assert (results, forks.code) == ([17], 0)


@pytest.mark.parametrize("raises", [None, ValueError("x")])
def test_a_callback_of_a_delivery_that_forks_has_one_network_thread(raises: Exception | None) -> None:
    """A second one would write to the sockets of the first."""
    forks, has_run = Forks(None, raises), threading.Event()

    def callback(future: Any) -> None:
        try:
            forks()
        finally:
            has_run.set()

    with Broker(topics={"t": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"0").add_done_callback(callback)
        assert has_run.wait(PATIENCE)
        assert producer.send("t", b"1").result(PATIENCE).offset == 1
    assert forks.code == (0 if raises is None else 1)
