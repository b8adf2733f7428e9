"""Runs each of the admin client's calls on the calling thread. async_shell.py does so for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from kadence.admin.calls import Calls, Leaders
from kadence.admin.exchange import Exchange
from kadence.clock import Clock, Seconds
from kadence.config import AdminConfig

__all__ = ["Shell"]

P = ParamSpec("P")
T = TypeVar("T")


class Shell:
    """Makes the admin client's calls on the calling thread."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._exchange = Exchange(config, clock)
        self._leaders = Leaders(config.metadata_max_age_ms)

    def run(
        self,
        timeout: Seconds | None,
        call: Callable[Concatenate[Calls, int, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Make a call that ends after ``timeout`` seconds; None takes ``default.api.timeout.ms``."""
        calls = Calls(self._config, self._clock, self._exchange, self._leaders)
        return call(calls, calls.deadline(timeout), *arguments, **options)

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def drop(self) -> None:
        """Close the connections of a client that nobody has any more, without waiting."""
        self._exchange.close()

    @property
    def is_closed(self) -> bool:
        return self._exchange.is_closed
