"""What ShareFetch and ShareAcknowledge have in common: their checks, and the acknowledgements in them (KIP-932).

Requests are checked before they count: one that is refused here leaves the epoch of its session unused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from kadence.protocol import error_codes as codes
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence_broker.share.acknowledging import Acknowledgement, malformed
from kadence_broker.share.sessions import FINAL_EPOCH, SessionKey, TopicIdPartition
from kadence_broker.share.stored import ShareKey

if TYPE_CHECKING:
    from kadence_broker.cluster import BrokerNode
    from kadence_broker.service import Call, Services
    from kadence_broker.storage import Partition

__all__ = [
    "NEW_LEADER_HINTS",
    "Acknowledged",
    "acknowledge_all",
    "fault_of",
    "named_leader",
    "session_key",
    "when_stored",
]

NEW_LEADER_HINTS: Final = frozenset({codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH})
"""Errors whose response names the present leader."""

_LONGEST_MEMBER_ID: Final = 36
_FIRST_RENEWAL_VERSION: Final = 2

Acknowledged = dict[TopicIdPartition, int]
"""An error code for each partition of which a request says something."""


def fault_of(
    services: Services, message: ShareFetchRequest | ShareAcknowledgeRequest
) -> tuple[int, str | None]:
    """An error code and Kafka's words for a request that cannot be served whatever its session."""
    if services.settings.share_version < 1:
        return codes.UNSUPPORTED_VERSION, None
    if message.group_id is None:
        return codes.INVALID_REQUEST, "Invalid group id in the request."
    if not message.member_id or len(message.member_id) > _LONGEST_MEMBER_ID:
        return codes.INVALID_REQUEST, "Invalid member id in the request."
    return codes.NONE, None


def session_key(call: Call) -> SessionKey:
    """The session that a request, found without fault, belongs to."""
    return SessionKey(call.node_id, call.message.group_id, call.message.member_id)


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class _Partition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Iterable[_Batch]: ...


class _Topic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Iterable[_Partition]: ...


def acknowledge_all(services: Services, call: Call, topics: Iterable[_Topic]) -> Acknowledged:
    """Take all acknowledgements of a request, each partition's as a whole.

    A partition of which nothing is said is part of the result if something is said of another one, as in Kafka.
    """
    message: ShareFetchRequest | ShareAcknowledgeRequest = call.message
    is_on_the_way = isinstance(message, ShareFetchRequest) and message.share_session_epoch != FINAL_EPOCH
    failed: Acknowledged = {}
    silent: Acknowledged = {}
    taken: Acknowledged = {}
    knows_renewal = call.version >= _FIRST_RENEWAL_VERSION
    said: dict[TopicIdPartition, list[Acknowledgement]] = {}
    for topic in topics:
        for each in topic.partitions:
            said[TopicIdPartition(topic.topic_id, each.partition_index)] = [
                Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in each.acknowledgement_batches
            ]
    for named, batches in said.items():
        partition, code = services.shares.partition(call.node_id, named)
        if code == codes.UNKNOWN_TOPIC_ID:
            failed[named] = code
        elif malformed(batches, knows_renewal=knows_renewal, is_renewal=message.is_renew_ack):
            failed[named] = codes.INVALID_REQUEST
        elif partition is None:
            failed[named] = code
        elif not batches:
            silent[named] = codes.NONE
        else:
            taken[named] = services.shares.acknowledge(
                call.node_id,
                message.group_id or "",
                named,
                message.member_id or "",
                batches,
                is_on_the_way=is_on_the_way,
            )
    return {**taken, **failed, **silent} if taken else failed


def when_stored(services: Services, call: Call, done: Acknowledged, then: Callable[[], None]) -> None:
    """Go on once the acknowledgements that succeeded are stored for good; those that may be lost have failed."""
    group_id = call.message.group_id
    keys = [ShareKey(group_id, *named) for named, code in done.items() if code == codes.NONE]

    def stored(code: int) -> None:
        if code != codes.NONE:
            for each in keys:
                done[TopicIdPartition(each.topic_id, each.partition)] = code
        then()

    services.shares.when_durable(stored, keys)


def named_leader(
    services: Services, partition: Partition | None, leaders: dict[int, BrokerNode]
) -> tuple[int, int]:
    """The leader of a partition and its epoch, for a client that is to go there; it is added to ``leaders``."""
    if partition is None:
        return -1, -1
    node = services.cluster.nodes.get(partition.leader_id)
    if node is not None:
        leaders[node.node_id] = node
    return partition.leader_id, partition.leader_epoch
