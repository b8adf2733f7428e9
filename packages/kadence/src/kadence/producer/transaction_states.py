"""The states of a transactional producer, and the calls that are allowed in each (KIP-98). Under the producer's lock.

The requests that they send are in `transactions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NoReturn

from kadence.errors import IllegalStateError, KafkaError
from kadence.errors.copies import own_copy
from kadence.lazy_dataclasses import dataclass
from kadence.producer.held_lines import HeldLines

__all__ = ["ENDING", "SENDING", "TRANSITIONS", "Done", "Lifecycle", "State", "Transaction"]


class State(Enum):
    """The state of a producer's transactions."""

    UNINITIALIZED = "init_transactions() was not called"
    INITIALIZING = "init_transactions() has not ended"
    READY = "no transaction is open"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING = "commit_transaction() has not ended"
    ABORTING = "abort_transaction() has not ended"
    ABORTABLE = "the transaction has failed and must be aborted"
    FAILED = "the producer has failed and must be closed"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FAILED}),
    State.INITIALIZING: frozenset({State.READY, State.FAILED}),
    State.READY: frozenset({State.IN_TRANSACTION, State.FAILED}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING, State.ABORTING, State.ABORTABLE, State.UNINITIALIZED, State.FAILED}
    ),
    State.COMMITTING: frozenset({State.READY, State.ABORTING, State.ABORTABLE, State.FAILED}),
    State.ABORTING: frozenset({State.READY, State.ABORTABLE, State.FAILED}),
    State.ABORTABLE: frozenset({State.ABORTING, State.FAILED}),
    State.FAILED: frozenset(),
}
"""The states that may follow each state."""

SENDING: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})
ENDING: Final = frozenset({State.COMMITTING, State.ABORTING})
_STEPS: Final = frozenset({State.INITIALIZING, *ENDING})

Done = Callable[[], bool]
"""Returns whether a step has ended; raises the error with which it failed. Under the lock."""


@dataclass(slots=True, eq=False)
class Transaction:
    """The outcome of one transaction, for the calls that wait for its end; the producer may be in another by then.

    Attributes:
        is_commit_asked: EndTxn was sent to commit it. It has all its records and offsets then, and only brokers
            can say that it is not committed.
        is_committed: brokers have answered that they committed it, or there was nothing to commit.
    """

    is_commit_asked: bool = False
    is_committed: bool = False


