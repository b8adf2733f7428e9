"""Whatever reading another's bytes raises is told as one error: bytes that cannot be read.

Readers check what they read, and raise `WireError`. What they do not foresee (recursion, memory, a key that is not
there) must not end the thread that reads for everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kadence.wire.reader import WireError

__all__ = ["parser", "unreadable"]

P = ParamSpec("P")
R = TypeVar("R")


def unreadable(error: Exception) -> str:
    """How messages name what a parser raised."""
    return str(error) if isinstance(error, WireError) else f"{type(error).__name__}: {error}"


def parser(read: Callable[P, R]) -> Callable[P, R]:
    """A function that reads another's bytes, and raises `WireError` alone."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except WireError:
            raise
        except Exception as error:
            raise WireError(unreadable(error)) from error

    return reading
