"""A whole broker without a thread. `Broker` runs it on a thread, and a simulation runs it in virtual time.

Only the thread that runs the loop may use anything here.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from kadence.clock import Clock, SystemClock, add_ms
from kadence.errors import ConfigError
from kadence.logs import logger
from kadence_broker.cluster import BrokerNode, Cluster, is_valid_topic_name
from kadence_broker.coordination import Coordination
from kadence_broker.dispatch import Dispatcher
from kadence_broker.faults import Faults
from kadence_broker.faults.topics import topics_of
from kadence_broker.fetching import ReadablePartitions
from kadence_broker.group_configs import stored_fault
from kadence_broker.nodes import Bind, Nodes
from kadence_broker.server.listener import address_text, bind
from kadence_broker.server.loop import Loop
from kadence_broker.server.security import Security
from kadence_broker.server.server import Server
from kadence_broker.service import Services
from kadence_broker.sessions import SessionCache
from kadence_broker.settings import Settings
from kadence_broker.share.assembly import share_leader
from kadence_broker.storage import DataDirectory, Flusher, Partition, Worker
from kadence_broker.transactions import Transactions
from kadence_broker.upkeep import Upkeep

__all__ = ["BrokerCore", "Surroundings"]

_log = logger("kadence.broker")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The broker's access to the machine. A simulation has its own (`kadence_testing.simulation`).

    Attributes:
        clock: the monotonic one. selector: None: the system's, which other threads can wake.
        worker: waits for the disk; None: a thread. bind: opens a socket that does not listen yet.
        new_uuid: 16 bytes, for topic ids. new_member_id: the random part of member ids; None: UUIDs.
        wall_ms: ms since 1970; None: the machine's.
    """

    clock: Clock = field(default_factory=SystemClock)
    selector: selectors.BaseSelector | None = None
    worker: Worker | None = None
    bind: Bind = bind
    new_uuid: Callable[[], bytes] = lambda: uuid4().bytes
    new_member_id: Callable[[], str] | None = None
    wall_ms: Callable[[], int] | None = None


