"""The other packages of Kadence, which this one names and never imports: each is loaded when a call needs it."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from kadence.errors import MissingDependencyError
from kadence.loading import load

__all__ = ["EXTRAS", "missing", "part"]

EXTRAS: Final = {
    "kadence_broker": "broker",
    "kadence_cli": "cli",
    "kadence_schemas": "schemas",
    "kadence_spark": "spark",
    "kadence_testing": "broker",
}
"""The extra of `kadence` that brings a package, by the name under which it is imported."""


def part(name: str, extra: str | None = None) -> ModuleType:
    """A package of `EXTRAS`.

    Args:
        extra: to be named where it is missing, if that of `EXTRAS` would not be enough.

    Raises:
        MissingDependencyError: it is not installed; the message says how to install it.
    """
    try:
        return load(name)
    except ModuleNotFoundError as error:
        if told := missing(error, extra):
            raise told from error
        raise


def missing(error: ModuleNotFoundError, extra: str | None = None) -> MissingDependencyError | None:
    """What to raise instead, if the module that was not found is one of these packages."""
    known = EXTRAS.get(error.name or "")
    if known is None:
        return None
    extra = extra or known
    return MissingDependencyError(f"{error.name} is not installed: pip install 'kadence[{extra}]'")
