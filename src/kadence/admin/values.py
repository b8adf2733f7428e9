"""The values that the admin client takes and returns, as frozen dataclasses."""

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
    "ConsumerGroupDescription",
    "FencedProducer",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "Outcomes",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]

K = TypeVar("K")
V = TypeVar("V")

OffsetSpec = Literal["earliest", "latest", "max_timestamp"] | int
"""An offset of a partition, as `Admin.list_offsets` takes it.

The first, the end, that of the record with the greatest timestamp, or the first at or after a time (ms since 1970).
"""


class Outcomes(dict[K, V]):
    """The result of a call for several items: a mapping with the results of those that succeeded.

    `errors` has the error of each item that failed.
    """

    def __init__(
        self, values: Mapping[K, V] | None = None, errors: Mapping[K, KafkaError] | None = None
    ) -> None:
        super().__init__(values or {})
        self.errors: dict[K, KafkaError] = dict(errors or {})

    def raise_errors(self) -> None:
        """Raise the first error, with a note for each other one. Without errors it does nothing."""
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
    """A topic to create. -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. ``topic_id`` is all zero if the brokers have no topic ids."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as `Admin.list_groups` returns it.

    ``group_type`` is "classic", "consumer" (KIP-848), or "" if the broker does not say.
    """

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
class ConsumerGroupDescription:
    """A group as its coordinator knows it.

    Attributes:
        state: Kafka's name of the state, e.g. "Stable", "PreparingRebalance", "Empty".
        group_type: "classic" or "consumer" (KIP-848). assignor: the name of the assignor in use.
        epoch: the epoch of a KIP-848 group, which grows with each rebalance. None for a classic group, because
            brokers do not tell its generation.
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
class TransactionListing:
    """A transactional id as `Admin.list_transactions` returns it.

    Attributes:
        state: Kafka's name: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit" or "CompleteAbort".
        coordinator: the id of the broker that coordinates it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it.

    Attributes:
        state: as in `TransactionListing`. coordinator: the id of the broker that coordinates it.
        timeout_ms: for how long its transaction may be open. started_ms: when the open transaction began, in ms since
            1970; None: none is open. partitions: those that the open transaction has written to.
    """

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The identity that `Admin.fence_producers` has got in place of the producer that can go on no more."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster, and which of them is the controller (None while there is none)."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, broker or group whose settings are meant: ``kind`` is "topic", "broker" or "group"."""

    kind: Literal["topic", "broker", "group"]
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. ``value`` is None if it is secret or not set."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of a setting (KIP-339).

    Attributes:
        operation: "set": set the value. "delete": return to the default. "append", "subtract": add entries to a
            list, or remove them.
        value: the value, or the entries with commas between them; None with "delete".
    """

    operation: Literal["set", "delete", "append", "subtract"]
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Acl:
    """One access rule: it allows or denies a principal an operation on a resource (KIP-11, KIP-290).

    The words are Kafka's, in lower case.

    Attributes:
        resource_type: "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".
        resource_name: its name; ``*``: all; "kafka-cluster": the cluster. principal: e.g. ``User:alice``.
        operation: "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
            "describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens" or
            "two_phase_commit".
        permission: "allow" or "deny". host: the client's address, ``*`` for all.
        pattern_type: "literal", or "prefixed": the rule is for all names that begin with ``resource_name``.
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
    """A filter of access rules, with the fields of `Acl`. A field that is left out matches every rule.

    Attributes:
        pattern_type: also "match": every rule that applies to ``resource_name``, including prefixed ones and ``*``.
    """

    resource_type: str = "any"
    resource_name: str | None = None
    principal: str | None = None
    operation: str = "any"
    permission: str = "any"
    host: str | None = None
    pattern_type: str = "any"
