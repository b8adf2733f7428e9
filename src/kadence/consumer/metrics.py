"""`metrics()`: what was measured, under the names that Kafka's own client has for it. Application side, any thread.

Each row is a name and how to read it from `Measures`; reading changes nothing and asks nobody. Rows of the client
are made once, those of brokers, topics and partitions when they are first seen. Kafka's semantics hold unless
docs/metrics.md says otherwise: rates and averages are of the last 30 to 60 s, NaN and −1 mean "never".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple

from kadence.consumer.border.reasons import NotFetchedReason
from kadence.metrics import MetricName
from kadence.metrics.network import NANOS
from kadence.metrics.sensors import Meter, Tally, rate_of

if TYPE_CHECKING:
    from kadence.config import ConsumerConfig
    from kadence.consumer.border.buffer import Border
    from kadence.consumer.border.cells import Cell
    from kadence.consumer.border.measures import Measures, Queue, TopicFetches, TopicIntake
    from kadence.consumer.core import Core
    from kadence.consumer.decoding import Decoding
    from kadence.metrics.network import NodeMeters

__all__ = ["CLIENT", "COORDINATOR", "FETCH", "KADENCE", "NODE", "Metrics"]

CLIENT: Final = "consumer-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"
FETCH: Final = "consumer-fetch-manager-metrics"
NODE: Final = "consumer-node-metrics"
KADENCE: Final = "kadence-consumer-metrics"
"""What Kafka's own client does not measure."""

_HOUR_MS: Final = 3_600_000

Read = Callable[[int], float]
"""A value as of a time (ms)."""


class Row(NamedTuple):
    """One metric without its group and the client's tag."""

    name: str
    description: str
    read: Read


Rows = Iterator[Row]
_Named = list[tuple[MetricName, Read]]


class Metrics:
    """Reads the measures of one consumer."""

    def __init__(self, config: ConsumerConfig, border: Border, core: Core) -> None:
        self._config = config
        self._border = border
        self._core = core
        self._fixed: _Named = [
            *self._named(CLIENT, _client(border)),
            *self._named(FETCH, _fetching(border.measures)),
            *self._named(KADENCE, _own(config, border, core)),
        ]
        if config.group_id is not None:
            self._fixed += self._named(COORDINATOR, _membership(border))
        # Replaced as a whole, so that threads that read at once do not disturb each other.
        self._found: dict[Hashable, _Named] = {}

    def read(self, now: int) -> dict[MetricName, float]:
        known = self._found
        found: dict[Hashable, _Named] = {}
        for key, groups, tags in self._parts():
            found[key] = known.get(key) or [
                row for group, rows in groups for row in self._named(group, rows, **tags)
            ]
        self._found = found
        rows = [*self._fixed, *(row for part in found.values() for row in part)]
        return {name: float(read(now)) for name, read in rows}

    def _parts(self) -> Iterator[tuple[Hashable, list[tuple[str, Rows]], dict[str, str]]]:
        """What there is one of for each broker, topic, partition, reason and cause."""
        border, measures = self._border, self._border.measures
        for node_id, node in measures.network.nodes.items():
            # Bootstrap addresses are -2, -3 … here, -1, -2 … in Kafka's own client.
            name = f"node-{node_id if node_id >= 0 else node_id + 1}"
            yield node, [(NODE, _node(node))], {"node-id": name}
        for topic, fetches in measures.fetches.topics.items():
            yield fetches, [(FETCH, _fetched(fetches))], {"topic": topic}
        for topic, intake in measures.intake.topics.items():
            yield intake, [(FETCH, _taken(intake))], {"topic": topic}
        committed = self._config.isolation_level == "read_committed"
        for partition, cell in border.assignment.items():
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            yield cell, [(FETCH, _partition(cell, committed=committed)), (KADENCE, _unfetched(cell))], tags
        for reason in NotFetchedReason:
            yield reason, [(KADENCE, _reason(border, reason))], {"reason": reason.name.lower()}
        for cause in measures.group.causes:
            yield cause, [(KADENCE, _cause(measures, cause))], {"cause": cause}

    def _named(self, group: str, rows: Rows, **tags: str) -> _Named:
        tags = {"client-id": self._config.client_id, **tags}
        return [(MetricName(row.name, group, tags, row.description), row.read) for row in rows]


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


