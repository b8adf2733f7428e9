"""One transactional id as a value: its producer id and epoch, its state, and the partitions of its transaction.

The allowed transitions between states are the table `NEXT`. A rule makes the next value with `Transaction.to`, and
writes it as a record. Source: TransactionState and TransactionMetadata of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Self

from kadence.protocol.transaction_log_record import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kadence.types import TopicPartition

__all__ = ["MAX_EPOCH", "NEXT", "NO_EPOCH", "NO_PRODUCER", "State", "Transaction"]

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 32_767
"""No client ever gets this epoch, so the coordinator can always fence the one before it."""


class State(Enum):
    """Kafka's states; the value is the number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """The state's name in ListTransactions and DescribeTransactions."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """The end is decided and its markers are being written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """No transaction is open."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


NEXT: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
}


@dataclass(frozen=True, slots=True)
class Transaction:
    """The coordinator's state of a transactional id.

    Attributes:
        previous_producer_id: the id before the last change of ids; `NO_PRODUCER` if there was none.
        next_producer_id: the id for the producer when the present ending is over, because its epochs are used up.
        timeout_ms: the longest time for which a transaction may be open.
        partitions: of the open or ending transaction; groups' offsets are partitions of `__consumer_offsets`.
        started_at, updated_at: time of day (ms); ``started_at`` is -1 while no transaction is open.
        client_version: 2 for clients of KIP-890, whose epoch rises with each transaction; 0 or 1 for others.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_at: int = -1
    updated_at: int = -1
    client_version: int = 0

    def to(self, state: State, **changes: Any) -> Self:
        """The value after a transition to ``state``; one that is not in the table is a bug of the rules."""
        if state not in NEXT[self.state]:
            raise RuntimeError(
                f"{self.transactional_id!r} cannot go from {self.state.title} to {state.title}"
            )
        return replace(self, state=state, **changes)

    @property
    def is_epoch_exhausted(self) -> bool:
        """The next epoch would be the one that is reserved for fencing."""
        return self.producer_epoch >= MAX_EPOCH - 1

    def key(self) -> TransactionLogKey:
        return TransactionLogKey(transactional_id=self.transactional_id)

    def value(self) -> TransactionLogValue:
        """The record's value. An id without a transaction has no partitions, as Kafka writes it."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state.value,
            transaction_partitions=None
            if self.state is State.EMPTY
            else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
            transaction_last_update_timestamp_ms=self.updated_at,
            transaction_start_timestamp_ms=self.started_at,
            client_transaction_version=self.client_version,
        )

    @classmethod
    def of(cls, key: TransactionLogKey, value: TransactionLogValue) -> Self:
        """The transaction of a record."""
        return cls(
            transactional_id=key.transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            timeout_ms=value.transaction_timeout_ms,
            state=State(value.transaction_status),
            partitions=frozenset(
                TopicPartition(each.topic, partition)
                for each in value.transaction_partitions or ()
                for partition in each.partition_ids
            ),
            started_at=value.transaction_start_timestamp_ms,
            updated_at=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )
