"""The reason of a failure of Spark in one line, from its exceptions: condition, state and cause.

Two reasons leave Spark's processes only as text, which is parsed here: the traceback of a Python process (`_raised`),
and the output of a Python process that did not start (`_not_started`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kadence.environment import Environment
from kadence.errors import KafkaError

__all__ = ["PipelineError", "Thrown", "reason", "reason_of", "thrown", "told_simply"]

_FRAMES: Final = frozenset(
    {
        "FAILED_EXECUTE_UDF",
        "FOREACH_BATCH_USER_FUNCTION_ERROR",
        "STREAM_FAILED",
        "TASK_WRITE_FAILED",
        "WRITING_JOB_ABORTED",
    }
)
"""Conditions whose cause has the real reason."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_NOT_STARTED: Final = "Error from python worker:"


class PipelineError(KafkaError):
    """A pipeline failed; the message has the reason without Spark's stack."""


@dataclass(frozen=True, slots=True)
class Thrown:
    """An exception of Java's.

    Attributes:
        kind: its class. condition, state: Spark's error condition and SQLSTATE, if it is Spark's.
    """

    kind: str
    text: str
    condition: str | None = None
    state: str | None = None


@contextlib.contextmanager
def told_simply(environment: Environment, what: str = "") -> Iterator[None]:
    """Turns Spark's exceptions into a `PipelineError` of one line, without secrets, that begins with ``what``."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as problem:
        raise PipelineError(environment.hide(what + reason(problem))) from None


def reason(problem: BaseException) -> str:
    """The reason of an exception of this process, from Kadence or PySpark, which wraps those of Java."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    if isinstance(problem, (Py4JNetworkError, ConnectionError)):
        return "Spark's Java process has ended: it was killed, or ran out of memory"
    java = getattr(problem, "java_exception", None) or getattr(problem, "_origin", None)
    if java is not None:
        return reason_of(thrown(java))
    if isinstance(problem, PySparkException) and problem.getCondition() == "JAVA_GATEWAY_EXITED":
        return "its Java process ended at once; its output is above"
    text = _first_line(str(problem)) or "no reason given"
    is_told = isinstance(problem, (KafkaError, PySparkException, Py4JError))
    return text if is_told else f"{type(problem).__name__}: {text}"


def thrown(java: Any) -> list[Thrown]:
    """An exception of Java's, and its causes."""
    found = []
    while java is not None:
        names = [each.getName() for each in _interfaces(java)]
        is_spark = "org.apache.spark.SparkThrowable" in names
        found.append(
            Thrown(
                java.getClass().getName(),
                java.getMessage() or "",
                java.getCondition() if is_spark else None,
                java.getSqlState() if is_spark else None,
            )
        )
        java = java.getCause()
    return found


def _interfaces(java: Any) -> Iterator[Any]:
    kind = java.getClass()
    while kind is not None:
        yield from kind.getInterfaces()
        kind = kind.getSuperclass()


def reason_of(links: Sequence[Thrown]) -> str:
    """The root reason of an exception with its causes.

    The innermost error of Python, else the innermost condition of Spark that says why, else the innermost exception.
    """
    inner = links[::-1]
    for each in inner:
        if (text := _raised(each.text) or _not_started(each.text)) is not None:
            return text
    for each in inner:
        if (
            each.condition is not None
            and each.condition not in _FRAMES
            and not each.condition.startswith("_")
        ):
            return _said(each)
    return f"{inner[0].kind}: {_first_line(inner[0].text)}"


def _said(each: Thrown) -> str:
    """The message without the SQLSTATE; and the text behind that, the place in a statement."""
    line = _first_line(each.text)
    if each.condition == "USER_RAISED_EXCEPTION":
        line = line.removeprefix(f"[{each.condition}] ")
    text, _, place = line.partition(f" SQLSTATE: {each.state}")
    place = place.strip(" ;()")
    return f"{text} ({place})" if place else text


def _raised(text: str) -> str | None:
    """The error at the end of the last traceback of Python: its header is the first line that is not indented.

    Spark's Python processes report their exceptions as tracebacks. The text of Kadence's and PySpark's errors is
    complete; for others the class is part of the reason.
    """
    _, found, trace = text.rpartition(_TRACEBACK)
    line = next((each for each in trace.splitlines() if each and not each[0].isspace()), "")
    if not found or not line:
        return None
    kind, colon, said = line.partition(": ")
    return said if colon and kind.startswith(("kadence.", "pyspark.")) else line


def _not_started(text: str) -> str | None:
    """The output of a Python process before its end, which Spark puts below a heading."""
    _, found, said = text.partition(_NOT_STARTED)
    return f"a Python worker of Spark did not start: {_first_line(said)}" if found else None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
