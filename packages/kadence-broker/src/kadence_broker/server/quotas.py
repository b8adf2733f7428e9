"""Counts the connections of each node, and of each address to it, after Kafka's ConnectionQuotas.

At `max.connections` a node accepts no connection: clients wait in the system's queue until one ends. Above
`max.connections.per.ip` the new connection is closed. (Kafka closes the least recently used connection only to take one
on its inter-broker listener, of which there is none here.)
"""

from __future__ import annotations

from collections import Counter

__all__ = ["ConnectionQuotas"]


class ConnectionQuotas:
    """Counts connections.

    Args:
        max_connections: of one node. max_connections_per_ip: of one node from one address.
    """

    __slots__ = ("_by_ip", "_by_node", "_max_connections", "_max_connections_per_ip")

    def __init__(self, max_connections: int, max_connections_per_ip: int) -> None:
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._by_node: Counter[int] = Counter()
        self._by_ip: Counter[tuple[int, str]] = Counter()

    def has_slot(self, node_id: int) -> bool:
        """The node may accept another connection."""
        return self._by_node[node_id] < self._max_connections

    def add(self, node_id: int, ip: str) -> bool:
        """Count a connection; False: this address has too many, and it does not count."""
        if self._by_ip[node_id, ip] >= self._max_connections_per_ip:
            return False
        self._by_node[node_id] += 1
        self._by_ip[node_id, ip] += 1
        return True

    def remove(self, node_id: int, ip: str) -> None:
        """A connection that counted is over."""
        self._by_node[node_id] -= 1
        self._by_ip[node_id, ip] -= 1
        if not self._by_ip[node_id, ip]:
            del self._by_ip[node_id, ip]  # addresses come and go
