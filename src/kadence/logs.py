"""The loggers of Kadence. An argument of a log line cannot begin another line, or give a terminal orders."""

from __future__ import annotations

import logging
from typing import Any, Final

from kadence.printable import printable

__all__ = ["Lines", "logger"]


class Lines(str):
    """Text of several lines that this process made itself, such as a stack: it goes into a log as it is."""

    __slots__ = ()


def logger(name: str) -> logging.Logger:
    """The logger of this name, e.g. ``kadence.net``, which makes the text of its arguments printable."""
    made = logging.getLogger(name)
    # It takes a filter once only.
    made.addFilter(_ONLY_PRINTABLE)
    return made


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
