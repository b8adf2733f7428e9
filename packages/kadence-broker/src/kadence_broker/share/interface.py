"""What the coordinator of share groups may ask of the room `share` (KIP-932), and the settings that the room asks for.

A share-partition is a (group, topic id, partition): its start offset, and the states of the records from there on. Its
state has to be *initialised* once before anything of it can be read. In Kafka the group coordinator does that through
requests to a share coordinator (InitializeShareGroupState and its kin); here both live in one process, so these are
calls. They take effect at once and are stored; `when_durable` says when they outlast a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

__all__ = ["UNINITIALISED", "SettingsOf", "SharePartitions", "ShareSettings", "Summary"]

UNINITIALISED: Final = -1
"""The start offset of a share-partition that begins where ``share.auto.offset.reset`` says, at its first fetch."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings of one group that the leader of a partition needs. The defaults are Kafka 4.4's.

    Attributes:
        lock_duration_ms: ``share.record.lock.duration.ms``.
        delivery_count_limit: ``share.delivery.count.limit``.
        max_record_locks: ``share.partition.max.record.locks``.
        read_committed: ``share.isolation.level`` is read_committed.
        offset_reset: ``share.auto.offset.reset``: latest, earliest or by_duration:PT…
        renew_enabled: ``share.renew.acknowledge.enable``.
        dead_letter_topic: ``errors.deadletterqueue.topic.name``; empty: there is none.
        dead_letter_copies: ``errors.deadletterqueue.copy.record.enable``.
    """

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    read_committed: bool = False
    offset_reset: str = "latest"
    renew_enabled: bool = True
    dead_letter_topic: str = ""
    dead_letter_copies: bool = False


SettingsOf = Callable[[str], ShareSettings]
"""The settings of a group at this moment; asked for whenever a rule needs one, so a change takes effect at once."""


class Summary(NamedTuple):
    """What is stored of a share-partition (ReadShareGroupStateSummary).

    Attributes:
        start_offset: -1 until something has been acknowledged, released or timed out for the first time.
        delivery_complete_count: offsets from the start offset on that are done; -1 if that is not known. The lag is
            the end of the log − start offset − this count.
        leader_epoch: of the partition's leader when the state was read for the last time.
    """

    start_offset: int
    delivery_complete_count: int
    leader_epoch: int


class SharePartitions(Protocol):
    """What the group coordinator uses.

    The error codes: NONE; COORDINATOR_NOT_AVAILABLE if the state cannot be stored now (the topic of the state has no
    leader, or the disk is full); FENCED_STATE_EPOCH if ``state_epoch`` is older than the stored one.
    """

    def initialise(
        self, group_id: str, topic_id: bytes, partition: int, start_offset: int, state_epoch: int
    ) -> int:
        """Create a share-partition, or begin it anew: states and counts that it has are gone.

        Args:
            start_offset: `UNINITIALISED`, or an offset: 0 for a partition that a topic got after the group began
                to read it (reference: §13.1).
            state_epoch: the group epoch.
        """
        ...

    def alter(self, group_id: str, topic_id: bytes, partition: int, start_offset: int) -> int:
        """Let a share-partition begin at ``start_offset``, with its own state epoch; it is made if there is none.

        Who holds records of it hears NOT_LEADER_OR_FOLLOWER; the next fetch reads from the new offset.
        """
        ...

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> int:
        """Forget a share-partition; NONE, too, if there is none."""
        ...

    def is_initialised(self, group_id: str, topic_id: bytes, partition: int) -> bool: ...

    def initialised(self, group_id: str) -> Mapping[bytes, Sequence[int]]:
        """All share-partitions of a group: partitions, ascending, by topic id."""
        ...

    def summary(self, group_id: str, topic_id: bytes, partition: int) -> Summary | None:
        """None: it is not initialised."""
        ...

    def when_durable(self, callback: Callable[[int], None]) -> None:
        """Call ``callback`` once all changes so far are stored for good; with an error code if they may be lost."""
        ...
