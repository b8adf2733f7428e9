"""Consumers that outlive a task, in the executors' Python workers.

Spark reuses its workers, and connecting, asking for versions and for metadata takes longer than many a
task. So a task takes an idle consumer of the same configuration out of this pool and parks it there at its end. A
worker runs one task at a time, and a Kafka partition comes to any worker, so the key is the configuration alone. A
consumer whose task failed is not trusted again. Workers end without a goodbye; the system closes the sockets.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kadence.clock import Clock, SystemClock
from kadence.spark.source.ports import RecordClient

__all__ = ["POOL", "Pool"]

_log = logging.getLogger("kadence.spark")

MAX_IDLE: Final = 8
"""Consumers kept; each is a thread and some sockets."""

MAX_IDLE_MS: Final = 300_000
"""Longer than this a consumer is not kept; brokers close idle connections after ten minutes."""


@dataclass(frozen=True, slots=True)
class _Parked:
    key: Hashable
    client: RecordClient
    since: int


class Pool:
    """Idle consumers by key."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._parked: list[_Parked] = []
        self._pid = os.getpid()
        self._inherited: list[_Parked] = []

    def __len__(self) -> int:
        return len(self._parked)

    @contextmanager
    def borrow(self, key: Hashable, connect: Callable[[], RecordClient]) -> Iterator[RecordClient]:
        """A consumer for one task; parked again when the task ends well, closed when it does not."""
        client = self._take(key) or connect()
        try:
            yield client
        except BaseException:
            self._discard(client)
            raise
        try:
            client.park()
        except Exception as problem:  # noqa: BLE001 - the task's records are delivered; only the reuse is off
            _log.info("a consumer could not be kept for the next task: %s", problem)
            self._discard(client)
            return
        self._parked.append(_Parked(key, client, self._clock.now_ms()))
        while len(self._parked) > MAX_IDLE:
            self._discard(self._parked.pop(0).client)

    def close(self) -> None:
        """Close all that is parked."""
        while self._parked:
            self._discard(self._parked.pop().client)

    def _take(self, key: Hashable) -> RecordClient | None:
        if self._pid != os.getpid():
            # After a fork: their threads stayed behind with the parent, so they can neither be used nor closed
            # here, and their sockets are the parent's. They are kept so that nobody finalises them.
            self._inherited, self._parked = self._parked, []
            self._pid = os.getpid()
        now = self._clock.now_ms()
        old = [parked for parked in self._parked if now - parked.since > MAX_IDLE_MS]
        self._parked = [parked for parked in self._parked if parked not in old]
        for parked in old:
            self._discard(parked.client)
        for parked in reversed(self._parked):
            if parked.key == key:
                self._parked.remove(parked)
                return parked.client
        return None

    @staticmethod
    def _discard(client: RecordClient) -> None:
        try:
            client.close()
        except Exception as problem:  # noqa: BLE001 - it is let go of either way
            _log.info("closing a consumer failed: %s", problem)


POOL: Final = Pool()
"""The one of this process."""
