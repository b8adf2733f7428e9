"""A reader that returns only records of a task's planned topics, and not of recreated topics of the same names.

A topic may be recreated after a batch was planned. The old offsets do not apply to the new topic, although it may have
them. Brokers serve a consumer by the topic's id, and the consumer keeps its first id. So if the topic has the planned
id after the first records of some ranges have arrived, they and all later ones are of that topic. This module checks
the id then, before it returns the records. Records that a worker has buffered in an earlier task need no check. A topic
that was deleted, and not recreated, is the same kind of loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kadence.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kadence.types import TopicPartition
from kadence_spark.source.loss import Loss
from kadence_spark.source.planning import Task
from kadence_spark.source.ports import RecordClient

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SameTopics"]


class SameTopics:
    """`kadence_spark.source.ports.RecordClient` over another one, for one task.

    With failOnDataLoss=false the ranges of a deleted topic count as read to their ends. If it was recreated, the driver
    detects that, too, and reads all of the new one.
    """

    def __init__(self, client: RecordClient, task: Task, *, fail_on_data_loss: bool) -> None:
        self._client = client
        self._ids = {piece.topic: piece.topic_id for piece in task if piece.topic_id}
        self._loss = Loss(fail=fail_on_data_loss)
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}
        self._passed: dict[TopicPartition, int] = {}
        self._is_proved = False

    def start(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        self._ranges = {p: each for p, each in ranges.items() if p not in self._passed}
        self._is_proved = not self._ids
        if self._ranges:
            self._client.start(self._ranges, ids or self._ids)

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        try:
            table = self._client.poll(max_records, timeout)
        except OffsetOutOfRangeError:
            if not self._pass_over_others():
                raise
        else:
            if table.num_rows:
                if self._is_proved or not self._pass_over_others():
                    return table
                return self._go_on(
                    self._ranges, max_records, timeout
                )  # none of their records was returned yet
            if not self._pass_over(self._client.gone()):
                return table
        left = {
            partition: (self._client.position(partition), end)
            for partition, (_, end) in self._ranges.items()
            if partition not in self._passed
        }
        return self._go_on(left, max_records, timeout)

    def _go_on(
        self, left: Mapping[TopicPartition, tuple[int, int]], max_records: int | None, timeout: float
    ) -> pa.Table:
        import pyarrow as pa

        self.start(left)
        return self.poll(max_records, timeout) if self._ranges else pa.table({})

    def _pass_over_others(self) -> bool:
        """Whether there are ranges of recreated topics, which are then done. Raises with failOnDataLoss."""
        self._is_proved = True
        others = self._client.others()
        self._loss.made_anew({topic: (self._ids[topic], topic_id) for topic, topic_id in others.items()})
        return self._let_go({partition for partition in self._ranges if partition.topic in others})

    def _pass_over(self, gone: set[TopicPartition]) -> bool:
        """Whether the cluster does not have partitions of the ranges; as `_pass_over_others`."""
        if gone:
            self._loss.gone(gone)
        return self._let_go(gone)

    def _let_go(self, partitions: set[TopicPartition]) -> bool:
        self._passed |= {partition: self._ranges[partition][1] for partition in partitions}
        return bool(partitions)

    def is_done(self) -> bool:
        return not self._ranges or self._client.is_done()

    def position(self, partition: TopicPartition) -> int:
        passed = self._passed.get(partition)
        return self._client.position(partition) if passed is None else passed

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        try:
            return self._client.log_range(partition)
        except UnknownTopicOrPartitionError:
            if not self._pass_over(self._client.gone()):
                raise
            return 0, self._ranges[partition][1]  # it is not read any more

    def others(self) -> dict[str, str]:
        return self._client.others()

    def gone(self) -> set[TopicPartition]:
        return self._client.gone()

    def park(self) -> None:
        self._client.park()

    def close(self) -> None:
        self._client.close()
