"""The state of the transaction coordinator, and the results of the present step.

Durable state changes only by `Ledger.put` and `Ledger.forget`, which write a record and replay it at
once. A retry of InitProducerId is recognised by the epoch before the present one. Kafka's records do not have that
epoch: after a restart such a retry is fenced, as on Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kadence.protocol.transaction_log_record import TransactionLogKey, TransactionLogValue
from kadence.types import TopicPartition
from kadence_broker.coordinator.effects import Answer, Caller, Outcome
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.timers import TimerKey, TimerKind, Timers
from kadence_broker.coordinator.transactions.transaction import State, Transaction

__all__ = ["Ending", "Ledger", "Step", "TransactionConfig", "timeout_key"]


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's broker configuration of transactions; durations in ms.

    Attributes:
        max_timeout_ms: ``transaction.max.timeout.ms``, the longest timeout that a producer may ask for.
        expiration_ms: ``transactional.id.expiration.ms``, how long an unused id is remembered.
        expiration_interval_ms: ``transaction.remove.expired.transaction.cleanup.interval.ms``.
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    expiration_interval_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class Ending:
    """A transaction whose end is decided: a marker goes to each of its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Step(Outcome):
    """The effects of one step, in the order in which the shell carries them out.

    Attributes:
        endings: transactions whose markers to write once the records are stored and the answers delivered.
    """

    endings: list[Ending] = field(default_factory=list)


class Ledger:
    """Transactional ids with their timers. The rules add to the `Step`; the coordinator takes it out.

    Args:
        new_producer_id: returns an unused producer id.
        wall: turns ``now`` into the time of day (ms).
    """

    def __init__(
        self, config: TransactionConfig, new_producer_id: Callable[[], int], wall: Callable[[int], int]
    ) -> None:
        self.config = config
        self.new_producer_id = new_producer_id
        self.wall = wall
        self.transactions: dict[str, Transaction] = {}
        self.last_epochs: dict[str, int] = {}
        """For ids whose epoch the coordinator raised without a new producer: the epoch before."""
        self.timers = Timers()
        self._step = Step()

    def get(self, transactional_id: str) -> Transaction | None:
        return self.transactions.get(transactional_id)

    def put(self, transaction: Transaction) -> None:
        """Change an id by a record."""
        self._write(Record(transaction.key(), transaction.value()))

    def forget(self, transactional_id: str) -> None:
        """Remove an id by a tombstone."""
        self._write(Record(TransactionLogKey(transactional_id=transactional_id), None))

    def replay(self, record: Record) -> None:
        """Apply a record: the one place where an id's state changes."""
        key: TransactionLogKey = record.key
        value: TransactionLogValue | None = record.value
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            self.last_epochs.pop(key.transactional_id, None)
        else:
            self.transactions[key.transactional_id] = Transaction.of(key, value)

    def answer(self, caller: Caller, response: Any) -> None:
        self._step.answers.append(Answer(caller, response))

    def end(self, transaction: Transaction) -> None:
        """Schedule the markers of ``transaction``."""
        self._step.endings.append(
            Ending(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state is State.PREPARE_COMMIT,
                tuple(sorted(transaction.partitions)),
            )
        )

    def take(self) -> Step:
        step, self._step = self._step, Step()
        return step

    def _write(self, record: Record) -> None:
        self.replay(record)
        self._step.records.append(record)


def timeout_key(transactional_id: str) -> TimerKey:
    """The timer of the transaction's timeout."""
    return TimerKey(TimerKind.TRANSACTION, transactional_id)
