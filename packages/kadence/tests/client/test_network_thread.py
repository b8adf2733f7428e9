"""The one end of a network side, and what a turn asks of its managers (C1, B6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kadence.client.network_thread import NetworkSide, Turn
from kadence.client.request_manager import Poll
from kadence.clock import FOREVER
from kadence_testing import FakeClock


class Ends:
    """Callers, a turn and sockets, which write down in which order they are told."""

    def __init__(self, run: Callable[[], bool], finishes: Callable[[], None] = lambda: None) -> None:
        self.told: list[str] = []
        self._run = run
        self._finishes = finishes
        turn: Any = self
        self.side = NetworkSide("consumer", self, lambda: turn, lambda: self.told.append("sockets closed"))

    def run_once(self) -> bool:
        return self._run()

    def finish(self, cause: BaseException | None) -> None:
        self.told.append(f"finished by {cause!r}")
        self._finishes()

    def refuse(self, cause: BaseException | None) -> None:
        self.told.append(f"calls refused by {cause!r}")

    def dismiss(self) -> None:
        self.told.append("waiters told")


def bug() -> bool:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("run", [bug, lambda: False], ids=["bug", "closed"])
def test_b6_calls_raise_before_anybody_is_told_and_waiters_are_told_last(run: Callable[[], bool]) -> None:
    ends = Ends(run)
    assert not ends.side.run_once()
    cause = "RuntimeError('a bug')" if run is bug else "None"
    assert ends.told == [
        f"calls refused by {cause}",
        f"finished by {cause}",
        "sockets closed",
        "waiters told",
    ]


def test_b6_a_network_side_that_cannot_be_built_ends_as_by_any_other_bug() -> None:
    ends = Ends(lambda: True)
    ends.side._build = bug  # type: ignore[assignment]
    assert not ends.side.run_once()
    assert ends.told == ["calls refused by RuntimeError('a bug')", "sockets closed", "waiters told"]


def test_b6_whoever_waits_is_told_though_the_end_fails_too() -> None:
    ends = Ends(bug, bug)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        ends.side.run_once()
    assert ends.told[-2:] == ["sockets closed", "waiters told"]


class Manager:
    def __init__(self, requests: list[Any], wake_at: int) -> None:
        self.answer = Poll(requests, wake_at)

    def poll(self, now: int) -> Poll:
        return self.answer

    def on_response(self, now: int, completed: object) -> None: ...


class Delegate:
    def __init__(self) -> None:
        self.sent: list[tuple[object, list[Any]]] = []
        self.waits: list[int | None] = []

    def send(self, owner: object, requests: list[Any]) -> None:
        self.sent.append((owner, requests))

    def poll(self, wait_ms: int | None) -> list[Any]:
        self.waits.append(wait_ms)
        return []

    def deliver(self, now: int, completed: object) -> bool:
        return False


def test_a_turn_asks_all_managers_in_order_and_waits_until_the_first_must_be_asked_again() -> None:
    clock, delegate = FakeClock(), Delegate()
    now = clock.now_ms()
    idle, soon, later = Manager([], FOREVER), Manager(["a"], now + 40), Manager(["b", "c"], now + 90)
    of: Any = delegate
    Turn(clock, of, (idle, soon, later)).run_once()
    assert delegate.sent == [(soon, ["a"]), (later, ["b", "c"])]
    assert delegate.waits == [40]
    Turn(clock, of, (idle,)).run_once()
    assert delegate.waits == [40, None]
