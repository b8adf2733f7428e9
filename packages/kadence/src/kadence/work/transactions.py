"""Carries out the transactions of `process` with a producer. Their calls wait for brokers: a `Caller` makes them.

There is one transaction at a time. It begins when its whole content is known, so that it is open no longer than brokers
take to write it. A transaction that fails is aborted. If brokers refused an output, its record has failed an attempt.
Any other error is not about the records, which go into the next transaction (KIP-447).
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
"""The timeout of the producer's close while a transaction is under way that nothing waits for (seconds)."""

_TRIES: Final = 12
"""How many times init_transactions may take ``max.block.ms``, to end open transactions of an earlier producer."""

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
"""Errors about the transaction or its producer, and not about a record in it."""

Counted = Callable[["Mapping[TopicPartition, ReadOffset]"], "Mapping[TopicPartition, OffsetAndMetadata]"]
"""Returns the offsets of a round for a commit; raises PositionLostError if one of them is outdated."""

Ended = Callable[[Round, "Exception | None", "Mapping[Finished, Exception]"], None]
"""Called at the end of a round: with None if it is committed, else with its error, and with the refused outputs."""


class TransactionalProducer(Sender, Protocol):
    """The part of a `Producer` that `Transactions` uses. In a simulation each of these calls is awaited."""

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
        make: makes the producer. ended: see `Ended`. failed: called with the error after which there can be no more
            transactions.
        counted: see `Counted`.
        changed: called after each of these, and when an attribute changes. caller: makes all of these calls, and those
            of the producer except close(). clock: limits repeated log lines.

    Attributes:
        is_ready: open transactions of earlier producers of the same transactional id have ended. is_busy: a round is
            under way. failure: the error after which there can be no more transactions.
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
        """Make the producer, and call its init_transactions. Does not block."""
        self._caller.carry(self._or_fail(self._open()))

    def commit(self, this: Round, group: GroupMetadata) -> None:
        """Begin to commit a round, as this member of the group. No other round may be under way."""
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
        """The dead letter and retry records whose topic does not exist, with the error of each.

        The producer waits for a missing topic. If a transaction were open meanwhile, brokers might abort it.
        """
        letters = [each for each in this.finished if each.counter is not None]
        problems: dict[str, Exception] = {}
        for topic in {each.outputs[0].topic: None for each in letters}:
            try:
                yield partial(producer.partitions_for, topic)
            except Exception as error:  # noqa: BLE001 - others recur in the transaction
                if _blames(error):
                    problems[topic] = error
        return {
            each: problems[each.outputs[0].topic] for each in letters if each.outputs[0].topic in problems
        }

    def _until_decided(self, call: Callable[[], Any], futures: Sequence[tuple[Finished, Any]] = ()) -> Calls:
        """Commit or abort. A call that times out is repeated, because the outcome cannot be undone any more.

        If one of ``futures`` has failed, its transaction cannot commit, and each call would raise at once.
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
                    "the transaction has not ended yet; still waiting for it: %s",
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
