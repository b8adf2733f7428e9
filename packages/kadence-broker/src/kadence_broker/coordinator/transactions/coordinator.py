"""The public class of the transaction coordinator: requests in; records, answers and ended transactions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kadence.clock import add_ms
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.types import TopicPartition
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.timers import TimerKey, TimerKind
from kadence_broker.coordinator.topics import TopicImages
from kadence_broker.coordinator.transactions import adding, admin, ending, initialising
from kadence_broker.coordinator.transactions.ledger import Ledger, Step, TransactionConfig, timeout_key
from kadence_broker.coordinator.transactions.transaction import State, Transaction

__all__ = ["TransactionCoordinator"]

_EXPIRY = TimerKey(TimerKind.EXPIRY)


class TransactionCoordinator:
    """Owner of transactional ids. One caller at a time; ``now`` never goes back.

    A shell stores the records of a `Step`, then delivers its answers, then writes the markers of its endings and calls
    `marked`. When it cannot store them, it takes the ids out with `unload` and loads them again: `replay` each
    record, then `loaded`.

    Args:
        topics: of the cluster.
        offsets_partition: returns the partition of `__consumer_offsets` of a group.
        new_producer_id: returns an unused producer id.
        wall: turns ``now`` into the time of day in ms, which records contain. Default: both are the same.
    """

    __slots__ = ("_ledger", "_offsets_partition", "_topics")

    def __init__(
        self,
        config: TransactionConfig,
        *,
        topics: TopicImages,
        offsets_partition: Callable[[str], int],
        new_producer_id: Callable[[], int],
        wall: Callable[[int], int] = lambda now: now,
    ) -> None:
        self._ledger = Ledger(config, new_producer_id, wall)
        self._topics = topics
        self._offsets_partition = offsets_partition

    def __repr__(self) -> str:
        ledger = self._ledger
        return f"<TransactionCoordinator {len(ledger.transactions)} ids, {len(ledger.timers)} timers>"

    def get(self, transactional_id: str) -> Transaction | None:
        """The state of an id, for reading only."""
        return self._ledger.get(transactional_id)

    def handle(self, now: int, caller: Caller, request: Any) -> Step:
        """Handle one request.

        Raises:
            TypeError: a request that this coordinator does not serve.
        """
        ledger = self._ledger
        self._arm_expiry(now)
        match request:
            case InitProducerIdRequest():
                initialising.initialise(ledger, now, caller, request)
            case AddPartitionsToTxnRequest():
                adding.add_partitions(ledger, self._topics, now, caller, request)
            case AddOffsetsToTxnRequest():
                adding.add_offsets(ledger, self._partition_of_group(request.group_id), now, caller, request)
            case EndTxnRequest():
                ending.end(ledger, now, caller, request)
            case ListTransactionsRequest():
                admin.list_transactions(ledger, now, caller, request)
            case DescribeTransactionsRequest():
                admin.describe_transactions(ledger, now, caller, request)
            case _:
                raise TypeError(f"a transaction coordinator does not serve {type(request).__name__}")
        return ledger.take()

    # Calls of partition leaders and group coordinators (KIP-890)

    def add(
        self,
        now: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> tuple[int, Step]:
        """A producer of transactions v2 writes to ``partitions``: make them part of its transaction.

        Returns:
            An error code, and the step. The write comes after the records in the logs. After a crash that lost
            the records and kept the write, the shell aborts the transaction.
        """
        code = adding.add(
            self._ledger, now, transactional_id, producer_id, producer_epoch, partitions, client_version=2
        )
        return code, self._ledger.take()

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> int:
        """The code for a write of an older producer to ``partition``."""
        return adding.verify(self._ledger, transactional_id, producer_id, producer_epoch, partition)

    def is_part(self, transactional_id: str, partition: TopicPartition) -> bool:
        """True if the id's transaction writes to ``partition``."""
        transaction = self._ledger.get(transactional_id)
        return transaction is not None and partition in transaction.partitions

    def producers_in(self, partition: TopicPartition) -> frozenset[int]:
        """Ids of the producers whose open or ending transaction writes to ``partition``."""
        return frozenset(
            each.producer_id for each in self._ledger.transactions.values() if partition in each.partitions
        )

    # Time, and the second half of an ending

    def marked(self, now: int, transactional_id: str) -> Step:
        """All markers of the ending are written."""
        ending.complete(self._ledger, now, transactional_id)
        return self._ledger.take()

    def poll(self, now: int) -> Step:
        """Fire every timer that is due."""
        ledger = self._ledger
        while (key := ledger.timers.pop_due(now)) is not None:
            if key.kind is TimerKind.EXPIRY:
                self._expire(now)
                self._arm_expiry(now)
                continue
            transaction = ledger.get(key.group_id)
            if transaction is not None and transaction.state is State.ONGOING:
                ending.fence(ledger, now, transaction)
        return ledger.take()

    def abandon(self) -> Step:
        """Return the effects of a `handle` or `poll` that raised: do not store them, and load their keys again."""
        return self._ledger.take()

    def next_deadline(self) -> int:
        """The latest time of the next `poll`; FOREVER if there are no timers."""
        return self._ledger.timers.next_deadline()

    # Loading and giving up ids: for a coordinator that starts, moves, or could not store its records

    def replay(self, record: Record) -> None:
        """Apply a stored record. No request is answered."""
        self._ledger.replay(record)

    def loaded(self, now: int, owns: Callable[[str], bool] = lambda _: True) -> Step:
        """The records of the ids that ``owns`` selects have been replayed.

        Open transactions get the rest of their time. Decided ones end again: their markers may not have been written.
        """
        ledger = self._ledger
        self._arm_expiry(now)
        for transaction in ledger.transactions.values():
            if not owns(transaction.transactional_id):
                continue
            if transaction.state.is_ending:
                ledger.end(transaction)
            elif transaction.state is State.ONGOING:
                left = transaction.started_at + transaction.timeout_ms - ledger.wall(now)
                ledger.timers.schedule(timeout_key(transaction.transactional_id), add_ms(now, max(left, 0)))
        return ledger.take()

    def unload(self, now: int, owns: Callable[[str], bool]) -> Step:
        """Give up the ids that ``owns`` selects. No request is parked here, so none has to be answered."""
        ledger = self._ledger
        for transactional_id in [each for each in ledger.transactions if owns(each)]:
            ledger.timers.cancel(timeout_key(transactional_id))
            del ledger.transactions[transactional_id]
            ledger.last_epochs.pop(transactional_id, None)
        return ledger.take()

    def snapshot(self, owns: Callable[[str], bool]) -> Iterator[Record]:
        """The state of the ids that ``owns`` selects, as the fewest records that make it."""
        for transactional_id, each in sorted(self._ledger.transactions.items()):
            if owns(transactional_id):
                yield Record(each.key(), each.value())

    def _partition_of_group(self, group_id: str) -> TopicPartition:
        return TopicPartition("__consumer_offsets", self._offsets_partition(group_id))

    def _arm_expiry(self, now: int) -> None:
        timers, interval = self._ledger.timers, self._ledger.config.expiration_interval_ms
        if _EXPIRY not in timers:
            timers.schedule(_EXPIRY, add_ms(now, interval))

    def _expire(self, now: int) -> None:
        """Forget ids that were not used for the expiration time."""
        ledger = self._ledger
        oldest = ledger.wall(now) - ledger.config.expiration_ms
        for transactional_id, each in list(ledger.transactions.items()):
            if each.state.is_at_rest and each.updated_at <= oldest:
                ledger.forget(transactional_id)
