"""The rows of consumer-metrics: polls, calls, connections, and the two queues of the shared state (KIP-1068)."""

from __future__ import annotations

from collections.abc import Callable

from kadence.consumer.application.metrics.rows import (
    Row,
    Rows,
    ago,
    amounts,
    events,
    nanos,
    share,
    sizes,
    times,
    total,
)
from kadence.consumer.measures import Measures, Queue
from kadence.consumer.shared_state import SharedState
from kadence.metrics.network import NANOS, NodeMeters

__all__ = ["client", "one_node"]


def client(shared_state: SharedState) -> Rows:
    """Of polls, calls and connections: consumer-metrics."""
    measures = shared_state.measures
    network, poll_measures = measures.network, measures.poll_measures
    yield from ago("last-poll", "the last poll() began", lambda: poll_measures.last_at)
    between = "time between the beginnings of two calls of poll()"
    yield Row("time-between-poll-avg", f"The average {between}, in ms", poll_measures.polls.average)
    yield Row("time-between-poll-max", f"The longest {between}, in ms", poll_measures.polls.highest)
    yield Row(
        "poll-idle-ratio-avg",
        "The average share of the time that poll() waits, as opposed to the application working",
        poll_measures.idle.average,
    )
    yield Row(
        "commit-sync-time-ns-total",
        "Time spent in commit(), in ns",
        lambda now: poll_measures.commit_sync_ms * NANOS,
    )
    yield Row(
        "committed-time-ns-total",
        "Time spent in committed(), in ns",
        lambda now: poll_measures.committed_ms * NANOS,
    )
    yield Row("connection-count", "The number of open connections", lambda now: network.connections)
    yield from events("connection-creation", "connections that were made", network.connected)
    yield from events("connection-close", "connections that were closed", network.disconnected)
    yield from events("network-io", "writes to sockets and answers read from them", network.operations)
    yield from amounts("incoming-byte", "bytes of answers that were read", network.incoming)
    yield from amounts("outgoing-byte", "bytes that were written", network.outgoing)
    yield from events("request", "requests that were sent", network.requests)
    yield from sizes("request-size", "requests", network.requests)
    yield from events("response", "answers that were read", network.incoming)
    yield from _io(measures)
    yield from events("successful-authentication", "connections that were logged in", network.logins)
    yield from events(
        "failed-authentication", "connections whose login or TLS was refused", network.failed_logins
    )
    yield from events(
        "successful-reauthentication", "standing connections that were logged in again", network.relogins
    )
    yield from events(
        "failed-reauthentication", "standing connections whose login was refused", network.failed_relogins
    )
    yield from times("reauthentication-latency", "login of a standing connection", network.relogins)
    yield from _queues(shared_state)


def _io(measures: Measures) -> Rows:
    network = measures.network
    yield from events("select", "times that the network thread looked for something to do", network.waits)
    for name, what, meter in (
        ("io-wait", "waiting for sockets", network.waits),
        ("io", "reading and writing", network.works),
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
    yield from times(
        "time-between-network-thread-poll", "time between two turns of the network thread", measures.turns
    )
    yield Row("unsent-requests-queue-size", "Requests that wait to be sent", lambda now: network.unsent)
    yield from times("unsent-requests-queue-time", "time that a request waits to be sent", network.unsent_ms)


def _queues(shared_state: SharedState) -> Rows:
    """The two directions of the shared state (KIP-1068)."""
    measures = shared_state.measures
    for name, what, size, queue in (
        (
            "application",
            "calls to the network thread",
            lambda: len(shared_state.application_events),
            measures.application_events,
        ),
        (
            "background",
            "background events for the application",
            lambda: len(shared_state.background_events),
            measures.background_events,
        ),
    ):
        yield from _queue(f"{name}-event-queue", what, size, queue)
    yield Row(
        "application-events-expired-count",
        "Calls that were not done within their timeout",
        lambda now: measures.expired,
    )


def _queue(name: str, what: str, size: Callable[[], int], queue: Queue) -> Rows:
    yield Row(f"{name}-size", f"The number of {what} that lie in the queue", lambda now: size())
    yield from times(f"{name}-time", f"time that {what} lie in the queue", queue.waits)
    yield from times(f"{name}-processing-time", f"time to take all {what} out of the queue", queue.works)


def one_node(node: NodeMeters) -> Rows:
    """Of one broker: consumer-node-metrics."""
    yield from amounts("incoming-byte", "bytes of answers that were read from the broker", node.incoming)
    yield from amounts("outgoing-byte", "bytes that were written to the broker", node.outgoing)
    yield from events("request", "requests that were sent to the broker", node.requests)
    yield from sizes("request-size", "requests to the broker", node.requests)
    yield from events("response", "answers that were read from the broker", node.incoming)
    yield from times("request-latency", "time to an answer of the broker", node.latency)
