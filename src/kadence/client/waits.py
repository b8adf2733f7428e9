"""What a client's call yields while it waits, so that one text of a call runs under threads and under asyncio.

A call that may wait is a generator. Its shell (`shell.py` for threads, `async_shell.py` for asyncio) does what it
yields and resumes it. The call looks each time it is resumed, so a wake-up that was for something else costs one more
look, and nothing is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

__all__ = ["BREATH", "Run", "Waits"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """User code for the shell to run: ``work()``, awaited by an asyncio shell when it returns an awaitable."""

    work: Callable[[], Any]


Waits = Generator[int | Run, None, T]
"""A call: yields until when at most it waits for a change (absolute ms), or user code to run; returns its result."""

BREATH: Final = 0
"""Yielded by a call that has worked for a while and waits for nothing: an event loop may turn before it goes on."""
