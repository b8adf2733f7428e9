"""EndTxn, and the other ways in which a transaction ends: fenced by a new producer, or open for too long.

v2  PRODUCER_FENCED (KIP-588)    v5  transactions v2: each end raises the epoch, which the response returns (KIP-890)

An end has two steps. PrepareCommit or PrepareAbort is the decision: once it is stored it cannot change, and the client
gets its response. Then a marker is written to each partition, and `complete` makes room for the next transaction.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.end_txn import EndTxnRequest, EndTxnResponse
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.transactions.ledger import Ledger, timeout_key
from kadence_broker.coordinator.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    State,
    Transaction,
)

__all__ = ["complete", "end", "fence"]

_FIRST_FENCED_VERSION = 2
_FIRST_RAISING_VERSION = 5


def end(ledger: Ledger, now: int, caller: Caller, request: EndTxnRequest) -> None:
    """Decide the transaction's end, or answer with an error code."""
    raises = caller.version >= _FIRST_RAISING_VERSION
    code, transaction = _end(ledger, now, request, raises=raises)
    if code == codes.PRODUCER_FENCED and caller.version < _FIRST_FENCED_VERSION:
        code = codes.INVALID_PRODUCER_EPOCH
    producer_id, producer_epoch = NO_PRODUCER, NO_EPOCH
    if transaction is not None and raises:
        producer_id, producer_epoch = _next_identity(transaction)
    ledger.answer(
        caller, EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=producer_epoch)
    )


def _next_identity(transaction: Transaction) -> tuple[int, int]:
    """Id and epoch of the producer's next transaction."""
    if transaction.next_producer_id != NO_PRODUCER:
        return transaction.next_producer_id, 0
    return transaction.producer_id, transaction.producer_epoch


def _end(ledger: Ledger, now: int, request: EndTxnRequest, *, raises: bool) -> tuple[int, Transaction | None]:
    if not request.transactional_id:
        return codes.INVALID_REQUEST, None
    known = ledger.get(request.transactional_id)
    if known is None:
        return codes.INVALID_PRODUCER_ID_MAPPING, None
    is_retry = raises and _is_retry(known, request)
    if known.producer_id != request.producer_id and not is_retry:
        return codes.INVALID_PRODUCER_ID_MAPPING, None
    if known.producer_epoch != request.producer_epoch and not is_retry:
        return codes.PRODUCER_FENCED, None
    if known.state is State.ONGOING:
        return codes.NONE, _prepare(ledger, now, known, committed=request.committed, raises=raises)
    if known.state.is_ending:
        same = (known.state is State.PREPARE_COMMIT) == request.committed
        return (codes.CONCURRENT_TRANSACTIONS if same else codes.INVALID_TXN_STATE), None
    same = known.state is (State.COMPLETE_COMMIT if request.committed else State.COMPLETE_ABORT)
    if same and (is_retry or not raises):
        return codes.NONE, known
    if raises and not request.committed and not is_retry:
        # Nothing was added, or the response of the leader that added it was lost: the abort fences late requests.
        return codes.NONE, _prepare(ledger, now, known, committed=False, raises=True)
    return codes.INVALID_TXN_STATE, None


def _is_retry(known: Transaction, request: EndTxnRequest) -> bool:
    """True if an end is repeated because its response was lost: since then the epoch rose by one, or the id changed.

    Once the next transaction is open, or a new producer has begun, it is not: the client with the epoch before is
    fenced, or it would end a transaction that is not its own.
    """
    if known.state in (State.EMPTY, State.ONGOING):
        return False
    if known.producer_id == request.producer_id:
        return known.producer_epoch == request.producer_epoch + 1
    return (
        known.previous_producer_id == request.producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and known.producer_epoch == 0
    )


def _prepare(ledger: Ledger, now: int, known: Transaction, *, committed: bool, raises: bool) -> Transaction:
    """Store the decision; the markers follow."""
    wall = ledger.wall(now)
    next_id = known.next_producer_id
    epoch = known.producer_epoch
    if raises:
        ledger.last_epochs[known.transactional_id] = epoch
        if known.is_epoch_exhausted and epoch < MAX_EPOCH:
            next_id = ledger.new_producer_id()
        epoch = min(epoch + 1, MAX_EPOCH)
    ledger.timers.cancel(timeout_key(known.transactional_id))
    transaction = known.to(
        State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
        producer_epoch=epoch,
        next_producer_id=next_id,
        started_at=known.started_at if known.state is State.ONGOING else wall,
        updated_at=wall,
        client_version=2 if raises else known.client_version,
    )
    ledger.put(transaction)
    ledger.end(transaction)
    return transaction


def fence(ledger: Ledger, now: int, known: Transaction) -> None:
    """Abort an open transaction without a request, under an epoch above that of its producer."""
    # A producer that named its own epoch got CONCURRENT_TRANSACTIONS, and will name the same epoch again.
    ledger.last_epochs[known.transactional_id] = known.producer_epoch
    ledger.timers.cancel(timeout_key(known.transactional_id))
    transaction = known.to(
        State.PREPARE_ABORT,
        producer_epoch=min(known.producer_epoch + 1, MAX_EPOCH),
        updated_at=ledger.wall(now),
    )
    ledger.put(transaction)
    ledger.end(transaction)


def complete(ledger: Ledger, now: int, transactional_id: str) -> None:
    """All markers are written: the id may begin its next transaction."""
    known = ledger.get(transactional_id)
    if known is None or not known.state.is_ending:
        return
    rotates = known.next_producer_id != NO_PRODUCER
    ledger.put(
        known.to(
            State.COMPLETE_COMMIT if known.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            producer_id=known.next_producer_id if rotates else known.producer_id,
            producer_epoch=0 if rotates else known.producer_epoch,
            previous_producer_id=known.producer_id if rotates else known.previous_producer_id,
            next_producer_id=NO_PRODUCER,
            partitions=frozenset(),
            updated_at=ledger.wall(now),
        )
    )
