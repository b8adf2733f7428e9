"""What a client has from the machine: clocks, a thread, connections, names. A simulation has its own."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from kadence.client.engine import Engine
from kadence.client.jobs import JobRunner, JobThread
from kadence.client.network_thread import NetworkSide, NetworkThread
from kadence.clock import Clock, SystemClock
from kadence.clock import wall_ms as wall_clock_ms
from kadence.config import generated_client_id
from kadence.errors import IllegalStateError
from kadence.idioms import running_loop
from kadence.metrics.network import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient, native_heartbeat

__all__ = ["Surroundings", "simulated", "surroundings"]


class Surroundings:
    """Those of one client (`kadence.testing.simulation` has others).

    Attributes:
        clock: the monotonic one. wall_ms: gives ms since 1970.
        has_threads: whether a network side has a thread of its own.
        has_native_heartbeat: whether a native thread may send heartbeats.
        new_member_id: makes the ids of KIP-848 members; None: random UUIDs.
    """

    clock: Clock = SystemClock()
    wall_ms: Callable[[], int] = staticmethod(wall_clock_ms)
    has_threads: bool = True
    has_native_heartbeat: bool = native_heartbeat.AVAILABLE
    new_member_id: Callable[[], str] | None = None

    def client_id(self, kind: str) -> str:
        """A name for a client that was given none."""
        return generated_client_id(kind)

    def client(self, config: ConnectionConfig, meters: NetworkMeters | None = None) -> NetworkClient:
        """The connections of the client."""
        return NetworkClient(config, self.clock, meters=meters)

    def engine(self, name: str, side: NetworkSide) -> Engine:
        """What runs the turns of its network side, not yet started."""
        return NetworkThread(name, side)

    def jobs(self, name: str, wake: Callable[[], None]) -> JobRunner:
        """Where what may block is done."""
        return JobThread(name, wake)


_MACHINE: Final = Surroundings()

simulated: Final[ContextVar[Callable[[], Surroundings] | None]] = ContextVar("simulated", default=None)
"""Makes those of a new client, in the context of a program that runs inside a simulation."""


def surroundings(kind: str, *, awaits: bool) -> Surroundings:
    """For a new client, whose calls are awaited, or block their thread.

    Args:
        kind: the name of its class.

    Raises:
        IllegalStateError: they block, in a simulation, where nothing else happens meanwhile.
        RuntimeError: they are awaited, and no event loop is running.
    """
    if awaits:
        # Before the network side is made: somebody would have to end it.
        running_loop(kind)
    make = simulated.get()
    if make is None:
        return _MACHINE
    if not awaits:
        raise IllegalStateError(f"a program of a simulation cannot use {kind}, which blocks; use Async{kind}")
    return make()
