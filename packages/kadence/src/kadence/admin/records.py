"""Deletes records: DeleteRecords (KIP-107)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from kadence.admin.arguments import P, by_partition
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.offsets import by_leader
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kadence.types import TopicPartition

__all__ = ["delete_records"]

_HIGH_WATERMARK = -1


@operation
def delete_records(
    calls: Calls, deadline: int, before: Mapping[P, int | Literal["latest"]]
) -> Waits[Outcomes[TopicPartition, int]]:
    """Delete all records below an offset (KIP-107). It cannot be undone.

    Args:
        before: for each partition the first offset that is kept; ``"latest"`` deletes all records.

    Returns:
        The first offset of each partition's log after the deletion.

    Raises:
        OffsetOutOfRangeError: an offset beyond the end of the log. BrokerError: with the name POLICY_VIOLATION:
            the topic's cleanup.policy is compact, without delete.
    """
    wanted = {tp: _offset(offset) for tp, offset in by_partition(before).items()}

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[dict[TopicPartition, int | KafkaError]]:
        lost: dict[tuple[TopicPartition, int], Any] = {}
        by_node = yield from by_leader(calls, [(tp, wanted[tp]) for tp in partitions], deadline, lost)
        found: dict[TopicPartition, int | KafkaError] = {tp: error for (tp, _), error in lost.items()}
        asks = [Ask(_request(items, calls.left_ms(deadline)), node) for node, items in by_node.items()]
        answers = yield from calls.ask_all(asks, deadline)
        for items, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                found.update({tp: answer for tp, _ in items})
                continue
            for topic in answer.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    found[tp] = refusal(each.error_code, tp) if each.error_code else each.low_watermark
        return found

    return calls.settle(wanted, attempt, deadline)


def _offset(offset: object) -> int:
    if offset == "latest":
        return _HIGH_WATERMARK
    if isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0:
        return offset
    raise ValueError(f"records are deleted below an offset >= 0 or 'latest', not {offset!r}")


def _request(items: Collection[tuple[TopicPartition, int]], timeout_ms: int) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for tp, offset in items:
        topics.setdefault(tp.topic, []).append(DeleteRecordsPartition(tp.partition, offset))
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name, partitions) for name, partitions in topics.items()],
        timeout_ms=timeout_ms,
    )
