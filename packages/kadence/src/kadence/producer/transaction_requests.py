"""The requests of transactions and the meaning of their answers, as values. Sans-IO.

The error codes that end a transaction, those that end the producer, and those that are retried: as Kafka's own
producer sorts them (KIP-360, KIP-890, KIP-1050).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from kadence.errors.remedies import Remedy, remedy_of_code
from kadence.protocol import error_codes as ec
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kadence.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.version import VERSION
from kadence.wire import ZERO_UUID

__all__ = [
    "ADDING",
    "FATAL_TO_RECORDS",
    "LAST_COMMIT_OF_V1",
    "LAST_COMMIT_WITH_NAMES",
    "LAST_END_OF_V1",
    "LAST_PRODUCE_OF_V1",
    "NAMES_MEMBER",
    "RAISES_EPOCH",
    "Outcome",
    "add_offsets",
    "add_partitions",
    "api_versions",
    "codes_of_offsets",
    "codes_of_partitions",
    "commit_offsets",
    "end",
    "has_topic_ids",
    "init_producer_id",
    "is_v2",
    "outcome_of",
    "worst",
]

LAST_PRODUCE_OF_V1: Final = 11
LAST_END_OF_V1: Final = 4
LAST_COMMIT_OF_V1: Final = 4
LAST_COMMIT_WITH_NAMES: Final = 5
"""The last TxnOffsetCommit that names topics by their names (KIP-1319)."""
RAISES_EPOCH: Final = 3
"""The first InitProducerId that raises the epoch of an id (KIP-360)."""
NAMES_MEMBER: Final = 3
"""The first TxnOffsetCommit that names the member of the group (KIP-447), which fences members that were replaced."""

ADDING: Final = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)
"""The requests that open a transaction at the coordinator."""

FATAL_TO_RECORDS: Final = frozenset(
    {
        ec.PRODUCER_FENCED,
        ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ec.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Codes with which a broker refuses records of this producer in any transaction."""

_FEATURE: Final = "transaction.version"
_V2: Final = 2


class Outcome(IntEnum):
    """The meaning of an error code for a transaction; the higher, the worse."""

    WELL = 0
    RETRY = 1
    FIND_AGAIN = 2
    ABORT = 3
    FATAL = 4
    FENCED = 5


_HERE: Final[dict[int, Outcome]] = {
    ec.NONE: Outcome.WELL,
    # Another partition of the same request had an error.
    ec.OPERATION_NOT_ATTEMPTED: Outcome.RETRY,
    ec.REQUEST_TIMED_OUT: Outcome.FIND_AGAIN,
    ec.INVALID_PRODUCER_EPOCH: Outcome.FENCED,
    ec.PRODUCER_FENCED: Outcome.FENCED,
    ec.TRANSACTION_ABORTABLE: Outcome.ABORT,
    ec.UNKNOWN_PRODUCER_ID: Outcome.ABORT,
    ec.INVALID_PRODUCER_ID_MAPPING: Outcome.ABORT,
    ec.FENCED_INSTANCE_ID: Outcome.ABORT,
    # The group has gone with all its members.
    ec.GROUP_ID_NOT_FOUND: Outcome.ABORT,
    # Codes of the producer itself, in any transaction.
    ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Outcome.FATAL,
    ec.CLUSTER_AUTHORIZATION_FAILED: Outcome.FATAL,
}
"""Codes with a special meaning for transactions."""

_BY_REMEDY: Final[dict[Remedy, Outcome]] = {
    Remedy.TIME: Outcome.RETRY,
    Remedy.METADATA: Outcome.RETRY,
    Remedy.COORDINATOR: Outcome.FIND_AGAIN,
    Remedy.MEMBERSHIP: Outcome.ABORT,
    Remedy.FORM: Outcome.ABORT,
    Remedy.PERMISSION: Outcome.ABORT,
    Remedy.NONE: Outcome.FATAL,
}


def outcome_of(code: int) -> Outcome:
    """The meaning of a broker's error code for a transaction."""
    outcome = _HERE.get(code)
    return _BY_REMEDY[remedy_of_code(code)] if outcome is None else outcome


def worst(codes: Iterable[int]) -> int:
    """The worst of the codes of all partitions, which decides."""
    return max(codes, key=outcome_of, default=ec.NONE)


def api_versions() -> ApiVersionsRequest:
    """A request for a broker's API versions and the features of its cluster."""
    return ApiVersionsRequest(client_software_name="kadence", client_software_version=VERSION)


def is_v2(answer: ApiVersionsResponse) -> bool | None:
    """True if the cluster uses transactions v2; None: it has no transactions."""
    if EndTxnRequest.API_KEY not in {api.api_key for api in answer.api_keys}:
        return None
    return any(
        feature.name == _FEATURE and feature.max_version_level >= _V2 for feature in answer.finalized_features
    )


def init_producer_id(transactional_id: str, timeout_ms: int, has: tuple[int, int]) -> InitProducerIdRequest:
    """Request an id, or a higher epoch. ``has``: the id and the epoch to raise, or -1 and -1."""
    return InitProducerIdRequest(transactional_id, timeout_ms, *has)


def add_partitions(
    transactional_id: str, identity: tuple[int, int], partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Add partitions to the transaction."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, AddPartitionsToTxnTopic(tp.topic)).partitions.append(tp.partition)
    return AddPartitionsToTxnRequest(transactional_id, *identity, list(topics.values()))


def codes_of_partitions(answer: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    return {
        TopicPartition(topic.name, result.partition_index): result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }


def add_offsets(transactional_id: str, identity: tuple[int, int], group_id: str) -> AddOffsetsToTxnRequest:
    """Add a group's offsets to the transaction."""
    return AddOffsetsToTxnRequest(transactional_id, *identity, group_id)


def commit_offsets(
    transactional_id: str,
    identity: tuple[int, int],
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Commit offsets as part of the transaction."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for tp, at in sorted(offsets.items()):
        epoch: Any = -1 if at.leader_epoch is None else at.leader_epoch
        topic_id = group.topic_ids.get(tp.topic, ZERO_UUID)
        topic = topics.setdefault(tp.topic, TxnOffsetCommitRequestTopic(tp.topic, topic_id))
        topic.partitions.append(TxnOffsetCommitRequestPartition(tp.partition, at.offset, epoch, at.metadata))
    return TxnOffsetCommitRequest(
        transactional_id,
        group.group_id,
        *identity,
        group.generation_id,
        group.member_id,
        group.group_instance_id,
        list(topics.values()),
    )


def has_topic_ids(request: TxnOffsetCommitRequest) -> bool:
    """True if it can name each topic by its id."""
    return all(topic.topic_id != ZERO_UUID for topic in request.topics)


def codes_of_offsets(
    request: TxnOffsetCommitRequest, answer: TxnOffsetCommitResponse
) -> dict[TopicPartition, int]:
    """The error code of each partition. The answer has names, or ids of topics in the request."""
    names = {topic.topic_id: topic.name for topic in request.topics}
    return {
        TopicPartition(
            topic.name or names.get(topic.topic_id, ""), partition.partition_index
        ): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def end(transactional_id: str, identity: tuple[int, int], *, committed: bool) -> EndTxnRequest:
    """Commit or abort."""
    return EndTxnRequest(transactional_id, *identity, committed=committed)
