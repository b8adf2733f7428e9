"""One fault, or one observer, as long as it is in force."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from kadence.protocol.api_versions import ApiVersionsRequest
from kadence_broker.faults.choice import Choice, Only
from kadence_broker.server.loop import Loop
from kadence_broker.service import Call

if TYPE_CHECKING:
    from kadence_broker.faults.faults import Faults

__all__ = ["Action", "Injected", "Limited", "Observed"]

Action = Callable[[Loop, Call, Callable[[Call], None]], None]
"""Handles a request: called with the loop, the call, and its handler."""


class Injected:
    """One fault, or one observer. Use it with ``with``, or call `remove`.

    Attributes:
        hits: how many requests it was applied to.
    """

    def __init__(
        self,
        faults: Faults,
        request: type[Any] | None,
        action: Action | None,
        only: Only | None = None,
    ) -> None:
        if not (request is None or isinstance(request, type)):
            raise TypeError(
                f"a request is a class such as kadence.protocol.produce.ProduceRequest, or None: not {request!r}"
            )
        self._faults = faults
        self._request = request
        self._action = action
        self._choice = Choice(faults.here, **(only or {}))
        self._changed = threading.Condition()
        self.hits = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the fault. Requests that it has delayed or dropped stay delayed or dropped."""
        self._faults._remove(self)

    def wait(self, hits: int = 1, timeout: float = 60.0) -> None:
        """Wait until it was applied to ``hits`` requests; for tests, instead of a sleep.

        Raises:
            TimeoutError: it was applied to fewer within ``timeout`` seconds. ForkedError.
        """
        self._faults.check_here()
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self.hits} of {hits} requests within {timeout} s")

    def _wants(self, call: Call) -> bool:
        if self._request is not None and not isinstance(call.message, self._request):
            return False
        return self._choice.wants(call, self.hits, self._faults.topics_of)

    def _hit(self, call: Call) -> None:
        with self._changed:
            self.hits += 1
            self._keep(call)
            self._changed.notify_all()

    def _keep(self, call: Call) -> None:
        """An observer remembers; a fault does not."""


class Observed(Injected):
    """The requests that came while the observer was in force, oldest first."""

    def __init__(self, faults: Faults, request: type[Any] | None, only: Only) -> None:
        super().__init__(faults, request, None, only)
        self.calls: list[Call] = []

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def messages(self) -> list[Any]:
        """The decoded requests."""
        return [call.message for call in self.calls]

    def _keep(self, call: Call) -> None:
        self.calls.append(call)


class Limited(Injected):
    """An API that is offered up to one version only."""

    def __init__(self, faults: Faults, request: type[Any], version: int, action: Action) -> None:
        super().__init__(faults, ApiVersionsRequest, action)
        self.api_key = int(request.API_KEY)
        self.version = version
