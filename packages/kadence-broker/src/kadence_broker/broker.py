"""`Broker`: Kafka's protocol on TCP in this process, for a laptop, a test or a quick start.

It keeps records in memory, or in a data directory.

    with Broker(topics={"flights": 6}) as broker:
        Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})

One thread serves everything; several logical nodes are several listeners of one cluster. It is no production
broker: it has no replication and no access rules (ACLs). Let it listen on loopback.

A process that is forked from its own shares its sockets and files, and has no thread that serves them. There `close`
does nothing, so that a child that unwinds a ``with`` leaves the parent's broker alone.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar
from uuid import uuid4

from kadence.clock import Clock
from kadence.errors import ClosedError, ConfigError, ForkedError, LocalError
from kadence.logs import OwnThread, logger
from kadence_broker.advertised import advertised_addresses
from kadence_broker.core import BrokerCore, Surroundings
from kadence_broker.faults import Faults
from kadence_broker.server.listener import listen_all, reachable
from kadence_broker.server.sasl import TokenValidator
from kadence_broker.server.security import Security, TlsFiles
from kadence_broker.settings import Settings
from kadence_broker.storage import FSYNC, DataDirectory, FsyncPolicy

__all__ = ["Broker"]

_log = logger("kadence.broker")

T = TypeVar("T")


class Broker:
    """An embedded broker. It listens when constructed; use it with ``with``, or call `close`.

    Args:
        port: the port of the first node; 0: any free one. Further nodes take the ports after it, or any free ones.
        host: address to listen on. Without ``tls`` and ``users`` nothing is protected: leave it on loopback.
        nodes: the number of logical brokers; partition leaders and group coordinators are spread over them.
        topics: topics to create at the start, each with its number of partitions.
        config: Kafka's broker configuration keys, see `kadence_broker.settings`.
        data_dir: the directory for records, topics and producer ids; it is created if it does not exist. None: in
            memory. Its topics are loaded; ``topics`` may name them again.
        fsync: when records are written to the disk. ``flush``: before they are acknowledged and readers see them;
            ``interval``: about every second; ``never``: when the operating system does it. A crash of the process
            alone loses no records with any of them.
        tls: the broker's certificate; every listener then accepts TLS only.
        users: the password of each user; every listener then requires a login.
        mechanisms: the SASL mechanisms that it offers; None: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 if there are
            ``users``, OAUTHBEARER if there is a ``token_validator``.
        token_validator: checks the tokens of OAUTHBEARER. None: unsigned JWTs are accepted, which are no protection.

    Raises:
        ConfigError: a key, topic name, number, certificate or mechanism that cannot be used.
        ConnectError: the broker cannot listen on the address; the message names it and says what to do.
    """

    faults: Faults
    """Injects faults, see `kadence_broker.faults`."""

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
        advertised = advertised_addresses(settings, security.protocol, nodes)
        cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._disk = None if data_dir is None else DataDirectory(data_dir, cluster_id, fsync)
        self._is_closed = False
        self._pid = os.getpid()
        try:
            sockets = listen_all(host, port, nodes)
        except BaseException:
            if self._disk is not None:
                self._disk.close()
            raise
        ports = [each.getsockname()[1] for each in sockets]
        self._core = BrokerCore(
            settings,
            sockets,
            host,
            advertised=advertised or [(settings.advertised_host or reachable(host), each) for each in ports],
            security=security,
            cluster_id=cluster_id if self._disk is None else self._disk.cluster_id,
            disk=self._disk,
            surroundings=Surroundings() if clock is None else Surroundings(clock),
        )
        self.faults = self._core.faults
        self._core.attach_faults(self._freeze)
        self._core.start(topics or {})
        self._thread = OwnThread(target=self._core.loop.run, name="kadence-broker")
        self._thread.start()
        _log.info("broker listens on %r, ports %s; clients use %s", host, ports, self.bootstrap_servers)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "serving"
        if self._is_forked:
            state += f" in process {self._pid}"
        if self._disk is not None:
            state += f", data in {self._disk.path}"
        if (trouble := self._core.cluster.trouble) is not None:
            state += f", records refused: {trouble}"
        return f"<Broker {self.bootstrap_servers}, {len(self._core.cluster.topics)} topics, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes for clients, including stopped ones, for `bootstrap.servers`."""
        return self._core.bootstrap_servers

    @property
    def security_protocol(self) -> str:
        """The `security.protocol` for clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self._core.server.security.protocol

    @property
    def node_ids(self) -> list[int]:
        """The ids of the nodes that are running."""
        return sorted(self._core.cluster.nodes)

    def close(self) -> None:
        """Stop serving and close every connection.

        Without a data directory all records are lost. A second call does nothing, nor does one in a forked child.
        """
        if self._is_closed or self._is_forked:
            return
        self._is_closed = True
        self._core.loop.stop()
        self._thread.join()
        self._core.free()
        _log.info("broker on %s closed", self.bootstrap_servers)

    # For tests and demonstrations: what no client can do. All thread-safe.

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic.

        Raises:
            ConfigError: it exists, or the name or number cannot be used.
            LocalError: the data directory cannot be written.
        """
        self._on_loop(lambda: self._core.create_topic(name, partitions))

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another node the leader of a partition; -1: none.

        Its leader epoch rises by one, and fetches that wait are answered with an error.

        Raises:
            LocalError: the data directory cannot be written; nothing has changed.
        """
        self._may_lead(node_id)
        self._on_loop(lambda: self._core.lead(self._core.partition(topic, partition), node_id))

    def move_coordinator(self, group_id: str, node_id: int) -> None:
        """Make another node the coordinator of a group; -1: none.

        Groups in the same partition of the coordinator's state move, too. The new coordinator loads what the old one
        stored. Requests of members that wait for an answer get NOT_COORDINATOR.

        Raises:
            LocalError: the data directory cannot be written; nothing has changed.
        """
        self._may_lead(node_id)
        topic = self._core.coordination.topic
        self._on_loop(lambda: self._core.lead(topic.coordinator_of(group_id), node_id))

    def move_transaction_coordinator(self, transactional_id: str, node_id: int) -> None:
        """Make another node the coordinator of a transactional id; -1: none.

        Ids in the same partition of the coordinator's state move, too.

        Raises:
            LocalError: the data directory cannot be written; nothing has changed.
        """
        self._may_lead(node_id)
        topic = self._core.transactions.topic
        self._on_loop(lambda: self._core.lead(topic.coordinator_of(transactional_id), node_id))

    def stop_node(self, node_id: int, *, elect: bool = True) -> None:
        """Stop a node as a crash would: its port closes and its connections end. The other nodes go on.

        Args:
            elect: whether the other nodes take over its partitions and groups. If not, these have no leader and no
                coordinator until the node starts again, as with a replication factor of 1.

        Raises:
            ConfigError: the node is not running. LocalError: the data directory cannot be written; the node keeps
                running.
        """
        self._on_loop(lambda: self._core.nodes.stop(node_id, elect=elect))

    def start_node(self, node_id: int) -> None:
        """Start a stopped node again, on the same port. It leads its old partitions that have no leader.

        Raises:
            ConfigError: the node was not stopped. ConnectError: another process uses its port now. LocalError: the
                data directory cannot be written; the node stays stopped.
        """
        self._on_loop(lambda: self._core.nodes.start(node_id))

    def coordinator_of(self, group_id: str) -> int:
        """The id of the node that coordinates the group, -1 if there is none."""
        return self._on_loop(lambda: self._core.coordinator_of(group_id))

    def elect_uncleanly(
        self, topic: str, partition: int, end_offset: int, node_id: int | None = None
    ) -> None:
        """Elect a leader that lacks the records from ``end_offset`` on, so that they are lost (KIP-320).

        Args:
            end_offset: where the new leader's log ends. A batch that reaches beyond it is lost as a whole.
            node_id: the new leader, as in `move_leader`; None: the same node, as after a crash.
        """
        if node_id is not None:
            self._known_node(node_id)
        self._on_loop(
            lambda: self._core.elect_uncleanly(self._core.partition(topic, partition), end_offset, node_id)
        )

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below ``before_offset``, so that the log begins there."""
        self._on_loop(lambda: self._core.partition(topic, partition).delete_before(before_offset))

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        """The first and the end offset of each partition of ``topic``."""
        return self._on_loop(lambda: self._core.offsets(topic))

    def describe_groups(self) -> dict[str, str]:
        """The state of each group, one line each."""
        return self._on_loop(self._core.describe_groups)

    def disconnect_clients(self) -> None:
        """Close every connection, as a restart would. The broker keeps listening."""
        self._on_loop(self._core.server.disconnect)

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _freeze(self, node_ids: tuple[int, ...], frozen: bool) -> None:
        if self._is_forked and not frozen:  # A child unwinds a ``with``.
            return
        for node_id in node_ids:
            self._known_node(node_id)
        self._on_loop(lambda: self._core.server.freeze(node_ids or self.node_ids, frozen=frozen))

    def _known_node(self, node_id: int) -> int:
        if node_id not in self._core.cluster.nodes:
            raise ConfigError(f"no node {node_id}; there are {self.node_ids}")
        return node_id

    def _may_lead(self, node_id: int) -> None:
        """A node that is there, or -1 for none."""
        if node_id != -1:
            self._known_node(node_id)

    def _on_loop(self, action: Callable[[], T]) -> T:
        if self._is_forked:
            raise ForkedError(
                f"this broker runs in process {self._pid}, of which this one is a fork; clients here reach it as "
                f"{self.bootstrap_servers}"
            )
        if self._is_closed:
            raise ClosedError("the broker is closed")
        try:
            return self._core.loop.call(action).result()
        except OSError as error:
            if self._disk is None:
                raise
            raise LocalError(
                f"the change was not made, since the data directory {self._disk.path} cannot keep it: {error}"
            ) from error
