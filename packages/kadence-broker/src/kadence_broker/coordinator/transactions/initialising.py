"""InitProducerId: gives a producer its id and epoch, and fences older producers with the same transactional id.

v3  raise the epoch of an id one has (KIP-360)    v4  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)

An open transaction is aborted first: the caller gets CONCURRENT_TRANSACTIONS and asks again.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.transactions.ending import fence
from kadence_broker.coordinator.transactions.ledger import Ledger
from kadence_broker.coordinator.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    State,
    Transaction,
)

__all__ = ["initialise"]

_FIRST_FENCED_VERSION = 4


def initialise(ledger: Ledger, now: int, caller: Caller, request: InitProducerIdRequest) -> None:
    """Give the caller a producer id and an epoch above every earlier one of its transactional id."""
    code, transaction = _initialise(ledger, now, request)
    if code == codes.PRODUCER_FENCED and caller.version < _FIRST_FENCED_VERSION:
        code = codes.INVALID_PRODUCER_EPOCH
    if transaction is None:
        ledger.answer(
            caller,
            InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH),
        )
    else:
        ledger.answer(
            caller,
            InitProducerIdResponse(
                error_code=codes.NONE,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
            ),
        )


def _initialise(ledger: Ledger, now: int, request: InitProducerIdRequest) -> tuple[int, Transaction | None]:
    transactional_id = request.transactional_id
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_EPOCH):
        return codes.INVALID_REQUEST, None
    if transactional_id is None:
        return codes.NONE, Transaction("", ledger.new_producer_id(), 0)
    if not transactional_id:
        return codes.INVALID_REQUEST, None
    if not 0 < request.transaction_timeout_ms <= ledger.config.max_timeout_ms:
        return codes.INVALID_TRANSACTION_TIMEOUT, None
    known = ledger.get(transactional_id)
    if known is None:
        known = Transaction(transactional_id, ledger.new_producer_id())
    claimed = None if request.producer_id == NO_PRODUCER else (request.producer_id, request.producer_epoch)
    if claimed is not None and not _may_claim(known, *claimed):
        return codes.PRODUCER_FENCED, None
    if known.state.is_ending:
        return codes.CONCURRENT_TRANSACTIONS, None
    if known.state is State.ONGOING:
        fence(ledger, now, known)
        return codes.CONCURRENT_TRANSACTIONS, None
    epoch = None if claimed is None else claimed[1]
    return _next_identity(ledger, now, known, epoch, request.transaction_timeout_ms)


def _may_claim(known: Transaction, producer_id: int, epoch: int) -> bool:
    """True if a producer that names an id may continue under ``known``; its epoch is checked later.

    A new entry has no epoch yet. The former id with its last epoch is a retry whose answer was lost.
    """
    return (
        known.producer_epoch == NO_EPOCH
        or producer_id == known.producer_id
        or (producer_id == known.previous_producer_id and epoch >= MAX_EPOCH - 1)
    )


def _next_identity(
    ledger: Ledger, now: int, known: Transaction, claimed_epoch: int | None, timeout_ms: int
) -> tuple[int, Transaction | None]:
    last_epoch = ledger.last_epochs.get(known.transactional_id, NO_EPOCH)
    identity = (known.producer_id, known.producer_epoch + 1, known.previous_producer_id)
    if known.is_epoch_exhausted and claimed_epoch in (None, known.producer_epoch):
        identity = (ledger.new_producer_id(), 0, known.producer_id)
    elif claimed_epoch is not None and known.producer_epoch not in (NO_EPOCH, claimed_epoch):
        if claimed_epoch != last_epoch:
            return codes.PRODUCER_FENCED, None
        # The same call again: nothing is raised a second time.
        identity = (known.producer_id, known.producer_epoch, known.previous_producer_id)
    producer_id, producer_epoch, previous = identity
    transaction = known.to(
        State.EMPTY,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=previous,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_at=-1,
        updated_at=ledger.wall(now),
    )
    ledger.put(transaction)
    if claimed_epoch is None:
        ledger.last_epochs.pop(known.transactional_id, None)
    elif producer_epoch != known.producer_epoch:
        ledger.last_epochs[known.transactional_id] = known.producer_epoch
    return codes.NONE, transaction
