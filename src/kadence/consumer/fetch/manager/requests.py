"""A fetch as a message, and what is remembered of it until its answer comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kadence.consumer.fetch.manager.session import FetchSession, Wanted
from kadence.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic
from kadence.types import TopicPartition

__all__ = ["Sent", "forgotten_topics", "topics"]


@dataclass(slots=True, eq=False)
class Sent:
    """A fetch that is on its way.

    Attributes:
        asked: what it asked for. names: the topics of the ids in it.
        session: None outside any. sent_at, ends_at: when it left, and when its long poll ends (ms).
        under_way, answers: as in a session.
    """

    node_id: int
    asked: Mapping[TopicPartition, Wanted]
    names: Mapping[bytes, str]
    session: FetchSession | None
    sent_at: int
    ends_at: int
    under_way: bool = True
    answers: int = 0


def topics(wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    """Partitions by topic, keeping the order of turns."""
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
