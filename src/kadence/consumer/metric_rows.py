"""The metrics of a consumer one by one: each is a name, what it means, and how to read it. Any thread.

`metrics.Metrics` gives them groups and tags. The names are those of Kafka's own client; what it does not measure is
in the part "kadence-consumer-metrics".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import nan
from typing import Final, NamedTuple

from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell
from kadence.consumer.border.measures import Measures, Queue, TopicFetches, TopicIntake
from kadence.consumer.border.reasons import NotFetchedReason
from kadence.metrics.network import NANOS, NodeMeters
from kadence.metrics.sensors import Meter, Tally, rate_of

__all__ = [
    "Read",
    "Row",
    "Rows",
    "client",
    "fetched",
    "fetching",
    "membership",
    "one_cause",
    "one_node",
    "one_partition",
    "one_reason",
    "own",
    "stalls",
    "taken",
    "unfetched",
]

_HOUR_MS: Final = 3_600_000

Read = Callable[[int], float]
"""A value as of a time (ms)."""


class Row(NamedTuple):
    """One metric without its group and the client's tag."""

    name: str
    description: str
    read: Read


Rows = Iterator[Row]


# ---------------------------------------------------------------- rows of one shape


def _count(meter: Tally) -> Read:
    return lambda now: meter.count


def _total(meter: Tally) -> Read:
    return lambda now: meter.total


def _nanos(ms: Read) -> Read:
    return lambda now: ms(now) * NANOS


def _share(meter: Tally) -> Read:
    """Of values that are ms: how much of each ms they fill."""
    return lambda now: meter.rate(now) / 1000


def _per_hour(meter: Tally) -> Read:
    return lambda now: meter.frequency(now, _HOUR_MS)


def _times(name: str, what: str, meter: Meter) -> Rows:
    """How long something takes, in ms."""
    yield Row(f"{name}-avg", f"The average {what}, in ms", meter.average)
    yield Row(f"{name}-max", f"The longest {what}, in ms", meter.highest)


def _events(name: str, what: str, meter: Tally) -> Rows:
    yield Row(f"{name}-rate", f"The number of {what} per second", meter.frequency)
    yield Row(f"{name}-total", f"The number of {what}", _count(meter))


def _amounts(name: str, what: str, meter: Tally) -> Rows:
    yield Row(f"{name}-rate", f"The number of {what} per second", meter.rate)
    yield Row(f"{name}-total", f"The number of {what}", _total(meter))


def _sizes(name: str, what: str, meter: Meter) -> Rows:
    yield Row(f"{name}-avg", f"The average size of {what}, in bytes", meter.average)
    yield Row(f"{name}-max", f"The size of the greatest of {what}, in bytes", meter.highest)


def _ago(name: str, what: str, at: Callable[[], int]) -> Rows:
    def seconds(now: int) -> float:
        then = at()
        return -1 if then < 0 else max(now - then, 0) // 1000

    yield Row(f"{name}-seconds-ago", f"Seconds since {what}; -1 when there was none", seconds)


# ---------------------------------------------------------------- consumer-metrics


def client(border: Border) -> Rows:
    """Of polls, calls and connections: consumer-metrics."""
    measures = border.measures
    network, intake = measures.network, measures.intake
    yield from _ago("last-poll", "the last poll() began", lambda: intake.last_at)
    between = "time between the beginnings of two calls of poll()"
    yield Row("time-between-poll-avg", f"The average {between}, in ms", intake.polls.average)
    yield Row("time-between-poll-max", f"The longest {between}, in ms", intake.polls.highest)
    yield Row(
        "poll-idle-ratio-avg",
        "The average share of the time that poll() waits, as opposed to the application working",
        intake.idle.average,
    )
    yield Row(
        "commit-sync-time-ns-total",
        "Time spent in commit(), in ns",
        lambda now: intake.commit_sync_ms * NANOS,
    )
    yield Row(
        "committed-time-ns-total", "Time spent in committed(), in ns", lambda now: intake.committed_ms * NANOS
    )
    yield Row("connection-count", "The number of open connections", lambda now: network.connections)
    yield from _events("connection-creation", "connections that were made", network.connected)
    yield from _events("connection-close", "connections that were closed", network.disconnected)
    yield from _events("network-io", "writes to sockets and answers read from them", network.operations)
    yield from _amounts("incoming-byte", "bytes of answers that were read", network.incoming)
    yield from _amounts("outgoing-byte", "bytes that were written", network.outgoing)
    yield from _events("request", "requests that were sent", network.requests)
    yield from _sizes("request-size", "requests", network.requests)
    yield from _events("response", "answers that were read", network.incoming)
    yield from _io(measures)
    yield from _events("successful-authentication", "connections that were logged in", network.logins)
    yield from _events(
        "failed-authentication", "connections whose login or TLS was refused", network.failed_logins
    )
    yield from _events(
        "successful-reauthentication", "standing connections that were logged in again", network.relogins
    )
    yield from _events(
        "failed-reauthentication", "standing connections whose login was refused", network.failed_relogins
    )
    yield from _times("reauthentication-latency", "login of a standing connection", network.relogins)
    yield from _queues(border)


