"""ListTransactions and DescribeTransactions: transactional ids as an administrator sees them (KIP-664).

ListTransactions v1: by age (KIP-994), v2: by pattern (KIP-1152)
"""

from __future__ import annotations

from collections.abc import Collection

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kadence.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kadence.protocol.list_transactions import TransactionState as ListedTransaction
from kadence_broker.coordinator.consumer import patterns
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.transactions.ledger import Ledger
from kadence_broker.coordinator.transactions.transaction import State, Transaction

__all__ = ["describe_transactions", "list_transactions"]


def list_transactions(ledger: Ledger, now: int, caller: Caller, request: ListTransactionsRequest) -> None:
    """The ids that pass every filter. A filter with an unknown state is reported, and passes nothing."""
    titles = {each.title for each in State} | {"Dead", "PrepareEpochFence"}
    ids: Collection[str] = ledger.transactions.keys()
    if pattern := request.transactional_id_pattern:
        try:
            patterns.validate(pattern)
        except patterns.InvalidPatternError:
            ledger.answer(caller, ListTransactionsResponse(error_code=codes.INVALID_REGULAR_EXPRESSION))
            return
        ids = patterns.matches([pattern], ids)[pattern]
    wall = ledger.wall(now)
    ledger.answer(
        caller,
        ListTransactionsResponse(
            error_code=codes.NONE,
            unknown_state_filters=[each for each in request.state_filters if each not in titles],
            transaction_states=[
                ListedTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.title,
                )
                for each in ledger.transactions.values()
                if each.transactional_id in ids and _passes(each, wall, request)
            ],
        ),
    )


def _passes(each: Transaction, wall: int, request: ListTransactionsRequest) -> bool:
    # As in Kafka: the age counts from the start of the last transaction, even when that is over.
    age = wall - each.started_at
    return (
        (not request.state_filters or each.state.title in request.state_filters)
        and (not request.producer_id_filters or each.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or age > request.duration_filter)
    )


def describe_transactions(
    ledger: Ledger, _now: int, caller: Caller, request: DescribeTransactionsRequest
) -> None:
    """State, producer and partitions of each id named."""
    states = [_describe(ledger.get(each), each) for each in request.transactional_ids]
    ledger.answer(caller, DescribeTransactionsResponse(transaction_states=states))


def _describe(transaction: Transaction | None, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=codes.INVALID_REQUEST, transactional_id=transactional_id)
    if transaction is None:
        return TransactionState(
            error_code=codes.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        error_code=codes.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_at,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in topics.items()],
    )
