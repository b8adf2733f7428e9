"""Values that are given as text and stand for something else: assignors, durations and functions.

A user who may write a function as text, ``module:function``, chooses code that runs where the client is made: such a
setting is worth as much as the program itself.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from kadence.errors import ConfigError

__all__ = ["ASSIGNORS", "duration_ms", "imported", "read_assignors"]

ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")

_JAVA: Final[Mapping[str, str]] = {
    f"org.apache.kafka.clients.consumer.{java}Assignor": name
    for name, java in zip(ASSIGNORS, ("Range", "RoundRobin", "Sticky", "CooperativeSticky"), strict=True)
}


def read_assignors(value: Any) -> tuple[Any, ...]:
    """One of them, a comma separated string or an iterable, in order of preference; Java's classes become names.

    Raises:
        ConfigError: one is neither a known name nor an object with a name and ``assign()``, or is given twice.
    """
    if isinstance(value, str):
        given: list[Any] = [part for part in value.split(",") if part.strip()]
    elif isinstance(value, Iterable):
        given = list(value)
    else:
        given = [value]
    chosen = tuple(_read_assignor(each) for each in given)
    if not chosen:
        raise ConfigError(
            "partition.assignment.strategy must name at least one assignor",
            key="partition.assignment.strategy",
        )
    names = [each if isinstance(each, str) else each.name for each in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"partition.assignment.strategy: {name!r} is given twice", key="partition.assignment.strategy"
            )
    return chosen


def _read_assignor(each: Any) -> Any:
    if isinstance(each, str):
        name = _JAVA.get(each.strip(), each.strip())
        if name not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy: {name!r} is none of {', '.join(ASSIGNORS)}; an assignor of your own "
                "is given as an object, see kadence.Assignor",
                key="partition.assignment.strategy",
            )
        return name
    if isinstance(each, type):
        raise ConfigError(
            f"partition.assignment.strategy: {each.__name__} is a class; give an object: {each.__name__}()",
            key="partition.assignment.strategy",
        )
    called = getattr(each, "name", None)
    if not (isinstance(called, str) and called and callable(getattr(each, "assign", None))):
        raise ConfigError(
            f"partition.assignment.strategy: {each!r} is no assignor: it needs a name and assign(), "
            "see kadence.Assignor",
            key="partition.assignment.strategy",
        )
    return each


_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_LONGEST_MS: Final = 2**53
"""285,000 years: beyond it no clock's difference means anything."""


def duration_ms(text: str) -> int:
    """``P1DT12H``, ``PT30M``, ``PT1.5S`` … in ms.

    Raises:
        ValueError: it is none, is negative, or is longer than time is.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groupdict().values()):
        raise ValueError(f"{text!r} is no duration such as PT1H, PT30M or P7D")
    total = sum(
        (Decimal(value) * _MS[unit] for unit, value in found.groupdict().items() if value), Decimal(0)
    )
    if total > _LONGEST_MS:
        raise ValueError(f"{text!r} is too long a duration")
    return int(total)


_FUNCTION: Final = "a callable, or the text module:function such as company.logins:token"


def imported(key: str, text: str) -> Callable[..., Any]:
    """The function that ``module:function`` names; a function of an object or class has its name after a dot.

    Args:
        key: names the setting in errors.

    Raises:
        ConfigError: the text has another form, the module cannot be imported, or has nothing callable of this name.
    """
    module, colon, path = text.strip().partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))):
        raise ConfigError(f"{key}: {text!r} is not {_FUNCTION}", key=key)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{key}: the module {module!r} cannot be imported here ({type(error).__name__}: {error}). Each process "
            "with a client imports it, so it must be installed, or its directory be in PYTHONPATH, wherever one runs: "
            "with Spark for the driver and for every worker (--py-files)",
            key=key,
        ) from error
    try:
        found = reduce(getattr, path.split("."), found)
    except AttributeError:
        near = difflib.get_close_matches(path, dir(found), n=1)
        hint = f"; did you mean {module}:{near[0]}?" if near else ""
        raise ConfigError(f"{key}: the module {module!r} has no {path!r}{hint}", key=key) from None
    if not callable(found):
        raise ConfigError(f"{key}: {text.strip()} is {type(found).__name__}, which cannot be called", key=key)
    return found  # type: ignore[no-any-return] # it was looked at
