"""The meters of a network client: connections, bytes, requests, waiting. Only its thread writes them; any may read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kadence.metrics.sensors import Joint, Meter, Tally

__all__ = ["NANOS", "NetworkMeters", "NodeMeters"]

NANOS: Final = 1_000_000
"""In a millisecond. Kafka names some durations in ns; ours are whole ms of the one clock, right on average."""


class NodeMeters:
    """Of one broker, all its connections together. Channels record what happens.

    Attributes:
        requests: bytes of each request that was encoded. latency: ms from a request to its answer.
        incoming: bytes of each whole answer. outgoing: bytes of each write.
    """

    __slots__ = ("incoming", "latency", "outgoing", "requests")

    def __init__(self) -> None:
        self.requests = Meter()
        self.latency = Meter()
        self.incoming = Meter()
        self.outgoing = Meter()


class NetworkMeters:
    """Of a whole client.

    Attributes:
        nodes: by broker id (below 0: bootstrap addresses); replaced as a whole when one is added.
        connections: open now. connected, disconnected: how many ever were.
        incoming, outgoing, requests: those of all nodes. operations: answers and writes together.
        unsent_ms: how long each request lay here before it was written. unsent: those that lie.
        waits, works: ms of each wait for the network, and of what was done between two waits.
        logins, failed_logins: SASL of new connections. relogins, failed_relogins: of standing ones (KIP-368), with ms.
    """

    def __init__(self) -> None:
        self.nodes: Mapping[int, NodeMeters] = MappingProxyType({})
        self.connections = 0
        self.connected = Meter()
        self.disconnected = Meter()
        self.incoming = Joint(lambda: (node.incoming for node in self.nodes.values()))
        self.outgoing = Joint(lambda: (node.outgoing for node in self.nodes.values()))
        self.requests = Joint(lambda: (node.requests for node in self.nodes.values()))
        self.operations = Joint(self._operations)
        self.unsent = 0
        self.unsent_ms = Meter()
        self.waits = Meter()
        self.works = Meter()
        self.logins = Meter()
        self.failed_logins = Meter()
        self.relogins = Meter()
        self.failed_relogins = Meter()

    def node(self, node_id: int) -> NodeMeters:
        found = self.nodes.get(node_id)
        if found is None:
            found = NodeMeters()
            self.nodes = MappingProxyType({**self.nodes, node_id: found})
        return found

    def _operations(self) -> Iterator[Tally]:
        for node in self.nodes.values():
            yield node.incoming
            yield node.outgoing

    # -- what happens

    def opened(self, now: int) -> None:
        """A connection stands."""
        self.connections += 1
        self.connected.record(now)

    def closed(self, now: int) -> None:
        """A connection that stood is gone."""
        self.connections -= 1
        self.disconnected.record(now)

    def logged_in(self, now: int, took_ms: int, *, again: bool) -> None:
        (self.relogins if again else self.logins).record(now, took_ms)

    def refused(self, now: int, *, again: bool) -> None:
        """The broker did not accept who we are."""
        (self.failed_relogins if again else self.failed_logins).record(now)
