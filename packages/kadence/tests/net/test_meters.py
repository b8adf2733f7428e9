"""What the network client measures of a connection to a broker."""

from __future__ import annotations

import pytest
from tests.net.conftest import Driver

from kadence.clock import FOREVER, SystemClock
from kadence.connection.request import ANY_NODE, Completed, ConnectionPurpose, NativeHeartbeatPlan, Request
from kadence.metrics.sensors import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient, native_heartbeat
from kadence.protocol.heartbeat import HeartbeatRequest
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


@pytest.mark.skipif(not native_heartbeat.AVAILABLE, reason="Windows has no native heartbeat")
def test_what_the_native_thread_sends_counts_as_any_request(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    clock, meters = SystemClock(), NetworkMeters()
    client = NetworkClient(ConnectionConfig(bootstrap=((host, int(port)),)), clock, meters=meters)
    told: list[Request] = []
    client.on_native_heartbeats = lambda requests, sent_at: told.extend(requests)
    driver = Driver(client, clock)
    driver.send(MetadataRequest(topics=[]), ANY_NODE)
    driver.complete()
    ((node_id, node),) = meters.nodes.items()
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    request = Request(message, node_id, FOREVER, ConnectionPurpose.GROUP)
    sizes: list[float] = []
    for _ in range(2):
        before = node.requests.total
        driver.send(message, node_id, ConnectionPurpose.GROUP)
        driver.complete()
        sizes.append(node.requests.total - before)
    # The first one opened the connection.
    count, total, size = node.requests.count, node.requests.total, sizes[1]
    with broker.faults.observe(HeartbeatRequest) as heartbeats:
        client.arm_native_heartbeat(NativeHeartbeatPlan(request, clock.now_ms(), FOREVER, 3_600_000))
        # The network thread, which is this one, does not poll.
        heartbeats.wait(hits=1)
        driver.complete()
    assert len(told) == 1
    assert node.requests.count == count + 1 == node.incoming.count
    assert node.requests.total == total + size == node.outgoing.total
    client.close()
