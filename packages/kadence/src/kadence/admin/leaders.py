"""The leaders of partitions, and the coordinators of groups and transactional ids, that a client's calls found."""

from __future__ import annotations

from typing import Self

from kadence.clock import add_ms
from kadence.protocol.metadata import MetadataResponseTopic

__all__ = ["Leaders"]


class Leaders:
    """Remembered from one call to the next, so that a call that is repeated often costs one round trip.

    After any error, and after ``metadata.max.age.ms``, all of it is forgotten together. Outdated entries do no harm:
    brokers refuse requests for partitions and groups that they do not lead or coordinate.
    """

    def __init__(self, max_age_ms: int) -> None:
        self._max_age_ms = max_age_ms
        self._fresh_until = 0
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.coordinators: dict[str, int] = {}
        self.of_transactions: dict[str, int] = {}

    def forget(self) -> None:
        """Forget all; a call that reads what was known keeps it."""
        self.topics, self.coordinators, self.of_transactions = {}, {}, {}

    def at(self, now: int) -> Self:
        """The cache, cleared if it is older than ``metadata.max.age.ms``."""
        if now >= self._fresh_until:
            self.forget()
            self._fresh_until = add_ms(now, self._max_age_ms)
        return self
