"""The loggers of Kadence, and how often a thing is logged.

An argument of a log line cannot begin another line, or give a terminal orders. Handlers are the application's code, and
most lines come from threads of ours: a handler that raises ends none of them, and one that waits stops none.

A handler runs under its lock, and an application's thread may hold that while it waits for one of our threads: in a
handler that sends lines by a `Producer`, say. So no thread of ours (`OwnThread`) calls handlers. A thread that does
nothing else delivers its lines, in their order, and ends when there are none left.

A change is logged once, a state that lasts once a minute (`LogLimiter`). There is no clock here: callers give the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Final

from kadence.own_threads import AT_EXIT_S, OrderedCalls, OwnThread, is_own_thread
from kadence.printable import plural, printable, text_of
from kadence.types import TopicPartition

__all__ = ["Lines", "LogLimiter", "OwnThread", "flush", "in_short", "logger"]


class _Told(str):
    """What stands for an argument whose text raises; by ``%r`` as well."""

    __slots__ = ()
    __repr__ = str.__str__


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
    """Gives lines of our threads to `_DELIVERY`.

    It does with what a handler raises what handlers of the standard library do with it.
    """

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - a name of the standard library's
        # That of the base may wait for the lock of logging, under which `dictConfig` closes handlers.
        return not self.disabled and self.manager.disable < level and self.getEffectiveLevel() <= level

    def handle(self, record: logging.LogRecord) -> None:
        if is_own_thread():
            if isinstance(record.args, tuple):
                record.args = tuple(map(_frozen, record.args))
            _DELIVERY.put(partial(self.deliver, record))
        else:
            self.deliver(record)

    def deliver(self, record: logging.LogRecord) -> None:
        """Call the handlers, here and now."""
        try:
            super().handle(record)
        except Exception:  # noqa: BLE001 - it is not our code
            handler_failed(record)


class _Frozen:
    """What an argument was when it was logged: by the time of its delivery it may have changed."""

    __slots__ = ("_repr", "_text")

    def __init__(self, argument: object) -> None:
        self._text = str(argument)
        self._repr = repr(argument)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._repr


def _frozen(argument: Any) -> Any:
    if argument is None or isinstance(argument, int | float | str | bytes | BaseException):
        return argument
    try:
        return _Frozen(argument)
    except Exception:  # noqa: BLE001 - exceptions of applications come here, and their methods are no code of ours
        return _Told(printable(text_of(argument, _raising)))


def _left_out(count: int) -> None:
    _LOG.warning(
        "%s left out here: handlers of logging took those before them too slowly", plural(count, "line")
    )


_DELIVERY: Final = OrderedCalls(_left_out)


def flush(seconds: float | None = AT_EXIT_S) -> bool:
    """Wait until the handlers have what the threads of clients and brokers have logged so far.

    Not in a handler, or under a lock that one takes.

    Args:
        seconds: how long at most; None: as long as it takes.

    Returns:
        Whether they have it.
    """
    return _DELIVERY.flush(seconds)


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
    try:
        text = str(argument)
        if isinstance(argument, BaseException):
            repr(argument)
    except Exception:  # noqa: BLE001 - exceptions of applications come here, and their methods are no code of ours
        return _Told(printable(text_of(argument, _raising)))
    shown = printable(text)
    return argument if shown == text else shown


def _raising(argument: Any) -> str:
    """Both texts, of which one raises."""
    return str(argument) + repr(argument)


_ONLY_PRINTABLE: Final = _OnlyPrintable()


_LOG: Final = logger("kadence.logs")


_AGAIN_MS: Final = 60_000


class LogLimiter:
    """Remembers what was logged of each subject, and when."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, tuple[object, int]] = {}

    def is_new(self, now: int, subject: Hashable, what: object) -> bool:
        """Whether ``what`` should be logged of ``subject``: it is another thing than last, or a minute has passed.

        The caller logs it then; it counts as logged.
        """
        before = self._logged.get(subject)
        if before is not None and before[0] == what and now - before[1] < _AGAIN_MS:
            return False
        self._logged[subject] = what, now
        return True

    def over(self, subject: Hashable) -> None:
        """All is well with ``subject``: whatever comes next is new."""
        self._logged.pop(subject, None)


def in_short(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a line of a log: ``t[0-3,7] u[0]``, or ``none``."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}[{_ranges(numbers)}]" for topic, numbers in topics.items()) or "none"


def _ranges(numbers: list[int]) -> str:
    """Of numbers in order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
