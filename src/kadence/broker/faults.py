"""Faults on purpose: delay, refuse, drop or disconnect chosen requests, be an older broker, or only watch.

    with broker.faults.error(HeartbeatRequest, error_codes.NOT_COORDINATOR, times=1): ...
    with broker.faults.delay(FetchRequest, 0.2): ...
    with broker.faults.limit(JoinGroupRequest, 0): ...
    with broker.faults.observe(JoinGroupRequest) as joins: ...; assert len(joins) == 2

A fault is in force while its ``with`` block runs, or until `Injected.remove`. It takes the requests of one
message class (None: all), fewer with ``where=`` (a predicate on the `Call`), the first ``times`` of them if
that is given. The newest fault that wants a request has it; observers see it all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from kadence.broker.server.loop import Loop
from kadence.broker.service import Call
from kadence.clock import Seconds, add_ms, to_ms
from kadence.protocol import error_codes
from kadence.protocol.api_versions import ApiVersionsRequest

__all__ = ["Faults", "Injected", "Observed"]

Where = Callable[[Call], bool]
_Action = Callable[[Loop, Call, Callable[[Call], None]], None]


class Injected:
    """One fault, or one observer. Use it with ``with``, or call `remove`.

    Attributes:
        hits: how many requests it has had.
    """

    def __init__(
        self,
        faults: Faults,
        request: type[Any] | None,
        action: _Action | None,
        where: Where | None,
        times: int | None,
    ) -> None:
        self._faults = faults
        self._request = request
        self._action = action
        self._where = where
        self._times = times
        self._changed = threading.Condition()
        self.hits = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Let requests pass again. What has been delayed or dropped stays so."""
        self._faults._remove(self)

    def wait(self, hits: int = 1, timeout: float = 60.0) -> None:
        """Wait until it has had ``hits`` requests; for tests, in place of a sleep.

        Raises:
            TimeoutError: it has not within ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self.hits} of {hits} requests within {timeout} s")

    def _wants(self, call: Call) -> bool:
        if self._request is not None and not isinstance(call.message, self._request):
            return False
        if self._times is not None and self.hits >= self._times:
            return False
        return self._where is None or self._where(call)

    def _hit(self, call: Call) -> None:
        with self._changed:
            self.hits += 1
            self._keep(call)
            self._changed.notify_all()

    def _keep(self, call: Call) -> None:
        """An observer remembers; a fault does not."""


class Observed(Injected):
    """Requests that came while it was in force, oldest first."""

    def __init__(self, faults: Faults, request: type[Any] | None, where: Where | None) -> None:
        super().__init__(faults, request, None, where, None)
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

    def __init__(self, faults: Faults, request: type[Any], version: int, action: _Action) -> None:
        super().__init__(faults, ApiVersionsRequest, action, None, None)
        self.api_key = int(request.API_KEY)
        self.version = version


class Faults:
    """The faults of one broker. Thread-safe: tests add and remove, the broker's thread asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._injected: tuple[Injected, ...] = ()

    def delay(
        self,
        request: type[Any] | None,
        seconds: Seconds,
        *,
        where: Where | None = None,
        times: int | None = None,
    ) -> Injected:
        """Serve the request, but later. Its connection waits, as behind a slow broker."""
        delay_ms = to_ms(seconds) or 0

        def action(loop: Loop, call: Call, handle: Callable[[Call], None]) -> None:
            loop.at(add_ms(call.now, delay_ms), lambda: handle(call))

        return self._add(Injected(self, request, action, where, times))

    def error(
        self, request: type[Any] | None, code: int, *, where: Where | None = None, times: int | None = None
    ) -> Injected:
        """Answer with ``code`` wherever the API's answer can carry one; the request is not served."""

        def action(_loop: Loop, call: Call, _handle: Callable[[Call], None]) -> None:
            call.reply(call.handler.refuse(call, code))

        return self._add(Injected(self, request, action, where, times))

    def drop(
        self, request: type[Any] | None, *, where: Where | None = None, times: int | None = None
    ) -> Injected:
        """Never answer; the connection stays, and stays busy. Only the client's own timeout ends its wait."""

        def action(_loop: Loop, _call: Call, _handle: Callable[[Call], None]) -> None:
            return None

        return self._add(Injected(self, request, action, where, times))

    def disconnect(
        self,
        request: type[Any] | None,
        *,
        served: bool = False,
        where: Where | None = None,
        times: int | None = None,
    ) -> Injected:
        """Close the connection in place of an answer; with ``served`` only after the request took effect."""

        def action(_loop: Loop, call: Call, handle: Callable[[Call], None]) -> None:
            if served:
                call.mute()
                handle(call)
            call.connection.close()

        return self._add(Injected(self, request, action, where, times))

    def respond(
        self,
        request: type[Any],
        make: Callable[[Call], Any],
        *,
        where: Where | None = None,
        times: int | None = None,
    ) -> Injected:
        """Answer with what ``make(call)`` returns (on the broker's thread); the request is not served."""

        def action(_loop: Loop, call: Call, _handle: Callable[[Call], None]) -> None:
            call.reply(make(call))

        return self._add(Injected(self, request, action, where, times))

    def limit(self, request: type[Any], version: int) -> Injected:
        """Offer the API up to ``version`` only, as an older broker does, to connections made from now on.

        Several limits hold together. A client that asks for more all the same is served.
        """

        def action(_loop: Loop, call: Call, _handle: Callable[[Call], None]) -> None:
            response = call.handler.refuse(call, error_codes.NONE)  # the plain offer
            limits = {each.api_key: each.version for each in self._injected if isinstance(each, Limited)}
            for offered in response.api_keys:
                offered.max_version = min(
                    offered.max_version, limits.get(offered.api_key, offered.max_version)
                )
            call.reply(response)

        return self._add(Limited(self, request, version, action))

    def observe(self, request: type[Any] | None = None, *, where: Where | None = None) -> Observed:
        """Remember the requests, and let them pass."""
        observed = Observed(self, request, where)
        self._add(observed)
        return observed

    def clear(self) -> None:
        """Remove all of them."""
        with self._lock:
            self._injected = ()

    def intercept(self, loop: Loop, call: Call, handle: Callable[[Call], None]) -> bool:
        """Show the call to observers and let the newest fault that wants it have it; False if none does."""
        taken: Injected | None = None
        for each in reversed(self._injected):
            if (each._action is None or taken is None) and each._wants(call):
                each._hit(call)
                if each._action is not None:
                    taken = each
        if taken is None or taken._action is None:
            return False
        taken._action(loop, call, handle)
        return True

    def _add(self, injected: Injected) -> Injected:
        with self._lock:
            self._injected = (*self._injected, injected)
        return injected

    def _remove(self, injected: Injected) -> None:
        with self._lock:
            self._injected = tuple(each for each in self._injected if each is not injected)
