"""The broker of a simulation: the embedded one without its thread, on a process that can crash and restart."""

from __future__ import annotations

import base64
import random
import shutil
import socket
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from kadence.errors import ConfigError
from kadence.types import TopicPartition
from kadence_broker.core import BrokerCore, Surroundings
from kadence_broker.group_configs import check_group_config, parsed_group_config
from kadence_broker.server.security import Security
from kadence_broker.settings import Settings
from kadence_broker.storage import DataDirectory
from kadence_broker.storage.flusher import run_guarded
from kadence_testing.simulation.driver import Driver
from kadence_testing.simulation.history import History
from kadence_testing.simulation.network import Network
from kadence_testing.simulation.scheduler import Process, Scheduler, SimulationError

__all__ = ["BROKER", "SimulatedBroker"]

BROKER: Final = "broker"
"""The name of its process."""

_HOST: Final = "192.0.2.1"
"""An address for documentation (RFC 5737): a client that used it by mistake would not reach any host."""

_FIRST_PORT: Final = 9_092


class _Disk:
    """Runs disk jobs (`kadence_broker.storage.Worker`) after a virtual delay, without a thread."""

    def __init__(
        self, process: Process, rng: random.Random, delay_ms: tuple[int, int], stir: Callable[[], None]
    ) -> None:
        self._process = process
        self._stir = stir
        self._rng = rng
        self._delay_ms = delay_ms
        self._free_at = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def put(self, call: Callable[[], None]) -> None:
        now = self._process.scheduler.now_ms()
        self._free_at = max(self._free_at, now) + self._rng.randint(*self._delay_ms)
        self._waiting.append(call)
        self._process.at(self._free_at, self._run)

    def close(self) -> None:
        """The broker is dead, and its files are not read again: only close the descriptors of waiting jobs."""
        while self._waiting:
            run_guarded(self._waiting.popleft())

    def _run(self) -> None:
        run_guarded(self._waiting.popleft())
        # In reality the loop is woken by its socket pair.
        self._stir()


class SimulatedBroker:
    """Several logical nodes in one process, with a data directory that outlives it.

    Args:
        path: the folder of its data directories, one for each life. history: checks its behaviour.

    Attributes:
        core: the running broker, or the one that crashed last.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        rng: random.Random,
        path: Path,
        *,
        nodes: int,
        config: Mapping[str, Any],
        disk_delay_ms: tuple[int, int],
        versions: Mapping[type[Any], int],
        history: History,
    ) -> None:
        if nodes < 1:
            raise SimulationError(f"a broker has at least 1 node, not {nodes}")
        self._scheduler = scheduler
        self._network = network
        self._rng = rng
        self._path = path
        self._nodes = nodes
        self._settings = Settings.parse(config)
        self._disk_delay_ms = disk_delay_ms
        self._versions = dict(versions)
        self._history = history
        self._lives = 0
        self._is_closed = False
        network.names.add(BROKER)
        self._cluster_id = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        self.bootstrap_servers = ",".join(f"{_HOST}:{_FIRST_PORT + number}" for number in range(nodes))
        self._start()

    def __repr__(self) -> str:
        return (
            f"<simulated broker of {self._nodes} nodes, {'up' if self.is_up else 'down'}, life {self._lives}>"
        )

    @property
    def is_up(self) -> bool:
        return self.process.is_alive

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below ``before_offset``, as an operator does. They do not count as lost.

        Raises:
            SimulationError: the broker is down.
            ConfigError: there is no such partition.
        """
        if not self.is_up:
            raise SimulationError(f"{self!r} is down and deletes no records")
        self.core.partition(topic, partition).delete_before(before_offset)
        self._history.has_deleted(TopicPartition(topic, partition), before_offset)
        self.stir()

    def configure_group(self, group_id: str, config: Mapping[str, Any]) -> None:
        """Set the configuration of a group, as an operator does, e.g. ``{"share.auto.offset.reset": "earliest"}``.

        Args:
            config: Kafka's keys of groups. Earlier ones that it does not name get their defaults.

        Raises:
            SimulationError: the broker is down.
            ConfigError: there is no such key, or its value is not allowed.
        """
        if not self.is_up:
            raise SimulationError(f"{self!r} is down and configures no group")
        texts = {name: str(value) for name, value in config.items()}
        if (fault := check_group_config(self._settings.coordinator(), texts)) is not None:
            raise ConfigError(fault)
        self.core.coordination.configure_group(group_id, parsed_group_config(texts))
        self.stir()

    def stir(self) -> None:
        """Let its loop take a turn, after a change from outside."""
        self._driver.stir()

    def crash(self) -> None:
        """End it as kill -9 would: all writes so far are on the disk, and connections are not shut down in order.

        Raises:
            SimulationError: the broker is down already.
        """
        if not self.is_up:
            raise SimulationError("the broker is down already")
        # Copy the files now: closing the directory, which frees its descriptors, would shut it down cleanly.
        after = self._path / str(self._lives + 1)
        shutil.copytree(
            self._path / str(self._lives),
            after,
            ignore=shutil.ignore_patterns(".lock", ".kafka_cleanshutdown"),
        )
        self._history.crashes(self.core)
        self.process.end()
        self._network.crash(self.process, silently=False)
        self._free()

    def restart(self) -> None:
        """Start it again on what it has stored.

        Raises:
            SimulationError: it runs.
        """
        if self.is_up:
            raise SimulationError("the broker runs; crash it first")
        if self._is_closed:
            raise SimulationError("the simulation is closed")
        self._lives += 1
        self._start()

    def close(self) -> None:
        """Free its resources."""
        self._is_closed = True
        if self.is_up:
            self.process.end()
            self._free()

    def _start(self) -> None:
        self.process = process = Process(self._scheduler, BROKER)
        self._driver = driver = Driver(process, self._network, lambda: self._history.turned(core))

        def bind(host: str, port: int) -> socket.socket:
            return cast("socket.socket", self._network.bind(process, host, port))

        sockets = [bind(_HOST, _FIRST_PORT + number) for number in range(self._nodes)]
        for each in sockets:
            each.listen()
        self.core = core = BrokerCore(
            self._settings,
            sockets,
            _HOST,
            advertised=[(_HOST, _FIRST_PORT + number) for number in range(self._nodes)],
            security=Security(),
            cluster_id=self._cluster_id,
            disk=DataDirectory(self._path / str(self._lives), self._cluster_id, "flush"),
            surroundings=Surroundings(
                clock=self._scheduler,
                selector=driver.selector,
                worker=_Disk(process, self._rng, self._disk_delay_ms, driver.stir),
                bind=bind,
                new_uuid=lambda: self._rng.randbytes(16),
                new_member_id=lambda: self._rng.randbytes(16).hex(),
                wall_ms=self._scheduler.wall_ms,
            ),
        )

        def turn() -> bool:
            next_at = core.loop.turn()
            driver.selector.patience_ms = max(0, next_at - self._scheduler.now_ms())
            return True

        driver.turn = turn
        core.attach_faults(
            lambda nodes, frozen: core.server.freeze(nodes or sorted(core.cluster.nodes), frozen=frozen)
        )
        for request, version in self._versions.items():
            core.faults.limit(request, version)
        core.dispatcher.watch = lambda call: self._history.watch(core, call)
        self._history.begins()
        core.start({})
        self._history.has_begun(core)
        driver.stir()

    def _free(self) -> None:
        self.core.free()
