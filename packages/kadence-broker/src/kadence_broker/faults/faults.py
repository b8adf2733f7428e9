"""The faults of one broker: those in force, and their effect on requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, Unpack

from kadence.clock import Seconds, add_ms, to_ms
from kadence.errors import ClosedError, ForkedError
from kadence.forked import ThisProcess, free_lock
from kadence.protocol import error_codes
from kadence_broker.faults.choice import Only
from kadence_broker.faults.injected import Injected, Limited, Observed
from kadence_broker.faults.text import put_in_force
from kadence_broker.server.loop import Loop
from kadence_broker.service import Call

__all__ = ["Faults", "Frozen"]


class Frozen:
    """Nodes that are frozen: they neither read nor write. Use it with ``with``, or call `thaw`."""

    def __init__(self, freeze: Callable[[tuple[int, ...], bool], None], node_ids: tuple[int, ...]) -> None:
        self._freeze = freeze
        self._node_ids = node_ids
        freeze(node_ids, True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.thaw()

    def thaw(self) -> None:
        """Let the nodes go on. They first serve the requests that have arrived meanwhile."""
        self._freeze(self._node_ids, False)


class Faults:
    """The faults of one broker. Any thread may add and remove them.

    Attributes:
        here: entered around each call of user code: a child that it forks does not serve clients, and ends with it.
    """

    def __init__(self) -> None:
        self.here = ThisProcess()
        self._pid = os.getpid()
        self._lock = free_lock()
        self._injected: tuple[Injected, ...] = ()
        self._freeze: Callable[[tuple[int, ...], bool], None] = lambda _node_ids, _frozen: None
        self.topics_of: Callable[[Call], Collection[str]] = lambda _call: ()

    def attach(
        self,
        freeze: Callable[[tuple[int, ...], bool], None],
        topics_of: Callable[[Call], Collection[str]],
    ) -> None:
        """Connect it to its broker: a function that freezes nodes (none named: all), and one for a request's topics."""
        self._freeze = freeze
        self.topics_of = topics_of

    def delay(
        self,
        request: type[Any] | None,
        seconds: Seconds,
        **only: Unpack[Only],
    ) -> Injected:
        """Serve the request later. Other requests of its connection wait, too, as with a slow broker."""
        delay_ms = to_ms(seconds) or 0

        def action(loop: Loop, call: Call, handle: Callable[[Call], None]) -> None:
            loop.at(add_ms(call.now, delay_ms), lambda: handle(call))

        return self._add(Injected(self, request, action, only))

    def error(self, request: type[Any] | None, code: int, **only: Unpack[Only]) -> Injected:
        """Answer with this error code, in every field of the response that has one. The request has no effect."""

        def action(_loop: Loop, call: Call, _handle: Callable[[Call], None]) -> None:
            call.reply(call.handler.refuse(call, code))

        return self._add(Injected(self, request, action, only))

    def drop(self, request: type[Any] | None, **only: Unpack[Only]) -> Injected:
        """Never answer. The connection stays open, and only the client's own timeout ends its wait."""

        def action(_loop: Loop, _call: Call, _handle: Callable[[Call], None]) -> None:
            return None

        return self._add(Injected(self, request, action, only))

    def disconnect(
        self,
        request: type[Any] | None,
        *,
        served: bool = False,
        **only: Unpack[Only],
    ) -> Injected:
        """Close the connection instead of answering. With ``served`` the request first takes effect."""

        def action(_loop: Loop, call: Call, handle: Callable[[Call], None]) -> None:
            if served:
                call.mute()
                handle(call)
            call.connection.close()

        return self._add(Injected(self, request, action, only))

    def truncate(self, request: type[Any] | None, size: int | None = None, **only: Unpack[Only]) -> Injected:
        """Serve the request, send the first ``size`` bytes of its answer (None: half of them), and disconnect."""

        def action(_loop: Loop, call: Call, handle: Callable[[Call], None]) -> None:
            call.cut_answer(size)
            handle(call)

        return self._add(Injected(self, request, action, only))

    def freeze(self, *node_ids: int) -> Frozen:
        """Let these nodes (none named: all) stop reading, writing and accepting, with their sockets open.

        To a client this looks like a process that hangs or a network that loses all packets. The broker's timers go
        on, so members whose heartbeats are not read lose their sessions. It ends with `Frozen.thaw` or the end of
        ``with``.
        """
        return Frozen(self._freeze, node_ids)

    def parse(self, text: str) -> None:
        """Put a fault in force that is written as text, see `kadence_broker.faults.text`.

        Raises:
            ConfigError: it cannot be read; says which part.
        """
        put_in_force(self, text)

    def respond(
        self,
        request: type[Any],
        make: Callable[[Call], Any],
        **only: Unpack[Only],
    ) -> Injected:
        """Answer with the response that ``make(call)`` returns, on the broker's thread. The request has no effect."""

        def action(_loop: Loop, call: Call, _handle: Callable[[Call], None]) -> None:
            call.reply(self.here.call(make, call))

        return self._add(Injected(self, request, action, only))

    def limit(self, request: type[Any], version: int) -> Injected:
        """Offer the API up to ``version`` only, as an older broker does, to connections made from now on.

        Several limits can be in force together. A client that sends a higher version all the same is served.
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

    def observe(self, request: type[Any] | None = None, **only: Unpack[Only]) -> Observed:
        """Record the requests without changing anything."""
        observed = Observed(self, request, only)
        self._add(observed)
        return observed

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """A context manager: its end removes the faults that were added within it, and thaws the nodes."""
        before = self._injected
        try:
            yield self
        finally:
            with self._lock:
                self._injected = tuple(each for each in self._injected if each in before)
            # A broker that was closed meanwhile has no nodes.
            with suppress(ClosedError):
                self._freeze((), False)

    def clear(self) -> None:
        """Remove all faults and observers."""
        self.check_here()
        with self._lock:
            self._injected = ()

    @property
    def in_force(self) -> bool:
        """True if any fault or observer is in force."""
        return bool(self._injected)

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
        self.check_here()
        with self._lock:
            self._injected = (*self._injected, injected)
        return injected

    def check_here(self) -> None:
        """Raise `ForkedError` in a child: the parent's broker serves requests."""
        if self.here.is_left:
            raise ForkedError(
                f"these faults are of a broker in process {self._pid}, of which this one is a fork"
            )

    def _remove(self, injected: Injected) -> None:
        with self._lock:
            self._injected = tuple(each for each in self._injected if each is not injected)
