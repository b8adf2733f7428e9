"""`metrics()` of a share consumer, under the names of Kafka's own (KIP-932). Application side, any thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kadence.consumer.application import metric_rows
from kadence.consumer.measures import TopicFetches, TopicPollMeasures
from kadence.loading import load
from kadence.metrics import MetricName, table
from kadence.metrics.network_rows import node_tag, one_node
from kadence.metrics.rows import Row, Rows, amounts, events, per_hour, sizes, times
from kadence.metrics.sensors import NodeMeters, Tally, rate_of
from kadence.metrics.table import Part, Table
from kadence.share.measures import ShareMeasures
from kadence.share.share_state import ShareState

if TYPE_CHECKING:
    from kadence.share.application.core import ShareCore

__all__ = ["ShareMetrics", "catalogue"]

CLIENT: Final = "consumer-share-metrics"
COORDINATOR: Final = "consumer-share-coordinator-metrics"
FETCH: Final = "consumer-share-fetch-manager-metrics"
NODE: Final = "consumer-share-node-metrics"
KADENCE: Final = "kadence-share-consumer-metrics"
"""What Kafka's own client does not measure."""


class ShareMetrics:
    """Reads the measures of one share consumer."""

    def __init__(self, client_id: str, shared_state: ShareState, core: ShareCore) -> None:
        self._shared_state = shared_state
        self._core = core
        self._table = Table(
            client_id,
            [
                (CLIENT, _client(shared_state)),
                (COORDINATOR, _membership(shared_state)),
                (FETCH, _fetching(shared_state.measures)),
                (KADENCE, _own(shared_state, core)),
            ],
        )

    def read(self, now: int) -> dict[MetricName, float]:
        self._core.polls.steps.settle()
        return self._table.read(now, self._parts())

    def _parts(self) -> Iterator[Part]:
        measures = self._shared_state.measures
        for node_id, node in measures.network.nodes.items():
            yield node, [(NODE, one_node(node))], {"node-id": node_tag(node_id)}
        for topic, fetches in measures.fetches.topics.items():
            yield fetches, [(FETCH, metric_rows.fetched(fetches))], {"topic": topic}
        for topic, polled in measures.poll_measures.topics.items():
            yield polled, [(FETCH, _taken(polled))], {"topic": topic}
        if (work := self._core.work) is not None:
            yield work, [(KADENCE, metric_rows.work(work))], {}


def _client(shared_state: ShareState) -> Rows:
    yield from metric_rows.polls(shared_state.measures.poll_measures)
    yield from metric_rows.traffic(shared_state)


def _membership(shared_state: ShareState) -> Rows:
    group = shared_state.measures.group
    yield Row(
        "assigned-partitions",
        "The number of partitions that the group has assigned to this consumer",
        lambda now: len(shared_state.assignment),
    )
    yield from metric_rows.heartbeats(group)
    yield Row("rebalance-rate-per-hour", "The number of new assignments per hour", per_hour(group.rebalances))
    yield Row("rebalance-total", "The number of new assignments", lambda now: group.rebalances.count)


def _fetching(measures: ShareMeasures) -> Rows:
    fetches, polled = measures.fetches, measures.poll_measures
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
    yield Row("records-per-request-max", "The most records in a fetch response", fetches.records.highest)
    yield from amounts("bytes-consumed", "bytes of records in fetch responses", fetches.bytes)

    def parts() -> list[Tally]:
        return [part.records for part in polled.topics.values()]

    yield Row(
        "records-consumed-rate",
        "The number of records that poll() returned per second",
        lambda now: rate_of(parts(), now),
    )
    yield Row(
        "records-consumed-total",
        "The number of records that poll() returned",
        lambda now: sum(part.total for part in parts()),
    )
    yield from amounts(
        "acknowledgements-send", "records whose acknowledgement succeeded", measures.acknowledged
    )
    yield from amounts("acknowledgements-error", "records whose acknowledgement failed", measures.failed)


def _taken(topic: TopicPollMeasures) -> Rows:
    yield from amounts("records-consumed", "records of the topic that poll() returned", topic.records)


def _own(shared_state: ShareState, core: ShareCore | None) -> Rows:
    measures = shared_state.measures
    yield Row("buffer-held-bytes", "Memory of fetched data", lambda now: float(measures.held_bytes()))
    yield Row(
        "records-held",
        "Acquired offsets that are not acknowledged: buffered, or held by the application",
        lambda now: float(measures.held()),
    )
    yield from times(
        "acknowledge-latency", "time from a ShareAcknowledge request to its response", measures.acknowledge_ms
    )
    yield from amounts("locks-renewed", "renewed locks of records", measures.renewed)
    yield from amounts(
        "acknowledgements-void",
        "records whose acknowledgement came too late: the lock had expired, or the connection or the leader was lost",
        measures.void,
    )
    yield Row(
        "records-dropped-total",
        "Records whose lock expired while they were buffered in the consumer",
        lambda now: measures.dropped,
    )
    yield from metric_rows.lateness(shared_state)
    yield Row(
        "records-skipped-total",
        "Bad records that polls (not process) released or rejected by deserialization.errors; each delivery counts",
        lambda now: 0 if core is None or core.buffer.decoding is None else core.buffer.decoding.skipped,
    )
    yield Row(
        "records-dead-lettered-total",
        "Bad records that polls wrote to the dead letter topic; for process see work-dead-letters-total",
        lambda now: 0 if core is None or core.buffer.decoding is None else core.buffer.decoding.dead_lettered,
    )
    yield from metric_rows.stalls(lambda now: 0 if core is None else core.stalls.count)


def catalogue() -> tuple[MetricName, ...]:
    """Every name that `ShareMetrics.read` can have, with its tags' values left empty."""
    load("kadence.work.meters")
    from kadence.work.meters import Meters

    shared_state = ShareState(lambda: None)
    return table.catalogue(
        (
            (CLIENT, _client(shared_state), ()),
            (COORDINATOR, _membership(shared_state), ()),
            (FETCH, _fetching(shared_state.measures), ()),
            (FETCH, metric_rows.fetched(TopicFetches()), ("topic",)),
            (FETCH, _taken(TopicPollMeasures(0, Tally(0))), ("topic",)),
            (NODE, one_node(NodeMeters()), ("node-id",)),
            (KADENCE, _own(shared_state, None), ()),
            (KADENCE, metric_rows.work(Meters()), ()),
        )
    )
