"""Stops nodes and starts them again on the same port, while the others run. All share one store: no record is lost."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle

from kadence.errors import ConfigError, ConnectError
from kadence_broker.cluster import BrokerNode, Cluster
from kadence_broker.server.listener import begin_to_listen
from kadence_broker.server.server import Server
from kadence_broker.storage import Partition

__all__ = ["Bind", "Nodes"]

Bind = Callable[[str, int], socket.socket]
"""Opens a socket on a host and a port that does not listen yet."""


class Nodes:
    """The nodes of one broker. Its thread owns it.

    Args:
        host, ports: where they listen. Clients may be given other addresses.
        leaders_changed: called with partitions that have another leader, or none.
        bind: opens the socket of a stopped node, which keeps its port.
    """

    __slots__ = ("_bind", "_bound", "_cluster", "_host", "_leaders_changed", "_server", "_stopped", "ports")

    def __init__(
        self,
        server: Server,
        cluster: Cluster,
        host: str,
        ports: Mapping[int, int],
        leaders_changed: Callable[[Iterable[Partition]], None],
        bind: Bind,
    ) -> None:
        self._bind = bind
        self._server = server
        self._cluster = cluster
        self._host = host
        self.ports = ports
        self._leaders_changed = leaders_changed
        self._stopped: dict[int, BrokerNode] = {}
        self._bound: dict[int, socket.socket] = {}
        """The sockets of stopped nodes: no other program gets their ports."""

    def all(self) -> list[BrokerNode]:
        """All nodes, running or not, by id."""
        known = {**self._cluster.nodes, **self._stopped}
        return [known[node_id] for node_id in sorted(known)]

    def stop(self, node_id: int, *, elect: bool) -> None:
        """Close its listener and connections; its partitions go to the others, or have no leader.

        Raises:
            ConfigError: it does not run. OSError: the disk cannot keep who leads; the node runs on.
        """
        if node_id not in self._cluster.nodes:
            raise ConfigError(f"no node {node_id} runs; those that do are {list(self._cluster.nodes)}")
        others = sorted(self._cluster.nodes.keys() - {node_id})
        led = [each for each in self._partitions() if each.leader_id == node_id]
        leaders = dict(zip(led, cycle(others if elect and others else [-1]), strict=False))
        self._cluster.lead(leaders)
        self._stopped[node_id] = self._cluster.nodes.pop(node_id)
        self._server.stop(node_id)
        self._keep_port(node_id)
        self._leaders_changed(leaders)

    def start(self, node_id: int) -> None:
        """Listen on its port again; partitions without a leader whose only replica it has get it as their leader again.

        Raises:
            ConfigError: it was not stopped. ConnectError: its port is taken. OSError: the disk cannot keep the leaders;
                the node is stopped as it was.
        """
        if node_id not in self._stopped:
            raise ConfigError(f"node {node_id} was not stopped; stopped are {sorted(self._stopped)}")
        sock = self._bound.pop(node_id, None) or self._bind(self._host, self.ports[node_id])
        begin_to_listen(sock)
        leaders = {
            each: node_id for each in self._partitions() if each.leader_id < 0 and each.replica_id == node_id
        }
        try:
            self._cluster.lead(leaders)
        except OSError:
            sock.close()
            self._keep_port(node_id)
            raise
        self._cluster.nodes[node_id] = self._stopped.pop(node_id)
        self._server.add(node_id, sock)
        self._leaders_changed(leaders)

    def _keep_port(self, node_id: int) -> None:
        # Where another program was quicker, the start of the node tries again.
        with contextlib.suppress(ConnectError):
            self._bound[node_id] = self._bind(self._host, self.ports[node_id])

    def close(self) -> None:
        """Let other programs have the ports of stopped nodes."""
        for sock in self._bound.values():
            sock.close()

    def _partitions(self) -> list[Partition]:
        return [each for topic in self._cluster.topics.values() for each in topic.partitions]
