"""Runs the admin client's calls on the calling thread, one after the other. async_shell.py does so for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from kadence.admin.calls import Calls
from kadence.clock import Clock, Seconds
from kadence.config import AdminConfig

__all__ = ["Shell"]

P = ParamSpec("P")
T = TypeVar("T")


class Shell:
    """Makes the admin client's calls on the calling thread."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._calls = Calls(config, clock)

    def run(
        self,
        timeout: Seconds | None,
        call: Callable[Concatenate[Calls, int, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Make a call that ends after ``timeout`` seconds; None takes ``default.api.timeout.ms``."""
        return call(self._calls, self._calls.deadline(timeout), *arguments, **options)

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    def drop(self) -> None:
        """Close the connections of a client that nobody has any more, without waiting."""
        self._calls.close()

    @property
    def is_closed(self) -> bool:
        return self._calls.is_closed
