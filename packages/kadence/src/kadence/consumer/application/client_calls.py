"""The calls that clients of groups have in common, whatever they read (G1). Application side.

`calls.Calls` adds those of a consumer, and `kadence.share.application.calls` those of a share consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from kadence.client.engine import END_MS
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, Seconds, add_ms, to_ms
from kadence.consumer.application.client_core import ClientCore
from kadence.consumer.application.processing import Stall
from kadence.consumer.client_state import FAREWELL_MS, ClientState, NetworkLateness
from kadence.idioms import NotAwaited
from kadence.logs import logger

__all__ = ["ClientCalls"]

_CLOSE_MS = 30_000
_SURELY_MS = 500
"""A whole number of so many seconds or more is not meant for a poll."""

_log = logger("kadence.consumer")


class ClientKeys(Protocol):
    """The configuration keys that these calls need."""

    @property
    def client_id(self) -> str: ...
    @property
    def group_id(self) -> str | None: ...
    @property
    def default_api_timeout_ms(self) -> int: ...


class ClientCalls:
    """What each call does. Those that may wait are generators; the others are done when they return.

    Args:
        awaits: whether the shell awaits callbacks that are coroutine functions.
    """

    def __init__(
        self, config: ClientKeys, client_state: ClientState, core: ClientCore, clock: Clock, *, awaits: bool
    ) -> None:
        self._config = config
        self._client_state = client_state
        self._core = core
        self._clock = clock
        self._awaits = awaits
        self._default_close_by = 0
        self._has_told_unit = False

    def unsubscribe(self, timeout: Seconds | None) -> Waits[None]:
        return self._core.unsubscribe(self._deadline(timeout))

    def network_lateness(self) -> NetworkLateness:
        return self._client_state.lateness.seen(self._clock.now_ms())

    def stalls(self) -> Sequence[Stall]:
        return self._core.stalls.history()

    # ------------------------------------------------------------ the end

    def stop(self, grace: Seconds | None) -> None:
        self._core.exchange.grace.begin(self._clock.now_ms(), grace)
        self._core.stop()
        return cast(None, NotAwaited("consumer", "ends iterations and polls")) if self._awaits else None

    @property
    def stopping(self) -> bool:
        return self._core.stopping

    def busy(self) -> str | None:
        """What the application does instead of closing this consumer, and where; None once it closes it. Any thread.

        It may work on records, or wait in a call. A poll is none of these: it ends with `stop`. A close without
        a timeout is, if it began before `stop` and would take longer than the grace period.
        """
        if self._core.exchange.closed or self._client_state.ended:
            return None
        if self._core.closing:
            is_late = self._default_close_by > self._core.exchange.grace.close_by
            return "close() waits for brokers." if is_late else None
        return self._core.stalls.present()

    def leave_unfinished(self) -> None:
        """Leave the group, without a commit, whatever the application is doing. Any thread; waits for nothing."""
        now = self._clock.now_ms()
        by = min(add_ms(now, FAREWELL_MS), max(self._core.exchange.grace.close_by, add_ms(now, END_MS)))
        self._client_state.begin_close(by)

    def closed_by(self, timeout: Seconds | None) -> int:
        """The deadline of a close: without one of its own that of the grace period that `stop` was told of."""
        now, ms = self._clock.now_ms(), to_ms(timeout)
        self._default_close_by = 0
        if ms is not None:
            return add_ms(now, ms)
        by = min(add_ms(now, _CLOSE_MS), self._core.exchange.grace.close_by)
        self._default_close_by = max(by, add_ms(now, FAREWELL_MS))
        return self._default_close_by

    def close(self, deadline: int, *, processed_only: bool, leave: bool | None = None) -> Waits[None]:
        return self._core.close(deadline, processed_only=processed_only, leave=leave)

    def _described(self, kind: str, assigned: int) -> str:
        """One line of state, for the repr."""
        core = self._core
        return (
            f"<{kind} {self._config.client_id} group={self._config.group_id or '-'} "
            f"{'closed' if core.exchange.closed else 'open'} member={core.identity.member_id or '-'} "
            f"generation={core.identity.generation_id} assigned={assigned}>"
        )

    def _deadline(self, timeout: Seconds | None) -> int:
        ms = to_ms(timeout)
        return add_ms(self._clock.now_ms(), self._config.default_api_timeout_ms if ms is None else ms)

    def _look_at_unit(self, timeout: Seconds) -> None:
        """Other clients' polls take milliseconds: say once what such a number means here."""
        if type(timeout) is int and timeout >= _SURELY_MS and not self._has_told_unit:
            self._has_told_unit = True
            _log.warning(
                "poll(%d) waits for up to %d seconds: timeouts are seconds here, so %d ms are %s",
                timeout,
                timeout,
                timeout,
                timeout / 1000,
            )

    def _until(self, timeout: Seconds, since: int = -1) -> int:
        """When it is over; ``since``: when the call began, if that is known."""
        ms = to_ms(timeout)
        return FOREVER if ms is None else add_ms(since if since >= 0 else self._clock.now_ms(), ms)
