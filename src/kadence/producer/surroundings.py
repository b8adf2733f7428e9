"""What a producer has from the machine: clocks, a thread, connections. A simulation has its own."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from kadence.clock import Clock, SystemClock
from kadence.clock import wall_ms as wall_clock_ms
from kadence.config import ProducerConfig, generated_client_id
from kadence.errors import IllegalStateError
from kadence.net import ConnectionConfig, NetworkClient
from kadence.producer.accumulator import Accumulator
from kadence.producer.thread import NetworkSide, NetworkThread
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions

__all__ = ["Surroundings", "simulated", "surroundings"]


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

    def network_side(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        topics: Topics,
        transactions: Transactions | None,
    ) -> NetworkSide:
        """What runs the producer's turns, not yet started."""
        client = NetworkClient(ConnectionConfig.of(config), self.clock)
        return NetworkThread(config, self.clock, client, accumulator, topics, transactions)


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
