"""What a producer has from the machine: clocks, a thread, connections. A simulation has its own."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from kadence.client.engine import Engine
from kadence.client.gate import Gate
from kadence.client.network_thread import NetworkSide, NetworkThread
from kadence.clock import Clock, SystemClock
from kadence.clock import wall_ms as wall_clock_ms
from kadence.config import ProducerConfig, generated_client_id
from kadence.errors import IllegalStateError
from kadence.net import ConnectionConfig, NetworkClient
from kadence.producer.accumulator import Accumulator
from kadence.producer.futures import decides
from kadence.producer.network_state import NetworkState
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.producer.turn import Turn

__all__ = ["Surroundings", "network_side", "simulated", "surroundings"]


class Surroundings:
    """Those of one producer (`kadence.testing.simulation` has others).

    Attributes:
        clock: the monotonic one. wall_ms: gives ms since 1970, for the timestamps of records.
    """

    clock: Clock = SystemClock()
    wall_ms: Callable[[], int] = staticmethod(wall_clock_ms)

    def client_id(self) -> str:
        """A name for a producer that was given none."""
        return generated_client_id("producer")

    def client(self, config: ConnectionConfig) -> NetworkClient:
        """The connections of one producer."""
        return NetworkClient(config, self.clock)

    def engine(self, name: str, side: NetworkSide) -> Engine:
        """What runs the producer's turns, not yet started."""
        return NetworkThread(name, side)

    def begins(self, gate: Gate) -> None:
        """The first turn comes, where all will: there the callbacks of this producer's futures run."""
        decides(gate)


def network_side(
    config: ProducerConfig,
    around: Surroundings,
    accumulator: Accumulator,
    topics: Topics,
    transactions: Transactions | None,
) -> tuple[NetworkState, Engine]:
    """What a producer's calls know of its network side, and what runs that, not yet started.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
    # Made here rather than on its thread because calls must be able to wake it.
    client = around.client(ConnectionConfig.of(config))
    name = f"{config.client_id}-network"
    state = NetworkState(accumulator, client.wakeup, name)

    def build() -> Turn:
        around.begins(accumulator.gate)
        return Turn(config, around.clock, client, state, accumulator, topics, transactions)

    return state, around.engine(name, NetworkSide("producer", state, build, client.close))


_MACHINE: Final = Surroundings()

simulated: Final[ContextVar[Callable[[], Surroundings] | None]] = ContextVar("simulated", default=None)
"""Makes those of a new producer, in the context of a program that runs inside a simulation."""


def surroundings(*, awaits: bool) -> Surroundings:
    """For a new producer, whose calls are awaited, or block their thread.

    Raises:
        IllegalStateError: they block, in a simulation, where nothing else happens meanwhile.
    """
    make = simulated.get()
    if make is None:
        return _MACHINE
    if not awaits:
        raise IllegalStateError(
            "a program of a simulation cannot use Producer, which blocks; use AsyncProducer"
        )
    return make()
