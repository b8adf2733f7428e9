"""One partition's batches between first sending and verdict, in order, with their sequence numbers (KIP-98, KIP-360).

The order of a partition is kept by two rules. A batch that was never sent waits while any batch must be
repeated; and batches are repeated one at a time, oldest first, once nothing of the partition is in flight. So a retry
never overtakes, with or without idempotence.

A broker accepts any first sequence number of a producer that it does not know in the partition. So until it has
written a batch of a producer id, only one batch is in flight: a second one could be accepted though the first was
refused.

Sequence numbers belong to (producer id, epoch, partition), so each partition bumps its own epoch, without a request
to the broker. That happens only when the broker refuses the *oldest* undecided batch as out of order: then no later
batch can have been written either, and all of them may be renumbered without a duplicate.
"""

from __future__ import annotations

from kadence.producer.accumulator import Batch

__all__ = ["MAX_EPOCH", "MAX_UNDECIDED", "PartitionDelivery"]

MAX_EPOCH = 32767
MAX_UNDECIDED = 5
"""The broker remembers this many batches of a producer per partition to recognise duplicates."""


class PartitionDelivery:
    """Numbers the batches of one partition, and keeps them in order until the broker has answered.

    Network thread only.

    Attributes:
        undecided: sent batches without a verdict, oldest first. in_flight: those of them that are in a request now.
        producer_id, epoch, next_sequence: for the next new batch; -1 before the first.
        is_known: whether the broker has written a batch of this producer id.
        has_gap: whether numbers of the epoch were given to records that may not have been written.
    """

    __slots__ = (
        "_renumber",
        "epoch",
        "has_gap",
        "in_flight",
        "is_known",
        "next_sequence",
        "producer_id",
        "undecided",
    )

    def __init__(self) -> None:
        self.undecided: list[Batch] = []
        self.in_flight: set[Batch] = set()
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.has_gap = False
        self._renumber = False
        self.is_known = False

    @property
    def must_repeat(self) -> bool:
        """True if a batch waits to be sent again."""
        return len(self.undecided) > len(self.in_flight)

    def retry(self) -> Batch | None:
        """The batch to repeat next, if its turn has come (the caller checks its backoff)."""
        return self.undecided[0] if self.undecided and not self.in_flight else None

    def takes_new(self, most_undecided: int) -> bool:
        """True if a batch that was never sent may be sent now."""
        most = most_undecided if self.is_known or self.producer_id < 0 else 1
        return not self.must_repeat and len(self.undecided) < most

    def is_oldest(self, batch: Batch) -> bool:
        return bool(self.undecided) and self.undecided[0] is batch

    @property
    def needs_identity(self) -> bool:
        """True if a producer id must be set (`identify`) before the next idempotent send."""
        return self.producer_id < 0

    def has(self, producer_id: int, epoch: int) -> bool:
        """True if it numbers batches for this identity."""
        return (self.producer_id, self.epoch) == (producer_id, epoch)

    def identify(self, producer_id: int, epoch: int) -> None:
        """Set a new identity: numbering starts at 0."""
        self.is_known = self.is_known and producer_id == self.producer_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0
        self.has_gap = False

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence number."""
        batch.producer_id = self.producer_id
        batch.epoch = self.epoch
        batch.base_sequence = self.next_sequence
        # int32, wrapping to 0.
        self.next_sequence = (self.next_sequence + batch.count) & 0x7FFFFFFF

    def sent(self, batch: Batch) -> None:
        """``batch`` is sent: the retry, or a new one after all others."""
        if not (self.undecided and self.undecided[0] is batch):
            self.undecided.append(batch)
        self.in_flight.add(batch)

    def failed_for_now(self, batch: Batch) -> None:
        """A batch must be sent again."""
        self.in_flight.discard(batch)
        self.renumber_if_due()

    def has_lost_past(self, batch: Batch) -> bool:
        """True if records before ``batch`` that the broker lacks had been acknowledged."""
        return self.is_oldest(batch) and batch.base_sequence > 0 and not self.has_gap

    def out_of_sequence(self, batch: Batch) -> None:
        """The broker lacks something before a batch. Unless an older batch is undecided, only renumbering helps."""
        self._renumber = self._renumber or self.is_oldest(batch)
        self.failed_for_now(batch)

    def written(self, batch: Batch) -> None:
        """A batch is in the log: remove it, and note that the broker knows this producer id."""
        self.is_known = batch.producer_id == self.producer_id
        self._remove(batch)

    def failed(self, batch: Batch, *, never_sent: bool = False) -> None:
        """A batch has failed. ``never_sent``: it was just numbered, and its numbers are free again.

        Numbers that were sent are never used for other records, even if the broker refused them: if it had
        written them after all, it would take the new records for duplicates and drop them. The gap costs one
        renumbering.
        """
        if never_sent and batch not in self.undecided and batch.base_sequence >= 0:
            self.next_sequence = batch.base_sequence
        else:
            self.has_gap = True
        self._remove(batch)

    def _remove(self, batch: Batch) -> None:
        self.in_flight.discard(batch)
        if batch in self.undecided:
            self.undecided.remove(batch)
        self.renumber_if_due()

    def replaced(self, batch: Batch, pieces: tuple[Batch, ...]) -> None:
        """A batch was split; the pieces take its place and its numbers."""
        self.in_flight.discard(batch)
        at = self.undecided.index(batch)
        self.undecided[at : at + 1] = pieces
        self.renumber_if_due()

    def renumber_if_due(self) -> None:
        """Bump the epoch and renumber all undecided batches, once nothing is in flight any more."""
        if not self._renumber or self.in_flight:
            return
        self._renumber = False
        if self.epoch < MAX_EPOCH:
            self.identify(self.producer_id, self.epoch + 1)
        else:
            # No epoch left: a new producer id will be requested.
            self.identify(-1, -1)
        for batch in self.undecided:
            batch.producer_id = batch.epoch = batch.base_sequence = -1
            batch.encoded = None

    def __repr__(self) -> str:
        return (
            f"<PartitionDelivery producer {self.producer_id} epoch {self.epoch} next {self.next_sequence} "
            f"undecided {len(self.undecided)} in flight {len(self.in_flight)}>"
        )
