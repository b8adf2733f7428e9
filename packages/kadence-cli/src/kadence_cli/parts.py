"""The outcomes of a command with several items. A failed item does not stop the others.

The rows of successful items are printed, each failure is a message on stderr that names its item, and the status is 1.
If no item was done because the brokers were not reached or did not answer in time, there is one error for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kadence.errors import BrokerError, KafkaError
from kadence_cli.common import say
from kadence_cli.names import no_such

if TYPE_CHECKING:
    from kadence.admin.values import Outcomes

__all__ = ["Parts"]

K = TypeVar("K")
V = TypeVar("V")


class Parts:
    """The parts of one command.

    Args:
        command: its name. kind: the kind of its items, e.g. ``topic``. missing: the error code for an unknown item.
            listed: the type of each existing item, by name; "" if it has none. wanted: the types that the command is
            for; empty: all.

    Attributes:
        status: of the command: 1 as soon as an item failed.
    """

    def __init__(
        self,
        command: str,
        kind: str,
        missing: int,
        listed: Callable[[], dict[str, str]],
        wanted: frozenset[str] = frozenset(),
    ) -> None:
        self.status = 0
        self._command = command
        self._kind = kind
        self._missing = missing
        self._listed = listed
        self._wanted = wanted
        self._known: dict[str, str] | None = None

    def done(self, outcomes: Outcomes[K, V]) -> Outcomes[K, V]:
        """The outcomes of a call; prints its errors.

        Raises:
            KafkaError: no item was done, because the brokers were not reached or did not answer in time.
        """
        errors = outcomes.errors
        if not outcomes and not any(isinstance(error, BrokerError) for error in errors.values()):
            outcomes.raise_errors()
        for item, error in errors.items():
            self.status = 1
            say(f"kadence {self._command}: {self._told(item, error)}")
            for note in getattr(error, "__notes__", ()):
                say(f"  {note}")
        return outcomes

    def type_of(self, name: str) -> str | None:
        """The type of the item of this name; None if there is none."""
        if self._known is None:
            self._known = self._listed()
        return self._known.get(name)

    def _told(self, item: object, error: KafkaError) -> str:
        if not isinstance(item, str) or not isinstance(error, BrokerError) or error.code != self._missing:
            return str(error)
        try:
            found = self.type_of(item)
        except KafkaError:
            return str(error)
        if found is None:
            return no_such(self._kind, item, self._known or ())
        return str(error) if self.is_wanted(found) else self.of_another_type(item, found)

    def is_wanted(self, found: str) -> bool:
        """Whether the command is for items of this type."""
        return not self._wanted or found in self._wanted

    def of_another_type(self, name: str, found: str) -> str:
        """The error for an item of a type that the command is not for."""
        *others, last = sorted(filter(None, self._wanted))
        types = f"{', '.join(others)} and {last}" if others else last
        return f"{name!r} is a {found} {self._kind}; this is for those of type {types}"
