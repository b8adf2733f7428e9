"""A fetch as a message, and what is remembered of it until its answer comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kadence.consumer.managers.fetch_session import FetchSession, Wanted
from kadence.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic
from kadence.types import TopicPartition

__all__ = ["Asked", "Sent", "forgotten_topics", "topics"]


class Asked(NamedTuple):
    """How a partition stood when a fetch of it left; ``leader_epoch`` −1: not known."""

    lease: int
    offset: int
    leader_epoch: int


@dataclass(slots=True, eq=False)
class Sent:
    """What a fetch in flight asked for."""

    node_id: int
    asked: dict[TopicPartition, Asked]
    names: dict[bytes, str]
    reserved: int
    session: FetchSession | None
    ends_at: int


def topics(wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    """Partitions by topic, keeping the order of turns (trap T16)."""
    by_name: dict[str, FetchTopic] = {}
    for partition, want in wanted.items():
        topic = by_name.get(partition.topic)
        if topic is None:
            topic = by_name[partition.topic] = FetchTopic(
                topic=partition.topic, topic_id=want.topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=want.max_bytes,
                last_fetched_epoch=want.last_epoch,
            )
        )
    return list(by_name.values())


def forgotten_topics(forget: dict[TopicPartition, bytes]) -> list[ForgottenTopic]:
    """Partitions that leave a session, by topic and topic id."""
    by_key: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, topic_id in forget.items():
        key = (partition.topic, topic_id)
        if key not in by_key:
            by_key[key] = ForgottenTopic(topic=partition.topic, topic_id=topic_id, partitions=[])
        by_key[key].partitions.append(partition.partition)
    return list(by_key.values())