def _client(border: Border) -> Rows:
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


def _membership(border: Border) -> Rows:
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


def _fetching(measures: Measures) -> Rows:
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


def _fetched(topic: TopicFetches) -> Rows:
    yield from _sizes("fetch-size", "what a fetch brought of the topic", topic.bytes)
    yield Row(
        "records-per-request-avg",
        "The average number of records in a fetch of the topic",
        topic.records.average,
    )


def _taken(topic: TopicIntake) -> Rows:
    yield from _amounts("records-consumed", "records of the topic that poll() returned", topic.records)
    yield from _amounts(
        "bytes-consumed", "bytes of fetches of the topic whose records were all returned", topic.bytes
    )


def _partition(cell: Cell, *, committed: bool) -> Rows:
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


def _node(node: NodeMeters) -> Rows:
    yield from _amounts("incoming-byte", "bytes of answers that were read from the broker", node.incoming)
    yield from _amounts("outgoing-byte", "bytes that were written to the broker", node.outgoing)
    yield from _events("request", "requests that were sent to the broker", node.requests)
    yield from _sizes("request-size", "requests to the broker", node.requests)
    yield from _events("response", "answers that were read from the broker", node.incoming)
    yield from _times("request-latency", "time to an answer of the broker", node.latency)


# ---------------------------------------------------------------- kadence-consumer-metrics


def _own(config: ConsumerConfig, border: Border, core: Core) -> Rows:
    measures = border.measures
    yield Row(
        "buffer-held-bytes",
        "Memory that fetched and decompressed records take, of what buffer.memory allows",
        lambda now: measures.held_bytes() + border.decompressed_bytes,
    )
    yield Row("buffer-memory-bytes", "buffer.memory, the cap", lambda now: config.buffer_memory)
    lateness = border.lateness
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
    for name, what, read in (
        ("skipped", "Bad records that were passed over", lambda decoding: decoding.skipped),
        (
            "dead-lettered",
            "Bad records that the dead letter topic has",
            lambda decoding: decoding.dead_lettered,
        ),
    ):
        yield Row(f"records-{name}-total", what, _of_decoding(core, read))
    yield Row(
        "network-wakeups-total",
        "How often the application had to wake the network thread",
        lambda now: border.wakes,
    )
    if config.group_id is not None:
        yield from _liveness(border, core)


def _of_decoding(core: Core, read: Callable[[Decoding], int]) -> Read:
    """Nothing is bad where nothing is deserialised."""
    return lambda now: 0 if core.decoding is None else read(core.decoding)


def _liveness(border: Border, core: Core) -> Rows:
    yield Row("stalls-total", "Stalls that were reported", lambda now: core.stalls.count)


def _unfetched(cell: Cell) -> Rows:
    def seconds(now: int) -> float:
        if cell.paused:
            return max(now - cell.paused_at, 0) / 1000
        why = cell.unfetched
        return 0 if why is None else max(now - why.since, 0) / 1000 if why.since >= 0 else 0

    yield Row("not-fetched-seconds", "For how long the partition has not been fetched; 0 when it is", seconds)


def _reason(border: Border, reason: NotFetchedReason) -> Rows:
    def count(now: int) -> float:
        return sum(_why(cell) is reason for cell in border.assignment.values())

    yield Row("partitions-not-fetched", "Partitions that are not being fetched because of the reason", count)


def _why(cell: Cell) -> NotFetchedReason | None:
    if cell.paused and not (cell.held or cell.revoking):
        return NotFetchedReason.PAUSED
    why = cell.unfetched
    return None if why is None else why.reason


def _cause(measures: Measures, cause: str) -> Rows:
    yield Row(
        "rebalance-cause-total",
        "Rebalances that had the cause",
        lambda now: measures.group.causes.get(cause, 0),
    )
