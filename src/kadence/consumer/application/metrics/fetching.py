"""The rows of consumer-fetch-manager-metrics: fetches, and what poll() returned of them."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from kadence.consumer.application.metrics.rows import Row, Rows, amounts, events, sizes, times
from kadence.consumer.measures import Measures, TopicFetches, TopicPollMeasures
from kadence.consumer.shared_partition import SharedPartition
from kadence.metrics.sensors import Tally, rate_of

__all__ = ["fetched", "fetching", "one_partition", "taken"]


def fetching(measures: Measures) -> Rows:
    """Of fetches, all topics together."""
    fetches, poll_measures = measures.fetches, measures.poll_measures
    yield from events("fetch", "fetches that were answered", measures.fetch_ms)
    yield from times("fetch-latency", "time to the answer of a fetch", measures.fetch_ms)
    yield from times("fetch-throttle-time", "time that a broker asked us to wait", fetches.throttle_ms)
    yield from sizes("fetch-size", "what a fetch brought", fetches.bytes)
    yield Row("records-per-request-avg", "The average number of records in a fetch", fetches.records.average)
    yield Row("records-lag-max", "The greatest lag of any partition, in offsets", fetches.lags.highest)
    yield Row(
        "records-lead-min", "The least distance of any partition to its beginning", fetches.leads.lowest
    )
    for name, what, parts in (
        (
            "records",
            "records that poll() returned",
            lambda: [part.records for part in poll_measures.topics.values()],
        ),
        (
            "bytes",
            "bytes of fetches whose records were all returned",
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
    """Of fetches, one topic."""
    yield from sizes("fetch-size", "what a fetch brought of the topic", topic.bytes)
    yield Row(
        "records-per-request-avg",
        "The average number of records in a fetch of the topic",
        topic.records.average,
    )


def taken(topic: TopicPollMeasures) -> Rows:
    """Of what poll() returned, one topic."""
    yield from amounts("records-consumed", "records of the topic that poll() returned", topic.records)
    yield from amounts(
        "bytes-consumed", "bytes of fetches of the topic whose records were all returned", topic.bytes
    )


def one_partition(shared_partition: SharedPartition, *, committed: bool) -> Rows:
    """Of an assigned partition. ``committed``: the end is that of read_committed, the last stable offset."""

    def lag(now: int) -> float:
        found = shared_partition.lag(read_committed=committed)
        return nan if found is None else found

    def lead(now: int) -> float:
        start, at = shared_partition.log_start, shared_partition.current()
        return nan if start is None or start < 0 or at is None else max(at.offset - start, 0)

    def replica(now: int) -> float:
        preferred = shared_partition.preferred_replica
        return -1 if preferred is None else preferred

    yield Row("records-lag", "Offsets between the position and the end of the partition", lag)
    yield Row(
        "records-lag-avg",
        "The average lag, as answers of brokers told of the end",
        shared_partition.lags.average,
    )
    yield Row(
        "records-lag-max",
        "The greatest lag, as answers of brokers told of the end",
        shared_partition.lags.highest,
    )
    yield Row("records-lead", "Offsets between the beginning of the partition and the position", lead)
    yield Row(
        "records-lead-avg", "The average lead, as answers of brokers told", shared_partition.leads.average
    )
    yield Row("records-lead-min", "The least lead, as answers of brokers told", shared_partition.leads.lowest)
    yield Row("preferred-read-replica", "The replica that is read; -1 when it is the leader", replica)
