"""The rows of kadence-consumer-metrics: what Kafka's own client does not measure."""

from __future__ import annotations

from kadence.consumer.application.metrics.rows import Read, Row, Rows
from kadence.consumer.measures import Measures
from kadence.consumer.shared_partition import NotFetchedReason, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.lag import lag

__all__ = ["one_cause", "one_reason", "own", "stalls", "unfetched"]


def own(shared_state: SharedState, buffer_memory: int, skipped: Read, dead_lettered: Read) -> Rows:
    """Of the whole client, what Kafka's own does not measure."""
    measures, poll_measures, lateness = (
        shared_state.measures,
        shared_state.measures.poll_measures,
        shared_state.lateness,
    )
    yield Row(
        "buffer-held-bytes",
        "Memory that records take, fetched, decompressed or decoded ahead, of what buffer.memory allows",
        lambda now: shared_state.held_bytes(),
    )
    yield Row(
        "buffer-held-bytes-max",
        "The most memory that was held at once, ever, in bytes",
        lambda now: max(measures.books.most_held, poll_measures.most_held),
    )
    yield Row(
        "buffer-exceeded-total",
        "How often buffer.memory was exceeded: by one batch that is larger, or decompresses to more than was left",
        lambda now: measures.books.exceeded + poll_measures.exceeded,
    )
    yield Row(
        "buffer-oversized-total",
        "Answers of brokers that brought more than was asked for: records above the limits",
        lambda now: measures.books.oversized,
    )
    yield Row("buffer-memory-bytes", "buffer.memory, the cap", lambda now: buffer_memory)
    yield Row(
        "batches-decompressed-total", "Batches that were decompressed", lambda now: poll_measures.unpackings
    )
    yield Row(
        "decompressed-bytes-total",
        "What batches were decompressed to",
        lambda now: poll_measures.unpacked_bytes,
    )
    yield Row(
        "network-thread-lateness",
        "How late the network thread's latest turn was (interpreter held, machine paused), in ms",
        lambda now: lateness.last_ms,
    )
    yield Row(
        "network-thread-lateness-max",
        "How late the network thread's turns were at most, ever, in ms",
        lambda now: lateness.longest_ms,
    )
    yield Row(
        "fallback-heartbeats-total",
        "Heartbeats that the native heartbeat sent because the network thread could not",
        lambda now: lateness.fallback_heartbeats,
    )
    yield Row(
        "network-wakeups-total",
        "How often the application had to wake the network thread",
        lambda now: shared_state.wakes,
    )
    yield Row("records-skipped-total", "Bad records that were skipped", skipped)
    yield Row(
        "records-dead-lettered-total", "Bad records that were written to the dead letter topic", dead_lettered
    )


def stalls(stalls: Read) -> Rows:
    """Of the poll timer."""
    yield Row("stalls-total", "Reported stalls: times that the application did not poll for long", stalls)


def unfetched(shared_partition: SharedPartition) -> Rows:
    """Of an assigned partition: since when it has not been fetched, and what a transaction holds back."""

    def seconds(now: int) -> float:
        why = shared_partition.why(now)
        return 0 if why is None or why.since < 0 else max(now - why.since, 0) / 1000

    def unstable(now: int) -> float:
        end, stable = shared_partition.high_watermark, shared_partition.last_stable_offset
        # A broker tells the last stable offset to read_committed only.
        return 0 if end is None or stable is None or stable < 0 else lag(end, stable)

    def raised(now: int) -> float:
        polls = shared_partition.raises()
        return 0 if polls is None else polls.times

    yield Row("not-fetched-seconds", "For how long the partition has not been fetched; 0 when it is", seconds)
    yield Row(
        "records-behind-open-transactions",
        "Offsets from the last stable offset to the end of the partition: read_committed does not return these yet",
        unstable,
    )
    yield Row(
        "polls-raised",
        "How many polls in a row raised because of the partition's next record; 0 once the position has moved",
        raised,
    )


def one_reason(shared_state: SharedState, reason: NotFetchedReason) -> Rows:
    """Partitions with one reason not to be fetched."""

    def count(now: int) -> float:
        found = (shared_partition.why(now) for shared_partition in shared_state.assignment.values())
        return sum(why is not None and why.reason is reason for why in found)

    yield Row("partitions-not-fetched", "Partitions that are not being fetched because of the reason", count)


def one_cause(measures: Measures, cause: str) -> Rows:
    """Rebalances of one cause."""
    yield Row(
        "rebalance-cause-total",
        "Rebalances that had the cause",
        lambda now: measures.group.causes.get(cause, 0),
    )