class Lifecycle:
    """Keeps the state of a transactional producer, and refuses calls that do not fit it.

    Args:
        admit: called with True when records may come in, with False when they may not.

    Attributes:
        state: see `State`. error: the reason why it is ABORTABLE or FAILED. lines: log lines to write after the lock.
        transaction: the open one, or the last.
    """

    def __init__(self, transactional_id: str, admit: Callable[[bool], None]) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        self.transaction = Transaction()
        self.lines = HeldLines()
        self._admit = admit
        self._is_closing = False
        self._unseen: State | None = None  # the last step, until its caller knows that it has ended

    # ------------------------------------------------------------ the application begins and ends

    def begin_init(self) -> Done:
        """Request a producer id, which aborts a transaction that an earlier producer with this id left open."""
        if self.state is State.UNINITIALIZED:
            self._move(State.INITIALIZING)
        elif not self._joins(State.INITIALIZING):
            if self.error is None:
                raise IllegalStateError(
                    "init_transactions() was called before; one call is enough for all transactions of a producer"
                )
            self._refuse("init_transactions()")
        return lambda: self._has_left(State.INITIALIZING)

    def begin(self) -> None:
        """Open a transaction."""
        if self.state is not State.READY:
            self._refuse("begin_transaction()")
        self._unseen = None
        self.transaction = Transaction()
        self._move(State.IN_TRANSACTION)

    def begin_commit(self) -> Done:
        """Commit once all records are written; a call that timed out may be repeated."""
        if self.state is State.IN_TRANSACTION:
            self._move(State.COMMITTING)
        elif not self._joins(State.COMMITTING):
            self._refuse("commit_transaction()")
        transaction = self.transaction

        def done() -> bool:
            is_over = transaction is not self.transaction
            if transaction.is_committed and (is_over or self.state is not State.COMMITTING):
                return True
            if not is_over and not self._has_left(State.COMMITTING):
                return False
            raise IllegalStateError(
                "the transaction is not committed: abort_transaction() was called meanwhile"
            )

        return done

    def begin_abort(self) -> Done:
        """Drop records that were not sent, and abort the others.

        A commit that waits for records or offsets can be aborted; once the coordinator was asked to commit, it cannot.
        """
        waits = self.state is State.COMMITTING and not self.transaction.is_commit_asked
        if waits or self.state in (State.IN_TRANSACTION, State.ABORTABLE):
            self._move(State.ABORTING)
        elif not self._joins(State.ABORTING):
            self._refuse("abort_transaction()")
        return lambda: self._has_left(State.ABORTING)

    def has_returned(self) -> None:
        """The caller knows that the step has ended."""
        self._unseen = None

    def _joins(self, step: State) -> bool:
        """True if a call joins a step that is in progress, or one that ended without its caller having seen it.

        A call may time out or be interrupted at any line before `has_returned`, and so may the call that joins it.
        """
        return self.state is step or (self.state is State.READY and self._unseen is step)

    def check_open(self) -> None:
        """Raise if records may not be sent now."""
        if self.state is not State.IN_TRANSACTION:
            self._refuse("sending")

    @property
    def is_in_doubt(self) -> bool:
        """True if the reason why the transaction has failed is not known yet."""
        return False

    def _has_left(self, state: State) -> bool:
        if self.is_in_doubt:
            return False
        if self.state in (State.ABORTABLE, State.FAILED):
            self._refuse("waiting")
        return self.state is not state

    def _refuse(self, call: str) -> NoReturn:
        """Raise the producer's error, or one that says why the state does not allow ``call``."""
        if self.error is None:
            raise IllegalStateError(f"{call} is not possible now: {self.state.value}")
        error = own_copy(self.error)
        if self.state is State.ABORTABLE:
            error.add_note("the transaction must be aborted: call abort_transaction(), then begin a new one")
        else:
            error.add_note("this producer can no longer be used: close it, and create another one")
        raise error

    def end_for_close(self) -> bool:
        """True if a closing producer must wait for the end of a transaction. Under the lock.

        The program can no longer commit, so an open transaction is aborted. That is tried once: if it is refused,
        too, the brokers abort after ``transaction.timeout.ms``.
        """
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE):
            if self._is_closing:
                self.lines.add(
                    logging.WARNING,
                    "%s: close() cannot abort the transaction; the brokers will abort it: %s",
                    self.transactional_id,
                    self.error,
                )
                return False
            if self.state is State.IN_TRANSACTION:
                self.lines.add(
                    logging.WARNING,
                    "%s: close() aborts the open transaction",
                    self.transactional_id,
                )
            self._is_closing = True
            self._move(State.ABORTING)
        return self.state in ENDING

    # ------------------------------------------------------------ consequences

    @property
    def writes_nothing(self) -> bool:
        """True if unsent records will never be sent."""
        return self.state in (State.ABORTABLE, State.ABORTING, State.FAILED)

    def _fail(self, error: KafkaError) -> None:
        if self.state is not State.FAILED:
            self._move(State.FAILED, error)

    def _move(self, state: State, error: KafkaError | None = None) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.state.name} cannot become {state.name}")
        # The application's thread may be interrupted after each line. Then no record comes in too late, and the call
        # that is made again finds its step.
        self._admit(False)
        if state in _STEPS:
            self._unseen = state
        self.error = error
        self.state = state
        if state is State.IN_TRANSACTION:
            self._admit(True)
