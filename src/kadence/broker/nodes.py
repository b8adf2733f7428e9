"""Nodes that stop and start again, on the same port, while the others go on. All share one store: no record is lost."""

from __future__ import annotations

import socket
from collections.abc import Callable
from itertools import cycle

from kadence.broker.cluster import BrokerNode, Cluster
from kadence.broker.server.server import Server
from kadence.broker.storage import Partition
from kadence.errors import ConfigError

__all__ = ["Listen", "Nodes"]

Listen = Callable[[str, int], socket.socket]
"""Opens a listening socket on a host and a port."""


class Nodes:
    """The nodes of one broker. Its thread owns it.

    Args:
        host: what they listen on.
        lead: gives a partition to a node, or to none (-1), and tells whoever must know.
        listen: opens the socket of a node that starts again.
    """

    __slots__ = ("_cluster", "_host", "_lead", "_listen", "_server", "_stopped")

    def __init__(
        self,
        server: Server,
        cluster: Cluster,
        host: str,
        lead: Callable[[Partition, int], None],
        listen: Listen,
    ) -> None:
        self._listen = listen
        self._server = server
        self._cluster = cluster
        self._host = host
        self._lead = lead
        self._stopped: dict[int, BrokerNode] = {}

    def all(self) -> list[BrokerNode]:
        """Those that run and those that do not, by id."""
        known = {**self._cluster.nodes, **self._stopped}
        return [known[node_id] for node_id in sorted(known)]

    def stop(self, node_id: int, *, elect: bool) -> None:
        """Close its listener and connections; what it led goes to the others, or has no leader.

        Raises:
            ConfigError: it does not run.
        """
        if node_id not in self._cluster.nodes:
            raise ConfigError(f"no node {node_id} runs; those that do are {list(self._cluster.nodes)}")
        self._stopped[node_id] = self._cluster.nodes.pop(node_id)
        self._server.stop(node_id)
        leaders = cycle(sorted(self._cluster.nodes) if elect and self._cluster.nodes else [-1])
        for partition in self._partitions():
            if partition.leader_id == node_id:
                self._lead(partition, next(leaders))

    def start(self, node_id: int) -> None:
        """Listen on its port again; partitions whose only replica it has, and that have no leader, are its own again.

        Raises:
            ConfigError: it was not stopped. ConnectError: its port is taken.
        """
        node = self._stopped.get(node_id)
        if node is None:
            raise ConfigError(f"node {node_id} was not stopped; stopped are {sorted(self._stopped)}")
        sock = self._listen(self._host, node.port)
        self._cluster.nodes[node_id] = self._stopped.pop(node_id)
        self._server.add(node_id, sock)
        for partition in self._partitions():
            if partition.leader_id < 0 and partition.replica_id == node_id:
                self._lead(partition, node_id)

    def _partitions(self) -> list[Partition]:
        return [each for topic in self._cluster.topics.values() for each in topic.partitions]
