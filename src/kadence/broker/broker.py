"""`Broker`: Kafka's protocol on TCP in this process, for a laptop, a test or a quick start.

In memory, or with a data directory.

    with Broker(topics={"flights": 6}) as broker:
        Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})

One thread serves everything: several logical nodes are several listeners of one cluster. It is no
production broker: no replication, no access rules (ACLs); listen on loopback.
"""

from __future__ import annotations

import base64
import logging
import os
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar
from uuid import uuid4

from kadence.broker.cluster import BrokerNode, Cluster, is_valid_topic_name
from kadence.broker.coordination import Coordination
from kadence.broker.dispatch import Dispatcher
from kadence.broker.faults import Faults
from kadence.broker.faults.topics import topics_of
from kadence.broker.fetching import News
from kadence.broker.nodes import Nodes
from kadence.broker.server.listener import address_text, listen_all, reachable
from kadence.broker.server.loop import Loop
from kadence.broker.server.sasl import TokenValidator
from kadence.broker.server.security import Security, TlsFiles
from kadence.broker.server.server import Server
from kadence.broker.service import Services
from kadence.broker.sessions import SessionCache
from kadence.broker.settings import Settings
from kadence.broker.storage import FSYNC, DataDirectory, Flusher, FsyncPolicy, Partition
from kadence.broker.transactions import Transactions
from kadence.broker.upkeep import Upkeep
from kadence.clock import Clock, SystemClock
from kadence.errors import ClosedError, ConfigError

__all__ = ["Broker"]

_log = logging.getLogger("kadence.broker")

T = TypeVar("T")


