"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions of a transaction. Partition leaders look them up here, too.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)

Producers of KIP-890 (transactions v2) send neither: the leader of the partition, or the group's coordinator, adds it
at the first write. For older producers the leader only verifies that the partition was added.
"""

from __future__ import annotations

from collections.abc import Iterable

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kadence.types import TopicPartition
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.topics import TopicImages
from kadence_broker.coordinator.transactions.ledger import Ledger, timeout_key
from kadence_broker.coordinator.transactions.transaction import State, Transaction

__all__ = ["add", "add_offsets", "add_partitions", "judge", "verify"]

_FIRST_FENCED_VERSION = 2


def add_partitions(
    ledger: Ledger, topics: TopicImages, now: int, caller: Caller, request: AddPartitionsToTxnRequest
) -> None:
    """Add all partitions or none: if one does not exist, the others get OPERATION_NOT_ATTEMPTED."""
    unknown: set[TopicPartition] = set()
    wanted: set[TopicPartition] = set()
    for topic in request.v3_and_below_topics:
        image = topics.by_name(topic.name)
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            exists = image is not None and 0 <= index < image.partitions
            (wanted if exists else unknown).add(partition)
    code = codes.OPERATION_NOT_ATTEMPTED
    if not unknown:
        code = add(
            ledger,
            now,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            wanted,
        )
        code = _in_version(code, caller.version)
    ledger.answer(
        caller,
        AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index,
                            partition_error_code=codes.UNKNOWN_TOPIC_OR_PARTITION
                            if TopicPartition(topic.name, index) in unknown
                            else code,
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        ),
    )


def add_offsets(
    ledger: Ledger, partition: TopicPartition, now: int, caller: Caller, request: AddOffsetsToTxnRequest
) -> None:
    """The transaction will commit offsets of a group, which are kept in ``partition`` of `__consumer_offsets`."""
    code = add(
        ledger, now, request.transactional_id, request.producer_id, request.producer_epoch, {partition}
    )
    ledger.answer(caller, AddOffsetsToTxnResponse(error_code=_in_version(code, caller.version)))


def add(
    ledger: Ledger,
    now: int,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    client_version: int = 0,
) -> int:
    """Make ``partitions`` part of the transaction, which begins with the first of them.

    Args:
        client_version: 2 for a producer of KIP-890.

    Returns:
        An error code, NONE if they are part of it now.
    """
    if not transactional_id:
        return codes.INVALID_REQUEST
    transaction = ledger.get(transactional_id)
    code = judge(transaction, producer_id, producer_epoch)
    if code != codes.NONE or transaction is None:
        return code
    both = transaction.partitions | frozenset(partitions)
    is_open = transaction.state is State.ONGOING
    if is_open and both == transaction.partitions:
        return codes.NONE
    wall = ledger.wall(now)
    ledger.put(
        transaction.to(
            State.ONGOING,
            partitions=both,
            started_at=transaction.started_at if is_open else wall,
            updated_at=wall,
            client_version=client_version,
        )
    )
    if not is_open:
        ledger.timers.schedule(timeout_key(transactional_id), add_ms(now, transaction.timeout_ms))
    return codes.NONE


def verify(
    ledger: Ledger, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
) -> int:
    """The code for a write of an older producer to ``partition``: it must have added it (KIP-890)."""
    transaction = ledger.get(transactional_id)
    code = judge(transaction, producer_id, producer_epoch)
    if code != codes.NONE or transaction is None:
        return code
    return codes.NONE if partition in transaction.partitions else codes.TRANSACTION_ABORTABLE


def judge(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> int:
    """The code for taking part in a transaction now."""
    if transaction is None or transaction.producer_id != producer_id:
        return codes.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return codes.PRODUCER_FENCED
    if transaction.state.is_ending:
        return codes.CONCURRENT_TRANSACTIONS
    return codes.NONE


def _in_version(code: int, version: int) -> int:
    if code == codes.PRODUCER_FENCED and version < _FIRST_FENCED_VERSION:
        return codes.INVALID_PRODUCER_EPOCH
    return code
