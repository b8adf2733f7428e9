"""Virtual time, and managers that are answered by hand in it: what all worlds stand on.

A test moves the clock, takes what the managers send, and answers it, in any order or not at all. Nothing happens by
itself, so the same test always runs the same way.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from kadence.clock import FOREVER
from kadence.connection.request import Completed, Request
from kadence.consumer import events as m
from kadence.errors import DisconnectedError, KafkaError

__all__ = ["START", "BackgroundEvents", "Clock", "Hand", "Managers"]

START = 1_000_003
"""Not 0, so that code that takes 0 for "never" is found out."""


class Clock:
    """The test's hand on the time.

    Attributes:
        now: the present (ms).
    """

    def __init__(self, now: int = START) -> None:
        self.now = now

    def go(self, duration_ms: int, look: Callable[[], int], happen: Callable[[], object]) -> None:
        """Let time pass, and stop wherever something is due.

        Args:
            look: asked at each stop when the next one is. happen: called there.
        """
        end, at_once = self.now + duration_ms, 0
        while (at := look()) <= end:
            at_once = 0 if at > self.now else at_once + 1
            assert at_once < 1_000, "things happen without time passing"
            self.now = max(self.now, at)
            happen()
        self.now = end


class BackgroundEvents(list[Any]):
    """Everything told to the application, in order."""

    def __call__(self, event: m.BackgroundEvent) -> None:
        self.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        """Those of a kind; rebalances, too, that ended with what was assigned."""
        each = itertools.chain.from_iterable((event, getattr(event, "finished", None)) for event in self)
        return [event for event in each if isinstance(event, kind)]

    @property
    def causes(self) -> list[str]:
        """Why there were rebalances."""
        return [event.rebalance.cause for event in self.of(m.RebalanceFinished)]


class Managers:
    """Managers in the order of a turn, and which of them sent what."""

    def __init__(self, *managers: Any) -> None:
        self.managers: list[Any] = list(managers)
        self.owners: dict[Request, Any] = {}

    def poll_all(self, now: int) -> tuple[list[Request], int]:
        """What they send now, and when they must be asked again."""
        requests: list[Request] = []
        wake_at = FOREVER
        for manager in self.managers:
            found, at = self.poll_one(now, manager)
            requests += found
            wake_at = min(wake_at, at)
        return requests, wake_at

    def poll_one(self, now: int, manager: Any) -> tuple[list[Request], int]:
        """The same of one of them."""
        poll = manager.poll(now)
        self.owners |= dict.fromkeys(poll.requests, manager)
        return poll.requests, poll.wake_at

    def complete(self, now: int, completed: Completed) -> None:
        """Tell whoever sent the request how it ended; a test may have polled the only manager itself."""
        only = self.managers[0] if len(self.managers) == 1 else None
        owner = self.owners.pop(completed.request, only)
        assert owner is not None, f"nobody sent {completed.request}"
        owner.on_response(now, completed)


class Hand(Clock):
    """The test's hand on the time and on the answers.

    Attributes:
        version: of the answers for which a test names none.
    """

    def __init__(self, managers: Managers, now: int = START, *, version: int = 13) -> None:
        super().__init__(now)
        self.version = version
        self._managers = managers
        self._coming: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def poll_only(self, manager: Any) -> tuple[Request | None, int]:
        """What this manager alone sends now, one request at most, and when it must be asked again."""
        requests, wake_at = self._managers.poll_one(self.now, manager)
        return (requests[0] if requests else None), wake_at

    def turn(self, later: int = 0) -> list[Request]:
        """What is sent now, or ``later`` ms later."""
        self.now += later
        return self._managers.poll_all(self.now)[0]

    def ask(self, what: str | type[Any], later: int = 0) -> Request:
        """The one request of this name or kind that the turn sends."""
        requests = self.turn(later)
        if isinstance(what, str):
            found = [each for each in requests if each.name == what]
        else:
            found = [each for each in requests if isinstance(each.message, what)]
        assert len(found) == 1, f"expected one {what}, got {requests}"
        return found[0]

    def only(self, later: int = 0) -> Request:
        """The one request that the turn sends."""
        (request,) = self.turn(later)
        return request

    def names(self, later: int = 0) -> list[str]:
        """The names of what the turn sends."""
        return [request.name for request in self.turn(later)]

    def wake_at(self) -> int:
        """When the managers must be asked again; nothing is due now."""
        requests, wake_at = self._managers.poll_all(self.now)
        assert not requests, requests
        return wake_at

    def advance(self, duration_ms: int) -> None:
        """Let time pass without a turn."""
        self.now += duration_ms

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Let something happen when `pass_time` has passed so much of it."""
        heapq.heappush(self._coming, (self.now + delay_ms, next(self._order), act))

    def due(self) -> int:
        """When something happens that is no manager's."""
        return self._coming[0][0] if self._coming else FOREVER

    def elapse(self) -> None:
        """What is due happens."""
        while self._coming and self._coming[0][0] <= self.now:
            heapq.heappop(self._coming)[2]()

    def pass_time(self, duration_ms: int, send: Callable[[Request], None]) -> None:
        """Let time pass; turns come when they are due, and what they send goes to ``send``."""

        def look() -> int:
            requests, wake_at = self.look()
            for request in requests:
                send(request)
            return self.now if requests else min(wake_at, self.due())

        self.go(duration_ms, look, self.elapse)

    def look(self) -> tuple[list[Request], int]:
        """What `pass_time` does in each turn: what is sent, and when the next turn is due."""
        return self._managers.poll_all(self.now)

    def answer(
        self, request: Request, response: object, *, version: int | None = None, loan: Any = None
    ) -> None:
        """The broker answers."""
        version = self.version if version is None else version
        self._managers.complete(self.now, Completed(request, response, None, version, self.now, loan))

    def fail(self, request: Request, error: KafkaError) -> None:
        """There is no answer; this happened instead."""
        self._managers.complete(self.now, Completed(request, None, error, -1, self.now))

    def lose(self, request: Request) -> None:
        """The connection is lost with it."""
        self.fail(request, DisconnectedError("gone"))
