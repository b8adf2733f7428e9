"""Makes the network side of a producer."""

from __future__ import annotations

from kadence.client.engine import Engine
from kadence.client.network_thread import NetworkSide
from kadence.client.surroundings import Surroundings
from kadence.config import ProducerConfig
from kadence.net import ConnectionConfig
from kadence.producer.accumulator import Accumulator
from kadence.producer.futures import decides
from kadence.producer.network_state import NetworkState
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.producer.turn import Turn

__all__ = ["network_side"]


def network_side(
    config: ProducerConfig,
    around: Surroundings,
    accumulator: Accumulator,
    topics: Topics,
    transactions: Transactions | None,
) -> tuple[NetworkState, Engine]:
    """Return the network state that a producer's calls use, and its engine, not yet started.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
    # Made here rather than on its thread because calls must be able to wake it.
    client = around.client(ConnectionConfig.of(config), accumulator.measures.network)
    accumulator.wakeup = client.wakeup
    name = f"{config.client_id}-network"
    state = NetworkState(accumulator, client.wakeup, name)

    def build() -> Turn:
        if around.has_threads:
            decides(accumulator.gate)
        return Turn(config, around.clock, client, state, accumulator, topics, transactions)

    return state, around.engine(name, NetworkSide("producer", state, build, client.close))