def _io(measures: Measures) -> Rows:
    network = measures.network
    yield from _events("select", "times that the network thread looked for something to do", network.waits)
    for name, what, meter in (
        ("io-wait", "waiting for sockets", network.waits),
        ("io", "reading and writing", network.works),
    ):
        yield Row(
            f"{name}-time-ns-avg",
            f"The average time of {what} in one turn of the network thread, in ns",
            _nanos(meter.average),
        )
        yield Row(
            f"{name}-time-ns-total",
            f"Time that the network thread spent {what}, in ns",
            _nanos(_total(meter)),
        )
        yield Row(
            f"{name}-ratio",
            f"The share of the time that the network thread spends {what}",
            _share(meter),
        )
    yield from _times(
        "time-between-network-thread-poll", "time between two turns of the network thread", measures.turns
    )
    yield Row("unsent-requests-queue-size", "Requests that wait to be sent", lambda now: network.unsent)
    yield from _times("unsent-requests-queue-time", "time that a request waits to be sent", network.unsent_ms)


def _queues(border: Border) -> Rows:
    """The two directions of the border (KIP-1068)."""
    measures = border.measures
    for name, what, size, queue in (
        ("application", "calls to the network thread", lambda: len(border.imperatives), measures.imperatives),
        ("background", "facts for the application", lambda: len(border.facts), measures.facts),
    ):
        yield from _queue(f"{name}-event-queue", what, size, queue)
    yield Row(
        "application-events-expired-count",
        "Calls that were not done within their timeout",
        lambda now: measures.expired,
    )


def _queue(name: str, what: str, size: Callable[[], int], queue: Queue) -> Rows:
    yield Row(f"{name}-size", f"The number of {what} that lie in the queue", lambda now: size())
    yield from _times(f"{name}-time", f"time that {what} lie in the queue", queue.waits)
    yield from _times(f"{name}-processing-time", f"time to take all {what} out of the queue", queue.works)


# ---------------------------------------------------------------- consumer-coordinator-metrics


def membership(border: Border) -> Rows:
    """Of the group: consumer-coordinator-metrics. Rows of classic groups are there in every group."""
    group, intake = border.measures.group, border.measures.intake
    yield Row(
        "assigned-partitions",
        "The number of partitions that are this consumer's",
        lambda now: len(border.assignment),
    )
    yield from _events("heartbeat", "heartbeats that were answered", group.heartbeats)
    yield Row(
        "heartbeat-response-time-max",
        "The longest time to the answer of a heartbeat, in ms",
        group.heartbeats.highest,
    )
    yield from _ago("last-heartbeat", "the last heartbeat was sent", lambda: group.heartbeat_sent_at)
    for name, what, meter in (("join", "JoinGroup", group.joins), ("sync", "SyncGroup", group.syncs)):
        yield from _events(name, f"{what} requests that were answered (classic groups)", meter)
        yield from _times(f"{name}-time", f"time to the answer of {what}", meter)
    yield from _events("commit", "OffsetCommit requests that were answered", group.commits)
    yield from _times("commit-latency", "time to the answer of an OffsetCommit", group.commits)
    yield from _times(
        "rebalance-latency", "rebalance, from its cause to the new assignment", group.rebalances
    )
    yield Row(
        "rebalance-latency-total", "Time spent in rebalances, in ms", lambda now: group.rebalances.total
    )
    for name, what, meter in (
        ("rebalance", "rebalances", group.rebalances),
        ("failed-rebalance", "rebalances that ended with the loss of the membership", group.failed),
    ):
        yield Row(
            f"{name}-rate-per-hour",
            f"The number of {what} per hour",
            _per_hour(meter),
        )
        yield Row(f"{name}-total", f"The number of {what}", _count(meter))
    yield from _ago("last-rebalance", "the last rebalance ended", lambda: group.last_at)
    yield from _times("partition-assigned-latency", "on_partitions_assigned callback", intake.assigned)
    yield from _times("partition-revoked-latency", "on_partitions_revoked callback", intake.revoked)
    yield from _times("partition-lost-latency", "on_partitions_lost callback", intake.lost)


