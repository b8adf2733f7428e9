"""The interface of request managers (C3).

A manager is asked ``poll(now)`` once per turn of the network thread; it answers with the requests it wants
sent and the absolute time by which it must be asked again. Until then it may be left alone as long as nothing happens
but answers that matter to nobody else (`IndependentManager`). Answers come back to the manager that asked, by
``on_response(now, completed)``. It never blocks, reads no clock, touches no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kadence.clock import FOREVER
from kadence.connection.request import Completed, Request

__all__ = ["NOTHING", "IndependentManager", "Jobs", "Poll", "RequestManager"]


@dataclass(frozen=True, slots=True)
class Poll:
    """What a manager wants: requests now, and to be asked again at ``wake_at`` (absolute ms) at the latest."""

    requests: list[Request] = field(default_factory=list)
    wake_at: int = FOREVER


NOTHING = Poll()
"""Nothing to send, nothing to wait for."""


class RequestManager(Protocol):
    """What the network thread calls on each request manager."""

    def poll(self, now: int) -> Poll: ...

    def on_response(self, now: int, completed: Completed) -> None: ...


class IndependentManager(RequestManager, Protocol):
    """A manager most of whose answers matter to nobody else, so that others need not be asked after them."""

    def is_private(self, completed: Completed) -> bool:
        """Whether this answer changes nothing that another manager looks at."""
        ...


class Jobs(Protocol):
    """The one helper thread, as managers see it: work that may block or take long (assignors, callbacks).

    ``done(now, result, error)`` is called later, on the network thread.
    """

    def submit(
        self,
        work: Callable[[], object],
        done: Callable[[int, object, Exception | None], None],
    ) -> None: ...
