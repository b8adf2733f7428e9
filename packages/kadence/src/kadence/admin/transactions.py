"""Transactions as their coordinators know them: the messages and what their answers mean (KIP-664, KIP-730).

`end_transactions` is not part of the public client. It ends transactions that another process has written, for a
process that got the producer id and epoch: Spark's driver ends those of its tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kadence.admin.arguments import as_names, as_partition
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.offsets import by_leader
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError, for_code
from kadence.lazy_dataclasses import dataclass
from kadence.printable import printable
from kadence.protocol import error_codes as ec
from kadence.protocol.describe_transactions import DescribeTransactionsRequest, TransactionState
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kadence.types import OpenTransaction, TopicPartition

__all__ = [
    "FencedProducer",
    "TransactionDescription",
    "TransactionListing",
    "abort_transaction",
    "describe_transactions",
    "fence_producers",
    "list_transactions",
]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as `Admin.list_transactions` returns it.

    Attributes:
        state: Kafka's name: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit" or
        "CompleteAbort". coordinator: the id of the broker that coordinates it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it.

    Attributes:
        state: as in `TransactionListing`. coordinator: the id of the broker that coordinates it.
        timeout_ms: for how long its transaction may be open. started_ms: when the open transaction began, in ms
            since 1970; None: none is open. partitions: those that the open transaction has written to.
    """

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and the epoch that the transactional id got when `Admin.fence_producers` fenced its producer."""

    producer_id: int
    epoch: int


_OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_LAST_END_OF_V1: Final = 4
"""With a later version the coordinator takes the transaction for one of transactions v2 (KIP-890)."""

_FENCED_TIMEOUT_MS: Final = 60_000
"""An InitProducerId must name a timeout; it is that of a transaction which is never begun."""


@operation
def list_transactions(
    calls: Calls, deadline: int, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
) -> Waits[list[TransactionListing]]:
    """The transactional ids of all brokers, sorted (KIP-664). Those that this client may not describe are left out.

    Args:
        states: only those in one of these states, such as "Ongoing"; empty: all. producer_ids: only those of these
            producers; empty: all.
    """
    message = ListTransactionsRequest(state_filters=as_states(states), producer_id_filters=list(producer_ids))

    def attempt(deadline: int) -> Waits[list[TransactionListing]]:
        known = yield from calls.metadata([], deadline)
        brokers = [broker.node_id for broker in known.brokers]
        found: dict[str, TransactionListing] = {}
        answers = yield from calls.ask_all([Ask(message, node) for node in brokers], deadline)
        for node, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, KafkaError):
                raise answer
            if answer.error_code:
                raise for_code(answer.error_code)
            for each in answer.transaction_states:
                found[each.transactional_id] = TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state, node
                )
        return [found[name] for name in sorted(found)]

    listed = yield from calls.settle_one(attempt, deadline)
    calls.remember_coordinators({each.transactional_id: each.coordinator for each in listed})
    return listed


@operation
def describe_transactions(
    calls: Calls, deadline: int, transactional_ids: str | Iterable[str]
) -> Waits[Outcomes[str, TransactionDescription]]:
    """The coordinators' state of transactional ids: state, producer, partitions and start time (KIP-664).

    Raises:
        BrokerError: TRANSACTIONAL_ID_NOT_FOUND: brokers do not know the id (any more).
    """

    def attempt(
        names: Collection[str], deadline: int
    ) -> Waits[dict[str, TransactionDescription | KafkaError]]:
        result: dict[str, TransactionDescription | KafkaError] = {}
        by_node: dict[int, list[str]] = {}
        coordinators = yield from calls.transaction_coordinators(names, deadline)
        for name, node in coordinators.items():
            if isinstance(node, KafkaError):
                result[name] = node
            else:
                by_node.setdefault(node, []).append(name)
        asks = [Ask(DescribeTransactionsRequest(given), node) for node, given in by_node.items()]
        answers = yield from calls.ask_all(asks, deadline)
        for (node, given), answer in zip(by_node.items(), answers, strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(given, answer))
                continue
            for each in answer.transaction_states:
                result[each.transactional_id] = _described(each, node)
        return result

    return calls.settle(as_names(transactional_ids), attempt, deadline)


def _described(found: TransactionState, node: int) -> TransactionDescription | KafkaError:
    if found.error_code:
        return _refused(found.error_code, found.transactional_id)
    return TransactionDescription(
        found.transactional_id,
        found.transaction_state,
        node,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        # Brokers report the start time of a transaction even after it has ended.
        found.transaction_start_time_ms if found.transaction_state in _OPEN else None,
        frozenset(
            TopicPartition(topic.topic, partition) for topic in found.topics for partition in topic.partitions
        ),
    )


@operation
def fence_producers(
    calls: Calls, deadline: int, transactional_ids: str | Iterable[str]
) -> Waits[Outcomes[str, FencedProducer]]:
    """Fence the producers with these transactional ids (KIP-730): their transactions fail.

    Open transactions are aborted. An id that no producer has used is created.
    """
    messages = {name: InitProducerIdRequest(name, _FENCED_TIMEOUT_MS) for name in as_names(transactional_ids)}

    def read(name: str, answer: Any) -> FencedProducer | KafkaError:
        if answer.error_code:
            return _refused(answer.error_code, name)
        return FencedProducer(answer.producer_id, answer.producer_epoch)

    asks = {name: Ask(each) for name, each in messages.items()}
    return _ask_coordinators(calls, deadline, asks, read)


@operation
def abort_transaction(
    calls: Calls,
    deadline: int,
    partition: TopicPartition | tuple[str, int],
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
) -> Waits[None]:
    """Abort a hanging transaction in one partition: only its leader gets a request, no coordinator does (KIP-664).

    Use it only for a transaction that no coordinator will end. Otherwise call `fence_producers`, which aborts in
    all partitions: a transaction that is aborted in one of them may be committed in others.

    Args:
        producer_id, producer_epoch: of the producer, as `describe_producers` has them.
        coordinator_epoch: as `describe_producers` has it; 0 where that is None.

    Raises:
        BrokerError: CLUSTER_AUTHORIZATION_FAILED: this login may not write markers. INVALID_PRODUCER_EPOCH,
            TRANSACTION_COORDINATOR_FENCED: the partition knows a later epoch.
    """
    marker = WritableTxnMarker(producer_id, producer_epoch, False, [], coordinator_epoch)

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[dict[TopicPartition, None | KafkaError]]:
        lost: dict[tuple[TopicPartition, int], Any] = {}
        by_node = yield from by_leader(calls, [(tp, 0) for tp in partitions], deadline, lost)
        result: dict[TopicPartition, None | KafkaError] = {tp: error for (tp, _), error in lost.items()}
        for node, items in by_node.items():
            marker.topics = [WritableTxnMarkerTopic(tp.topic, [tp.partition]) for tp, _ in items]
            answer = yield from calls.ask(Ask(WriteTxnMarkersRequest([marker]), node), deadline)
            for each in answer.markers:
                for topic in each.topics:
                    for at in topic.partitions:
                        tp = TopicPartition(topic.name, at.partition_index)
                        result[tp] = refusal(at.error_code, tp) if at.error_code else None
        return result

    outcomes: Outcomes[TopicPartition, None] = yield from calls.settle(
        [as_partition(partition)], attempt, deadline
    )
    outcomes.raise_errors()


def end_transactions(
    calls: Calls, deadline: int, transactions: Iterable[OpenTransaction], *, committed: bool
) -> Waits[Outcomes[str, None]]:
    """Commit or abort transactions of others.

    An answer that was lost does no harm: coordinators recognise a repeated request, until the id is taken over.
    Each error that remains means that the transaction was not ended in this way: brokers have aborted it, or a
    producer has taken the id over.
    """
    asks = {
        each.transactional_id: Ask(
            EndTxnRequest(each.transactional_id, each.producer_id, each.epoch, committed=committed),
            max_version=None if each.is_v2 else _LAST_END_OF_V1,
        )
        for each in transactions
    }

    def read(name: str, answer: Any) -> KafkaError | None:
        return _refused(answer.error_code, name) if answer.error_code else None

    return _ask_coordinators(calls, deadline, asks, read)


def _ask_coordinators(
    calls: Calls, deadline: int, asks: Mapping[str, Ask], read: Any
) -> Waits[Outcomes[str, Any]]:
    """One request for each id, all at the same time, each to the id's coordinator."""

    def attempt(names: Collection[str], deadline: int) -> Waits[dict[str, Any]]:
        result: dict[str, Any] = {}
        wanted: dict[str, Ask] = {}
        coordinators = yield from calls.transaction_coordinators(names, deadline)
        for name, node in coordinators.items():
            if isinstance(node, KafkaError):
                result[name] = node
            else:
                wanted[name] = asks[name]
                wanted[name].node_id = node
        answers = yield from calls.ask_all(list(wanted.values()), deadline)
        for name, answer in zip(wanted, answers, strict=True):
            result[name] = answer if isinstance(answer, KafkaError) else read(name, answer)
        return result

    return calls.settle(asks, attempt, deadline)


def _refused(code: int, name: str) -> KafkaError:
    return refusal(code, f"transactional id {printable(name)!r}", ec.MESSAGES.get(code))


def as_states(states: Iterable[str]) -> list[str]:
    """States of transactions. A broker passes over names that it does not know, and lists all if none is left."""
    found = as_names(states)
    for state in found:
        if state not in _STATES:
            raise ValueError(f"a transaction is in one of the states {', '.join(_STATES)}, not {state!r}")
    return found


_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
