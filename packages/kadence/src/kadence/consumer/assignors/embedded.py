"""The consumer protocol inside JoinGroup and SyncGroup: the data that members exchange through the broker.

Each message starts with its own version. Kafka's rule for it is lenient on purpose: a newer version than
ours is read with the layout we know, because fields are only ever added at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kadence.consumer.assignors.base import MemberSubscription
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.protocol.consumer_protocol_subscription import TopicPartition as OwnedTopic
from kadence.types import TopicPartition
from kadence.wire import Reader, WireError, Writer, parser

__all__ = [
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

_VERSION = struct.Struct(">h")
_SUBSCRIPTION_VERSION = ConsumerProtocolSubscription.MAX_VERSION
_ASSIGNMENT_VERSION = 1
"""Versions 0 to 3 are the same bytes; clients that check it know at least this one."""


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """This member's part of JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            OwnedTopic(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(subscription.owned).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    writer = Writer()
    message.write(writer, _SUBSCRIPTION_VERSION)
    return _VERSION.pack(_SUBSCRIPTION_VERSION) + writer.getvalue()


@parser
def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Another member's part of JoinGroup, as its leader gets it.

    Raises:
        WireError: these are not the bytes of a subscription.
    """
    version = min(_version(data), ConsumerProtocolSubscription.MAX_VERSION)
    message = ConsumerProtocolSubscription.read(Reader(data, _VERSION.size), version)
    return MemberSubscription(
        topics=frozenset(message.topics),
        owned=tuple(
            TopicPartition(topic.topic, number)
            for topic in message.owned_partitions
            for number in topic.partitions
        ),
        generation=message.generation_id,
        user_data=message.user_data,
        rack=message.rack_id,
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """One member's part of the leader's SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
        ],
        user_data=None,
    )
    writer = Writer()
    message.write(writer, _ASSIGNMENT_VERSION)
    return _VERSION.pack(_ASSIGNMENT_VERSION) + writer.getvalue()


@parser
def decode_assignment(data: bytes) -> list[TopicPartition]:
    """This member's assignment from SyncGroup. No bytes mean no partitions: brokers send that.

    Raises:
        WireError: these are not the bytes of an assignment.
    """
    if not data:
        return []
    version = min(_version(data), ConsumerProtocolAssignment.MAX_VERSION)
    message = ConsumerProtocolAssignment.read(Reader(data, _VERSION.size), version)
    return [
        TopicPartition(topic.topic, number)
        for topic in message.assigned_partitions
        for number in topic.partitions
    ]


def _version(data: bytes) -> int:
    version = Reader(data).int16()
    if version < 0:
        raise WireError(f"version {version} of the consumer protocol")
    return version


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics
