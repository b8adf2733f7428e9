"""Where partitions are read, and what may be committed of them (C19).

What `process` commits are `ReadOffset`s: each has the fetch epoch under which its records were read. There are two ways
to a broker: commits of the consumer, whose network thread leaves out what is no longer read from there, and `counted`,
for transactions. So nothing that was read counts for what is read after a seek, a reset or a topic that was made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kadence.errors import KafkaError
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.frontier import Stretch

__all__ = ["PositionLostError", "Reading", "counted"]


class PositionLostError(KafkaError):
    """A partition is read from another place by now: what was read before does not count."""

    retriable = True


class Reading(Protocol):
    """What the consumer tells of where it reads, and what it commits of that. Only `fetch_epochs…` are for any thread.

    Attributes:
        is_manual: whether the program assigns partitions, and nobody tells of them.
    """

    @property
    def is_manual(self) -> bool: ...
    def has_moved(self) -> bool:
        """Whether a position, or the assignment of a program, has changed since this was asked last."""

    def stretches(self, *, from_here: bool = False) -> Mapping[TopicPartition, Stretch]:
        """Of each assigned partition that has a position, and does not go: where its stretch of reading began.

        Args:
            from_here: where reading stands now in place of that.
        """

    def returned_under(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The fetch epochs of what the last poll returned of these, without those whose assignment is gone."""

    def log_end(self, partition: TopicPartition) -> int | None:
        """Where a partition's log ends, as its leader said with what the last poll returned; None: it is not known."""

    def fetch_epochs(self) -> Mapping[TopicPartition, int]:
        """The fetch epochs of all assigned partitions now."""

    def fetch_epochs_of_known(self) -> Mapping[TopicPartition, int]:
        """The same, without those whose topic is gone, as far as the consumer knows.

        A transaction commits by the names of topics: offsets of one that is gone would count for the next of its name.
        """

    def commit_async(
        self,
        read: Mapping[TopicPartition, ReadOffset],
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object],
        *,
        is_parting: bool = False,
    ) -> None:
        """Commit without waiting. ``callback`` is not told of what is no longer read from there.

        Args:
            is_parting: these are given up as soon as the commit has ended.
        """


def counted(
    read: Mapping[TopicPartition, ReadOffset], epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a transaction may commit of this.

    Args:
        epochs: of what is read now (`Reading.fetch_epochs_of_known`).

    Raises:
        PositionLostError: some of it was read from a place that is lost.
    """
    if lost := sorted(p for p, each in read.items() if epochs.get(p) != each.fetch_epoch):
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise PositionLostError(f"{lost[0]}{more}: the position from which its records were read is lost")
    return {partition: each.at for partition, each in read.items()}
