"""A reader that gives records of the topics that a task means, and of no others that have their names by now.

A topic may be deleted and made anew after a batch was planned. Its offsets mean nothing in the new one, which may well
hold them. Brokers serve a consumer by the topic's id, and the consumer keeps to the id that it met first; so when
the first records of some ranges are here and the topic still has the id that the task was planned with, they and all
that follow are of that topic. This file looks at the id when the first records are here, before it hands them out. What
a worker kept from the task before needs no look. A topic that was deleted, and that nobody made anew, is the same loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kadence.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kadence.spark.source.loss import Loss
from kadence.spark.source.planning import Task
from kadence.spark.source.ports import RecordClient
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SameTopics"]


class SameTopics:
    """`kadence.spark.source.ports.RecordClient` over another one, for one task.

    With failOnDataLoss=false the ranges of a topic that was deleted count as read to their ends. If another topic has
    its name by now, the driver will see that, too, and read all of it.
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
                return self._go_on(self._ranges, max_records, timeout)  # nothing of them was handed out yet
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
        """Whether there are ranges of topics that were made anew; they are done with. Raises with failOnDataLoss."""
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
            return 0, self._ranges[partition][1]  # nothing of it is read any more

    def others(self) -> dict[str, str]:
        return self._client.others()

    def gone(self) -> set[TopicPartition]:
        return self._client.gone()

    def park(self) -> None:
        self._client.park()

    def close(self) -> None:
        self._client.close()
