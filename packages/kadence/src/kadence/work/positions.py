"""The positions of partitions, and the offsets that may be committed (C19).

`process` commits `ReadOffset`s: offsets with the fetch epoch under which their records were read. Offsets of an
outdated fetch epoch are not committed: the consumer's network thread leaves them out of its commits, and `counted`
refuses them for transactions. So records read before a seek, a reset or a topic's recreation do not count after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kadence.errors import KafkaError
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.frontier import Stretch

__all__ = ["PositionLostError", "Reading", "counted"]


class PositionLostError(KafkaError):
    """A partition's position has changed since: records read before do not count."""

    retriable = True


class Reading(Protocol):
    """The consumer's positions and commits. Only `fetch_epochs` and `fetch_epochs_of_known` are for any thread.

    Attributes:
        is_manual: whether the program assigns partitions, so that no rebalance listener is called.
    """

    @property
    def is_manual(self) -> bool: ...
    def has_moved(self) -> bool:
        """Whether a position, or a manual assignment, has changed since the last call."""

    def stretches(self, *, from_here: bool = False) -> Mapping[TopicPartition, Stretch]:
        """The stretch of each assigned partition that has a position and is not being revoked, with its first offset.

        Args:
            from_here: with the present position in place of the first offset.
        """

    def returned_under(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The fetch epochs of the last poll's records of these, without partitions that are no longer assigned."""

    def log_end(self, partition: TopicPartition) -> int | None:
        """The log end offset that the leader sent with the last poll's records; None: unknown."""

    def fetch_epochs(self) -> Mapping[TopicPartition, int]:
        """The present fetch epochs of all assigned partitions."""

    def fetch_epochs_of_known(self) -> Mapping[TopicPartition, int]:
        """The same, without partitions whose topic was deleted, as far as the consumer knows.

        Before Kafka 4.4 a transaction commits by topic name: offsets of a deleted topic would count for the next topic
        of its name.
        """

    def topic_ids(self, read: Mapping[TopicPartition, ReadOffset]) -> dict[str, bytes]:
        """The ids of the topics that these offsets are of, by name, without those that are unknown or outdated."""

    def commit_async(
        self,
        read: Mapping[TopicPartition, ReadOffset],
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object],
        *,
        is_parting: bool = False,
    ) -> None:
        """Commit without waiting. ``callback`` is called without the partitions whose fetch epoch is outdated.

        Args:
            is_parting: the partitions are given up as soon as the commit has ended.
        """


def counted(
    read: Mapping[TopicPartition, ReadOffset], epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of ``read``, for a transaction.

    Args:
        epochs: the present fetch epochs (`Reading.fetch_epochs_of_known`).

    Raises:
        PositionLostError: the fetch epoch of one of them is outdated.
    """
    if lost := sorted(p for p, each in read.items() if epochs.get(p) != each.fetch_epoch):
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise PositionLostError(f"{lost[0]}{more}: the position has changed since its records were read")
    return {partition: each.at for partition, each in read.items()}
