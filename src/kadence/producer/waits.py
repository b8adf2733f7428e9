"""What a producer's call yields while it waits, so that the same code of a call runs under threads and asyncio."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

__all__ = ["BREATH", "Waits"]

T = TypeVar("T")

Waits = Generator[int, None, T]
"""A call that may wait. With the producer's lock held it yields until when at most (absolute ms), and looks again when
it is resumed."""

BREATH: Final = 0
"""Yielded by a call that has worked for a while and waits for nothing: an event loop may turn before it goes on."""
