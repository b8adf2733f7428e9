"""Values that the public API takes and returns. All immutable, all picklable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "GroupMetadata",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "SubscriptionPattern",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position: ``offset`` is the *next* record to read.

    Attributes:
        offset: next offset to read, >= 0.
        leader_epoch: epoch of the last record before it, for truncation detection (KIP-320); None = unknown.
        metadata: a short note stored with it (broker limit: 4096 characters by default).
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"a committed offset must be >= 0, not {self.offset}")


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """Answer of a look-up by time: the first offset whose timestamp (ms since 1970) is not before the one asked."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member's identity at one moment; one value, so its parts never mix generations.

    ``generation_id`` is the generation (classic) or member epoch (KIP-848), −1 when not in the group;
    ``member_id`` is "" before joining.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression that the *broker* matches whole topic names with, for `Consumer.subscribe` (KIP-848).

    The syntax is RE2's (https://github.com/google/re2/wiki/Syntax), not Python's: no look-around and no back
    references. The broker looks for new topics by itself, and sees only those that this client may describe. A
    compiled `re.Pattern` is matched by the client instead, with every group protocol.

    Attributes:
        pattern: the expression, e.g. ``"orders-.*"``.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise TypeError(f"a SubscriptionPattern is made of a str, not {self.pattern!r}")
        if not self.pattern:
            raise ValueError("a SubscriptionPattern cannot be empty; '.*' matches every topic")

    def __str__(self) -> str:
        return self.pattern


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as metadata names it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as metadata tells it. Node ids; ``leader`` is None while there is none.

    ``topic_id`` tells a topic from another one of the same name; all zero where brokers have no ids (KIP-516).
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    topic_id: bytes = bytes(16)
