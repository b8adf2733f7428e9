"""The public `Admin`: it checks what it is given, and hands the work to the file of the subject."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack

from kadence.admin import acls as _acls
from kadence.admin import configs as _configs
from kadence.admin import groups as _groups
from kadence.admin import offsets as _offsets
from kadence.admin import records as _records
from kadence.admin import topics as _topics
from kadence.admin.arguments import (
    Partitions,
    as_acls,
    as_changes,
    as_filter,
    as_filters,
    as_name,
    as_names,
    as_offsets,
    as_partitions,
    as_resources,
    as_topics,
    as_totals,
    by_partition,
    checked,
    is_read_committed,
)
from kadence.admin.configs import ConfigValue
from kadence.admin.shell import Shell
from kadence.admin.values import (
    Acl,
    AclFilter,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    NewTopic,
    OffsetSpec,
    Outcomes,
    TopicDescription,
)
from kadence.clock import Seconds, SystemClock
from kadence.config import AdminConfig, generated_client_id
from kadence.idioms import missing
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kadence.admin.settings import AdminSettings

__all__ = ["Admin"]

P = TypeVar("P", bound=tuple[str, int])
"""A partition as a key; `TopicPartition` is such a pair."""


class Admin:
    """Topics, settings, records, groups, offsets and access rules of a cluster.

    Any number of threads may share one; calls take turns. Every call blocks for ``timeout`` seconds at most
    (``default.api.timeout.ms`` when None) and repeats a request after an error that may be temporary: a controller or
    coordinator that moved, a broker that is away. A call for several items raises if any of them failed, with a note
    for each other one; with ``raise_errors=False`` it gives the `Outcomes` with their ``errors`` instead.

    Raises of every call:
        KafkaTimeoutError: the call did not finish in time; the message has the last error. Its cause is a
            ConnectError if no broker could be reached.
        BrokerError: a broker refused. TransportError: no broker can be reached, and trying again would not help.
        ClosedError, ForkedError: this client cannot be used (any more).

    Args:
        config: Kafka's dotted keys. settings: the same in snake_case.

    Raises:
        ConfigError: a key or value that cannot be used.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[AdminSettings]) -> None:
        self._config = AdminConfig.parse(config, **settings)
        if not self._config.client_id:
            object.__setattr__(self._config, "client_id", generated_client_id("admin"))
        self._shell = Shell(self._config, SystemClock())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name)

    # ------------------------------------------------------------ topics

    def create_topics(
        self,
        topics: Mapping[str, int] | str | NewTopic | Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, NewTopic]:
        """Create topics, given as {name: partitions}, names, or `NewTopic` values; one or several.

        Returns:
            What was created, with the partitions and replicas that the broker chose where it says so.
        """
        outcomes = self._shell.run(
            timeout, _topics.create_topics, as_topics(topics), validate_only=validate_only
        )
        return checked(outcomes, raise_errors)

    def delete_topics(
        self, names: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete topics and all their records."""
        return checked(self._shell.run(timeout, _topics.delete_topics, as_names(names)), raise_errors)

    def list_topics(
        self, *, internal: bool = False, timeout: Seconds | None = None
    ) -> dict[str, TopicDescription]:
        """All topics by name, sorted; Kafka's own only with ``internal``."""
        return self._shell.run(timeout, _topics.list_topics, internal=internal)

    def describe_topics(
        self, names: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, TopicDescription]:
        """Partitions, leaders and replicas of topics."""
        return checked(self._shell.run(timeout, _topics.describe_topics, as_names(names)), raise_errors)

    def create_partitions(
        self, totals: Mapping[str, int], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, int]:
        """Grow topics to these total numbers of partitions. Keys of new records may change partition."""
        return checked(self._shell.run(timeout, _topics.create_partitions, as_totals(totals)), raise_errors)

    # ------------------------------------------------------------ groups

    def list_groups(self, *, timeout: Seconds | None = None) -> list[GroupListing]:
        """All groups of all brokers, sorted by name."""
        return self._shell.run(timeout, _groups.list_groups)

    def describe_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State, members and assignment of groups of both kinds."""
        return checked(self._shell.run(timeout, _groups.describe_groups, as_names(groups)), raise_errors)

    def delete_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete groups without members, and their offsets."""
        return checked(self._shell.run(timeout, _groups.delete_groups, as_names(groups)), raise_errors)

    # ------------------------------------------------------------ offsets

    def list_offsets(
        self,
        specs: Mapping[P, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp | None]:
        """An offset of each partition: "earliest", "latest", "max_timestamp", or the first at or after a time (ms).

        Returns:
            None for a partition that has no such record.
        """
        outcomes = self._shell.run(
            timeout,
            _offsets.list_offsets,
            by_partition(specs),
            read_committed=is_read_committed(isolation_level),
        )
        return checked(outcomes, raise_errors)

    def log_ranges(
        self,
        partitions: Partitions,
        *,
        isolation_level: str = "read_uncommitted",
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, tuple[int, int]]:
        """What the log of each partition holds: its first offset, and the end, which the next record will get.

        Both are asked for at once, so this takes one round trip where `list_offsets` twice takes two. With
        ``read_committed`` the end is that of what is decided: the first offset of the oldest open transaction.
        """
        outcomes = self._shell.run(
            timeout,
            _offsets.log_ranges,
            as_partitions(partitions),
            read_committed=is_read_committed(isolation_level),
        )
        return checked(outcomes, raise_errors)

    def group_offsets(
        self,
        group: str,
        partitions: Partitions | None = None,
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        """What a group committed, for all partitions or some; those without an offset are left out.

        Args:
            require_stable: wait for transactions that are committing offsets.
        """
        wanted = None if partitions is None else as_partitions(partitions)
        outcomes = self._shell.run(
            timeout, _offsets.group_offsets, as_name("a group", group), wanted, require_stable=require_stable
        )
        return checked(outcomes, raise_errors)

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[P, OffsetAndMetadata | int],
        *,
        topic_ids: Mapping[str, bytes] | None = None,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        """Commit offsets for a group that has no live members.

        Args:
            topic_ids: the id of each topic that is meant. With the ids of all topics a broker of Kafka 4.1 or newer
                refuses offsets of a topic that was deleted and made anew; older ones know topics by name only.
        """
        outcomes = self._shell.run(
            timeout,
            _offsets.alter_group_offsets,
            as_name("a group", group),
            as_offsets(offsets),
            topic_ids or {},
        )
        return checked(outcomes, raise_errors)

    def delete_group_offsets(
        self,
        group: str,
        partitions: Partitions,
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Forget what a group committed for partitions that no live member is subscribed to."""
        outcomes = self._shell.run(
            timeout, _offsets.delete_group_offsets, as_name("a group", group), as_partitions(partitions)
        )
        return checked(outcomes, raise_errors)

    # ------------------------------------------------------------ records

    def delete_records(
        self,
        before: Mapping[P, int | Literal["latest"]],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, int]:
        """Delete the records below an offset (KIP-107). It cannot be undone.

        Args:
            before: the first offset that stays, of each partition; "latest" deletes all there are.

        Returns:
            Where each partition's log begins now.

        Raises:
            OffsetOutOfRangeError: an offset beyond the end of the log.
            BrokerError: POLICY_VIOLATION: the topic is compacted only.
        """
        return checked(self._shell.run(timeout, _records.delete_records, by_partition(before)), raise_errors)

    # ------------------------------------------------------------ the cluster

    def describe_cluster(self, *, timeout: Seconds | None = None) -> ClusterDescription:
        """Brokers, controller, cluster id."""
        return self._shell.run(timeout, _topics.describe_cluster)

    def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Settings of topics, brokers or groups, by name."""
        outcomes = self._shell.run(timeout, _configs.describe_configs, as_resources(resources))
        return checked(outcomes, raise_errors)

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change single settings; the others stay as they are (KIP-339). A resource takes all its changes or none.

        Args:
            changes: what each setting becomes: a value, None for its default, or a `ConfigChange`, e.g.
                ``{ConfigResource("topic", "orders"): {"retention.ms": 86_400_000, "max.message.bytes": None}}``.
                A broker named "" stands for the defaults of all brokers.
            validate_only: check everything, change nothing.

        Raises:
            BrokerError: INVALID_CONFIG: an unknown setting, or a value that it does not take.
        """
        outcomes = self._shell.run(
            timeout, _configs.alter_configs, as_changes(changes), validate_only=validate_only
        )
        return checked(outcomes, raise_errors)

    # ------------------------------------------------------------ access rules

    def describe_acls(self, wanted: AclFilter | None = None, *, timeout: Seconds | None = None) -> list[Acl]:
        """The access rules that a filter finds, sorted; all of them without one.

        Raises:
            BrokerError: SECURITY_DISABLED: the brokers have no authorizer.
        """
        return self._shell.run(timeout, _acls.describe_acls, as_filter(wanted))

    def create_acls(
        self, acls: Acl | Iterable[Acl], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[Acl, None]:
        """Add access rules; one or several. One that is there already counts as added.

        Raises:
            BrokerError: SECURITY_DISABLED: the brokers have no authorizer; INVALID_REQUEST: for example, a principal
                that is not ``User:name``.
        """
        return checked(self._shell.run(timeout, _acls.create_acls, as_acls(acls)), raise_errors)

    def delete_acls(
        self,
        filters: AclFilter | Acl | Iterable[AclFilter | Acl],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[AclFilter, list[Acl]]:
        """Remove the access rules that filters find, or that are given; one or several.

        Returns:
            What each filter found and removed.

        Raises:
            BrokerError: SECURITY_DISABLED: the brokers have no authorizer.
        """
        return checked(self._shell.run(timeout, _acls.delete_acls, as_filters(filters)), raise_errors)

    # ------------------------------------------------------------ the end

    def close(self, timeout: Seconds | None = None) -> None:
        """Close the connections. Calls that other threads are making end with `ClosedError`.

        Further calls of it do nothing.

        Args:
            timeout: accepted as by the other clients' ``close``; this one waits for no broker.
        """
        del timeout
        self._shell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        shell = getattr(self, "_shell", None)
        if shell is not None and not shell.is_closed:
            warnings.warn(
                f"{self!r} was not closed; use `with Admin(...)` or close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            shell.drop()

    def __repr__(self) -> str:
        state = "closed" if self._shell.is_closed else "open"
        return f"<{type(self).__name__} {self._config.client_id} {state} {','.join(self._config.bootstrap_servers)}>"
