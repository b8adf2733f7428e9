"""The share session of one member at one broker (KIP-932, "Share sessions"), as far as the client knows it.

Epoch 0 opens a session, 1, 2, 3 … go on, -1 closes it. ShareFetch and ShareAcknowledge count with one counter, so one
request is under way at a time. The broker reads all partitions of a session with every fetch, so one that is named only
to carry acknowledgements is forgotten in the same request. At epoch 0 nothing can be acknowledged, and an acknowledge
request cannot open a session.

Only an answer without an error has surely used up its epoch. After any other the epoch stays, and should that be wrong,
the broker says so (INVALID_SHARE_SESSION_EPOCH), and the session is opened anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kadence.protocol.share_acknowledge import AcknowledgePartition, AcknowledgeTopic
from kadence.protocol.share_fetch import FetchPartition, FetchTopic, ForgottenTopic
from kadence.share.acknowledgements import Acknowledged, TopicIdPartition
from kadence.share.network.offsets import acknowledge_batches, fetch_batches

__all__ = [
    "CLOSES",
    "OPENS",
    "Plan",
    "ShareSession",
    "acknowledge_topics",
    "fetch_topics",
    "forgotten_topics",
]

OPENS: Final = 0
CLOSES: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

Carried = Mapping[TopicIdPartition, Collection[Acknowledged]]
"""Acknowledgements that one request carries."""


class Plan(NamedTuple):
    """The session's part of a fetch: its epoch, the partitions that join, and those that leave."""

    epoch: int
    joining: tuple[TopicIdPartition, ...]
    leaving: tuple[TopicIdPartition, ...]


class ShareSession:
    """See the top of the file.

    Attributes:
        member_id: whose it is; "" before it was ever opened. epoch: of the next request.
        members: the partitions that the broker has in it.
    """

    def __init__(self) -> None:
        self.member_id = ""
        self.epoch = OPENS
        self.members: frozenset[TopicIdPartition] = frozenset()

    @property
    def is_open(self) -> bool:
        return self.epoch != OPENS

    def plan(self, wanted: Collection[TopicIdPartition], carrying: Collection[TopicIdPartition]) -> Plan:
        """What a fetch of these partitions says, that carries acknowledgements of those."""
        if not self.is_open:
            return Plan(OPENS, tuple(wanted), ())
        joining = tuple(each for each in wanted if each not in self.members)
        wanted = frozenset(wanted)
        leaving = (self.members | frozenset(carrying)) - wanted
        return Plan(self.epoch, joining, tuple(sorted(leaving)))

    def fetched(self, wanted: Iterable[TopicIdPartition]) -> None:
        """A fetch of these was answered without an error."""
        self.members = frozenset(wanted)
        self.answered()

    def answered(self) -> None:
        """Any request was answered without an error."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def repeated(self, count: int) -> None:
        """So many requests were answered without an error, and each was followed by the next one."""
        for _ in range(count):
            self.answered()

    def reset(self) -> None:
        """It is over, or not known to go on: the next one is opened."""
        self.epoch = OPENS
        self.members = frozenset()


def fetch_topics(joining: Iterable[TopicIdPartition], carried: Carried) -> list[FetchTopic]:
    """Partitions that join a session, and acknowledgements, as a ShareFetch names them."""
    topics: dict[bytes, FetchTopic] = {}
    for partition in dict.fromkeys((*joining, *carried)):
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = FetchTopic(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition_index=partition.partition,
                acknowledgement_batches=fetch_batches(carried.get(partition, ())),
            )
        )
    return list(topics.values())


def acknowledge_topics(carried: Carried) -> list[AcknowledgeTopic]:
    """The same for a ShareAcknowledge."""
    topics: dict[bytes, AcknowledgeTopic] = {}
    for partition, ranges in carried.items():
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = AcknowledgeTopic(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(
            AcknowledgePartition(
                partition_index=partition.partition, acknowledgement_batches=acknowledge_batches(ranges)
            )
        )
    return list(topics.values())


def forgotten_topics(leaving: Iterable[TopicIdPartition]) -> list[ForgottenTopic]:
    """Partitions that leave a session."""
    topics: dict[bytes, ForgottenTopic] = {}
    for partition in leaving:
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = ForgottenTopic(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(partition.partition)
    return list(topics.values())
