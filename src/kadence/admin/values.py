"""What the admin client takes and gives: plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from kadence.errors import KafkaError
from kadence.types import Node, PartitionInfo, TopicPartition

__all__ = [
    "Acl",
    "AclFilter",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "Outcomes",
    "TopicDescription",
]

K = TypeVar("K")
V = TypeVar("V")

OffsetSpec = Literal["earliest", "latest", "max_timestamp"] | int
"""Which offset of a partition: an end, the record with the greatest timestamp, or the first at or after a time (ms)."""


class Outcomes(dict[K, V]):
    """What became of each item: the mapping has those that went well, `errors` the others."""

    def __init__(
        self, values: Mapping[K, V] | None = None, errors: Mapping[K, KafkaError] | None = None
    ) -> None:
        super().__init__(values or {})
        self.errors: dict[K, KafkaError] = dict(errors or {})

    def raise_errors(self) -> None:
        """Raise the first error, with a note for each of the others; nothing when there are none."""
        if not self.errors:
            return
        first, *others = self.errors.values()
        for other in others:
            first.add_note(f"also: {other}")
        if self:
            first.add_note(f"done: {', '.join(str(key) for key in self)}")
        raise first


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 takes the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster knows it; ``topic_id`` is all zero where brokers have none."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. ``group_type``: "classic" or "consumer", "" where the broker does not say."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group and what it owns."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator knows it.

    Attributes:
        state: Kafka's name of it, e.g. "Stable", "PreparingRebalance", "Empty".
        group_type: "classic" or "consumer" (KIP-848). assignor: who spreads the partitions.
        epoch: of a KIP-848 group, it grows with each rebalance. None for a classic group: a coordinator does not tell
            the generation of one.
    """

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Brokers, and which of them takes changes (None while there is no controller)."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """Whose configuration: ``kind`` is "topic", "broker" or "group"."""

    kind: Literal["topic", "broker", "group"]
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting; ``value`` is None where it is secret or not set."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of a setting (KIP-339).

    Attributes:
        operation: "set" a value, "delete" for the default, "append" to a list or "subtract" from it.
        value: the value, or the entries with commas between them; None with "delete".
    """

    operation: Literal["set", "delete", "append", "subtract"]
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Acl:
    """One access rule: who may, or may not, do what to which resource (KIP-11, KIP-290).

    The words are Kafka's, in lower case.

    Attributes:
        resource_type: "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".
        resource_name: its name, ``*`` for all; "kafka-cluster" for the cluster. principal: e.g. ``User:alice``.
        operation: "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
            "describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens" or
            "two_phase_commit".
        permission: "allow" or "deny". host: an address, ``*`` for all.
        pattern_type: "literal", or "prefixed" where ``resource_name`` is how the names begin.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "allow"
    host: str = "*"
    pattern_type: str = "literal"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which access rules are meant; the fields of `Acl`, and those that are left out fit every rule.

    Attributes:
        pattern_type: also "match": every rule that holds for ``resource_name``, prefixed ones and ``*`` included.
    """

    resource_type: str = "any"
    resource_name: str | None = None
    principal: str | None = None
    operation: str = "any"
    permission: str = "any"
    host: str | None = None
    pattern_type: str = "any"
