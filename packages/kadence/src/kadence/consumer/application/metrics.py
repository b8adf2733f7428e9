"""`metrics()`: measurements under the names of Kafka's own client. Application side, any thread.

Each row is a name and how to read it from `Measures`; reading changes nothing and sends no request. Rows of the client
are made once, those of brokers, topics and partitions when they are first seen. Kafka's semantics hold unless
docs/metrics.md says otherwise: rates and averages are of the last 60 to 90 s, NaN and −1 mean "never".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kadence.consumer.application import metric_rows
from kadence.consumer.measures import TopicFetches, TopicPollMeasures
from kadence.consumer.shared_partition import NotFetchedReason, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.loading import load
from kadence.metrics import MetricName, table
from kadence.metrics.network_rows import node_tag, one_node
from kadence.metrics.rows import Rows
from kadence.metrics.sensors import NodeMeters, Tally
from kadence.metrics.table import Part, Table
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.config import ConsumerConfig
    from kadence.consumer.application.core import Core

__all__ = ["CLIENT", "COORDINATOR", "FETCH", "KADENCE", "NODE", "Metrics", "catalogue"]

CLIENT: Final = "consumer-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"
FETCH: Final = "consumer-fetch-manager-metrics"
NODE: Final = "consumer-node-metrics"
KADENCE: Final = "kadence-consumer-metrics"
"""Names of metrics that Kafka's own client does not have."""


class Metrics:
    """Reads the measures of one consumer."""

    def __init__(self, config: ConsumerConfig, shared_state: SharedState, core: Core) -> None:
        self._config = config
        self._shared_state = shared_state
        self._core = core
        fixed = [
            (CLIENT, metric_rows.client(shared_state)),
            (FETCH, metric_rows.fetching(shared_state.measures)),
            (
                KADENCE,
                metric_rows.own(shared_state, config.buffer_memory, self._skipped, self._dead_lettered),
            ),
        ]
        if config.group_id is not None:
            fixed.append((COORDINATOR, metric_rows.membership(shared_state)))
            fixed.append((KADENCE, metric_rows.stalls(lambda now: core.stalls.count)))
        self._table = Table(config.client_id, fixed)

    def read(self, now: int) -> dict[MetricName, float]:
        self._core.polls.steps.settle()
        return self._table.read(now, self._parts())

    def _parts(self) -> Iterator[Part]:
        """The rows for each broker, topic, partition, reason and cause."""
        shared_state, measures = self._shared_state, self._shared_state.measures
        for node_id, node in measures.network.nodes.items():
            yield node, [(NODE, one_node(node))], {"node-id": node_tag(node_id)}
        for topic, fetches in measures.fetches.topics.items():
            yield fetches, [(FETCH, metric_rows.fetched(fetches))], {"topic": topic}
        for topic, poll_measures in measures.poll_measures.topics.items():
            yield poll_measures, [(FETCH, metric_rows.taken(poll_measures))], {"topic": topic}
        committed = self._config.isolation_level == "read_committed"
        for partition, shared_partition in shared_state.shared_partitions.items():
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            yield (
                shared_partition,
                [
                    (FETCH, metric_rows.one_partition(shared_partition, committed=committed)),
                    (KADENCE, metric_rows.unfetched(shared_partition)),
                ],
                tags,
            )
        if (work := self._core.work) is not None:
            yield work, [(KADENCE, metric_rows.work(work))], {}
            for partition in shared_state.shared_partitions:
                tags = {"topic": partition.topic, "partition": str(partition.partition)}
                yield (work, partition), [(KADENCE, metric_rows.frontier(work, partition))], tags
        for reason in NotFetchedReason:
            yield (
                reason,
                [(KADENCE, metric_rows.one_reason(shared_state, reason))],
                {"reason": reason.name.lower()},
            )
        for cause in measures.group.causes:
            yield cause, [(KADENCE, metric_rows.one_cause(measures, cause))], {"cause": cause}

    def _skipped(self, now: int) -> float:
        """Without deserialisers there are no bad records."""
        decoding, work = self._core.polls.decoding, self._core.work
        return (0 if decoding is None else decoding.skipped) + (0 if work is None else work.bad)

    def _dead_lettered(self, now: int) -> float:
        decoding = self._core.polls.decoding
        return 0 if decoding is None else decoding.dead_lettered


def catalogue() -> tuple[MetricName, ...]:
    """Every name that `Metrics.read` can have, with its tags' values left empty."""
    load("kadence.work.meters")
    from kadence.work.meters import Meters

    def nothing(now: int) -> float:
        return 0

    shared_state = SharedState(lambda: None)
    shared_partition = SharedPartition(TopicPartition("", 0), 0)
    per_partition = ("topic", "partition")
    groups: tuple[tuple[str, Rows, tuple[str, ...]], ...] = (
        (CLIENT, metric_rows.client(shared_state), ()),
        (COORDINATOR, metric_rows.membership(shared_state), ()),
        (FETCH, metric_rows.fetching(shared_state.measures), ()),
        (FETCH, metric_rows.fetched(TopicFetches()), ("topic",)),
        (FETCH, metric_rows.taken(TopicPollMeasures(0, Tally(0))), ("topic",)),
        (FETCH, metric_rows.one_partition(shared_partition, committed=False), per_partition),
        (NODE, one_node(NodeMeters()), ("node-id",)),
        (KADENCE, metric_rows.own(shared_state, 0, nothing, nothing), ()),
        (KADENCE, metric_rows.stalls(nothing), ()),
        (KADENCE, metric_rows.work(Meters()), ()),
        (KADENCE, metric_rows.frontier(Meters(), shared_partition.partition), per_partition),
        (KADENCE, metric_rows.unfetched(shared_partition), per_partition),
        (KADENCE, metric_rows.one_reason(shared_state, NotFetchedReason.PAUSED), ("reason",)),
        (KADENCE, metric_rows.one_cause(shared_state.measures, ""), ("cause",)),
    )
    return table.catalogue(groups)
