"""Carries out the transactions of `process` with a producer. Their calls wait for brokers: a `Caller` makes them.

One transaction at a time. It begins when all that is to be in it is known, so it is open no longer than brokers take to
write it. A transaction that fails is aborted, and whose fault that was is told: an output that brokers refuse is a
failed attempt of its record, and anything else has nothing to do with the records, which go into the next (KIP-447).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from logging import INFO, WARNING
from typing import Any, Final, Protocol

from kadence.client.aside import Caller, Calls
from kadence.clock import Clock
from kadence.errors import (
    BrokerError,
    ClosedError,
    IllegalStateError,
    KafkaTimeoutError,
    TransactionAbortedError,
    TransportError,
    UnknownTopicOrPartitionError,
)
from kadence.errors.remedies import REPEATED, Remedy, remedy_of
from kadence.logs import LogLimiter, logger
from kadence.protocol import error_codes as ec
from kadence.types import GroupMetadata, OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.desk import Sender
from kadence.work.positions import PositionLostError
from kadence.work.rounds import Finished, Round

__all__ = ["Counted", "Ended", "TransactionalProducer", "Transactions"]

log = logger("kadence.work")

_IN_A_HURRY: Final = 1.0
"""Seconds that the producer has to end when a transaction is under way for which nobody waits any more."""

_TRIES: Final = 12
"""So often the producer is given ``max.block.ms`` to end what an earlier one of its name has left open."""

_OF_TRANSACTIONS: Final = frozenset(
    {
        ec.FENCED_INSTANCE_ID,
        ec.INVALID_PRODUCER_EPOCH,
        ec.INVALID_PRODUCER_ID_MAPPING,
        ec.INVALID_TXN_STATE,
        ec.OFFSET_METADATA_TOO_LARGE,
        ec.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ec.PRODUCER_FENCED,
        ec.TRANSACTION_ABORTABLE,
        ec.UNKNOWN_PRODUCER_ID,
    }
)
"""What brokers say of a transaction or its producer, and not of a record in it."""

Counted = Callable[["Mapping[TopicPartition, ReadOffset]"], "Mapping[TopicPartition, OffsetAndMetadata]"]
"""Makes of what a round has done what may be committed.

