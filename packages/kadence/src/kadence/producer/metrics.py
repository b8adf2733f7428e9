"""`Producer.metrics()`: the measurements, under the names of Kafka's own client. Any thread.

Reading changes nothing and sends no request. Kafka's semantics hold unless docs/metrics.md says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kadence.metrics import MetricName, table
from kadence.metrics.network_rows import network, node_tag, one_node
from kadence.metrics.rows import Row, Rows, amounts, events, share, sizes, times
from kadence.metrics.sensors import NANOS, NodeMeters
from kadence.metrics.table import Part, Table
from kadence.producer.accumulator import Accumulator
from kadence.producer.measures import Measures, TopicMeasures

__all__ = ["CLIENT", "NODE", "TOPIC", "Metrics", "catalogue"]

CLIENT: Final = "producer-metrics"
TOPIC: Final = "producer-topic-metrics"
NODE: Final = "producer-node-metrics"

_CALLS: Final = {
    "init_transactions()": "txn-init",
    "send_offsets_to_transaction()": "txn-send-offsets",
    "commit_transaction()": "txn-commit",
    "abort_transaction()": "txn-abort",
}
"""Kafka's names for the calls of transactions."""


class Metrics:
    """Reads the measures of one producer."""

    def __init__(self, client_id: str, accumulator: Accumulator) -> None:
        self._measures = measures = accumulator.measures
        self._table = Table(
            client_id,
            (
                (CLIENT, _records(measures)),
                (
                    CLIENT,
                    _memory(
                        measures,
                        accumulator.buffer_memory,
                        lambda: accumulator.used_bytes,
                        lambda: accumulator.blocked,
                    ),
                ),
                (CLIENT, _calls(measures)),
                (CLIENT, network(measures.network)),
            ),
        )

    def read(self, now: int) -> dict[MetricName, float]:
        return self._table.read(now, self._parts())

    def _parts(self) -> Iterator[Part]:
        for name, topic in self._measures.topics.items():
            yield topic, [(TOPIC, _one_topic(topic))], {"topic": name}
        for node_id, node in self._measures.network.nodes.items():
            yield node, [(NODE, one_node(node))], {"node-id": node_tag(node_id)}


def catalogue() -> tuple[MetricName, ...]:
    """Every name that `Metrics.read` can return, with empty tag values."""
    measures = Measures()
    return table.catalogue(
        (
            (CLIENT, _records(measures), ()),
            (CLIENT, _memory(measures, 0, lambda: 0, lambda: 0), ()),
            (CLIENT, _calls(measures), ()),
            (CLIENT, network(measures.network), ()),
            (TOPIC, _one_topic(TopicMeasures()), ("topic",)),
            (NODE, one_node(NodeMeters()), ("node-id",)),
        )
    )


def _records(measures: Measures) -> Rows:
    yield from amounts("record-send", "records that were sent, including repetitions", measures.sent)
    yield from amounts("record-retry", "records that are sent again after an error", measures.repeated)
    yield from amounts(
        "record-error", "records that send() accepted and that were not written", measures.failed
    )
    yield from sizes("batch-size", "batches as they were sent", measures.batches)
    yield from events(
        "batch-split", "batches that were split because a broker refused them as too large", measures.splits
    )
    yield Row(
        "compression-rate-avg",
        "The average size of a compressed batch divided by its uncompressed size",
        measures.compression.average,
    )
    yield from times(
        "record-queue-time",
        "time that a batch waits in the client before it is first sent",
        measures.queued_ms,
    )
    yield Row(
        "records-per-request-avg",
        "The average number of records in a Produce request",
        measures.per_request.average,
    )
    yield from times("request-latency", "time from a Produce request to its response", measures.latency_ms)
    yield from times(
        "produce-throttle-time", "time that a broker asked the client to wait", measures.throttle_ms
    )


def _memory(measures: Measures, total: int, used: Callable[[], int], waiting: Callable[[], int]) -> Rows:
    yield Row("buffer-total-bytes", "The setting buffer.memory", lambda now: total)
    yield Row("buffer-available-bytes", "The free part of buffer.memory", lambda now: max(total - used(), 0))
    yield Row("waiting-threads", "Calls that wait for memory now", lambda now: waiting())
    yield Row(
        "bufferpool-wait-ratio",
        "The share of the time that calls wait for memory; above 1 when several do",
        share(measures.room_ms),
    )
    yield Row(
        "bufferpool-wait-time-ns-total",
        "Time that calls waited for memory, in ns",
        lambda now: measures.room_ms.total * NANOS,
    )
    yield from events("buffer-exhausted", "calls that got no memory within max.block.ms", measures.exhausted)


def _calls(measures: Measures) -> Rows:
    yield Row(
        "metadata-wait-time-ns-total",
        "Time that calls waited for the metadata of topics, in ns",
        lambda now: measures.metadata_ms * NANOS,
    )
    yield Row("flush-time-ns-total", "Time spent in flush(), in ns", lambda now: measures.flush_ms * NANOS)
    for call, name in _CALLS.items():
        yield _call(measures, call, name)


def _call(measures: Measures, call: str, name: str) -> Row:
    return Row(
        f"{name}-time-ns-total",
        f"Time spent in {call}, in ns",
        lambda now: measures.calls_ms.get(call, 0) * NANOS,
    )


def _one_topic(topic: TopicMeasures) -> Rows:
    yield from amounts(
        "record-send", "records of the topic that were sent, including repetitions", topic.sent
    )
    yield from amounts(
        "record-retry", "records of the topic that are sent again after an error", topic.repeated
    )
    yield from amounts(
        "record-error", "records of the topic that send() accepted and that were not written", topic.failed
    )
    yield from amounts("byte", "bytes of the topic's batches that were sent", topic.batches)
    yield Row(
        "compression-rate",
        "The average size of a compressed batch of the topic divided by its uncompressed size",
        topic.compression.average,
    )
