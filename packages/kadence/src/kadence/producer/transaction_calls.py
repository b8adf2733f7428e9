"""The calls of transactions: begin a step, and wait for its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kadence.client.waits import Waits
from kadence.clock import Seconds
from kadence.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kadence.producer.arguments import checked_group, checked_offsets
from kadence.producer.send_checks import SendChecks
from kadence.producer.transaction_states import Done, State
from kadence.producer.transactions import Transactions
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "abort_after",
    "begin",
    "can_abort",
    "has_returned",
    "not_aborted",
    "send_offsets",
    "settle",
    "time_to_close",
]

_IN_A_HURRY = 1.0
"""Seconds that an abort may take when the program or the task is to end."""


def begin(send_checks: SendChecks) -> None:
    """See `Producer.begin_transaction`."""
    send_checks.check_usable()  # before the lock, which may be held for ever after a fork
    send_checks.gate.check_entry()
    with send_checks.gate:
        send_checks.check_usable()  # another thread may have closed it; then no thread would send the records
        _transactions(send_checks).begin()


def can_abort(send_checks: SendChecks) -> bool:
    """True if a transaction is open. Once a commit has begun it can only be aborted if the commit has failed."""
    return _transactions(send_checks).state in (State.IN_TRANSACTION, State.ABORTABLE)


def not_aborted(error: BaseException, failure: KafkaError) -> None:
    """Add the reason why an abort for ``error`` failed as a note to it."""
    for note in (f"abort_transaction() failed: {failure}", *getattr(failure, "__notes__", ())):
        error.add_note(note)


def abort_after(send_checks: SendChecks, error: BaseException) -> Waits[None]:
    """Abort for an exception. If it ends the program or the task, do not wait for long."""
    limit = None if isinstance(error, Exception) else (f"{_IN_A_HURRY:g} s", int(_IN_A_HURRY * 1000))
    return settle(send_checks, Transactions.begin_abort, "abort_transaction()", limit)


def time_to_close(send_checks: SendChecks, kind: type[BaseException] | None) -> Seconds | None:
    """The time for the close at the end of a ``with``: None is as long as records have.

    Ctrl-C, or a task that is cancelled, leaves records of a transaction that can no longer be committed. If the
    coordinator does not respond to the abort, the brokers abort by themselves.
    """
    transactions = send_checks.transactions
    is_in_a_hurry = kind is not None and not issubclass(kind, Exception)
    is_undone = transactions is not None and (can_abort(send_checks) or transactions.state is State.ABORTING)
    return _IN_A_HURRY if is_in_a_hurry and is_undone else None


def settle(
    send_checks: SendChecks,
    start: Callable[[Transactions], Done],
    call: str,
    limit: tuple[str, int] | None = None,
) -> Waits[None]:
    """Start a step and wait until it has ended, ``max.block.ms`` at most, or for ``limit``.

    Raises:
        KafkaTimeoutError: it has not ended; it continues in the background.
    """
    send_checks.check_usable()
    if send_checks.is_in_doubt and start is not Transactions.begin_abort:
        yield from send_checks.know_why(send_checks.block_until())
    with send_checks.gate:
        yield from send_checks.wait_until(start(_transactions(send_checks)), call, limit)


def has_returned(send_checks: SendChecks) -> None:
    """The call of `settle` has returned to the program, which therefore knows that the step has ended.

    Ctrl-C in the last instant of a commit prevents that: the program calls again, and gets the same result.
    """
    transactions = _transactions(send_checks)
    with send_checks.gate:
        transactions.has_returned()


def send_offsets(
    send_checks: SendChecks, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata
) -> Waits[None]:
    """See `Producer.send_offsets_to_transaction`."""
    wanted, member = checked_offsets(offsets), checked_group(group)
    try:
        yield from settle(
            send_checks,
            lambda transactions: transactions.begin_offsets(wanted, member),
            "send_offsets_to_transaction()",
        )
    except KafkaTimeoutError as error:
        with send_checks.gate:
            _transactions(send_checks).not_taken(error)
        raise


def _transactions(send_checks: SendChecks) -> Transactions:
    if send_checks.transactions is None:
        raise IllegalStateError("this producer has no transactions; create it with transactional.id")
    return send_checks.transactions
