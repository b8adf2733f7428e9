"""Copies of an error that many callers raise: one for each.

A raised exception collects the traceback of its caller, and with it all that its frames refer to; it
also takes notes, and the exception that was handled meanwhile. So an error that a client keeps is never raised itself,
nor is its cause: a program may raise that, too.
"""

from __future__ import annotations

# Not when it is needed: the end of a program may need it, when nothing can be imported any more.
import copy
from typing import TypeVar

__all__ = ["own_copy"]

E = TypeVar("E", bound=BaseException)


def own_copy(error: E) -> E:
    """The error for one caller, with copies of what caused it."""
    made = copy.copy(error)
    if hasattr(error, "__notes__"):
        made.__notes__ = [*error.__notes__]
    if error.__cause__ is not None:
        made.__cause__ = _cause(error.__cause__)
    return made


def _cause(error: BaseException) -> BaseException:
    """A copy that still says where it was raised; the error itself where its class cannot be copied."""
    try:
        made = own_copy(error)
    except Exception:  # noqa: BLE001 - the class may be a program's own, as one that a token callback raises
        return error
    made.__traceback__ = error.__traceback__
    made.__context__ = error.__context__
    made.__suppress_context__ = error.__suppress_context__
    return made
