"""Whether the names in bootstrap.servers could be resolved in time (KIP-909). Sans-IO.

The time runs from the first look-up of such a name until one has an address. Afterwards it does not matter any more:
a client that has known its brokers waits for names for as long as it waits for brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kadence.clock import FOREVER, add_ms
from kadence.errors import BootstrapResolutionError
from kadence.net.dial import Found, numeric
from kadence.printable import printable

__all__ = ["BootstrapNames"]


class BootstrapNames:
    """The names of one client.

    Args:
        timeout_ms: ``bootstrap.resolve.timeout.ms``, above 0.

    Attributes:
        due: when the time is over (ms); `FOREVER`: it does not run.
    """

    def __init__(self, bootstrap: Sequence[tuple[str, int]], timeout_ms: int) -> None:
        self._bootstrap = frozenset(bootstrap)
        self._timeout_ms = timeout_ms
        self._is_settled = any(numeric(*each) for each in bootstrap)
        self._trouble = "no answer"
        self.due = FOREVER

    def sought(self, now: int) -> None:
        """A bootstrap address is being connected to, so its name is looked up."""
        if not self._is_settled and self.due == FOREVER:
            self.due = add_ms(now, self._timeout_ms)

    def found(self, found: Found) -> None:
        """A look-up has ended."""
        if self._is_settled or (found.host, found.port) not in self._bootstrap:
            return
        if found.addresses:
            self._is_settled, self.due = True, FOREVER
        else:
            error = found.error
            why = "no address" if error is None else error.strerror or str(error)
            self._trouble = f"{printable(found.host)}: {why}"

    def check(self, now: int) -> None:
        """End the client when the time is over.

        Raises:
            BootstrapResolutionError: it is.
        """
        if now >= self.due:
            raise BootstrapResolutionError(
                f"no name in bootstrap.servers could be resolved within bootstrap.resolve.timeout.ms="
                f"{self._timeout_ms}: {self._trouble}"
            )
