"""Logs brokers that cannot be reached: the first failure, later ones more and more rarely, and the end. Sans-IO.

Lines are counted by address: a broker and the bootstrap server of the same address are one, and so are all connections
to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kadence.errors import KafkaError
from kadence.logs import logger

__all__ = ["Outages"]

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
    """Tells of each address that cannot be reached, again after 10 seconds, 30, 70, and so on, at last every 5 minutes.

    Another kind of error, a login that is refused where nobody answered before, is told at once.
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
