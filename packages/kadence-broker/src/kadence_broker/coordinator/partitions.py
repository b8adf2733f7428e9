"""Partitions by topic id, as in the records and requests of KIP-848."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

__all__ = ["Epochs", "Partitions", "TopicPartitions", "by_topic", "of_topics"]

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id -> numbers of partitions."""

Epochs = Mapping[bytes, Mapping[int, int]]
"""Topic id -> number of a partition -> the epoch at which it was assigned to the member (KIP-1251)."""


class TopicPartitions(Protocol):
    """The messages' TopicPartitions; several modules have a class of this shape."""

    topic_id: bytes
    partitions: list[int]


def by_topic(pairs: Iterable[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    """Group (topic id, partition) pairs by topic."""
    topics: dict[bytes, set[int]] = {}
    for topic, partition in pairs:
        topics.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in topics.items()}


def of_topics(topics: Iterable[TopicPartitions]) -> dict[bytes, frozenset[int]]:
    """The partitions of a message's list of topics."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