Raises PositionLostError if any of it does not count any more.
"""

Ended = Callable[[Round, "Exception | None", "Mapping[Finished, Exception]"], None]
"""Told how a round ended: with None it is committed, else nothing of it is; and which of it were refused, and why."""


class TransactionalProducer(Sender, Protocol):
    """What is needed of a `Producer`. In a simulation each of these calls is awaited."""

    def partitions_for(self, topic: str) -> Any: ...
    def init_transactions(self) -> Any: ...
    def begin_transaction(self) -> Any: ...
    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: GroupMetadata
    ) -> Any: ...
    def commit_transaction(self) -> Any: ...
    def abort_transaction(self) -> Any: ...
    def close(self, timeout: float | None = None) -> Any: ...


class Transactions:
    """The producer of one call of `process`, and its transactions.

    Args:
        make: makes the producer. ended: see `Ended`. failed: told why there can be no more transactions.
        counted: what may be committed of a round now, of what is still read from there (`Processing.counted`).
        changed: called after each of these, and when an attribute changes. caller: makes all of these calls, and those
            of the producer but its last one. clock: how often a thing is logged.

    Attributes:
        is_ready: what an earlier producer of the same name left open has ended. is_busy: a round is under way.
        failure: why there can be no more transactions.
    """

    def __init__(
        self,
        make: Callable[[], TransactionalProducer],
        ended: Ended,
        failed: Callable[[Exception], None],
        counted: Counted,
        changed: Callable[[], None],
        caller: Caller,
        clock: Clock,
    ) -> None:
        self.is_ready = False
        self.is_busy = False
        self.failure: Exception | None = None
        self._make = make
        self._ended = ended
        self._failed = failed
        self._counted = counted
        self._changed = changed
        self._caller = caller
        self._clock = clock
        self._told = LogLimiter()
        self._lock = threading.Lock()
        self._producer: TransactionalProducer | None = None
        self._is_closing = False

    def start(self) -> None:
        """Make the producer, and end what an earlier one of its name has left open. It waits for nothing."""
        self._caller.carry(self._or_fail(self._open()))

    def commit(self, this: Round, group: GroupMetadata) -> None:
        """Begin to commit a round, as this member of the group. No other one is under way."""
        self.is_busy = True
        assert self._producer is not None
        self._caller.carry(self._or_fail(self._carry(self._producer, this, group)))

    def close(self) -> Any:
        """End the producer, as its own `close`. A round that is under way may be committed or not."""
        self._caller.end()
        with self._lock:
            self._is_closing = True
            producer = self._producer
        if producer is None:
            return None
        if self.is_busy or not self.is_ready:
            return producer.close(timeout=_IN_A_HURRY)
        return producer.close()

    # ------------------------------------------------------------ where its caller makes calls

    def _or_fail(self, calls: Calls) -> Calls:
        try:
            yield from calls
        except Exception as error:  # noqa: BLE001 - raised by `process`
            if not self._is_closing:
                self.failure = error
                self._failed(error)
            self._changed()

    def _open(self) -> Calls:
        producer: TransactionalProducer = yield self._make
        with self._lock:
            self._producer = producer
            is_closing = self._is_closing
        if is_closing:
            yield partial(producer.close, timeout=0)
            return
        for left in reversed(range(_TRIES)):
            try:
                yield producer.init_transactions
                break
            except KafkaTimeoutError:
                if not left or self._is_closing:
                    raise
        self.is_ready = True
        self._changed()

    def _carry(self, producer: TransactionalProducer, this: Round, group: GroupMetadata) -> Calls:
        futures: list[tuple[Finished, Any]] = []
        sending: Finished | None = None
        gone = yield from self._without_topic(producer, this)
        if gone:
            self._end(this, next(iter(gone.values())), gone)
            return
        try:
            self._counted(this.offsets)
        except PositionLostError as error:
            self._end(this, error, {})
            return
        yield producer.begin_transaction
        try:
            for sending in this.finished:
                for output in sending.outputs:
                    future = yield partial(
                        sending.context.run,
                        producer.send,
                        output.topic,
                        output.value,
                        output.key,
                        partition=output.partition,
                        timestamp=output.timestamp,
                        headers=output.headers,
                    )
                    futures.append((sending, future))
            sending = None
            yield partial(producer.send_offsets_to_transaction, self._counted(this.offsets), group)
            self._counted(this.offsets)
            yield from self._until_decided(producer.commit_transaction, futures)
        except Exception as error:  # noqa: BLE001 - whatever it was, the transaction is not committed
            yield from self._until_decided(producer.abort_transaction)
            # After the end of the transaction the outcome of each record is known.
            refused = {
                each: problem
                for each, future in reversed(futures)
                if future.done() and isinstance(problem := future.exception(), Exception) and _blames(problem)
            }
            if not refused and sending is not None and _blames(error):
                refused = {sending: error}
            self._end(this, error, refused)
        else:
            self._end(this, None, {})

    def _without_topic(
        self, producer: TransactionalProducer, this: Round
    ) -> Generator[Callable[[], Any], Any, dict[Finished, Exception]]:
        """The dead letters and retry records whose topic is not there, and why.

        A producer waits for such a topic. No transaction may be open meanwhile: brokers would abort it.
        """
        letters = [each for each in this.finished if each.counter is not None]
        problems: dict[str, Exception] = {}
        for topic in {each.outputs[0].topic: None for each in letters}:
            try:
                yield partial(producer.partitions_for, topic)
            except Exception as error:  # noqa: BLE001 - others are met again in the transaction
                if _blames(error):
                    problems[topic] = error
        return {
            each: problems[each.outputs[0].topic] for each in letters if each.outputs[0].topic in problems
        }

    def _until_decided(self, call: Callable[[], Any], futures: Sequence[tuple[Finished, Any]] = ()) -> Calls:
        """Commit or abort. What takes too long goes on, and is waited for again: it cannot be taken back.

        If one of ``futures`` has failed, its transaction never commits: each call would raise why at once.
        """
        while True:
            try:
                yield call
                return
            except KafkaTimeoutError as error:
                if self._is_closing or any(each.done() and each.exception() for _, each in futures):
                    raise
                is_news = self._told.is_new(self._clock.now_ms(), "end", None)
                log.log(
                    WARNING if is_news else INFO,
                    "the transaction has not ended yet, it is waited for: %s",
                    error,
                )

    def _end(self, this: Round, error: Exception | None, refused: Mapping[Finished, Exception]) -> None:
        self._ended(this, error, refused)
        self.is_busy = False
        self._changed()


def _blames(error: Exception) -> bool:
    """Whether an error is about the record that was sent, and not about the transaction, the producer or a broker."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return True
    if isinstance(error, BrokerError):
        remedy = remedy_of(error)
        is_of_record = remedy not in REPEATED and remedy is not Remedy.MEMBERSHIP
        return is_of_record and error.code not in _OF_TRANSACTIONS
    is_of_others = (
        ClosedError,
        IllegalStateError,
        KafkaTimeoutError,
        PositionLostError,
        TransactionAbortedError,
        TransportError,
    )
    return not isinstance(error, is_of_others)
