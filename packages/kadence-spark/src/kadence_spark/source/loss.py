"""Finds lost records for failOnDataLoss: records that the query should read and that brokers do not have any more.

Only certain losses count. Offsets without a record (compaction, aborted transactions, control records) are not a loss,
and gaps between records are ignored. A loss is: a log that begins above the next offset to read (retention,
DeleteRecords), a log that ends below it (truncated by an unclean election), a recreated topic (it has another id), and
a partition that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from kadence.errors import LocalError
from kadence.logs import logger
from kadence.types import TopicPartition

__all__ = ["DataLossError", "Loss"]

_log = logger("kadence.spark")

_ADVICE = (
    "To go on with what is left (all of a topic that was recreated) set failOnDataLoss=false. To read all that is "
    "there begin with startingOffsets=earliest and no other start or end; a stream needs a new checkpointLocation for "
    "it."
)


class DataLossError(LocalError):
    """Records of the query cannot be read any more."""


class Loss:
    """Raises an error or logs, depending on failOnDataLoss; each loss is logged once."""

    def __init__(self, *, fail: bool) -> None:
        self.fail = fail
        self._told: set[str] = set()

    def aged_out(self, partition: TopicPartition, start: int, log_start: int) -> None:
        """The log begins above the next offset to read."""
        self._report(
            f"{log_start - start} offsets of {partition} were deleted before they were read: offset {start} was "
            f"next, the log now begins at {log_start}"
        )

    def cut_off(self, partition: TopicPartition, start: int, log_end: int, topic_id: str = "") -> None:
        """The log ends below an offset that it had reached. ``topic_id``: known, and the same as before."""
        why = (
            f"the topic is the same (id {topic_id}), so an unclean leader election truncated it"
            if topic_id
            else "the topic was deleted and recreated, or an unclean leader election truncated it"
        )
        self._report(
            f"the log of {partition} ends at {log_end}, below offset {start} that it had reached: {why}"
        )

    def made_anew(self, topics: Mapping[str, tuple[str, str]]) -> None:
        """Topics of the query were recreated: the ids before and now."""
        ids = ",".join(f"{topic}={now}" for topic, (_, now) in sorted(topics.items()))
        for topic, (before, now) in sorted(topics.items()):
            self._report(
                f"topic {topic!r} was deleted and recreated: the query read the one with id {before}, the one that "
                f"has the name now has id {now}; what was not read of the old one is gone",
                "If the new one is a copy in which each record has the same offset (cluster linking, a restore), start "
                f"the query once with the option adoptTopicIds={ids}, or a pipeline with --adopt-topic-ids {ids}. ",
            )

    def copy_is_short(self, partition: TopicPartition, offset: int, log_end: int, topic_id: str) -> NoReturn:
        """An adopted copy of a topic lacks offsets that the query has read. They would later be those of other records.

        Raises:
            DataLossError: always, because the missing records may still be copied, to these offsets.
        """
        raise DataLossError(
            f"adoptTopicIds: the log of {partition} with topic id {topic_id} ends at {log_end}, below offset {offset} "
            "that the query had reached in the topic before. Either the copy has not come so far yet, then start the "
            "query again later; or it is no copy with the same offsets, then leave the option out"
        )

    def beyond(self, partition: TopicPartition, offset: int, log_end: int) -> None:
        """The log ends below an offset that the options of a batch query name, or a group has committed."""
        self._report(
            f"the log of {partition} ends at {log_end}, below offset {offset} that the query was to reach: the "
            "topic was deleted and recreated, an unclean leader election truncated it, or it is another topic's offset"
        )

    def nothing_left(self, partition: TopicPartition, end: int, log_start: int) -> None:
        """The log begins above the end of a batch query: all its records were deleted."""
        self._report(
            f"the log of {partition} begins at {log_start}, above offset {end} where the query ends: all that it "
            "was to read was deleted"
        )

    def gone(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions of the query do not exist any more."""
        names = ", ".join(map(str, sorted(partitions)))
        self._report(f"partitions that the query reads do not exist any more: {names}")

    def left_out(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions of the checkpoint that are not in the options any more, whether they exist or not."""
        names = ", ".join(map(str, sorted(partitions)))
        self._report(
            f"the checkpoint has partitions that the options no longer name: {names}",
            "If they belong to the query, name them again in subscribe, subscribePattern or assign. ",
        )

    def _report(self, what: str, advice: str = "") -> None:
        if self.fail:
            raise DataLossError(f"data loss: {what}. {advice}{_ADVICE}")
        if what not in self._told:
            self._told.add(what)
            _log.warning("data loss, going on because of failOnDataLoss=false: %s", what)
