"""The classic consumer protocol's bytes and KIP-848's values: topic names there, topic ids here.

Members that speak the classic protocol send their subscription and get their assignment in it. Topics that do not
exist are left out, both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.protocol.registry import decode_versioned, encode_versioned
from kadence.wire import WireError
from kadence_broker.coordinator.topics import TopicImages

__all__ = ["BadMetadataError", "assigned_partitions", "assignment_bytes", "owned_partitions", "subscription"]


class BadMetadataError(Exception):
    """A member's bytes are not of the consumer protocol, or contain data that KIP-848 cannot keep."""


def subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """The subscription of a classic member.

    Raises:
        BadMetadataError: it cannot be read.
    """
    try:
        return decode_versioned(ConsumerProtocolSubscription, metadata)[1]
    except WireError as problem:
        raise BadMetadataError(f"malformed subscription: {problem}") from None


def owned_partitions(said: ConsumerProtocolSubscription, topics: TopicImages) -> dict[bytes, frozenset[int]]:
    """The partitions that a classic member reports as owned."""
    return _by_id(((each.topic, each.partitions) for each in said.owned_partitions), topics)


def assigned_partitions(assignment: bytes, topics: TopicImages) -> dict[bytes, frozenset[int]]:
    """The partitions that the leader of a classic group assigned to a member.

    Raises:
        BadMetadataError: it cannot be read, or has user data of a custom assignor, which would be lost.
    """
    if not assignment:
        return {}
    try:
        _, given = decode_versioned(ConsumerProtocolAssignment, assignment)
    except WireError as problem:
        raise BadMetadataError(f"malformed assignment: {problem}") from None
    if given.user_data:
        raise BadMetadataError("an unsupported custom assignor is in use")
    return _by_id(((each.topic, each.partitions) for each in given.assigned_partitions), topics)


def assignment_bytes(
    partitions: Mapping[bytes, Iterable[int]], metadata: bytes, topics: TopicImages
) -> bytes:
    """An assignment for a classic member, in the version of the metadata that it sent."""
    version = min(int.from_bytes(metadata[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    named = {
        image.name: sorted(numbers) for topic, numbers in partitions.items() if (image := topics.by_id(topic))
    }
    given = [TopicPartition(name, numbers) for name, numbers in sorted(named.items())]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=given), version)


def _by_id(named: Iterable[tuple[str, list[int]]], topics: TopicImages) -> dict[bytes, frozenset[int]]:
    found = {}
    for name, numbers in named:
        image = topics.by_name(name)
        if image is not None and numbers:
            found[image.topic_id] = frozenset(numbers)
    return found
