"""The rows of `metrics()`: name, description and how each is read. Application side, any thread.

The names are those of Kafka's own client (consumer-metrics with KIP-1068's queues, consumer-fetch-manager-metrics,
consumer-coordinator-metrics); metrics that it lacks are in kadence-consumer-metrics. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan
from typing import TYPE_CHECKING

from kadence.consumer.client_state import ClientState
from kadence.consumer.measures import Group, Measures, PollMeasures, Queue, TopicFetches, TopicPollMeasures
from kadence.consumer.shared_partition import NotFetchedReason, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.lag import lag
from kadence.metrics import network_rows
from kadence.metrics.rows import (
    Read,
    Row,
    Rows,
    ago,
    amounts,
    count,
    events,
    per_hour,
    sizes,
    times,
)
from kadence.metrics.sensors import NANOS, Tally, rate_of

__all__ = [
    "client",
    "fetched",
    "fetching",
    "frontier",
    "heartbeats",
    "lateness",
    "membership",
    "one_cause",
    "one_partition",
    "one_reason",
    "own",
    "polls",
    "stalls",
    "taken",
    "traffic",
    "unfetched",
    "work",
]

if TYPE_CHECKING:
    from kadence.types import TopicPartition
    from kadence.work.meters import Meters, Now

# ------------------------------------------------------------ consumer-metrics


def client(shared_state: SharedState) -> Rows:
    """Rows of polls, calls and connections: consumer-metrics."""
    poll_measures = shared_state.measures.poll_measures
    yield from polls(poll_measures)
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
    yield from traffic(shared_state)


def polls(poll_measures: PollMeasures) -> Rows:
    """Of polls."""
    yield from ago("last-poll", "the last poll() began", lambda: poll_measures.last_at)
    between = "time from the beginning of one poll() to that of the next"
    yield Row("time-between-poll-avg", f"The average {between}, in ms", poll_measures.polls.average)
    yield Row("time-between-poll-max", f"The longest {between}, in ms", poll_measures.polls.highest)
    yield Row(
        "poll-idle-ratio-avg",
        "The time in poll() divided by itself plus the time since the previous poll() began; about 0.5 if the "
        "application only waits",
        poll_measures.idle.average,
    )


def traffic(client_state: ClientState) -> Rows:
    """Of connections and the network thread."""
    measures = client_state.measures
    network = measures.network
    yield from network_rows.network(network)
    yield from times(
        "time-between-network-thread-poll", "time between two turns of the network thread", measures.turns
    )
    yield Row("unsent-requests-queue-size", "Requests that wait to be sent", lambda now: network.unsent)
    yield from times("unsent-requests-queue-time", "time that a request waits to be sent", network.unsent_ms)
    yield from _queues(client_state)


def _queues(client_state: ClientState) -> Rows:
    """Rows of the two queues of the shared state (KIP-1068)."""
    measures = client_state.measures
    for name, what, size, queue in (
        (
            "application",
            "calls to the network thread",
            lambda: len(client_state.application_events),
            measures.application_events,
        ),
        (
            "background",
            "background events for the application",
            lambda: len(client_state.background_events),
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


# ------------------------------------------------------------ consumer-fetch-manager-metrics


def fetching(measures: Measures) -> Rows:
    """Rows of fetches, all topics together."""
    fetches, poll_measures = measures.fetches, measures.poll_measures
    yield from events("fetch", "fetch requests that were answered", measures.fetch_ms)
    yield from times("fetch-latency", "time from a fetch request to its response", measures.fetch_ms)
    yield from times(
        "fetch-throttle-time", "time that a broker asked the client to wait", fetches.throttle_ms
    )
    yield from sizes("fetch-size", "fetched data", fetches.bytes)
    yield Row(
        "records-per-request-avg",
        "The average number of records in a fetch response with records",
        fetches.records.average,
    )
    yield Row("records-lag-max", "The greatest lag of any partition, in offsets", fetches.lags.highest)
    yield Row("records-lead-min", "The least lead of any partition: see records-lead", fetches.leads.lowest)
    for name, what, parts in (
        (
            "records",
            "records that poll() returned",
            lambda: [part.records for part in poll_measures.topics.values()],
        ),
        (
            "bytes",
            "bytes of the fetch responses of which polls have returned all records",
            lambda: [part.bytes for part in poll_measures.topics.values()],
        ),
    ):
        yield from _consumed(name, what, parts)


def _consumed(name: str, what: str, parts: Callable[[], list[Tally]]) -> Rows:
    yield Row(f"{name}-consumed-rate", f"The number of {what} per second", lambda now: rate_of(parts(), now))
    yield Row(
        f"{name}-consumed-total", f"The number of {what}", lambda now: sum(part.total for part in parts())
    )


def fetched(topic: TopicFetches) -> Rows:
    """Rows of fetches, one topic."""
    yield from sizes("fetch-size", "fetched data of the topic", topic.bytes)
    yield Row(
        "records-per-request-avg",
        "The average number of records of the topic in a fetch response with any",
        topic.records.average,
    )


def taken(topic: TopicPollMeasures) -> Rows:
    """Rows of the records that poll() returned, one topic."""
    yield from amounts("records-consumed", "records of the topic that poll() returned", topic.records)
    yield from amounts(
        "bytes-consumed",
        "bytes of the topic in fetch responses of which polls have returned all its records",
        topic.bytes,
    )


def one_partition(shared_partition: SharedPartition, *, committed: bool) -> Rows:
    """Rows of an assigned partition. ``committed``: read_committed, so the end is the last stable offset."""

    def lag(now: int) -> float:
        found = shared_partition.lag(read_committed=committed)
        return nan if found is None else found

    def lead(now: int) -> float:
        start, at = shared_partition.log_start, shared_partition.current()
        return nan if start is None or start < 0 or at is None else max(at.offset - start, 0)

    def replica(now: int) -> float:
        preferred = shared_partition.preferred_replica
        return -1 if preferred is None else preferred

    yield Row("records-lag", "Offsets from the position to the end of the partition", lag)
    yield Row(
        "records-lag-avg",
        "The average lag, measured when a broker reports the end",
        shared_partition.lags.average,
    )
    yield Row(
        "records-lag-max",
        "The greatest lag, measured when a broker reports the end",
        shared_partition.lags.highest,
    )
    yield Row("records-lead", "Offsets from the beginning of the partition to the position", lead)
    yield Row("records-lead-avg", "The average lead, measured as the lag", shared_partition.leads.average)
    yield Row("records-lead-min", "The least lead, measured as the lag", shared_partition.leads.lowest)
    yield Row(
        "preferred-read-replica",
        "The broker of the follower replica that is read; -1 when the leader is read",
        replica,
    )


# ------------------------------------------------------------ consumer-coordinator-metrics


def membership(shared_state: SharedState) -> Rows:
    """Rows of the group; those of the classic protocol exist with either protocol."""
    group, poll_measures = shared_state.measures.group, shared_state.measures.poll_measures
    yield Row(
        "assigned-partitions",
        "The number of partitions assigned to this consumer",
        lambda now: len(shared_state.shared_partitions),
    )
    yield from heartbeats(group)
    for name, what, meter in (("join", "JoinGroup", group.joins), ("sync", "SyncGroup", group.syncs)):
        yield from events(name, f"{what} requests that were answered (classic groups)", meter)
        yield from times(f"{name}-time", f"time from a {what} request to its response", meter)
    yield from events("commit", "OffsetCommit requests that were answered", group.commits)
    yield from times("commit-latency", "time from an OffsetCommit request to its response", group.commits)
    yield from times(
        "rebalance-latency", "time of a rebalance, from its cause to the new assignment", group.rebalances
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
            per_hour(meter),
        )
        yield Row(f"{name}-total", f"The number of {what}", count(meter))
    yield from ago("last-rebalance", "the last rebalance ended", lambda: group.last_at)
    yield from times("partition-assigned-latency", "time in on_partitions_assigned()", poll_measures.assigned)
    yield from times("partition-revoked-latency", "time in on_partitions_revoked()", poll_measures.revoked)
    yield from times("partition-lost-latency", "time in on_partitions_lost()", poll_measures.lost)


def heartbeats(group: Group) -> Rows:
    """Of heartbeats."""
    yield from events("heartbeat", "heartbeats that were answered", group.heartbeats)
    yield Row(
        "heartbeat-response-time-max",
        "The longest time from a heartbeat to its response, in ms",
        group.heartbeats.highest,
    )
    yield from ago(
        "last-heartbeat", "the last heartbeat of the present membership was sent", lambda: group.pulse.sent_at
    )


# ------------------------------------------------------------ kadence-consumer-metrics


def own(shared_state: SharedState, buffer_memory: int, skipped: Read, dead_lettered: Read) -> Rows:
    """Rows of the whole client that Kafka's own client does not have."""
    measures, poll_measures = shared_state.measures, shared_state.measures.poll_measures
    yield Row(
        "buffer-held-bytes",
        "Memory of fetched, decompressed and decoded records; a fetch response counts in full until polls have "
        "returned all of it",
        lambda now: shared_state.held_bytes(),
    )
    yield Row(
        "buffer-held-bytes-max",
        "The most memory that was held at once, ever, in bytes",
        lambda now: max(measures.books.most_held, poll_measures.most_held),
    )
    yield Row(
        "buffer-exceeded-total",
        "How often one large batch, fetched or decompressed, took the memory above buffer.memory",
        lambda now: measures.books.exceeded + poll_measures.exceeded,
    )
    yield Row(
        "buffer-oversized-total",
        "Fetch responses with more bytes of records than the request allowed",
        lambda now: measures.books.oversized,
    )
    yield Row("buffer-memory-bytes", "The setting buffer.memory", lambda now: buffer_memory)
    yield Row("batches-decompressed-total", "Decompressed batches", lambda now: poll_measures.unpackings)
    yield Row(
        "decompressed-bytes-total",
        "Bytes of decompressed batches",
        lambda now: poll_measures.unpacked_bytes,
    )
    yield from lateness(shared_state)
    yield Row(
        "records-skipped-total",
        "Bad records skipped by deserialization.errors=skip",
        skipped,
    )
    yield Row(
        "records-dead-lettered-total",
        "Bad records that polls wrote to the dead letter topic; for process see work-dead-letters-total",
        dead_lettered,
    )


def lateness(client_state: ClientState) -> Rows:
    """Of how late the network thread was."""
    lateness = client_state.lateness
    yield Row(
        "network-thread-lateness",
        "How late the network thread last began its work, in ms: other code held the interpreter, or the machine was "
        "paused",
        lambda now: lateness.last_ms,
    )
    yield Row(
        "network-thread-lateness-max",
        "How late the network thread began its work at most, in ms",
        lambda now: 0 if isnan(longest := lateness.turns.highest(now)) else longest,
    )
    yield Row(
        "fallback-heartbeats-total",
        "Heartbeats that native code sent because the network thread could not run in time",
        lambda now: lateness.fallback_heartbeats,
    )
    yield Row(
        "network-wakeups-total",
        "How often the application woke the network thread",
        lambda now: client_state.wakes,
    )


def stalls(stalls: Read) -> Rows:
    """Rows of the poll timer."""
    yield Row(
        "stalls-total",
        "Stalls: how often the application did not poll for too long (stall.report.ratio)",
        stalls,
    )


def work(meters: Meters) -> Rows:
    """Rows of `Consumer.process`, from its first call on."""

    def look(name: str, what: str, read: Callable[[Now], float]) -> Row:
        return Row(name, what, lambda now: read(meters.at(now)))

    yield look("work-running", "Records in a handler now", lambda at: at.running)
    yield look("work-waiting", "Records that wait for a worker", lambda at: at.waiting)
    yield look("work-retrying", "Records that wait for their next attempt", lambda at: at.retrying)
    yield look(
        "work-oldest-seconds",
        "For how many seconds the longest-running handler has had its record; 0 when none runs",
        lambda at: at.oldest_ms / 1000,
    )
    yield look(
        "work-overdue",
        "Records in a handler for longer than the timeout of process()",
        lambda at: at.overdue,
    )
    yield look(
        "work-paused",
        "Partitions that process has paused because too many of their records wait",
        lambda at: at.paused,
    )
    yield look(
        "work-frontier-lag-max",
        "The greatest work-frontier-lag of a partition",
        lambda at: max(at.frontier_lags.values(), default=0),
    )
    yield look(
        "work-key-waiting-max",
        "The most records of one key (order='partition': of one partition) that wait for an earlier record",
        lambda at: at.key_waiting,
    )
    yield look(
        "work-done-total",
        "Records that are done: handled, skipped, rejected, or written to the retry or dead letter topic",
        lambda at: at.totals.done,
    )
    yield look("work-attempts-failed-total", "Attempts that failed", lambda at: at.totals.failed)
    yield look("work-retried-total", "Records that went to the retry topic", lambda at: at.totals.retried)
    yield look(
        "work-dead-letters-total",
        "Records written to the dead letter topic",
        lambda at: at.totals.dead_lettered,
    )
    yield look(
        "work-already-done-total",
        "Records that came again after a restart or rebalance, and were skipped because they had been done",
        lambda at: at.totals.already_done,
    )


