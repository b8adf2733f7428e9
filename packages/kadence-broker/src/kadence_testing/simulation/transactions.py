"""The transactions of a simulation, and the invariant that readers see the committed ones, and no others.

A producer reports the end of each transaction. Before its commit was requested, and after an abort, readers of
committed records must not see its records; after an acknowledged commit none of them may be aborted. While the outcome
is unknown (the producer was killed, or has no response) the brokers may decide either way, but for all its records
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING

from kadence.records import FetchedRecords, iter_batches
from kadence.types import TopicPartition
from kadence_broker.storage import Isolation
from kadence_testing.simulation.scheduler import SimulationError

if TYPE_CHECKING:
    from kadence.records import Record
    from kadence_broker.core import BrokerCore
    from kadence_broker.storage import Partition

__all__ = ["Fate", "Transaction", "TransactionHistory", "readable", "records_of"]

_READ_BYTES = 1 << 20


class Fate(Enum):
    """The end of a transaction, as far as its producer knows."""

    OPEN = "open"
    UNKNOWN = "perhaps committed"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction. ``places``: partition and offset of each acknowledged record."""

    transactional_id: str
    number: int
    fate: Fate = Fate.OPEN
    places: list[tuple[TopicPartition, int]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.transactional_id!r}, which is {self.fate.value},"


class TransactionHistory:
    """The reported ends of transactions; checks the records that readers of committed records see.

    Args:
        object_to: called with each record that a reader should not have seen.
    """

    def __init__(self, object_to: Callable[[str], None]) -> None:
        self._object_to = object_to
        self._by_place: dict[tuple[TopicPartition, int], Transaction] = {}
        self._read: set[tuple[TopicPartition, int]] = set()
        self.all: list[Transaction] = []

    def begins(self, transactional_id: str) -> Transaction:
        """A producer opens a transaction."""
        self.all.append(Transaction(transactional_id, len(self.all) + 1))
        return self.all[-1]

    def wrote(self, transaction: Transaction, partition: TopicPartition, offset: int) -> None:
        """A record of it was acknowledged."""
        transaction.places.append((partition, offset))
        self._by_place[partition, offset] = transaction

    def ends(self, transaction: Transaction, fate: Fate) -> None:
        """The producer requests its end, or has got the response."""
        transaction.fate = fate
        if fate is Fate.ABORTED:
            for place in self._read.intersection(transaction.places):
                self._look_at_read(transaction, place)

    def has_read(self, partition: TopicPartition, offset: int) -> None:
        """A reader of committed records has received a record."""
        place = partition, offset
        self._read.add(place)
        transaction = self._by_place.get(place)
        if transaction is not None:
            self._look_at_read(transaction, place)

    def check(self, core: BrokerCore, deleted: dict[TopicPartition, int]) -> None:
        """Compare the log, as readers of committed records see it, with the responses to producers."""
        seen: dict[TopicPartition, set[int]] = {}
        for transaction in self.all:
            visible: list[str] = []
            aborted: list[str] = []
            for tp, offset in transaction.places:
                partition = core.partition(tp.topic, tp.partition)
                if offset < deleted.get(tp, 0) or offset >= partition.last_stable_offset:
                    continue
                if tp not in seen:
                    seen[tp] = readable(partition, 0, Isolation.COMMITTED)
                (visible if offset in seen[tp] else aborted).append(f"{tp} offset {offset}")
            if visible and transaction.fate in (Fate.OPEN, Fate.ABORTED):
                raise SimulationError(f"{transaction} can be read: {visible[0]}")
            if aborted and transaction.fate is Fate.COMMITTED:
                raise SimulationError(f"{transaction} cannot be read: {aborted[0]}")
            if visible and aborted:
                raise SimulationError(
                    f"{transaction} is committed at {visible[0]} and aborted at {aborted[0]}"
                )

    def _look_at_read(self, transaction: Transaction, place: tuple[TopicPartition, int]) -> None:
        if transaction.fate in (Fate.OPEN, Fate.ABORTED):
            self._object_to(
                f"a reader of committed records got {place[0]} offset {place[1]} of {transaction}"
            )


def readable(partition: Partition, start: int, isolation: Isolation) -> set[int]:
    """Offsets from ``start`` on that a reader gets."""
    return {record.offset for record in records_of(partition, start, isolation)}


def records_of(partition: Partition, start: int, isolation: Isolation) -> Iterator[Record]:
    """Records from ``start`` on that a reader gets, filtered by the client's own code."""
    offset = max(start, partition.start_offset)
    while views := partition.read(offset, _READ_BYTES, isolation):
        aborted = None
        if isolation is Isolation.COMMITTED:
            aborted = [(each.producer_id, each.first_offset) for each in partition.aborted(offset)]
        yield from FetchedRecords(b"".join(views), "", 0, offset, aborted=aborted).take()
        for header, _ in chain.from_iterable(map(iter_batches, views)):
            offset = header.next_offset
