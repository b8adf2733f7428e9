"""A transaction that one process writes and another one ends. For `kadence_spark`, whose driver decides the commit.

A producer that leaves its transactions open keeps its connections, and takes another transactional id for each.
"""

from __future__ import annotations

from functools import partial

from kadence.producer.producer import Producer
from kadence.producer.transaction_calls import settle
from kadence.producer.transactions import Transactions
from kadence.types import OpenTransaction

__all__ = ["begin_as", "commit", "leave_open"]


def begin_as(producer: Producer, transactional_id: str) -> None:
    """Begin a transaction under this id. A transaction that another producer has open under it is aborted first.

    Raises:
        KafkaError: as `Producer.init_transactions`.
    """
    producer._shell.run(
        settle(
            producer._send_checks,
            partial(Transactions.begin_as, transactional_id=transactional_id),
            "init_transactions()",
        )
    )
    producer.begin_transaction()


def leave_open(producer: Producer) -> OpenTransaction | None:
    """Leave the transaction open for another process to end, once all of its records are acknowledged.

    Returns:
        The identity of the transaction; None if nothing was written in it.
    """
    send_checks = producer._send_checks
    send_checks.check_usable()
    with send_checks.gate:
        assert send_checks.transactions is not None
        return send_checks.transactions.leave_open()


def commit(producer: Producer) -> None:
    """Commit the transaction; the next one may begin under another id.

    Raises:
        KafkaError: as `Producer.commit_transaction`.
    """
    producer.commit_transaction()
    producer.begin_transaction()
    leave_open(producer)
