"""Handles the results of batches that were sent: written, retried, split, failed, or timed out. Sans-IO.

Each step keeps three things in agreement: the order of the partition (`sequences`), the memory of the batch
(`accumulator`), and its futures (`futures`).
"""

from __future__ import annotations

from logging import INFO, WARNING

from kadence.clock import FOREVER, add_ms
from kadence.config import ProducerConfig
from kadence.connection.request import Backoff
from kadence.errors import KafkaError, TransactionAbortedError
from kadence.errors.copies import own_copy
from kadence.logs import LogLimiter, logger
from kadence.printable import plural
from kadence.producer.accumulator import Accumulator, Batch
from kadence.producer.identity import Identity
from kadence.producer.sequences import PartitionDelivery
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.producer.verdicts import out_of_time, too_large
from kadence.types import TopicPartition

__all__ = ["Outcomes"]

_log = logger("kadence.producer")


class Outcomes:
    """Repeats, splits, completes or fails batches that were sent. Network thread only.

    Args:
        identity: the producer id that numbers batches, or the transactions of a transactional producer.

    Attributes:
        partitions: all partitions that batches were sent to. undecided: those with sent batches without a verdict.
        repeating: those with a batch that waits to be sent again, the longest waiting first.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        topics: Topics,
        identity: Identity | Transactions,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._measures = accumulator.measures
        self._topics = topics
        self._identity = identity
        self._transactions = identity if isinstance(identity, Transactions) else None
        self._logged = LogLimiter()
        """The topics for which a warning of lost records was logged. The futures have the error of each record."""
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.partitions: dict[TopicPartition, PartitionDelivery] = {}
        self.undecided: set[TopicPartition] = set()
        self.repeating: dict[TopicPartition, None] = {}
        # No deadline passes before this time.
        self._expires_at = 0
        # Refused while it is not yet known whether the producer was fenced: batches, each with the leader's error.
        self._doubtful: list[tuple[Batch, KafkaError]] = []
        if self._transactions is not None:
            self._transactions.on_known = self._fail_doubtful

    def of(self, tp: TopicPartition) -> PartitionDelivery:
        """A partition's deliveries, created at first use."""
        found = self.partitions.get(tp)
        if found is None:
            self.partitions[tp] = found = PartitionDelivery()
        return found

    def sent(self, batch: Batch) -> None:
        """A batch is sent."""
        batch.attempts += 1
        self.of(batch.tp).sent(batch)
        self.undecided.add(batch.tp)
        self._settle(batch.tp)

    def written(self, batch: Batch, base_offset: int, log_append_time: int) -> None:
        """A batch is in the log; ``base_offset`` -1: the broker did not say where."""
        self.partitions[batch.tp].written(batch)
        self._settle(batch.tp)
        if not self._accumulator.is_decided(batch):
            with self._accumulator.gate:
                self._accumulator.release(batch)
            batch.delivery.complete(base_offset, log_append_time, first=batch.first)

    def answered_late(self, batch: Batch) -> None:
        """A batch was not written, and timed out before that was known: its futures have failed already."""
        self.partitions[batch.tp].failed(batch)
        self._settle(batch.tp)

    def repeat(
        self,
        now: int,
        batch: Batch,
        error: KafkaError,
        *,
        out_of_sequence: bool = False,
        at_once: bool = False,
    ) -> None:
        """Send a batch again, after a backoff; at once to a leader that was not tried yet."""
        partition = self.partitions[batch.tp]
        if self._accumulator.is_decided(batch):
            self.answered_late(batch)
            return
        if batch.attempts > self._config.retries:
            error.add_note(
                f"it was sent {batch.attempts} times, the most that retries={self._config.retries} allows"
            )
            self.fail(batch, error)
            return
        self._measures.topic(batch.tp.topic).repeated.record(now, batch.count)
        batch.last_error = error
        batch.not_before = now if at_once else now + self._backoff.delay_ms(batch.attempts - 1)
        if out_of_sequence:
            partition.out_of_sequence(batch)
        else:
            partition.failed_for_now(batch)
        self._settle(batch.tp)
        _log.info("repeating %r: %s", batch, error)

    def split(self, batch: Batch, error: KafkaError) -> None:
        """Send a batch in two pieces; one record that is too large alone fails."""
        if batch.count == 1:
            self.fail(batch, too_large(batch, error))
            return
        batch.last_error = error
        try:
            pieces = self._accumulator.pieces_of(batch)
        except KafkaError as fault:
            fault.__cause__ = error
            self.fail(batch, fault)
            return
        self._measures.splits.record(self._measures.now)
        with self._accumulator.gate:
            self._accumulator.refused(batch)
            self._accumulator.split(batch, pieces)
        self.partitions[batch.tp].replaced(batch, pieces)
        self._settle(batch.tp)
        _log.info("splitting %r: %s", batch, error)

    def fail(
        self,
        batch: Batch,
        error: KafkaError,
        record_errors: dict[int, KafkaError] | None = None,
        *,
        never_sent: bool = False,
    ) -> None:
        """A batch fails. ``record_errors``: of records that the broker blames, by index."""
        self.partitions[batch.tp].failed(batch, never_sent=never_sent)
        self._settle(batch.tp)
        self._fail_futures(batch, error, record_errors)

    def _fail_futures(
        self, batch: Batch, error: KafkaError, record_errors: dict[int, KafkaError] | None = None
    ) -> None:
        """Fail the futures of a batch, once."""
        if self._accumulator.is_decided(batch):
            return
        with self._accumulator.gate:
            self._accumulator.release(batch)
            if self._transactions is not None:
                self._transactions.not_written(error, was_sent=batch.attempts > 0)
        # In a transaction no loss is silent: its end raises, and readers see none of it. So the log needs no warning.
        is_news = self._transactions is None and self._logged.is_new(self._measures.now, batch.tp.topic, None)
        level = WARNING if is_news else INFO
        _log.log(level, "%s of %s not written: %s", plural(batch.count, "record"), batch.tp, error)
        self._lost(batch)
        if self._transactions is not None and self._transactions.is_reason_of_doubt(error):
            self._doubtful.append((batch, error))
        else:
            batch.delivery.fail(error, record_errors, first=batch.first)

    def _fail_doubtful(self, why: KafkaError | None, until: int = FOREVER) -> None:
        """Fail the futures of records that were refused while the reason was in doubt.

        Args:
            why: the coordinator's error; None: the leader's error holds. until: records with a later deadline are left.
        """
        decided = [each for each in self._doubtful if each[0].deadline <= until]
        self._doubtful = [each for each in self._doubtful if each[0].deadline > until]
        for batch, error in decided:
            batch.delivery.fail(error if why is None else own_copy(why), first=batch.first)

    def _lost(self, batch: Batch) -> None:
        self._measures.topic(batch.tp.topic).failed.record(self._measures.now, batch.count)

    def _settle(self, tp: TopicPartition) -> None:
        """Update the indexes after each change of a partition's undecided batches."""
        partition = self.partitions[tp]
        if not partition.undecided:
            self.undecided.discard(tp)
        if partition.must_repeat:
            self.repeating[tp] = None
        else:
            self.repeating.pop(tp, None)
        if isinstance(self._identity, Identity) and partition.needs_identity:
            # It used up the epochs of its producer id.
            self._identity.known = None

    # ------------------------------------------------------------ time

    def expire(self, now: int) -> int:
        """Fail the batches whose delivery timeout is over; return the time of the next check.

        It visits all batches, so it is not done in each turn. A batch that was begun after the last check ends
        ``delivery.timeout.ms`` after it, or later.
        """
        if now < self._expires_at:
            return self._expires_at if self._accumulator.incomplete or self._doubtful else FOREVER
        with self._accumulator.gate:
            late = self._accumulator.expired(now)
            next_at = self._accumulator.next_deadline()
        for batch in late:
            self._fail_futures(batch, self._late(batch))
        for tp in list(self.undecided):
            partition = self.partitions[tp]
            for batch in list(partition.undecided):
                if self._accumulator.is_decided(batch):
                    continue
                if batch.deadline > now:
                    next_at = min(next_at, batch.deadline)
                elif batch in partition.in_flight:
                    # It keeps its place until the response comes: the order of the others depends on it.
                    self._fail_futures(batch, self._late(batch))
                else:
                    self.fail(batch, self._late(batch))
        if self._doubtful:
            self._fail_doubtful(None, now)
            next_at = min([next_at, *(batch.deadline for batch, _ in self._doubtful)])
        self._expires_at = min(next_at, add_ms(now, self._config.delivery_timeout_ms))
        return next_at

    def forget(self, topics: set[str]) -> None:
        """Drop the state of topics that are no longer used."""
        with self._accumulator.gate:
            self._accumulator.forget(topics)
        for topic in topics:
            self._logged.over(topic)
        idle = [tp for tp in self.partitions if tp.topic in topics and tp not in self.undecided]
        for tp in idle:
            partition = self.partitions[tp]
            if self._identity.may_forget(partition.producer_id, partition.epoch):
                del self.partitions[tp]

    def _late(self, batch: Batch) -> KafkaError:
        has_leader = self._topics.cluster.leader(batch.tp) is not None
        return out_of_time(batch, self._config.delivery_timeout_ms, has_leader=has_leader)

    def drop_for_abort(self, cause: KafkaError | None) -> None:
        """Fail batches that were not sent or must be repeated, as an abort would undo them; await those in flight."""
        why = "was aborted" if cause is None else f"has failed ({cause})"
        error = TransactionAbortedError(f"the transaction {why} before this record was written")
        with self._accumulator.gate:
            waiting = self._accumulator.expired(FOREVER)
        for batch in waiting:
            self._fail_futures(batch, error)
        for tp in list(self.undecided):
            partition = self.partitions[tp]
            for batch in [each for each in partition.undecided if each not in partition.in_flight]:
                self.fail(batch, error)

    def fail_all(self, error: KafkaError) -> None:
        """Fail everything undecided: no producer id, a forced close, or a bug of ours."""
        dropped = self._accumulator.lose_all(error)
        self._fail_doubtful(error)
        for batch in dropped:
            partition = self.partitions.get(batch.tp)
            if partition is not None and batch not in partition.in_flight:
                partition.failed(batch)
                self._settle(batch.tp)
            self._lost(batch)
            batch.delivery.fail(error, first=batch.first)
