"""Producers that partitions remember: the messages and what their answers mean (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kadence.admin.arguments import Partitions, as_partitions, by_topic
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.offsets import by_leader
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from kadence.types import TopicPartition

__all__ = ["ProducerState", "describe_producers"]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that has written to a partition, as the partition's leader remembers it.

    Attributes:
        last_sequence: of its last batch; None: the leader knows none. last_timestamp: of its last write, in ms
            since 1970.
        coordinator_epoch: of the coordinator that ended its last transaction; None: it has ended none here.
        transaction_start: the first offset of its open transaction; None: it has none here.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    transaction_start: int | None


@operation
def describe_producers(
    calls: Calls, deadline: int, partitions: Partitions
) -> Waits[Outcomes[TopicPartition, list[ProducerState]]]:
    """The idempotent and transactional producers that partitions remember, by producer id (KIP-664).

    Use it to find the open transaction that holds up ``read_committed`` readers of a partition: the one whose
    ``transaction_start`` is the last stable offset. `list_transactions` has its transactional id.
    """

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[dict[TopicPartition, list[ProducerState] | KafkaError]]:
        lost: dict[tuple[TopicPartition, int], Any] = {}
        by_node = yield from by_leader(calls, [(tp, 0) for tp in partitions], deadline, lost)
        found: dict[TopicPartition, list[ProducerState] | KafkaError] = {
            tp: error for (tp, _), error in lost.items()
        }
        asks = [
            Ask(
                DescribeProducersRequest(
                    topics=[
                        TopicRequest(name=topic, partition_indexes=indexes)
                        for topic, indexes in by_topic(tp for tp, _ in items).items()
                    ]
                ),
                node,
            )
            for node, items in by_node.items()
        ]
        answers = yield from calls.ask_all(asks, deadline)
        for items, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                found.update({tp: answer for tp, _ in items})
                continue
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    found[tp] = _producers(tp, each)
        return found

    return calls.settle(as_partitions(partitions), attempt, deadline)


def _producers(tp: TopicPartition, answer: PartitionResponse) -> list[ProducerState] | KafkaError:
    if answer.error_code:
        return refusal(answer.error_code, tp, answer.error_message)

    def known(number: int) -> int | None:
        return number if number >= 0 else None

    return [
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            known(each.last_sequence),
            known(each.last_timestamp),
            known(each.coordinator_epoch),
            known(each.current_txn_start_offset),
        )
        for each in sorted(answer.active_producers, key=lambda each: each.producer_id)
    ]
