"""The cluster that the broker presents to clients: nodes, topics, partitions and their leaders.

All nodes live in one process and share this one value; a "node" is a listener with an id. Leadership is
only a number that the handlers compare with the node a request came to.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from uuid import uuid4

from kadence.clock import wall_ms
from kadence_broker.coordinator.java_tables import string_hash
from kadence_broker.storage import DataDirectory, LogConfig, Partition

__all__ = [
    "INTERNAL_TOPICS",
    "MOST_PARTITIONS",
    "OFFSETS_TOPIC",
    "SHARE_STATE_TOPIC",
    "STATE_PARTITIONS",
    "TRANSACTIONS_TOPIC",
    "BrokerNode",
    "Cluster",
    "Partition",
    "Topic",
    "coordinator_partition",
    "is_valid_topic_name",
]

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
STATE_PARTITIONS: Final = 50
"""Kafka's default for all three; it decides which node coordinates which group or transactional id."""

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

MOST_PARTITIONS: Final = 10_000
"""That one request may make, in all its topics, as in Kafka: else a few bytes of it could fill the memory."""

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
        """True if the topic belongs to a coordinator; clients may read it, but not write or delete it."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Cluster:
    """Nodes and topics. Not thread-safe: the broker's thread owns it."""

    __slots__ = (
        "_by_id",
        "_disk",
        "_last_producer_id",
        "_log_defaults",
        "_new_topic_id",
        "_next_leader",
        "_plain_names",
        "_wall_ms",
        "cluster_id",
        "group_configs",
        "nodes",
        "on_readable",
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
        self.on_readable: Callable[[Partition], None] | None = None
        self.nodes: dict[int, BrokerNode] = {}
        self.topics: dict[str, Topic] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        """Settings of single groups, by group id."""
        self._by_id: dict[bytes, Topic] = {}
        self._plain_names: Counter[str] = Counter()
        """The number of topics with this name, ignoring the difference between dots and underscores."""
        self._new_topic_id = new_topic_id
        self._next_leader = 0
        self._last_producer_id = 1_000
        self._disk: DataDirectory | None = None
        self._wall_ms: Callable[[], int] = wall_ms
        self.topics_version = 0
        """Rises when a topic is made, gets partitions or is deleted."""

    @property
    def controller_id(self) -> int:
        return min(self.nodes, default=-1)

    @property
    def log_dir(self) -> str:
        """The directory of the partitions, for responses."""
        return "/embedded" if self._disk is None else str(self._disk.path.absolute())

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.partition(index)

    def collides(self, name: str) -> bool:
        """True if another topic's name differs only in dots and underscores, which names of Kafka's metrics do not."""
        return self._plain_names[_plain(name)] > (name in self.topics)

    def load(self, disk: DataDirectory, wall_ms: Callable[[], int]) -> int:
        """Take in the topics of a data directory, and keep what changes there from now on.

        Returns:
            bytes that a crash left behind the last whole batches.

        Raises:
            OSError: the disk does not give or take what is needed.
        """
        self._disk, self._wall_ms = disk, wall_ms
        self.group_configs = {name: dict(config) for name, config in disk.group_configs.items()}
        cut_bytes = 0
        for stored in disk.topics.values():
            topic = Topic(stored.name, stored.topic_id)
            self.configure(topic, stored.config)
            for index, (leader, epoch) in enumerate(stored.leaders):
                partition = self._new_partition(topic, index, leader if leader in self.nodes else None)
                partition.leader_epoch = epoch
                topic.partitions.append(partition)
                cut_bytes += self._open(partition)
            self._register(topic)
            self.keep(topic)
        return cut_bytes

    def create_topic(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        leaders: Sequence[int] | None = None,
    ) -> Topic:
        """Add a topic. Leaders go round the nodes, each topic starting where the last one ended.

        Args:
            leaders: of each partition, instead.

        Raises:
            OSError: the disk takes no more.
        """
        topic = Topic(name, self._new_topic_id())
        self.configure(topic, config or {})
        self._grow(topic, partitions, leaders)
        self._register(topic)
        return topic

    def add_partitions(self, topic: Topic, count: int, leaders: Sequence[int] = ()) -> None:
        """Make ``topic`` have ``count`` partitions. Raises `OSError`: the disk takes no more.

        Args:
            leaders: of each new partition; empty: they go round the nodes.
        """
        self._grow(
            topic, count, [*(each.leader_id for each in topic.partitions), *leaders] if leaders else None
        )
        self.topics_version += 1

    def _grow(self, topic: Topic, count: int, leaders: Sequence[int] | None) -> None:
        had = len(topic.partitions)
        try:
            for index in range(had, count):
                topic.partitions.append(
                    self._new_partition(topic, index, leaders[index] if leaders else None)
                )
            self.keep(topic)
            for partition in topic.partitions[had:]:
                self._open(partition)
        except OSError:
            for partition in topic.partitions[had:]:
                self._delete(partition)
            del topic.partitions[had:]
            with contextlib.suppress(OSError):
                if had:
                    self.keep(topic)
                elif self._disk is not None:
                    self._disk.drop_topic(topic.name)
            raise

    def _new_partition(self, topic: Topic, index: int, leader: int | None) -> Partition:
        if leader is None:
            node_ids = sorted(self.nodes)
            leader = node_ids[self._next_leader % len(node_ids)]
            self._next_leader += 1
        partition = Partition(topic, index, leader)
        partition.on_readable = self.on_readable
        return partition

    def _open(self, partition: Partition) -> int:
        if self._disk is None:
            return 0
        folder = self._disk.open(partition, self._wall_ms())
        partition.keep_in(folder)
        return folder.cut_bytes

    def _register(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._plain_names[_plain(topic.name)] += 1
        self._by_id[topic.topic_id] = topic
        self.topics_version += 1

    def configure(self, topic: Topic, config: Mapping[str, str]) -> None:
        """Let ``config`` be what is set for the topic; `keep` it then."""
        topic.config = dict(config)
        topic.log_config = self._log_defaults.changed_by(topic.config)

    def keep(self, topic: Topic) -> None:
        """Something about the topic has changed that a restart must not undo. Raises `OSError`."""
        if self._disk is not None:
            leaders = [(each.replica_id, each.leader_epoch) for each in topic.partitions]
            self._disk.keep_topic(topic.name, topic.topic_id, topic.config, leaders)

    def lead(self, leaders: Mapping[Partition, int]) -> None:
        """Give partitions to other nodes, or to none (-1).

        Raises:
            OSError: the disk takes no more, and all have the leader that they had.
        """
        if self._disk is not None:
            self._disk.keep_leaders(
                {
                    topic.name: [
                        each.led_by(leaders[each])
                        if each in leaders
                        else (each.replica_id, each.leader_epoch)
                        for each in topic.partitions
                    ]
                    for topic in {each.topic: None for each in leaders}
                }
            )
        for partition, node_id in leaders.items():
            partition.lead(node_id)

    def configure_group(self, group_id: str, config: Mapping[str, str]) -> None:
        """Let ``config`` be what is set for the group. Raises `OSError`: the disk takes no more."""
        if self._disk is not None:
            self._disk.keep_group(group_id, config)
        self.group_configs.pop(group_id, None)
        if config:
            self.group_configs[group_id] = dict(config)

    def delete_topic(self, topic: Topic) -> None:
        """The topic goes, and its records. Raises `OSError`: the disk takes no more."""
        if self._disk is not None:
            self._disk.drop_topic(topic.name)
        del self.topics[topic.name]
        plain = _plain(topic.name)
        self._plain_names[plain] -= 1
        if not self._plain_names[plain]:
            del self._plain_names[plain]
        del self._by_id[topic.topic_id]
        self.topics_version += 1
        for partition in topic.partitions:
            self._delete(partition)
            partition.removed()

    def on_durable(self, callback: Callable[[OSError | None], None]) -> None:
        """Call ``callback`` once changes of topics and groups outlast a power cut, or with why they may not."""
        if self._disk is None:
            callback(None)
        else:
            self._disk.on_durable(callback)

    def _delete(self, partition: Partition) -> None:
        if self._disk is not None:
            self._disk.delete(partition)

    def new_producer_id(self) -> int:
        """One that was never given out. Raises `OSError`: the disk takes no more."""
        if self._disk is not None:
            return self._disk.next_producer_id()
        self._last_producer_id += 1
        return self._last_producer_id

    @property
    def trouble(self) -> str | None:
        """The reason why some partition takes no records; None if all do."""
        return next(
            (
                f"{each.topic.name}-{each.index}: {each.trouble}"
                for topic in list(self.topics.values())
                for each in list(topic.partitions)
                if each.trouble is not None
            ),
            None,
        )


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return name.replace(".", "_")


@lru_cache(maxsize=1024)
def coordinator_partition(key: str) -> int:
    """The partition that keeps a group or transactional id: Java's string hash over UTF-16 units, modulo partitions.

    Each request of a group asks for it, so what was found is kept.
    """
    value = string_hash(key)
    if value == 0x80000000:
        return 0
    return (value if value < 0x80000000 else 0x100000000 - value) % STATE_PARTITIONS


def is_valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of ASCII letters, digits, dot, underscore and hyphen; not "." or ".."."""
    return name not in (".", "..") and _NAME.fullmatch(name) is not None