class BrokerCore:
    """A whole broker without a thread of its own. Turn its `loop` until it is to end, then call `free`.

    Args:
        sockets: listening, one for each node, from node 1 on. host: the address that they listen on.
        advertised: the host and port of each node for clients.
        disk: None: in memory. It is closed with the broker, and when this fails.
    """

    def __init__(
        self,
        settings: Settings,
        sockets: list[socket.socket],
        host: str,
        *,
        advertised: Sequence[tuple[str, int]],
        security: Security,
        cluster_id: str,
        disk: DataDirectory | None,
        surroundings: Surroundings,
    ) -> None:
        self.settings = settings
        self._disk = disk
        self._worker = surroundings.worker
        self.faults = Faults()
        self.cluster = Cluster(cluster_id, surroundings.new_uuid, log_defaults=settings.log())
        for node_id, (name, port) in enumerate(advertised, 1):
            self.cluster.nodes[node_id] = BrokerNode(node_id, name, port)
        self.loop = Loop(surroundings.clock, self._before_wait, surroundings.selector, surroundings.wall_ms)
        self.shares = share_leader(settings, self.cluster, self.loop)
        self.coordinator_config = settings.coordinator()
        self.coordination = Coordination(
            self.coordinator_config,
            self.cluster,
            self.loop,
            shares=self.shares,
            new_id=surroundings.new_member_id,
        )
        self.transactions = Transactions(settings.transactions(), self.cluster, self.coordination, self.loop)
        self.cluster.on_readable = ReadablePartitions(self.loop).add
        self._services = Services(
            settings,
            self.cluster,
            self.coordination,
            self.transactions,
            SessionCache(settings.fetch_session_slots),
            self.shares,
            self.loop,
        )
        self.dispatcher = Dispatcher(self._services, self.faults)
        self.server = Server(self.loop, security, settings.limits(), self.dispatcher.on_frame)
        self.nodes = Nodes(
            self.server,
            self.cluster,
            host,
            {node_id: sock.getsockname()[1] for node_id, sock in enumerate(sockets, 1)},
            self._services.leaders_changed,
            surroundings.bind,
        )
        for node_id, sock in enumerate(sockets, 1):
            self.server.add(node_id, sock)
        self._upkeep = Upkeep(self.loop, self.cluster, settings, disk)

    def start(self, topics: Mapping[str, int]) -> None:
        """Load the stored topics, and create the missing ones. If this raises, nothing is left open.

        Raises:
            ConfigError: the data directory, or a topic, cannot be used.
        """
        try:
            self._load()
            for name, partitions in topics.items():
                if self._disk is None or name not in self.cluster.topics:
                    self.create_topic(name, partitions)
        except BaseException:
            self.free()
            raise
        self.shares.start()
        self.coordination.start()
        self.transactions.start()
        self._upkeep.start()

    def attach_faults(self, freeze: Callable[[tuple[int, ...], bool], None]) -> None:
        """Serve faults; ``freeze`` carries out those that stop nodes."""
        self.faults.attach(freeze, lambda call: topics_of(self._services, call))

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, also of those that are stopped."""
        return ",".join(address_text(node.host, node.port) for node in self.nodes.all())

    def free(self) -> None:
        """Close connections, files and the loop."""
        self.server.close()
        self.nodes.close()
        if self._disk is not None:
            self._disk.close()
        self.loop.close()

    # For tests and demonstrations: what no client can do; see `Broker`.

    def create_topic(self, name: str, partitions: int) -> None:
        if name in self.cluster.topics:
            raise ConfigError(f"topic {name!r} exists")
        if not is_valid_topic_name(name):
            raise ConfigError(
                f"{name!r} is not a topic name: 1 to 249 of letters, digits, dot, underscore and hyphen"
            )
        if not self.cluster.nodes:
            raise ConfigError(f"topic {name!r} needs a node to lead it, and all are stopped")
        if partitions < 1:
            raise ConfigError(f"topic {name!r} must have at least 1 partition, not {partitions}")
        self.cluster.create_topic(name, partitions)

    def lead(self, partition: Partition, node_id: int) -> None:
        """Let a node lead the partition (-1: none), and notify the coordinators."""
        self.cluster.lead({partition: node_id})
        self._services.leaders_changed([partition])

    def elect_uncleanly(self, partition: Partition, end_offset: int, node_id: int | None) -> None:
        self.cluster.lead({partition: partition.leader_id if node_id is None else node_id})
        partition.truncate(end_offset, self.loop.wall_ms())
        self._services.leaders_changed([partition])

    def partition(self, topic: str, index: int) -> Partition:
        """Raises `ConfigError` if it is not there."""
        found = self.cluster.partition(topic, index)
        if found is None:
            raise ConfigError(f"no partition {topic}-{index} here")
        return found

    def coordinator_of(self, group_id: str) -> int:
        node = self.coordination.node_of(group_id)
        return -1 if node is None else node.node_id

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        found = self.cluster.topics.get(topic)
        if found is None:
            raise ConfigError(f"no topic {topic!r} here")
        return [(each.start_offset, each.end_offset) for each in found.partitions]

    def describe_groups(self) -> dict[str, str]:
        return {name: repr(group) for name, group in self.coordination.coordinator.groups.items()}

    def _load(self) -> None:
        """Take in what the data directory holds."""
        if self._disk is None:
            return
        for group_id, config in self._disk.group_configs.items():
            fault = stored_fault(config)
            if fault is not None:
                # A line has a checksum, so nobody can edit it.
                raise ConfigError(
                    f"{self._disk.journal_path}: group {group_id!r}: {fault}; delete the line of this group there: "
                    "then the group has the broker's settings"
                )
        self._disk.attach(Flusher(self._after, self.loop.call, self._worker))
        try:
            cut_bytes = self.cluster.load(self._disk, self.loop.wall_ms)
        except OSError as error:
            raise ConfigError(f"the data directory {self._disk.path} cannot be used: {error}") from error
        _log.info("%r loaded; cut %d bytes of incomplete batches", self._disk, cut_bytes)

    def _after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.loop.at(add_ms(self.loop.clock.now_ms(), delay_ms) if delay_ms else 0, call)

    def _before_wait(self, now: int) -> int:
        """Fire the coordinators' timers; a bug in one of them is logged, and its timer is gone."""
        coordinators = (self.coordination, self.transactions)
        for each in coordinators:
            try:
                each.poll(now)
            except Exception:  # noqa: BLE001 - one group's trouble must not end the service for all
                _log.exception("a bug in a coordinator; the broker goes on serving")
        return min(each.next_deadline() for each in coordinators)
