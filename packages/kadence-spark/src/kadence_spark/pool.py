"""A pool of clients that outlive a task, in the executors' Python workers: consumers and producers.

Spark reuses its workers, and connecting and requesting versions and metadata takes longer than many tasks. So a task
takes an idle client of the same configuration from this pool, and returns it at its end. A worker runs one task at a
time, and any worker may get any Kafka partition, so the key is the configuration alone. A client whose task failed is
closed. Workers are killed; the system closes their sockets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from kadence.clock import Clock, SystemClock
from kadence.logs import logger

__all__ = ["Pool"]

_log = logger("kadence.spark")

MAX_IDLE: Final = 8
"""The most idle clients; each has a thread and some sockets."""

MAX_IDLE_MS: Final = 300_000
"""How long an idle client is kept; brokers close idle connections after ten minutes."""


class Parkable(Protocol):
    """The methods that a client must have."""

    def park(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Parkable)


@dataclass(frozen=True, slots=True)
class _Parked(Generic[C]):
    key: Hashable = field(repr=False)  # there may be passwords among the settings
    client: C
    since: int


class Pool(Generic[C]):
    """Idle clients by key."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._parked: list[_Parked[C]] = []
        self._pid = os.getpid()
        self._inherited: list[_Parked[C]] = []

    def __len__(self) -> int:
        return len(self._parked)

    @contextmanager
    def borrow(self, key: Hashable, connect: Callable[[], C]) -> Iterator[C]:
        """A client for one task; returned to the pool if the task succeeds, else closed."""
        client = self._take(key) or connect()
        try:
            yield client
        except BaseException:
            self._discard(client)
            raise
        try:
            client.park()
        except Exception as problem:  # noqa: BLE001 - the task's records are delivered; only the reuse is off
            _log.info("a client could not be kept for the next task: %s", problem)
            self._discard(client)
            return
        self._parked.append(_Parked(key, client, self._clock.now_ms()))
        while len(self._parked) > MAX_IDLE:
            self._discard(self._parked.pop(0).client)

    def close(self) -> None:
        """Close all idle clients."""
        while self._parked:
            self._discard(self._parked.pop().client)

    def _take(self, key: Hashable) -> C | None:
        if self._pid != os.getpid():
            # After a fork: their threads and sockets are the parent's, so they can neither be used nor closed here.
            # They stay referenced, so that they are not finalised.
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
    def _discard(client: Parkable) -> None:
        try:
            client.close()
        except Exception as problem:  # noqa: BLE001 - it is let go of either way
            _log.info("closing a client failed: %s", problem)
