"""Consumers and producers of a simulation: the real ones, on simulated sockets and in virtual time."""

from __future__ import annotations

import base64
import itertools
import random
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from kadence.client.gate import Gate
from kadence.client.network_thread import NetworkSide
from kadence.config import ConsumerConfig
from kadence.consumer.assembly import Surroundings, network_side
from kadence.consumer.jobs import Done, FinishedJobs
from kadence.consumer.shared_state import SharedState
from kadence.metrics.network import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient
from kadence.net.poller import PlainPoller, Poller
from kadence.net.stream import PlainStream, Stream
from kadence.net.wakeup import Wakeup as AnyWakeup
from kadence.producer.surroundings import Surroundings as ProducerSurroundings
from kadence.testing.simulation.driver import Driver
from kadence.testing.simulation.network import Network, SimulatedSocket, Wakeup
from kadence.testing.simulation.scheduler import Process, Scheduler

__all__ = ["Engine", "Sockets", "engines", "producer_surroundings"]

_LONGEST_JOB_MS = 20


class Sockets:
    """The simulated network as a `NetworkClient` sees it (`kadence.net.sockets.Sockets`)."""

    def __init__(self, network: Network, process: Process, driver: Driver) -> None:
        self._network = network
        self._process = process
        self._driver = driver

    def open(self, family: int) -> socket.socket:
        del family
        return cast("socket.socket", SimulatedSocket(self._network, self._process))

    def has_decided(self, sock: socket.socket) -> bool:
        return cast("SimulatedSocket", sock).has_decided()

    def stream(self, sock: socket.socket) -> Stream:
        return PlainStream(sock, self._network.scheduler)

    def poller(self) -> tuple[Poller, AnyWakeup]:
        wakeup = Wakeup(self._network, self._process)
        return PlainPoller(self._driver.selector, wakeup), wakeup


class _Jobs(FinishedJobs):
    """Runs jobs (assignors) after some time, on no thread."""

    def __init__(self, process: Process, rng: random.Random, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self._process = process
        self._rng = rng
        self._free_at = 0

    def submit(self, work: Callable[[], object], done: Done) -> None:
        now = self._process.scheduler.now_ms()
        self._free_at = max(self._free_at, now) + self._rng.randint(0, _LONGEST_JOB_MS)
        self._process.at(self._free_at, lambda: self._do(work, done))

    def close(self) -> None:
        """Nothing to free."""


class _Surroundings(Surroundings):
    """What a consumer's network side has from a simulation instead of the machine."""

    has_native_heartbeat = False

    def __init__(self, process: Process, network: Network, driver: Driver, rng: random.Random) -> None:
        self.scheduler: Scheduler = process.scheduler
        self.clock = process.scheduler
        self._process = process
        self._network = network
        self._driver = driver
        self._rng = rng

    def client(self, config: ConnectionConfig, meters: NetworkMeters) -> NetworkClient:
        sockets = Sockets(self._network, self._process, self._driver)
        return NetworkClient(config, self.clock, rng=self._rng, meters=meters, sockets=sockets)

    def jobs(self, name: str, wake: Callable[[], None]) -> _Jobs:
        del name
        return _Jobs(self._process, self._rng, wake)

    def wall_ms(self) -> int:
        return self.scheduler.wall_ms()

    def new_member_id(self) -> str:
        return "m" + base64.urlsafe_b64encode(self._rng.randbytes(15)).decode()


class Engine:
    """Runs the turns of a network side as events of its process (`kadence.client.engine.Engine`)."""

    def __init__(self, process: Process, driver: Driver, side: NetworkSide) -> None:
        self._process = process
        self._driver = driver
        driver.turn = side.run_once

    def start(self) -> None:
        self._driver.stir()

    def join(self, seconds: float | None = None) -> None:
        """A client that closes has heard from its network side already that it has ended."""

    def is_alive(self) -> bool:
        return self._process.is_alive and not self._driver.has_ended

    def runs_here(self) -> bool:
        return False


def engines(
    process: Process, network: Network, rng: random.Random
) -> Callable[[ConsumerConfig], tuple[SharedState, Engine]]:
    """Makes the network sides of the consumers of one process."""
    count = itertools.count(1)

    def make(config: ConsumerConfig) -> tuple[SharedState, Engine]:
        # A name that was made up depends on what else this process of yours has done.
        config = replace(config, client_id=f"{process.name}-{next(count)}")
        driver = Driver(process, network)
        shared_state, side = network_side(config, _Surroundings(process, network, driver, rng))
        return shared_state, Engine(process, driver, side)

    return make


class _ProducerSurroundings(ProducerSurroundings):
    """What a producer has from a simulation instead of the machine."""

    def __init__(self, process: Process, network: Network, rng: random.Random) -> None:
        self.clock = process.scheduler
        self.wall_ms = process.scheduler.wall_ms
        self._process = process
        self._network = network
        self._driver = Driver(process, network)
        self._rng = rng

    def client_id(self) -> str:
        return self._process.name

    def client(self, config: ConnectionConfig) -> NetworkClient:
        sockets = Sockets(self._network, self._process, self._driver)
        return NetworkClient(config, self.clock, rng=self._rng, sockets=sockets)

    def engine(self, name: str, side: NetworkSide) -> Engine:
        del name
        return Engine(self._process, self._driver, side)

    def begins(self, gate: Gate) -> None:
        """No thread is the network side's own here."""


def producer_surroundings(
    process: Process, network: Network, rng: random.Random
) -> Callable[[], ProducerSurroundings]:
    """Makes the surroundings of the producers of one process."""
    return lambda: _ProducerSurroundings(process, network, rng)
