"""The observations of a group: plain values, which `asking` makes and `reasons` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from kadence.admin import ConfigEntry, DeadLetterQueue
from kadence.lag import lag
from kadence.lazy_dataclasses import dataclass, field
from kadence.types import TopicPartition
from kadence_cli.group_types import Description
from kadence_cli.top.local import Process

__all__ = ["Cause", "Evidence", "Look", "OpenTransaction", "PartitionLook", "SeenRecord"]

Cause: TypeAlias = Literal["no-leader", "no-topic", "not-allowed"]
"""Kinds of errors of a partition; the first stands for all others."""


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """A partition that the group has committed, or that a member owns.

    Attributes:
        committed: the committed offset; the start offset of a share group. first, stable, end: its first offset, the
            last stable one, and the end. None: not known.
        above: how many records are done above the committed offset, from the metadata of `process`, or from the lag of
            a share group. waiting: that lag, as its broker counts it.
        trouble: why its offsets are unknown: "no leader", or a broker's error; empty if known. cause: its kind.
    """

    committed: int | None
    first: int | None = None
    stable: int | None = None
    end: int | None = None
    above: int = 0
    trouble: str = ""
    cause: Cause = "no-leader"
    waiting: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the end; of a share group without those that are done."""
        return lag(self.end, self.committed) if self.waiting is None else self.waiting

    @property
    def done(self) -> int | None:
        """A number that grows with each record that is done."""
        if self.committed is None or self.waiting is None:
            return self.committed
        return self.committed + self.above


@dataclass(frozen=True, slots=True)
class Look:
    """A group at one moment."""

    description: Description
    partitions: Mapping[TopicPartition, PartitionLook]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that begins at a partition's last stable offset.

    Attributes:
        transactional_id: None: no coordinator knows the producer. is_hanging: its coordinator does not know it here.
        started_ms: when it began, ms since 1970; of one that hangs, when its producer wrote last. None: not known.
        timeout_ms: after which its coordinator aborts it; None: not known, or never.
    """

    producer_id: int
    start_offset: int
    transactional_id: str | None
    is_hanging: bool
    started_ms: int | None
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record, without its value. ``size``: bytes of key and value. ``timestamp_ms``: ms since 1970."""

    offset: int
    size: int
    key: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that was looked up for the results of looks.

    Attributes:
        transactions, records: by partition. processes: of this machine, by member id.
        read_up: partitions that have only transaction markers and aborted records between the committed offset and the
            last stable one. A consumer that commits the offset behind its last record stays there.
        settings: of the group, by key: of a share group, and of one without members that may have been meant for one.
        dead_letters: where those of a share group go. None: it could not be looked up.
    """

    transactions: Mapping[TopicPartition, OpenTransaction] = field(default_factory=dict)
    records: Mapping[TopicPartition, SeenRecord] = field(default_factory=dict)
    processes: Mapping[str, Process] = field(default_factory=dict)
    read_up: frozenset[TopicPartition] = frozenset()
    settings: Mapping[str, ConfigEntry] = field(default_factory=dict)
    dead_letters: DeadLetterQueue | None = None
