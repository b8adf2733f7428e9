"""Values that the public API takes and returns, and its type variables. All values are immutable and picklable.

Only type checkers see the type variables' defaults; Python 3.11 does not support them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kadence.lazy_dataclasses import dataclass, field
from kadence.printable import printable

__all__ = [
    "GroupMetadata",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "SubscriptionPattern",
    "TopicPartition",
]

if TYPE_CHECKING:
    # Both checkers bring its types along, so nobody has to install it.
    from typing_extensions import TypeVar
else:
    from typing import TypeVar as _Plain

    def TypeVar(name: str, *, covariant: bool, default: object) -> _Plain:  # noqa: N802 - in its place
        del default
        return _Plain(name, covariant=covariant)


K_co = TypeVar("K_co", covariant=True, default=bytes)
"""What a key's deserialiser makes of bytes; bytes without one, and where nobody says, as in ``list[Record]``."""
V_co = TypeVar("V_co", covariant=True, default=bytes)
"""The same of values."""
T_co = TypeVar("T_co", covariant=True, default=Any)
"""What one deserialiser makes."""

MaybeNone = Any
"""None where a record has no key or no value. Type checkers do not insist on a test for it, as for `re.Match.group`:
most topics have none of these, and whoever reads such a topic knows.
"""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{printable(self.topic)}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position: ``offset`` is the *next* record to read.

    Attributes:
        offset: next offset to read, >= 0.
        leader_epoch: leader epoch of the last record before it, for truncation detection (KIP-320); None: unknown.
        metadata: a short text stored with the offset (brokers allow 4096 characters by default).
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"a committed offset must be >= 0, not {self.offset}")


class ReadOffset(NamedTuple):
    """A position to be committed that follows from what was read, and counts only while reading goes on from there.

    A seek, a reset, a truncated log and a topic that is made anew begin another fetch epoch: what was read before says
    nothing of what is read from then on (C19).

    Attributes:
        fetch_epoch: the fetch epoch under which it was read. at: what is to be committed.
    """

    fetch_epoch: int
    at: OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset and its record's timestamp (ms since 1970): the result of a look-up by time, for example."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The identity of a group member at one moment: all fields belong to the same generation.

    ``generation_id`` is the generation (classic) or the member epoch (KIP-848), −1 if it is not in the group.
    ``member_id`` is "" before it joins.

    Attributes:
        topic_ids: the ids of the topics that the member reads, by name, as far as they are known. With them brokers of
            Kafka 4.4 refuse offsets of a deleted topic for a new one of its name (KIP-1319). They are not compared.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a producer has written and left open: what somebody else needs to end it.

    Attributes:
        is_v2: whether it was written with transactions v2 (KIP-890), which its end must follow.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression that the *broker* matches whole topic names with, for `Consumer.subscribe` (KIP-848).

    The syntax is RE2's (https://github.com/google/re2/wiki/Syntax), not Python's: no look-around and no back
    references. The broker also matches topics that are created later, and only topics that this client may
    describe. A compiled `re.Pattern` is matched by the client instead, with every group protocol.

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
    """A broker of the cluster: its node id, host, port and rack."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition of a topic. Leader and replicas are node ids; ``leader`` is None while there is none.

    ``topic_id`` distinguishes a topic from a deleted one of the same name (KIP-516). It is all zero if the brokers
    have no topic ids.
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    topic_id: bytes = bytes(16)