# ---------------------------------------------------------------- consumer-fetch-manager-metrics


def fetching(measures: Measures) -> Rows:
    """Of fetches, all topics together."""
    fetches, intake = measures.fetches, measures.intake
    yield from _events("fetch", "fetches that were answered", measures.fetch_ms)
    yield from _times("fetch-latency", "time to the answer of a fetch", measures.fetch_ms)
    yield from _times("fetch-throttle-time", "time that a broker asked us to wait", fetches.throttle_ms)
    yield from _sizes("fetch-size", "what a fetch brought", fetches.bytes)
    yield Row("records-per-request-avg", "The average number of records in a fetch", fetches.records.average)
    yield Row("records-lag-max", "The greatest lag of any partition, in offsets", fetches.lags.highest)
    yield Row(
        "records-lead-min", "The least distance of any partition to its beginning", fetches.leads.lowest
    )
    for name, what, parts in (
        (
            "records",
            "records that poll() returned",
            lambda: [part.records for part in intake.topics.values()],
        ),
        (
            "bytes",
            "bytes of fetches whose records were all returned",
            lambda: [part.bytes for part in intake.topics.values()],
        ),
    ):
        yield from _consumed(name, what, parts)


def _consumed(name: str, what: str, parts: Callable[[], list[Tally]]) -> Rows:
    yield Row(f"{name}-consumed-rate", f"The number of {what} per second", lambda now: rate_of(parts(), now))
    yield Row(
        f"{name}-consumed-total", f"The number of {what}", lambda now: sum(part.total for part in parts())
    )


def fetched(topic: TopicFetches) -> Rows:
    """Of fetches, one topic."""
    yield from _sizes("fetch-size", "what a fetch brought of the topic", topic.bytes)
    yield Row(
        "records-per-request-avg",
        "The average number of records in a fetch of the topic",
        topic.records.average,
    )


def taken(topic: TopicIntake) -> Rows:
    """Of what poll() returned, one topic."""
    yield from _amounts("records-consumed", "records of the topic that poll() returned", topic.records)
    yield from _amounts(
        "bytes-consumed", "bytes of fetches of the topic whose records were all returned", topic.bytes
    )


def one_partition(cell: Cell, *, committed: bool) -> Rows:
    """Of an assigned partition. ``committed``: the end is that of read_committed, the last stable offset."""

    def lag(now: int) -> float:
        end = cell.last_stable_offset if committed else cell.high_watermark
        at = cell.current()
        return nan if end is None or at is None else max(end - at.offset, 0)

    def lead(now: int) -> float:
        start, at = cell.log_start, cell.current()
        return nan if start is None or start < 0 or at is None else max(at.offset - start, 0)

    def replica(now: int) -> float:
        preferred = cell.preferred_replica
        return -1 if preferred is None else preferred

    yield Row("records-lag", "Offsets between the position and the end of the partition", lag)
    yield Row("records-lag-avg", "The average lag, as answers of brokers told of the end", cell.lags.average)
    yield Row("records-lag-max", "The greatest lag, as answers of brokers told of the end", cell.lags.highest)
    yield Row("records-lead", "Offsets between the beginning of the partition and the position", lead)
    yield Row("records-lead-avg", "The average lead, as answers of brokers told", cell.leads.average)
    yield Row("records-lead-min", "The least lead, as answers of brokers told", cell.leads.lowest)
    yield Row("preferred-read-replica", "The replica that is read; -1 when it is the leader", replica)


