"""The public `Admin`: it checks what it is given, and hands the work to the file of the subject."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kadence.admin import groups as _groups
from kadence.admin import offsets as _offsets
from kadence.admin import topics as _topics
from kadence.admin.calls import Calls
from kadence.admin.values import (
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
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kadence.admin.settings import AdminSettings

__all__ = ["Admin"]

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P", bound=tuple[str, int])
"""A partition as a key; `TopicPartition` is such a pair."""

_Partitions = TopicPartition | Iterable[TopicPartition | tuple[str, int]]
"""What calls take that speak of partitions: several, or one."""


class Admin:
    """Topics, groups and offsets of a cluster. Any number of threads may share one; calls take turns.

    Every call blocks for ``timeout`` seconds at most (``default.api.timeout.ms`` when None) and repeats what may
    pass by itself: a controller or coordinator that moved, a broker that is away. A call for several items raises
    if any of them failed, with a note for each other one; with ``raise_errors=False`` it gives the `Outcomes`
    with their ``errors`` instead.

    Raises of every call:
        KafkaTimeoutError: not done in time; the message has the last error. Its cause is a ConnectError where no
            address could be connected to.
        BrokerError: a broker refused. TransportError: no way to a broker that time would mend.
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
        self._calls = Calls(self._config, SystemClock())

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
        if isinstance(topics, Mapping):
            wanted = [NewTopic(name, partitions) for name, partitions in topics.items()]
        else:
            several = [topics] if isinstance(topics, str | NewTopic) else topics
            wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in several]
        deadline = self._calls.deadline(timeout)
        return _checked(
            _topics.create_topics(self._calls, wanted, deadline, validate_only=validate_only), raise_errors
        )

    def delete_topics(
        self, names: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete topics and all their records."""
        names = _names(names)
        return _checked(
            _topics.delete_topics(self._calls, names, self._calls.deadline(timeout)), raise_errors
        )

    def list_topics(
        self, *, internal: bool = False, timeout: Seconds | None = None
    ) -> dict[str, TopicDescription]:
        """All topics by name, sorted; Kafka's own only with ``internal``."""
        return _topics.list_topics(self._calls, self._calls.deadline(timeout), internal=internal)

    def describe_topics(
        self, names: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, TopicDescription]:
        """Partitions, leaders and replicas of topics."""
        names = _names(names)
        return _checked(
            _topics.describe_topics(self._calls, names, self._calls.deadline(timeout)), raise_errors
        )

    def create_partitions(
        self, totals: Mapping[str, int], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, int]:
        """Grow topics to these total numbers of partitions. Keys of new records may change partition."""
        return _checked(
            _topics.create_partitions(self._calls, totals, self._calls.deadline(timeout)), raise_errors
        )

    # ------------------------------------------------------------ groups

    def list_groups(self, *, timeout: Seconds | None = None) -> list[GroupListing]:
        """All groups of all brokers, sorted by name."""
        return _groups.list_groups(self._calls, self._calls.deadline(timeout))

    def describe_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State, members and assignment of groups of both kinds."""
        groups = _names(groups)
        return _checked(
            _groups.describe_groups(self._calls, groups, self._calls.deadline(timeout)), raise_errors
        )

    def delete_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete groups without members, and their offsets."""
        groups = _names(groups)
        return _checked(
            _groups.delete_groups(self._calls, groups, self._calls.deadline(timeout)), raise_errors
        )

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
        outcomes = _offsets.list_offsets(
            self._calls,
            {_partition(partition): spec for partition, spec in specs.items()},
            self._calls.deadline(timeout),
            read_committed=_read_committed(isolation_level),
        )
        return _checked(outcomes, raise_errors)

    def log_ranges(
        self,
        partitions: _Partitions,
        *,
        isolation_level: str = "read_uncommitted",
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, tuple[int, int]]:
        """What the log of each partition holds: its first offset, and the end, which the next record will get.

        Both are asked for at once, so this takes one round trip where `list_offsets` twice takes two. With
        ``read_committed`` the end is that of what is decided: the first offset of the oldest open transaction.
        """
        outcomes = _offsets.log_ranges(
            self._calls,
            _partitions(partitions),
            self._calls.deadline(timeout),
            read_committed=_read_committed(isolation_level),
        )
        return _checked(outcomes, raise_errors)

    def group_offsets(
        self,
        group: str,
        partitions: _Partitions | None = None,
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        """What a group committed, for all partitions or some; those without an offset are left out.

        Args:
            require_stable: wait for transactions that are committing offsets.
        """
        wanted = None if partitions is None else _partitions(partitions)
        outcomes = _offsets.group_offsets(
            self._calls, group, wanted, self._calls.deadline(timeout), require_stable=require_stable
        )
        return _checked(outcomes, raise_errors)

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
        wanted = {
            _partition(partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        deadline = self._calls.deadline(timeout)
        outcomes = _offsets.alter_group_offsets(self._calls, group, wanted, deadline, topic_ids or {})
        return _checked(outcomes, raise_errors)

    def delete_group_offsets(
        self,
        group: str,
        partitions: _Partitions,
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Forget what a group committed for partitions that no live member is subscribed to."""
        deadline = self._calls.deadline(timeout)
        return _checked(
            _offsets.delete_group_offsets(self._calls, group, _partitions(partitions), deadline), raise_errors
        )

    # ------------------------------------------------------------ the cluster

    def describe_cluster(self, *, timeout: Seconds | None = None) -> ClusterDescription:
        """Brokers, controller, cluster id."""
        return _topics.describe_cluster(self._calls, self._calls.deadline(timeout))

    def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Settings of topics, brokers or groups, by name."""
        several = [resources] if isinstance(resources, ConfigResource) else resources
        deadline = self._calls.deadline(timeout)
        return _checked(_topics.describe_configs(self._calls, several, deadline), raise_errors)

    # ------------------------------------------------------------ the end

    def close(self, timeout: Seconds | None = None) -> None:
        """Close the connections. Further calls of it do nothing; it never waits, ``timeout`` is for symmetry."""
        del timeout
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        calls = getattr(self, "_calls", None)
        if calls is not None and not calls.is_closed:
            warnings.warn(
                f"{self!r} was not closed; use `with Admin(...)` or close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            calls.close()

    def __repr__(self) -> str:
        state = "closed" if self._calls.is_closed else "open"
        return f"<Admin {self._config.client_id} {state} {','.join(self._config.bootstrap_servers)}>"


def _names(names: str | Iterable[str]) -> list[str]:
    """Names; one alone is a list of one, not a list of its letters."""
    return [names] if isinstance(names, str) else list(names)


def _partition(given: object) -> TopicPartition:
    """One partition, given as such or as a pair."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int):
            return TopicPartition(topic, number)
    raise TypeError(f"a partition is TopicPartition(topic, number) or (topic, number), not {given!r}")


def _partitions(given: _Partitions) -> list[TopicPartition]:
    """Partitions; one alone is a list of one."""
    if isinstance(given, TopicPartition):
        return [given]
    whatever: object = given
    if isinstance(whatever, str):
        raise TypeError(f"partitions are wanted, such as [TopicPartition({given!r}, 0)], not {given!r}")
    return [_partition(each) for each in given]


def _read_committed(isolation_level: str) -> bool:
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {isolation_level!r}")
    return isolation_level == "read_committed"


def _checked(outcomes: Outcomes[K, V], raise_errors: bool) -> Outcomes[K, V]:
    if raise_errors:
        outcomes.raise_errors()
    return outcomes