class Broker:
    """An embedded broker. It listens when constructed; use it with ``with``, or call `close`.

    Args:
        port: of the first node, 0 for any free one. Further nodes take the ports after it, or any free ones.
        host: address to listen on. Without ``tls`` and ``users`` nothing is protected: leave it on loopback.
        nodes: logical brokers; partition leaders and group coordinators are spread over them.
        topics: topics to begin with, name to number of partitions.
        config: Kafka's broker configuration keys, see `kadence.broker.settings`.
        data_dir: where records, topics and producer ids are kept; made if it is not there. None: in memory. Topics of
            it are there again, also those that ``topics`` names.
        fsync: ``flush``: a record is acknowledged, and seen by readers, once it is durable; ``interval``: made durable
            about every second; ``never``: the system decides. The end of the process alone loses nothing in any case.
        tls: the broker's certificate; every listener then speaks TLS only.
        users: password by user; every listener then asks for a login.
        mechanisms: SASL mechanisms offered; None: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 if there are ``users``,
            OAUTHBEARER if there is a ``token_validator``.
        token_validator: judges the tokens of OAUTHBEARER; None: unsecured JWTs are taken, which prove nothing.

    Raises:
        ConfigError: a key, topic name, number, certificate or mechanism that cannot be used.
        ConnectError: the address cannot be listened on; the message names it and what to do.
    """

    faults: Faults
    """Faults on purpose, see `kadence.broker.faults`."""

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        nodes: int = 1,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        fsync: FsyncPolicy = "flush",
        tls: TlsFiles | ssl.SSLContext | None = None,
        users: Mapping[str, str] | None = None,
        mechanisms: Sequence[str] | None = None,
        token_validator: TokenValidator | None = None,
    ) -> None:
        if nodes < 1:
            raise ConfigError(f"nodes must be at least 1, not {nodes}")
        settings = Settings.parse(config or {})
        if fsync not in FSYNC:
            raise ConfigError(f"fsync must be one of {', '.join(FSYNC)}, not {fsync!r}")
        security = Security(tls, users, mechanisms, token_validator)
        cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._disk = None if data_dir is None else DataDirectory(data_dir, cluster_id, fsync)
        if self._disk is not None:
            cluster_id = self._disk.cluster_id
        self._cluster = Cluster(cluster_id, log_defaults=settings.log())
        self.faults = Faults()
        self._is_closed = False
        try:
            sockets = listen_all(host, port, nodes)
        except BaseException:
            if self._disk is not None:
                self._disk.close()
            raise
        advertised = settings.advertised_host or reachable(host)
        for node_id, sock in enumerate(sockets, 1):
            self._cluster.nodes[node_id] = BrokerNode(node_id, advertised, sock.getsockname()[1])
        self._loop = Loop(clock or SystemClock(), self._before_wait)
        self._coordination = Coordination(settings.coordinator(), self._cluster, self._loop)
        self._transactions = Transactions(
            settings.transactions(), self._cluster, self._coordination, self._loop
        )
        self._cluster.on_news = News(self._loop).add
        self._services = Services(
            settings,
            self._cluster,
            self._coordination,
            self._transactions,
            SessionCache(settings.fetch_session_slots),
            self._loop,
        )
        dispatcher = Dispatcher(self._services, self.faults)
        self._server = Server(self._loop, security, settings.limits(), dispatcher.on_frame)
        self._nodes = Nodes(self._server, self._cluster, host, self._lead)
        self.faults.attach(self._freeze, lambda call: topics_of(self._services, call))
        for node_id, sock in enumerate(sockets, 1):
            self._server.add(node_id, sock)
        try:
            self._load()
            for name, partitions in (topics or {}).items():
                if self._disk is None or name not in self._cluster.topics:
                    self._create(name, partitions)
        except BaseException:
            self._free()
            raise
        self._coordination.start()
        self._transactions.start()
        Upkeep(self._loop, self._cluster, settings, self._disk).start()
        self._thread = threading.Thread(target=self._loop.run, name="kadence-broker", daemon=True)
        self._thread.start()
        _log.info("broker of %d nodes listens on %s", nodes, self.bootstrap_servers)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "serving"
        if self._disk is not None:
            state += f", data in {self._disk.path}"
        if (trouble := self._cluster.trouble) is not None:
            state += f", records refused: {trouble}"
        return f"<Broker {self.bootstrap_servers}, {len(self._cluster.topics)} topics, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, also of those that are stopped, as `bootstrap.servers` takes them."""
        return ",".join(address_text(node.host, node.port) for node in self._nodes.all())

    @property
    def security_protocol(self) -> str:
        """As clients' `security.protocol` names it: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self._server.security.protocol

    @property
    def node_ids(self) -> list[int]:
        """The nodes that run."""
        return sorted(self._cluster.nodes)

    def close(self) -> None:
        """Stop serving and drop every connection; only a data directory keeps anything. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.stop()
        self._thread.join()
        self._free()
        _log.info("broker on %s closed", self.bootstrap_servers)

    # What tests and demonstrations do behind the clients' backs. All thread-safe.

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Add a topic.

        Raises:
            ConfigError: it exists, or the name or number cannot be used.
        """
        self._on_loop(lambda: self._create(name, partitions))

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Give a partition to another node, or to none (-1); its leader epoch rises, and waiting fetches are told."""
        self._may_lead(node_id)

        def move() -> None:
            self._lead(self._partition(topic, partition), node_id)

        self._on_loop(move)

    def move_coordinator(self, group_id: str, node_id: int) -> None:
        """Let another node coordinate the group, or none (-1), and the groups that are kept beside it.

        The new coordinator knows what was stored. Members that wait for an answer hear NOT_COORDINATOR.
        """
        self._may_lead(node_id)
        self._on_loop(lambda: self._lead(self._coordination.offsets_topic.keeper_of(group_id), node_id))

    def move_transaction_coordinator(self, transactional_id: str, node_id: int) -> None:
        """Let another node coordinate the transactional id, or none (-1), and the ids that are kept beside it."""
        self._may_lead(node_id)
        self._on_loop(lambda: self._lead(self._transactions.topic.keeper_of(transactional_id), node_id))

    def stop_node(self, node_id: int, *, elect: bool = True) -> None:
        """Stop a node as a crash would: its port closes and its connections end. The other nodes go on.

        Args:
            elect: let the others lead its partitions and coordinate its groups; else those have no leader until it
                starts again, as with a replication factor of 1.

        Raises:
            ConfigError: it does not run.
        """
        self._on_loop(lambda: self._nodes.stop(node_id, elect=elect))

    def start_node(self, node_id: int) -> None:
        """Start a stopped node again, on the same port. It leads what has no leader and was its own.

        Raises:
            ConfigError: it was not stopped. ConnectError: its port is taken meanwhile.
        """
        self._on_loop(lambda: self._nodes.start(node_id))

    def coordinator_of(self, group_id: str) -> int:
        """The id of the node that coordinates the group, -1 if there is none."""

        def look() -> int:
            node = self._coordination.node_of(group_id)
            return -1 if node is None else node.node_id

        return self._on_loop(look)

    def elect_uncleanly(
        self, topic: str, partition: int, end_offset: int, node_id: int | None = None
    ) -> None:
        """Let a replica that lacks the records from ``end_offset`` on become leader: they are lost (KIP-320).

        Args:
            end_offset: where the new leader's log ends; batches that reach beyond it are lost whole.
            node_id: the new leader, as in `move_leader`; None: the same node, as after a crash.
        """
        if node_id is not None and node_id not in self._cluster.nodes:
            raise ConfigError(f"no node {node_id}; there are {self.node_ids}")

        def elect() -> None:
            found = self._partition(topic, partition)
            found.truncate(end_offset, self._loop.wall_ms())
            self._lead(found, found.leader_id if node_id is None else node_id)

        self._on_loop(elect)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Let all records below ``before_offset`` go, so that the partition starts there."""

        def delete() -> None:
            self._partition(topic, partition).delete_before(before_offset)

        self._on_loop(delete)

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        """Start and end offset of each partition of ``topic``."""

        def look() -> list[tuple[int, int]]:
            found = self._cluster.topics.get(topic)
            if found is None:
                raise ConfigError(f"no topic {topic!r} here")
            return [(each.start_offset, each.end_offset) for each in found.partitions]

        return self._on_loop(look)

    def describe_groups(self) -> dict[str, str]:
        """One line of state for each group."""
        groups = self._coordination.coordinator.groups
        return self._on_loop(lambda: {name: repr(group) for name, group in groups.items()})

    def disconnect_clients(self) -> None:
        """Close every connection, as a restart would; the listeners stay."""
        self._on_loop(self._server.disconnect)

    def _freeze(self, node_ids: tuple[int, ...], frozen: bool) -> None:
        for node_id in node_ids:
            self._known_node(node_id)
        self._on_loop(lambda: self._server.freeze(node_ids or self.node_ids, frozen=frozen))

    def _known_node(self, node_id: int) -> int:
        if node_id not in self._cluster.nodes:
            raise ConfigError(f"no node {node_id}; there are {self.node_ids}")
        return node_id

    def _may_lead(self, node_id: int) -> None:
        """A node that is there, or -1 for none."""
        if node_id != -1:
            self._known_node(node_id)

    def _lead(self, partition: Partition, node_id: int) -> None:
        partition.lead(node_id)
        self._cluster.keep(partition.topic)
        self._coordination.on_new_leader(partition)
        self._transactions.on_new_leader(partition)

    def _on_loop(self, action: Callable[[], T]) -> T:
        if self._is_closed:
            raise ClosedError("the broker is closed")
        return self._loop.call(action).result()

    def _load(self) -> None:
        """Take in what the data directory holds."""
        if self._disk is None:
            return
        self._disk.attach(Flusher(lambda call: self._loop.at(0, call), self._loop.call))
        try:
            cut_bytes = self._cluster.load(self._disk, self._loop.wall_ms)
        except OSError as error:
            raise ConfigError(f"the data directory {self._disk.path} cannot be used: {error}") from error
        _log.info("%r loaded; %d bytes of torn ends were cut", self._disk, cut_bytes)

    def _create(self, name: str, partitions: int) -> None:
        if name in self._cluster.topics:
            raise ConfigError(f"topic {name!r} exists")
        if not is_valid_topic_name(name):
            raise ConfigError(
                f"{name!r} is no topic name: 1 to 249 of letters, digits, dot, underscore and hyphen"
            )
        if not self._cluster.nodes:
            raise ConfigError(f"topic {name!r} needs a node to lead it, and all are stopped")
        if partitions < 1:
            raise ConfigError(f"topic {name!r} must have at least 1 partition, not {partitions}")
        self._cluster.create_topic(name, partitions)

    def _partition(self, topic: str, index: int) -> Partition:
        found = self._cluster.partition(topic, index)
        if found is None:
            raise ConfigError(f"no partition {topic}-{index} here")
        return found

    def _before_wait(self, now: int) -> int:
        """Fire the coordinators' timers; a bug in one of them is logged, and its timer is gone."""
        coordinators = (self._coordination, self._transactions)
        for each in coordinators:
            try:
                each.poll(now)
            except Exception:  # noqa: BLE001 - one group's trouble must not end the service for all
                _log.exception("a bug in a coordinator; the broker goes on serving")
        return min(each.next_deadline() for each in coordinators)

    def _free(self) -> None:
        self._server.close()
        if self._disk is not None:
            self._disk.close()
        self._loop.close()
