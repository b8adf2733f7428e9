"""Consumers and producers of a simulation: the real ones, on simulated sockets and in virtual time."""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import random
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, cast

from kadence.client.aside import Calls
from kadence.client.engine import Engine
from kadence.client.network_thread import NetworkSide
from kadence.client.surroundings import Done, FinishedJobs, Surroundings
from kadence.metrics.sensors import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient
from kadence.net.sockets import PlainPoller, PlainStream, Poller, Stream
from kadence.net.sockets import Wakeup as AnyWakeup
from kadence.producer.async_producer import AsyncProducer
from kadence.producer.futures import RecordMetadata
from kadence_testing.simulation.driver import Driver
from kadence_testing.simulation.history import History
from kadence_testing.simulation.network import Network, SimulatedSocket, Wakeup
from kadence_testing.simulation.producer import SimulatedProducer
from kadence_testing.simulation.scheduler import Process

__all__ = ["Sockets", "client_surroundings"]

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
    """Runs jobs (assignors) after a virtual delay, without a thread."""

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
        """There is nothing to free."""


class _Engine:
    """Runs the turns of a network loop as events of its process (`kadence.client.engine.Engine`)."""

    has_thread: Final = False

    def __init__(self, process: Process, driver: Driver, side: NetworkSide) -> None:
        self._process = process
        self._driver = driver
        driver.turn = side.run_once

    def start(self) -> None:
        self._driver.stir()

    def join(self, seconds: float | None = None) -> None:
        """Return at once: a client that closes has seen the end of its network loop already."""

    def is_alive(self) -> bool:
        return self._process.is_alive and not self._driver.has_ended

    def runs_here(self) -> bool:
        return False


class _Sender:
    """A producer whose sends do not block: each is a task of the program's loop.

    It replaces the `Producer` that `process` calls on threads.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer = AsyncProducer(settings)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> Future[RecordMetadata]:
        future: Future[RecordMetadata] = Future()
        self._begin(self._send(future, topic, value, key, **more))
        return future

    def close(self, timeout: float | None = None) -> None:
        """Close it some time later, if its process still lives then."""
        self._begin(self._producer.close(timeout))

    def _begin(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, future: Future[RecordMetadata], *record: Any, **more: Any) -> None:
        try:
            place = await self._producer.send_and_wait(*record, **more)
        except Exception as error:  # noqa: BLE001 - it is the record's outcome
            future.set_exception(error)
        else:
            future.set_result(place)


class _Aside:
    """Makes calls after a virtual delay, without a thread. In a simulation they do not block."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def call(self, function: Callable[..., object], *arguments: Any) -> None:
        await asyncio.sleep(self._rng.randint(0, _LONGEST_JOB_MS) / 1000)
        await _result(function(*arguments))

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(seconds, function)

    def caller(self, name: str) -> _Caller:
        del name
        return _Caller()


class _Caller:
    """Makes calls in tasks of the program's loop, and awaits those that can be awaited (`kadence.client.aside.Caller`).

    The caller must wait for the end of earlier calls before it passes more.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def carry(self, calls: Calls) -> None:
        task = asyncio.get_running_loop().create_task(self._make(calls))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """The tasks end with their calls."""

    async def _make(self, calls: Calls) -> None:
        try:
            call = next(calls)
            while True:
                try:
                    result = await _result(call())
                except Exception as error:  # noqa: BLE001 - the caller decides how to handle it
                    call = calls.throw(error)
                else:
                    call = calls.send(result)
        except StopIteration:
            return


async def _result(given: Any) -> Any:
    return await given if inspect.iscoroutine(given) else given


class _Surroundings(Surroundings):
    """The parts that a client gets from a simulation instead of the machine: clock, sockets, loops, threads."""

    has_threads = False
    has_native_heartbeat = False

    def __init__(
        self,
        process: Process,
        network: Network,
        history: History,
        rng: random.Random,
        consumers: Iterator[int],
    ) -> None:
        self.clock = process.scheduler
        self.wall_ms = process.scheduler.wall_ms
        self.new_member_id = self._new_member_id
        self.new_sender = self._new_sender
        self.aside = _Aside(rng)
        self._process = process
        self._network = network
        self._history = history
        self._driver = Driver(process, network)
        self._rng = rng
        self._consumers = consumers

    def client_id(self, kind: str) -> str:
        # A generated one would depend on other clients of this Python process.
        name = self._process.name
        return f"{name}-{next(self._consumers)}" if kind == "consumer" else name

    def client(self, config: ConnectionConfig, meters: NetworkMeters | None = None) -> NetworkClient:
        sockets = Sockets(self._network, self._process, self._driver)
        return NetworkClient(config, self.clock, rng=self._rng, meters=meters, sockets=sockets)

    def engine(self, name: str, side: NetworkSide) -> Engine:
        del name
        return _Engine(self._process, self._driver, side)

    def jobs(self, name: str, wake: Callable[[], None]) -> _Jobs:
        del name
        return _Jobs(self._process, self._rng, wake)

    def _new_sender(self, settings: Mapping[str, Any]) -> _Sender | SimulatedProducer:
        # The calls of transactions are awaited, by a `_Caller`.
        return (
            SimulatedProducer(self._history, settings)
            if "transactional.id" in settings
            else _Sender(settings)
        )

    def _new_member_id(self) -> str:
        return "m" + base64.urlsafe_b64encode(self._rng.randbytes(15)).decode()


def client_surroundings(
    process: Process, network: Network, history: History, rng: random.Random
) -> Callable[[], Surroundings]:
    """Makes the surroundings of the clients of one process."""
    consumers = itertools.count(1)
    return lambda: _Surroundings(process, network, history, rng, consumers)