def frontier(meters: Meters, partition: TopicPartition) -> Rows:
    """Rows of `Consumer.process`, one assigned partition."""
    yield Row(
        "work-frontier-lag",
        "Number of records from the first that is not done to the last that was read",
        lambda now: meters.at(now).frontier_lags.get(partition, 0),
    )

    def stuck(now: int) -> float:
        found = meters.at(now).stuck.get(partition)
        return -1 if found is None else found[0].offset

    def seconds(now: int) -> float:
        found = meters.at(now).stuck.get(partition)
        return 0 if found is None else found[1] / 1000

    yield Row(
        "work-stuck-offset",
        "The offset of the record in a handler that holds up the committed offset; -1 when none does",
        stuck,
    )
    yield Row(
        "work-stuck-seconds",
        "Seconds since the first attempt at that record began",
        seconds,
    )


def unfetched(shared_partition: SharedPartition) -> Rows:
    """Rows of an assigned partition: since when it has not been fetched, and what a transaction holds back."""

    def seconds(now: int) -> float:
        why = shared_partition.why(now)
        if why is None or why.since < 0 or why.reason.is_expected:
            return 0
        return max(now - why.since, 0) / 1000

    def unstable(now: int) -> float:
        end, stable = shared_partition.high_watermark, shared_partition.last_stable_offset
        # A broker from before transactions (0.11) reports no last stable offset.
        return 0 if end is None or stable is None or stable < 0 else lag(end, stable)

    def raised(now: int) -> float:
        polls = shared_partition.raises()
        return 0 if polls is None else polls.times

    yield Row(
        "not-fetched-seconds",
        "For how many seconds the partition has not been fetched; 0 when it is fetched, or need not be: paused, "
        "buffered, or its range read",
        seconds,
    )
    yield Row(
        "records-behind-open-transactions",
        "Offsets from the last stable offset to the end, which read_committed consumers do not get yet",
        unstable,
    )
    yield Row(
        "polls-raised",
        "How many polls in a row have raised because of the partition's next record; 0 once the position has moved",
        raised,
    )


def one_reason(shared_state: SharedState, reason: NotFetchedReason) -> Rows:
    """Rows of one reason for which partitions are not fetched."""

    def count(now: int) -> float:
        found = (shared_partition.why(now) for shared_partition in shared_state.shared_partitions.values())
        return sum(why is not None and why.reason is reason for why in found)

    yield Row(
        "partitions-not-fetched",
        "Partitions that are not fetched for this reason, which not_fetched() explains",
        count,
    )


def one_cause(measures: Measures, cause: str) -> Rows:
    """Rows of one cause of rebalances."""
    yield Row(
        "rebalance-cause-total",
        "Rebalances with this cause",
        lambda now: measures.group.causes.get(cause, 0),
    )
