"""The cluster that the broker pretends to be: nodes, topics, partitions, who leads what.

All nodes live in one process and share this one value; a "node" is a listener with an id. Leadership is
only a number that the handlers compare with the node a request came to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from kadence.broker.storage import LogConfig, Partition

__all__ = [
    "INTERNAL_TOPICS",
    "MOST_PARTITIONS",
    "BrokerNode",
    "Cluster",
    "Partition",
    "Topic",
    "coordinator_partition",
    "is_valid_topic_name",
]

OFFSETS_PARTITIONS: Final = 50
"""Kafka's default for `__consumer_offsets`; it decides which node coordinates which group."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

MOST_PARTITIONS: Final = 10_000
"""That one request may make, as in Kafka; without a bound four bytes of a request could fill the memory."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One listener as metadata names it."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True, eq=False)
class Topic:
    """One topic; ``config`` holds only what was set for it, ``log_config`` what that means for its logs."""

    name: str
    topic_id: bytes
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    log_config: LogConfig = field(default_factory=LogConfig)

    @property
    def is_internal(self) -> bool:
        """Whether the coordinators own it; clients may read it, and not write or delete it."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Cluster:
    """Nodes and topics. Not thread-safe: the broker's thread owns it."""

    __slots__ = (
        "_by_id",
        "_log_defaults",
        "_new_topic_id",
        "_next_leader",
        "cluster_id",
        "nodes",
        "on_news",
        "topics",
        "topics_version",
    )

    def __init__(
        self,
        cluster_id: str,
        new_topic_id: Callable[[], bytes] = lambda: uuid4().bytes,
        log_defaults: LogConfig | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self._log_defaults = log_defaults or LogConfig()
        self.on_news: Callable[[Partition], None] | None = None
        self.nodes: dict[int, BrokerNode] = {}
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._new_topic_id = new_topic_id
        self._next_leader = 0
        self.topics_version = 0
        """Rises when a topic is made, gets partitions or is deleted."""

    @property
    def controller_id(self) -> int:
        return min(self.nodes, default=-1)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.partition(index)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> Topic:
        """Add a topic. Leaders go round the nodes, each topic starting where the last one ended."""
        topic = Topic(name, self._new_topic_id())
        self.configure(topic, config or {})
        self.topics[name] = topic
        self._by_id[topic.topic_id] = topic
        self.add_partitions(topic, partitions)
        return topic

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Make ``topic`` have ``count`` partitions."""
        node_ids = sorted(self.nodes)
        for index in range(len(topic.partitions), count):
            leader = node_ids[self._next_leader % len(node_ids)]
            self._next_leader += 1
            partition = Partition(topic, index, leader)
            partition.on_news = self.on_news
            topic.partitions.append(partition)
        self.topics_version += 1

    def configure(self, topic: Topic, config: Mapping[str, str]) -> None:
        """Let ``config`` be what is set for the topic."""
        topic.config = dict(config)
        topic.log_config = self._log_defaults.changed_by(topic.config)

    def delete_topic(self, topic: Topic) -> None:
        del self.topics[topic.name]
        del self._by_id[topic.topic_id]
        self.topics_version += 1

    def coordinator_of(self, key: str) -> BrokerNode:
        """The node that coordinates group ``key``."""
        node_ids = sorted(self.nodes)
        return self.nodes[node_ids[coordinator_partition(key) % len(node_ids)]]


def coordinator_partition(key: str) -> int:
    """The `__consumer_offsets` partition of a group: Java's string hash over UTF-16 units, modulo its partitions."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    if value == 0x80000000:
        return 0
    return (value if value < 0x80000000 else 0x100000000 - value) % OFFSETS_PARTITIONS


def is_valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of ASCII letters, digits, dot, underscore and hyphen; not "." or ".."."""
    return name not in (".", "..") and _NAME.fullmatch(name) is not None
