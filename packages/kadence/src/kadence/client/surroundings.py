"""A client's access to the machine: clocks, network thread, connections, helper thread. A simulation has its own.

The helper thread runs work that may block or take long, which never runs on the network thread: assignors (custom ones
too), and the reading of the classic group protocol's files. Name look-ups and tokens have their own in ``net``. The
thread starts with the first job and ends with the consumer; it is a daemon because a job may hang for ever.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.client.engine import Engine
from kadence.client.network_thread import NetworkSide, NetworkThread
from kadence.client.request_manager import Jobs
from kadence.clock import Clock, SystemClock
from kadence.clock import wall_ms as wall_clock_ms
from kadence.config import generated_client_id
from kadence.errors import IllegalStateError
from kadence.idioms import running_loop
from kadence.logs import OwnThread
from kadence.metrics.sensors import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient, native_heartbeat

if TYPE_CHECKING:
    # Few clients make such calls.
    from kadence.client.aside import Aside

__all__ = [
    "Done",
    "FinishedJobs",
    "JobRunner",
    "JobThread",
    "Surroundings",
    "here",
    "simulated",
    "surroundings",
]

Done = Callable[[int, object, Exception | None], None]
"""Called with the time (ms), the job's result, and its exception."""


class JobRunner(Jobs, Protocol):
    """Runs jobs that may block, as the network thread's turn sees it."""

    def deliver(self, now: int) -> None:
        """Hand over what has ended. Network thread."""
        ...

    def close(self) -> None:
        """Take no more jobs."""
        ...


class FinishedJobs:
    """Results of jobs, on their way from where they ran to the network thread.

    Args:
        wake: called after each job: there is something to deliver. It runs where the job did.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._finished: deque[tuple[Done, object, Exception | None]] = deque()

    def deliver(self, now: int) -> None:
        """Hand over what has ended. Network thread."""
        for _ in range(len(self._finished)):
            done, result, error = self._finished.popleft()
            done(now, result, error)

    def _do(self, work: Callable[[], object], done: Done) -> None:
        """Do one job, here and now."""
        result: object = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - it is the job's result
            error = raised
        except BaseException as raised:  # noqa: BLE001 - sys.exit() in a job ends the job, not all that come after
            error = RuntimeError(repr(raised))
            error.__cause__ = raised
        self._finished.append((done, result, error))
        self._wake()


class JobThread(FinishedJobs):
    """Runs jobs one after the other."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self._name = name
        self._todo: queue.SimpleQueue[tuple[Callable[[], object], Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], object], done: Done) -> None:
        if self._thread is None:
            self._thread = OwnThread(target=self._run, name=self._name)
            self._thread.start()
        self._todo.put((work, done))

    def close(self) -> None:
        self._todo.put(None)

    def _run(self) -> None:
        # Few clients have jobs.
        from kadence.forked import ThisProcess

        here = ThisProcess()
        while (job := self._todo.get()) is not None:
            work, done = job
            self._do(partial(here.call, work), done)


class Surroundings:
    """The surroundings of one client (`kadence_testing.simulation` has others).

    Attributes:
        clock: the monotonic one. wall_ms: gives ms since 1970.
        has_threads: whether a network side has a thread of its own.
        has_native_heartbeat: whether a native thread may send heartbeats.
        new_member_id: makes the ids of KIP-848 members; None: random UUIDs.
        new_sender: makes a producer, from its settings, whose sends are not awaited; None: a `Producer`.
        aside: runs calls that may block; None: threads do.
    """

    clock: Clock = SystemClock()
    wall_ms: Callable[[], int] = staticmethod(wall_clock_ms)
    has_threads: bool = True
    has_native_heartbeat: bool = native_heartbeat.AVAILABLE
    new_member_id: Callable[[], str] | None = None
    new_sender: Callable[[Mapping[str, Any]], Any] | None = None
    aside: Aside | None = None

    def client_id(self, kind: str) -> str:
        """A name for a client that was given none."""
        return generated_client_id(kind)

    def client(self, config: ConnectionConfig, meters: NetworkMeters | None = None) -> NetworkClient:
        """The connections of the client."""
        return NetworkClient(config, self.clock, meters=meters)

    def engine(self, name: str, side: NetworkSide) -> Engine:
        """The engine of its network side, not yet started."""
        return NetworkThread(name, side)

    def jobs(self, name: str, wake: Callable[[], None]) -> JobRunner:
        """A runner for jobs that may block."""
        return JobThread(name, wake)


_MACHINE: Final = Surroundings()

simulated: Final[ContextVar[Callable[[], Surroundings] | None]] = ContextVar("simulated", default=None)
"""Makes those of a new client, in the context of a program that runs inside a simulation."""


def here() -> Surroundings:
    """The surroundings of a client that is made in this context."""
    make = simulated.get()
    return _MACHINE if make is None else make()


def surroundings(kind: str, *, awaits: bool) -> Surroundings:
    """For a new client, whose calls are awaited, or block their thread.

    Args:
        kind: the name of its class.

    Raises:
        IllegalStateError: they block, in a simulation, where nothing else happens meanwhile.
        RuntimeError: they are awaited, and no event loop is running.
    """
    if awaits:
        # Before the network side is made, which would have to be ended.
        running_loop(kind)
    make = simulated.get()
    if make is None:
        return _MACHINE
    if not awaits:
        raise IllegalStateError(f"a program of a simulation cannot use {kind}, which blocks; use Async{kind}")
    return make()
