"""`Broker`: Kafka's protocol on TCP in this process, for a laptop, a test or a quick start. In memory.

    with Broker(topics={"flights": 6}) as broker:
        Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})

One thread serves everything: several logical nodes are several listeners of one cluster. It is no
production broker: no replication, no disk, no security; listen on loopback.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import ipaddress
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar
from uuid import uuid4

from kadence.broker.cluster import BrokerNode, Cluster, is_valid_topic_name
from kadence.broker.coordination import Coordination
from kadence.broker.dispatch import Dispatcher
from kadence.broker.faults import Faults
from kadence.broker.fetching import News
from kadence.broker.server.connection import Connection
from kadence.broker.server.loop import Loop
from kadence.broker.service import Services
from kadence.broker.sessions import SessionCache
from kadence.broker.settings import Settings
from kadence.broker.storage import Partition
from kadence.broker.upkeep import Upkeep
from kadence.clock import Clock, SystemClock
from kadence.errors import ClosedError, ConfigError, ConnectError

__all__ = ["Broker"]

_log = logging.getLogger("kadence.broker")

T = TypeVar("T")

_BACKLOG = 256


class Broker:
    """An embedded broker. It listens when constructed; use it with ``with``, or call `close`.

    Args:
        port: of the first node, 0 for any free one. Further nodes take the ports after it, or any free ones.
        host: address to listen on. Nothing here is protected: leave it on loopback unless the network is yours.
        nodes: logical brokers; partition leaders and group coordinators are spread over them.
        topics: topics to begin with, name to number of partitions.
        config: Kafka's broker configuration keys, see `kadence.broker.settings`.

    Raises:
        ConfigError: a key, topic name or number that cannot be used.
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
    ) -> None:
        if nodes < 1:
            raise ConfigError(f"nodes must be at least 1, not {nodes}")
        settings = Settings.parse(config or {})
        cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._cluster = Cluster(cluster_id, log_defaults=settings.log())
        self._coordination = Coordination(settings.coordinator(), self._cluster)
        self.faults = Faults()
        self._connections: set[Connection] = set()
        self._is_closed = False
        self._listeners = _listen_all(host, port, nodes)
        advertised = settings.advertised_host or _reachable(host)
        for node_id, listener in enumerate(self._listeners, 1):
            self._cluster.nodes[node_id] = BrokerNode(node_id, advertised, listener.getsockname()[1])
        self._loop = Loop(clock or SystemClock(), self._before_wait)
        self._cluster.on_news = News(self._loop).add
        self._services = Services(
            settings,
            self._cluster,
            self._coordination,
            SessionCache(settings.fetch_session_slots),
            self._loop,
        )
        self._dispatcher = Dispatcher(self._services, self.faults)
        try:
            for name, partitions in (topics or {}).items():
                self._create(name, partitions)
        except BaseException:
            self._free()
            raise
        for node_id, listener in enumerate(self._listeners, 1):
            self._loop.selector.register(
                listener, selectors.EVENT_READ, lambda _events, n=node_id, s=listener: self._accept(n, s)
            )
        Upkeep(self._loop, self._cluster, settings).start()
        self._thread = threading.Thread(target=self._loop.run, name="kadence-broker", daemon=True)
        self._thread.start()
        _log.info("broker of %d nodes listens on %s", nodes, self.bootstrap_servers)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "serving"
        return f"<Broker {self.bootstrap_servers}, {len(self._cluster.topics)} topics, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, as `bootstrap.servers` takes them."""
        return ",".join(_address(node.host, node.port) for node in self._cluster.nodes.values())

    @property
    def node_ids(self) -> list[int]:
        return list(self._cluster.nodes)

    def close(self) -> None:
        """Stop serving and drop every connection; nothing is kept. A second call does nothing."""
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
        if node_id != -1 and node_id not in self._cluster.nodes:
            raise ConfigError(f"no node {node_id}; there are {self.node_ids}")

        def move() -> None:
            self._partition(topic, partition).lead(node_id)

        self._on_loop(move)

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
            found.lead(found.leader_id if node_id is None else node_id)

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

        def disconnect() -> None:
            for connection in list(self._connections):
                connection.close()

        self._on_loop(disconnect)

    def _on_loop(self, action: Callable[[], T]) -> T:
        if self._is_closed:
            raise ClosedError("the broker is closed")
        return self._loop.call(action).result()

    def _create(self, name: str, partitions: int) -> None:
        if name in self._cluster.topics:
            raise ConfigError(f"topic {name!r} exists")
        if not is_valid_topic_name(name):
            raise ConfigError(
                f"{name!r} is no topic name: 1 to 249 of letters, digits, dot, underscore and hyphen"
            )
        if partitions < 1:
            raise ConfigError(f"topic {name!r} must have at least 1 partition, not {partitions}")
        self._cluster.create_topic(name, partitions)

    def _partition(self, topic: str, index: int) -> Partition:
        found = self._cluster.partition(topic, index)
        if found is None:
            raise ConfigError(f"no partition {topic}-{index} here")
        return found

    def _before_wait(self, now: int) -> int:
        """Fire the coordinator's timers; a bug in one of them is logged, and its timer is gone."""
        try:
            self._coordination.poll(now)
        except Exception:  # noqa: BLE001 - one group's trouble must not end the service for all
            _log.exception("a bug in the group coordinator; the broker goes on serving")
        return self._coordination.next_deadline()

    def _accept(self, node_id: int, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except OSError as error:
            # The client is gone again, or we are out of descriptors: either way the others go on.
            _log.warning("a connection could not be accepted: %s", error)
            return
        self._connections.add(
            Connection(
                self._loop,
                sock,
                _address(address[0], address[1]),
                node_id,
                self._services.settings.socket_request_max_bytes,
                self._dispatcher.on_frame,
                self._on_close,
            )
        )

    def _on_close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._dispatcher.on_close(connection)

    def _free(self) -> None:
        for connection in list(self._connections):
            connection.close()
        for listener in self._listeners:
            listener.close()
        self._loop.close()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """The host that clients on this machine can use, where ``host`` means every interface."""
    if not host:
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _listen_all(host: str, port: int, nodes: int) -> list[socket.socket]:
    with contextlib.ExitStack() as opened:
        listeners = [
            opened.enter_context(_listen(host, port + number if port else 0)) for number in range(nodes)
        ]
        opened.pop_all()
    return listeners


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        # The system would take it modulo 65536 without a word.
        raise ConfigError(f"a port is 0 to 65535 (0: any free one), not {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise ConnectError(f"cannot listen on {_address(host, port)}: {error}") from error
    try:
        # Without it a restart within a minute finds the port held by connections that are over.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise ConnectError(
                f"cannot listen on {_address(host, port)}: the port is in use by another process; "
                "choose another port, or 0 for any free one"
            ) from error
        raise ConnectError(f"cannot listen on {_address(host, port)}: {error}") from error
    return listener
