"""What the network client measures of a connection to a broker."""

from __future__ import annotations

from kadence.clock import SystemClock
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.metrics.sensors import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker


def test_requests_bytes_and_connections_are_counted(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    clock, meters = SystemClock(), NetworkMeters()
    client = NetworkClient(ConnectionConfig(bootstrap=((host, int(port)),)), clock, meters=meters)
    done: list[Completed] = []
    for _ in range(3):
        client.send(Request(MetadataRequest(topics=[]), ANY_NODE, clock.now_ms() + 10_000))
    assert client.in_flight() == 3
    while len(done) < 3:
        done += client.poll(10_000)
    # ApiVersions counts, too, though nobody outside asked for it.
    assert (meters.requests.count, meters.connected.count, meters.connections) == (4, 1, 1)
    assert meters.operations.count > meters.incoming.count == 4
    assert meters.outgoing.total == meters.requests.total > 0
    assert meters.unsent == 0
    ((node_id, node),) = meters.nodes.items()
    assert node_id < 0
    assert (node.latency.count, node.requests.count) == (3, 4)
    assert node.incoming.total == meters.incoming.total
    assert all(item.sent_at <= item.received_at for item in done)
    assert meters.waits.count == meters.works.count > 0
    client.close()
    assert (meters.connections, meters.disconnected.count) == (0, 1)
