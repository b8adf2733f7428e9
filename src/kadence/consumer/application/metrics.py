"""`metrics()`: what was measured, under the names that Kafka's own client has for it. Application side, any thread.

Each row is a name and how to read it from `Measures`; reading changes nothing and asks nobody. Rows of the client
are made once, those of brokers, topics and partitions when they are first seen. Kafka's semantics hold unless
docs/metrics.md says otherwise: rates and averages are of the last 30 to 60 s, NaN and −1 mean "never".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from kadence.consumer.application import metric_rows
from kadence.consumer.measures import TopicFetches, TopicPollMeasures
from kadence.consumer.shared_partition import NotFetchedReason, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.metrics import MetricName
from kadence.metrics.network import NodeMeters
from kadence.metrics.rows import Read, Rows
from kadence.metrics.sensors import Tally
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
"""What Kafka's own client does not measure."""

_Named = list[tuple[MetricName, Read]]


class Metrics:
    """Reads the measures of one consumer."""

    def __init__(self, config: ConsumerConfig, shared_state: SharedState, core: Core) -> None:
        self._config = config
        self._shared_state = shared_state
        self._core = core
        self._fixed: _Named = [
            *self._named(CLIENT, metric_rows.client(shared_state)),
            *self._named(FETCH, metric_rows.fetching(shared_state.measures)),
            *self._named(
                KADENCE,
                metric_rows.own(shared_state, config.buffer_memory, self._skipped, self._dead_lettered),
            ),
        ]
        if config.group_id is not None:
            self._fixed += self._named(COORDINATOR, metric_rows.membership(shared_state))
            self._fixed += self._named(KADENCE, metric_rows.stalls(lambda now: core.stalls.count))
        # Replaced as a whole, so that threads that read at once do not disturb each other.
        self._found: dict[Hashable, _Named] = {}

    def read(self, now: int) -> dict[MetricName, float]:
        self._core.steps.settle()
        known = self._found
        found: dict[Hashable, _Named] = {}
        for key, groups, tags in self._parts():
            found[key] = known.get(key) or [
                row for group, part in groups for row in self._named(group, part, **tags)
            ]
        self._found = found
        everything = [*self._fixed, *(row for part in found.values() for row in part)]
        return {name: float(read(now)) for name, read in everything}

    def _parts(self) -> Iterator[tuple[Hashable, list[tuple[str, Rows]], dict[str, str]]]:
        """What there is one of for each broker, topic, partition, reason and cause."""
        shared_state, measures = self._shared_state, self._shared_state.measures
        for node_id, node in measures.network.nodes.items():
            # Bootstrap addresses are -2, -3 … here, -1, -2 … in Kafka's own client.
            name = f"node-{node_id if node_id >= 0 else node_id + 1}"
            yield node, [(NODE, metric_rows.one_node(node))], {"node-id": name}
        for topic, fetches in measures.fetches.topics.items():
            yield fetches, [(FETCH, metric_rows.fetched(fetches))], {"topic": topic}
        for topic, poll_measures in measures.poll_measures.topics.items():
            yield poll_measures, [(FETCH, metric_rows.taken(poll_measures))], {"topic": topic}
        committed = self._config.isolation_level == "read_committed"
        for partition, shared_partition in shared_state.assignment.items():
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            yield (
                shared_partition,
                [
                    (FETCH, metric_rows.one_partition(shared_partition, committed=committed)),
                    (KADENCE, metric_rows.unfetched(shared_partition)),
                ],
                tags,
            )
        for reason in NotFetchedReason:
            yield (
                reason,
                [(KADENCE, metric_rows.one_reason(shared_state, reason))],
                {"reason": reason.name.lower()},
            )
        for cause in measures.group.causes:
            yield cause, [(KADENCE, metric_rows.one_cause(measures, cause))], {"cause": cause}

    def _skipped(self, now: int) -> float:
        """Nothing is bad where nothing is deserialised."""
        decoding = self._core.decoding
        return 0 if decoding is None else decoding.skipped

    def _dead_lettered(self, now: int) -> float:
        decoding = self._core.decoding
        return 0 if decoding is None else decoding.dead_lettered

    def _named(self, group: str, part: Rows, **tags: str) -> _Named:
        tags = {"client-id": self._config.client_id, **tags}
        return [(MetricName(row.name, group, tags, row.description), row.read) for row in part]


def catalogue() -> tuple[MetricName, ...]:
    """Every name that `Metrics.read` can have, with its tags' values left empty."""

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
        (NODE, metric_rows.one_node(NodeMeters()), ("node-id",)),
        (KADENCE, metric_rows.own(shared_state, 0, nothing, nothing), ()),
        (KADENCE, metric_rows.stalls(nothing), ()),
        (KADENCE, metric_rows.unfetched(shared_partition), per_partition),
        (KADENCE, metric_rows.one_reason(shared_state, NotFetchedReason.PAUSED), ("reason",)),
        (KADENCE, metric_rows.one_cause(shared_state.measures, ""), ("cause",)),
    )
    return tuple(
        MetricName(row.name, group, dict.fromkeys(("client-id", *tags), ""), row.description)
        for group, part, tags in groups
        for row in part
    )