# ---------------------------------------------------------------- consumer-node-metrics


def one_node(node: NodeMeters) -> Rows:
    """Of one broker."""
    yield from _amounts("incoming-byte", "bytes of answers that were read from the broker", node.incoming)
    yield from _amounts("outgoing-byte", "bytes that were written to the broker", node.outgoing)
    yield from _events("request", "requests that were sent to the broker", node.requests)
    yield from _sizes("request-size", "requests to the broker", node.requests)
    yield from _events("response", "answers that were read from the broker", node.incoming)
    yield from _times("request-latency", "time to an answer of the broker", node.latency)


# ---------------------------------------------------------------- kadence-consumer-metrics


def own(border: Border, buffer_memory: int, skipped: Read, dead_lettered: Read) -> Rows:
    """Of the whole client, what Kafka's own does not measure."""
    measures, lateness = border.measures, border.lateness
    yield Row(
        "buffer-held-bytes",
        "Memory that fetched and decompressed records take, of what buffer.memory allows",
        lambda now: measures.held_bytes() + border.decompressed_bytes + border.copied_bytes,
    )
    yield Row(
        "buffer-held-bytes-max",
        "The most memory that was held at once, ever, in bytes",
        lambda now: measures.books.most_held,
    )
    yield Row(
        "buffer-exceeded-total",
        "How often buffer.memory was exceeded: by one batch that is larger than all of it",
        lambda now: measures.books.exceeded,
    )
    yield Row(
        "buffer-oversized-total",
        "Answers of brokers that brought more than was asked for: records above the limits",
        lambda now: measures.books.oversized,
    )
    yield Row("buffer-memory-bytes", "buffer.memory, the cap", lambda now: buffer_memory)
    yield Row(
        "network-thread-lateness",
        "How late the network thread's latest turn was (interpreter held, machine paused), in ms",
        lambda now: lateness.last_ms,
    )
    yield Row(
        "network-thread-lateness-max",
        "How late its latest turn was at the worst, ever, in ms",
        lambda now: lateness.longest_ms,
    )
    yield Row(
        "network-wakeups-total",
        "How often the application had to wake the network thread",
        lambda now: border.wakes,
    )
    yield Row("records-skipped-total", "Bad records that were passed over", skipped)
    yield Row("records-dead-lettered-total", "Bad records that the dead letter topic has", dead_lettered)


def stalls(stalls: Read) -> Rows:
    """Of the poll timer."""
    yield Row("stalls-total", "Times that nothing was polled for long, as reported", stalls)


def unfetched(cell: Cell) -> Rows:
    """Of an assigned partition: since when it has not been fetched."""

    def seconds(now: int) -> float:
        if cell.paused:
            return max(now - cell.paused_at, 0) / 1000
        why = cell.unfetched
        return 0 if why is None else max(now - why.since, 0) / 1000 if why.since >= 0 else 0

    yield Row("not-fetched-seconds", "For how long the partition has not been fetched; 0 when it is", seconds)


def one_reason(border: Border, reason: NotFetchedReason) -> Rows:
    """Partitions with one reason not to be fetched."""

    def count(now: int) -> float:
        return sum(_why(cell) is reason for cell in border.assignment.values())

    yield Row("partitions-not-fetched", "Partitions that are not being fetched because of the reason", count)


def _why(cell: Cell) -> NotFetchedReason | None:
    if cell.paused and not (cell.held or cell.revoking):
        return NotFetchedReason.PAUSED
    why = cell.unfetched
    return None if why is None else why.reason


def one_cause(measures: Measures, cause: str) -> Rows:
    """Rebalances of one cause."""
    yield Row(
        "rebalance-cause-total",
        "Rebalances that had the cause",
        lambda now: measures.group.causes.get(cause, 0),
    )
