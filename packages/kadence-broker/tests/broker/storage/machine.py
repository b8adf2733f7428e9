"""A broker's insides on a disk that does its work when the test says so: requests in, answers out, and no thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.stage import Nobody

from kadence.clock import FOREVER
from kadence_broker.cluster import BrokerNode, Cluster
from kadence_broker.coordination import Coordination
from kadence_broker.handlers import HANDLERS
from kadence_broker.server.loop import Loop
from kadence_broker.service import Call, Services
from kadence_broker.sessions import SessionCache
from kadence_broker.settings import Settings
from kadence_broker.share.assembly import share_leader
from kadence_broker.storage import DataDirectory, Flusher, LogConfig
from kadence_broker.storage.flusher import run_guarded
from kadence_broker.transactions import Transactions
from kadence_testing.clock import FakeClock

__all__ = ["Machine"]


class _Worker:
    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()

    def put(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def close(self) -> None:
        while self.calls:
            run_guarded(self.calls.popleft())


class Machine:
    """One node. Its topics are those that the directory has."""

    def __init__(self, path: Path, **config: Any) -> None:
        self.path = path
        self._directory = DataDirectory(path, "cluster", "flush")
        self._clock = FakeClock()
        self._loop = Loop(self._clock, lambda _now: FOREVER)
        self._worker = _Worker()
        self._calls: deque[Callable[[], None]] = deque()
        try:
            self._directory.attach(
                Flusher(lambda _ms, call: self._calls.append(call), self._calls.append, self._worker)
            )
            self.cluster = Cluster("cluster", log_defaults=LogConfig(**config))
            self.cluster.nodes = {1: BrokerNode(1, "h", 1)}
            self.cluster.load(self._directory, self._loop.wall_ms)
            settings = Settings()
            self._coordination = Coordination(settings.coordinator(), self.cluster, self._loop)
            self._transactions = Transactions(
                settings.transactions(), self.cluster, self._coordination, self._loop
            )
            self._services = Services(
                settings,
                self.cluster,
                self._coordination,
                self._transactions,
                SessionCache(4),
                share_leader(settings, self.cluster, self._loop),
                self._loop,
            )
            self._coordination.start()
            self._transactions.start()
        except BaseException:
            self.kill()
            raise

    def ask(self, message: Any, version: int, answered: Callable[[Any], None]) -> None:
        """Serve a request; ``answered`` is told of the answer, now or later."""
        handler = HANDLERS[message.API_KEY]
        call = Call(Nobody(1), handler, version, 1, "c", message, self._clock.now_ms())  # type: ignore[arg-type]
        call.on_reply = answered
        self._services.serve(call)

    def work(self, *, disk: bool) -> None:
        """Do one thing that waits: of the disk, or of the loop."""
        calls = self._worker.calls if disk else self._calls
        if calls:
            run_guarded(calls.popleft())

    def drain(self) -> None:
        """Do everything that waits, also for time to pass."""
        for _ in range(5):
            while self._calls or self._worker.calls:
                self.work(disk=False)
                self.work(disk=True)
            now = self._clock.advance(100)
            self._loop._run_timers(now)
            self._coordination.poll(now)
            self._transactions.poll(now)

    def close(self) -> None:
        """End in order."""
        self._directory.close()
        self._loop.close()

    def kill(self) -> None:
        """End at once: what waits is never done. `bury` it when nobody uses the directory any more."""
        self._directory._lock.close()
        self._loop.close()

    def bury(self) -> None:
        """Free what a killed one had open."""
        self._directory.close()
