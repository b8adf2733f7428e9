"""Values of ``partition.assignment.strategy``: names, Java's class names, and objects of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kadence.errors import ConfigError

__all__ = ["ASSIGNORS", "read_assignors"]

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
    chosen = tuple(_read(each) for each in given)
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


def _read(each: Any) -> Any:
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
