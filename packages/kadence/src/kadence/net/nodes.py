"""The brokers that a client may connect to: its connections to them, and log lines about unreachable ones.

No I/O. Log lines are limited by address: a broker and the bootstrap server with the same address count as one, and so
do all connections to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.logs import logger
from kadence.printable import printable

if TYPE_CHECKING:
    from kadence.connection.request import Backoff, Ranges
    from kadence.types import Node

__all__ = ["FIRST_BOOTSTRAP", "KnownNode", "Outages"]

FIRST_BOOTSTRAP = -2
"""Bootstrap addresses have no id yet; they get -2, -3 … (-1 means any node)."""


class KnownNode:
    """A broker, or a bootstrap address, with its record of failures, shared by all its purposes.

    Attributes:
        ranges: API versions of its latest connection, None before the first.
        cluster_id: the cluster whose metadata names it; None: that is not known, or not to be checked.
        failures: connections in a row that failed or were lost. trouble: the reason of the latest, None after a
            success.
        is_away: whether the latest attempt to connect failed.
    """

    __slots__ = ("_backoff", "cluster_id", "failures", "is_away", "node", "ranges", "trouble")

    def __init__(self, node: Node, backoff: Backoff) -> None:
        self.node = node
        self._backoff = backoff
        self.failures = 0
        self.is_away = False
        self.ranges: Ranges | None = None
        self.cluster_id: str | None = None
        self.trouble: str | None = None

    @property
    def retry_at(self) -> int:
        """When it may be tried again (ms)."""
        return self._backoff.until

    def waits(self, now: int) -> bool:
        """Whether it is too early to try again."""
        return not self._backoff.ready(now)

    def failed(self, now: int, trouble: str) -> bool:
        """A connection failed. Failures inside one wait count once: all purposes of a dead broker fail together.

        Returns:
            Whether it was counted.
        """
        self.trouble = trouble
        if not self._backoff.ready(now):
            return False
        self._backoff.failed(now)
        self.failures += 1
        return True

    def succeeded(self, ranges: Ranges) -> None:
        """A connection is ready; the next failure starts from the first wait again."""
        self.ranges = ranges
        self.failures = 0
        self.is_away = False
        self.trouble = None
        self._backoff.succeeded()

    def forgive(self) -> None:
        """It may be tried at once, regardless of earlier failures."""
        self.failures = 0
        self.is_away = False
        self._backoff.succeeded()

    @property
    def meant(self) -> tuple[str, int] | None:
        """The cluster and the node that a connection to it is for; None: whoever answers."""
        return None if self.cluster_id is None or self.is_bootstrap else (self.cluster_id, self.node.node_id)

    @property
    def is_bootstrap(self) -> bool:
        """Whether this is an address from the configuration whose broker id is not known."""
        return self.node.node_id <= FIRST_BOOTSTRAP

    @property
    def address(self) -> str:
        """host:port, for messages."""
        host = printable(self.node.host)
        return f"[{host}]:{self.node.port}" if ":" in host else f"{host}:{self.node.port}"

    def __str__(self) -> str:
        return (
            f"bootstrap {self.address}"
            if self.is_bootstrap
            else f"broker {self.node.node_id} ({self.address})"
        )


_log = logger("kadence.net")

_FIRST_MS: Final = 10_000
_LONGEST_MS: Final = 300_000


@dataclass(slots=True)
class _Outage:
    since: int
    kind: type[KafkaError]
    attempts: int
    wait_ms: int
    due: int


class Outages:
    """Logs each address that cannot be reached, again after 10 seconds, 30, 70, and so on, finally every 5 minutes.

    Another kind of error, such as a refused login after a time without any answer, is logged at once.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Outage] = {}

    def failed(self, now: int, address: str, error: KafkaError) -> None:
        """An attempt to connect has failed."""
        outage = self._known.get(address)
        if outage is None:
            self._known[address] = _Outage(now, type(error), 1, _FIRST_MS, now + _FIRST_MS)
            _log.warning("%s", error)
            return
        outage.attempts += 1
        if now < outage.due and isinstance(error, outage.kind):
            return
        _log.warning("%s (%d attempts in %d s)", error, outage.attempts, (now - outage.since) // 1000)
        outage.kind = type(error)
        outage.wait_ms = min(2 * outage.wait_ms, _LONGEST_MS)
        outage.due = now + outage.wait_ms

    def reached(self, now: int, address: str, name: str) -> None:
        """A connection is ready."""
        if self._known and (outage := self._known.pop(address, None)) is not None:
            _log.info("connected to %s again, after %d s", name, (now - outage.since) // 1000)
