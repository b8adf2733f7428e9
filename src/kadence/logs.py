"""The loggers of Kadence. An argument of a log line cannot begin another line, or give a terminal orders.

Handlers are the application's code, and most lines come from threads of ours. A handler that raises ends none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from kadence.printable import printable

__all__ = ["Lines", "logger"]


class Lines(str):
    """Text of several lines that this process made itself, such as a stack: it goes into a log as it is."""

    __slots__ = ()


def logger(name: str) -> logging.Logger:
    """The logger of this name, e.g. ``kadence.net``, which makes the text of its arguments printable."""
    made = logging.getLogger(name)
    if type(made) is logging.Logger:
        # It may have been made before, by an application that has set its level.
        made.__class__ = _Logger
    # It takes a filter once only.
    made.addFilter(_ONLY_PRINTABLE)
    return made


class _Logger(logging.Logger):
    """Does with what a handler raises what handlers of the standard library do with it."""

    def handle(self, record: logging.LogRecord) -> None:
        try:
            super().handle(record)
        except Exception:  # noqa: BLE001 - it is not our code
            handler_failed(record)


def _show(record: logging.LogRecord) -> None:
    """Show on stderr what a handler has raised, unless `logging.raiseExceptions` is off."""
    logging.Handler().handleError(record)


handler_failed: Callable[[logging.LogRecord], None] = _show
"""What is done when a handler has raised. Our tests raise it again: a line that cannot be formatted is a mistake."""


class _OnlyPrintable(logging.Filter):
    """Group ids, client ids of other members and what brokers say are arguments of log lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        return True


def _shown(argument: Any) -> Any:
    """The argument itself wherever it is printable, so that handlers get numbers and errors as they were."""
    if isinstance(argument, int | float | Lines):
        return argument
    text = str(argument)
    shown = printable(text)
    return argument if shown == text else shown


_ONLY_PRINTABLE: Final = _OnlyPrintable()
