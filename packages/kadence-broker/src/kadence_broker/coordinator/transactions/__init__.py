"""The broker side of transactions (KIP-98, KIP-360, KIP-890). Sans-IO, of the same shape as the group coordinator.

`TransactionCoordinator` takes requests and returns a `Step`: records to store, then answers to deliver, then markers
to write into the partitions of transactions that end. The shell calls `TransactionCoordinator.marked` once a
transaction's markers are written.
"""

from __future__ import annotations

from kadence_broker.coordinator.transactions.coordinator import TransactionCoordinator
from kadence_broker.coordinator.transactions.ledger import Ending, Step, TransactionConfig
from kadence_broker.coordinator.transactions.transaction import State, Transaction

__all__ = ["Ending", "State", "Step", "Transaction", "TransactionConfig", "TransactionCoordinator"]
