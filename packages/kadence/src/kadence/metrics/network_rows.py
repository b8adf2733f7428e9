"""The rows of `metrics()` that every client has: connections, bytes, requests, logins, and those of each broker."""

from __future__ import annotations

from kadence.metrics.rows import Row, Rows, amounts, events, nanos, share, sizes, times, total
from kadence.metrics.sensors import NetworkMeters, NodeMeters

__all__ = ["network", "node_tag", "one_node"]


def network(meters: NetworkMeters) -> Rows:
    """Of all connections together."""
    yield Row("connection-count", "The number of open connections", lambda now: meters.connections)
    yield from events("connection-creation", "connections that were made", meters.connected)
    yield from events("connection-close", "connections that were closed", meters.disconnected)
    yield from events("network-io", "writes to sockets and answers read from them", meters.operations)
    yield from amounts("incoming-byte", "bytes of answers that were read", meters.incoming)
    yield from amounts("outgoing-byte", "bytes that were written", meters.outgoing)
    yield from events("request", "requests that were sent", meters.requests)
    yield from sizes("request-size", "requests", meters.requests)
    yield from events("response", "answers that were read", meters.incoming)
    yield from events("select", "times that the network thread looked for something to do", meters.waits)
    for name, what, meter in (
        ("io-wait", "waiting for sockets", meters.waits),
        ("io", "reading and writing", meters.works),
    ):
        yield Row(
            f"{name}-time-ns-avg",
            f"The average time of {what} in one turn of the network thread, in ns",
            nanos(meter.average),
        )
        yield Row(
            f"{name}-time-ns-total",
            f"Time that the network thread spent {what}, in ns",
            nanos(total(meter)),
        )
        yield Row(
            f"{name}-ratio",
            f"The share of the time that the network thread spends {what}",
            share(meter),
        )
    yield from events("successful-authentication", "connections that were logged in", meters.logins)
    yield from events(
        "failed-authentication", "connections whose login or TLS was refused", meters.failed_logins
    )
    yield from events(
        "successful-reauthentication", "standing connections that were logged in again", meters.relogins
    )
    yield from events(
        "failed-reauthentication", "standing connections whose login was refused", meters.failed_relogins
    )
    yield from times(
        "reauthentication-latency", "time to log in again on a standing connection", meters.relogins
    )


def one_node(node: NodeMeters) -> Rows:
    """Of one broker."""
    yield from amounts("incoming-byte", "bytes of answers that were read from the broker", node.incoming)
    yield from amounts("outgoing-byte", "bytes that were written to the broker", node.outgoing)
    yield from events("request", "requests that were sent to the broker", node.requests)
    yield from sizes("request-size", "requests to the broker", node.requests)
    yield from events("response", "answers that were read from the broker", node.incoming)
    yield from times("request-latency", "time from a request to the broker's response", node.latency)


def node_tag(node_id: int) -> str:
    """A broker's name in tags. Bootstrap addresses are -2, -3 … here, -1, -2 … in Kafka's own client."""
    return f"node-{node_id if node_id >= 0 else node_id + 1}"
