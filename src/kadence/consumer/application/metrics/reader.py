"""`metrics()`: what was measured, under the names that Kafka's own client has for it. Application side, any thread.

Each row is a name and how to read it from `Measures`; reading changes nothing and asks nobody. Rows of the client
are made once, those of brokers, topics and partitions when they are first seen. Kafka's semantics hold unless
docs/metrics.md says otherwise: rates and averages are of the last 30 to 60 s, NaN and −1 mean "never".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from kadence.consumer.application.metrics import client, fetching, group, own
from kadence.consumer.application.metrics.rows import Read, Rows
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell
from kadence.consumer.border.measures import TopicFetches, TopicIntake
from kadence.consumer.border.reasons import NotFetchedReason
from kadence.metrics import MetricName
from kadence.metrics.network import NodeMeters
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

    def __init__(self, config: ConsumerConfig, border: Border, core: Core) -> None:
        self._config = config
        self._border = border
        self._core = core
        self._fixed: _Named = [
            *self._named(CLIENT, client.client(border)),
            *self._named(FETCH, fetching.fetching(border.measures)),
            *self._named(KADENCE, own.own(border, config.buffer_memory, self._skipped, self._dead_lettered)),
        ]
        if config.group_id is not None:
            self._fixed += self._named(COORDINATOR, group.membership(border))
            self._fixed += self._named(KADENCE, own.stalls(lambda now: core.stalls.count))
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
        border, measures = self._border, self._border.measures
        for node_id, node in measures.network.nodes.items():
            # Bootstrap addresses are -2, -3 … here, -1, -2 … in Kafka's own client.
            name = f"node-{node_id if node_id >= 0 else node_id + 1}"
            yield node, [(NODE, client.one_node(node))], {"node-id": name}
        for topic, fetches in measures.fetches.topics.items():
            yield fetches, [(FETCH, fetching.fetched(fetches))], {"topic": topic}
        for topic, intake in measures.intake.topics.items():
            yield intake, [(FETCH, fetching.taken(intake))], {"topic": topic}
        committed = self._config.isolation_level == "read_committed"
        for partition, cell in border.assignment.items():
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            yield (
                cell,
                [(FETCH, fetching.one_partition(cell, committed=committed)), (KADENCE, own.unfetched(cell))],
                tags,
            )
        for reason in NotFetchedReason:
            yield reason, [(KADENCE, own.one_reason(border, reason))], {"reason": reason.name.lower()}
        for cause in measures.group.causes:
            yield cause, [(KADENCE, own.one_cause(measures, cause))], {"cause": cause}

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

    border = Border(lambda: None)
    cell = Cell(TopicPartition("", 0), 0)
    per_partition = ("topic", "partition")
    groups: tuple[tuple[str, Rows, tuple[str, ...]], ...] = (
        (CLIENT, client.client(border), ()),
        (COORDINATOR, group.membership(border), ()),
        (FETCH, fetching.fetching(border.measures), ()),
        (FETCH, fetching.fetched(TopicFetches()), ("topic",)),
        (FETCH, fetching.taken(TopicIntake(0, Tally(0))), ("topic",)),
        (FETCH, fetching.one_partition(cell, committed=False), per_partition),
        (NODE, client.one_node(NodeMeters()), ("node-id",)),
        (KADENCE, own.own(border, 0, nothing, nothing), ()),
        (KADENCE, own.stalls(nothing), ()),
        (KADENCE, own.unfetched(cell), per_partition),
        (KADENCE, own.one_reason(border, NotFetchedReason.PAUSED), ("reason",)),
        (KADENCE, own.one_cause(border.measures, ""), ("cause",)),
    )
    return tuple(
        MetricName(row.name, group, dict.fromkeys(("client-id", *tags), ""), row.description)
        for group, part, tags in groups
        for row in part
    )
