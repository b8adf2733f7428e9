"""The calls of AsyncAdmin. They run the operations of the same names, each in the file of its subject.

Generated from these files by tools/generate.py; do not edit. The rules are in tools/admin_text.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from kadence.admin import acls as _acls
from kadence.admin import cluster as _cluster
from kadence.admin import config_changes as _config_changes
from kadence.admin import configs as _configs
from kadence.admin import dead_letter_queues as _dead_letter_queues
from kadence.admin import group_list as _group_list
from kadence.admin import groups as _groups
from kadence.admin import offsets as _offsets
from kadence.admin import producers as _producers
from kadence.admin import records as _records
from kadence.admin import replicas as _replicas
from kadence.admin import share_groups as _share_groups
from kadence.admin import share_offsets as _share_offsets
from kadence.admin import topics as _topics
from kadence.admin import transactions as _transactions
from kadence.admin.acls import Acl, AclFilter
from kadence.admin.arguments import P, Partitions, checked
from kadence.admin.async_shell import AsyncAdminShell
from kadence.admin.cluster import ClusterDescription
from kadence.admin.config_changes import ConfigValue
from kadence.admin.configs import ConfigEntry, ConfigResource
from kadence.admin.dead_letter_queues import DeadLetterQueue
from kadence.admin.group_list import GroupListing
from kadence.admin.groups import ConsumerGroupDescription
from kadence.admin.offsets import OffsetSpec
from kadence.admin.producers import ProducerState
from kadence.admin.replicas import ElectionType, LogDirDescription
from kadence.admin.share_groups import ShareGroupDescription
from kadence.admin.share_offsets import ShareGroupOffset
from kadence.admin.transactions import FencedProducer, TransactionDescription, TransactionListing
from kadence.admin.values import NewTopic, Outcomes, TopicDescription
from kadence.clock import Seconds
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = ["AsyncOperations"]


class AsyncOperations:
    """The base of `AsyncAdmin`."""

    _shell: AsyncAdminShell

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout: Seconds | None = None
    ) -> list[Acl]:
        """The access rules that match a filter, sorted; without a filter all of them.

        Raises:
            BrokerError: SECURITY_DISABLED: the brokers have no authorizer.
        """
        return await self._shell.run(timeout, _acls.describe_acls, wanted)

    async def create_acls(
        self, acls: Acl | Iterable[Acl], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[Acl, None]:
        """Add one or several access rules. A rule that exists already counts as added.

        Raises:
            BrokerError: SECURITY_DISABLED: the brokers have no authorizer; INVALID_REQUEST: for example, a principal
                without its type (``User:``).
        """
        return checked(await self._shell.run(timeout, _acls.create_acls, acls), raise_errors)

    async def delete_acls(
        self,
        filters: AclFilter | Acl | Iterable[AclFilter | Acl],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[AclFilter, list[Acl]]:
        """Remove access rules, given as rules or as filters that match them; one or several.

        Returns:
            The rules that each filter matched and removed.

        Raises:
            BrokerError: SECURITY_DISABLED: the brokers have no authorizer.
        """
        return checked(await self._shell.run(timeout, _acls.delete_acls, filters), raise_errors)

    async def describe_cluster(self, *, timeout: Seconds | None = None) -> ClusterDescription:
        """The cluster's brokers, controller and id."""
        return await self._shell.run(timeout, _cluster.describe_cluster)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change these settings and leave all others as they are (KIP-339).

        Of one resource either all changes are made, or none. Brokers accept any topic as a share group's dead letter
        topic; this call logs what is wrong with it (`describe_dead_letter_queues`).

        Args:
            changes: the new value of each setting, None for its default, or a `ConfigChange`, e.g.
                ``{ConfigResource("topic", "orders"): {"retention.ms": 86_400_000, "max.message.bytes": None}}``. A
                broker named "" stands for the defaults of all brokers.
            validate_only: let the broker check the changes without making them.

        Raises:
            BrokerError: INVALID_CONFIG: a topic or group has no such setting, or a setting does not allow the value.
        """
        return checked(
            await self._shell.run(
                timeout, _config_changes.incremental_alter_configs, changes, validate_only=validate_only
            ),
            raise_errors,
        )

    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of topics, brokers or groups, by name."""
        return checked(await self._shell.run(timeout, _configs.describe_configs, resources), raise_errors)

    async def describe_dead_letter_queues(
        self,
        groups: str | Iterable[str],
        *,
        topic: str | None = None,
        copies_records: bool | None = None,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, DeadLetterQueue]:
        """The dead letter topics of share groups, and what is wrong with them (KIP-1191).

        Brokers accept any topic as a setting, and check it only when they write to it.

        Args:
            topic, copies_records: values to look at in place of the groups' settings, before they are set.
        """
        return checked(
            await self._shell.run(
                timeout,
                _dead_letter_queues.describe_dead_letter_queues,
                groups,
                topic=topic,
                copies_records=copies_records,
            ),
            raise_errors,
        )

    async def list_groups(
        self,
        *,
        types: str | Iterable[str] = (),
        states: str | Iterable[str] = (),
        timeout: Seconds | None = None,
    ) -> list[GroupListing]:
        """The groups of all brokers, sorted by name.

        Args:
            types: only those of these types: "classic", "consumer", "share", "streams" (Kafka 3.8); empty: all.
            states: only those in one of these states, such as "Empty" (Kafka 2.6, KIP-518); empty: all.
        """
        return await self._shell.run(timeout, _group_list.list_groups, types=types, states=states)

    async def describe_consumer_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, ConsumerGroupDescription]:
        """State, members and assignment of groups, both classic ones and those of KIP-848."""
        return checked(await self._shell.run(timeout, _groups.describe_consumer_groups, groups), raise_errors)

    async def delete_consumer_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete groups and their committed offsets. A group that has members is refused.

        If an answer is lost and the group is not there, it counts as deleted.
        """
        return checked(await self._shell.run(timeout, _groups.delete_consumer_groups, groups), raise_errors)

    async def list_offsets(
        self,
        specs: Mapping[P, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp | None]:
        """One offset of each partition.

        ``"earliest"``: the first. ``"latest"``: the end, with ``read_committed`` the last stable offset.
        ``"max_timestamp"``: that of the record with the greatest timestamp. A number: the first offset whose timestamp
        is at or after this time (ms since 1970).

        Returns:
            The offset and timestamp (-1 for ``"earliest"`` and ``"latest"``); None for a partition without such a
            record.
        """
        return checked(
            await self._shell.run(timeout, _offsets.list_offsets, specs, isolation_level=isolation_level),
            raise_errors,
        )

    async def log_ranges(
        self,
        partitions: Partitions,
        *,
        isolation_level: str = "read_uncommitted",
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, tuple[int, int]]:
        """The log of each partition: its first offset, and its end offset, which the next record will get.

        Both are requested together, so this takes one round trip where two calls of `list_offsets` take two. With
        ``read_committed`` the end is the last stable offset: where the oldest open transaction begins, if there is one.
        """
        return checked(
            await self._shell.run(timeout, _offsets.log_ranges, partitions, isolation_level=isolation_level),
            raise_errors,
        )

    async def list_consumer_group_offsets(
        self,
        group: str,
        partitions: Partitions | None = None,
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        """The offsets that a group has committed, for all partitions or for these.

        Partitions without one are left out.

        Args:
            require_stable: wait until open transactions that commit offsets of the group have ended (KIP-447). Without
                ``partitions`` brokers leave out those that have no offset before such a transaction ends; name them.
        """
        return checked(
            await self._shell.run(
                timeout,
                _offsets.list_consumer_group_offsets,
                group,
                partitions,
                require_stable=require_stable,
            ),
            raise_errors,
        )

    async def list_offsets_of_groups(
        self,
        groups: str | Iterable[str],
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, dict[TopicPartition, OffsetAndMetadata]]:
        """The offsets that each of several groups has committed, for all its partitions.

        Each coordinator gets one request for all of its groups (KIP-709; before Kafka 3.0 one for each group). A group
        that does not exist has no offsets.

        Args:
            require_stable: as of `list_consumer_group_offsets`.
        """
        return checked(
            await self._shell.run(
                timeout, _offsets.list_offsets_of_groups, groups, require_stable=require_stable
            ),
            raise_errors,
        )

    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[P, OffsetAndMetadata | int],
        *,
        topic_ids: Mapping[str, bytes] | None = None,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        """Commit offsets for a group that has no members.

        Args:
            topic_ids: the ids of the topics. If every topic has one, a broker of Kafka 4.1 or newer refuses offsets
                of a topic that was deleted and created again. Older brokers know topics by name only.
        """
        return checked(
            await self._shell.run(
                timeout, _offsets.alter_consumer_group_offsets, group, offsets, topic_ids=topic_ids
            ),
            raise_errors,
        )

    async def delete_consumer_group_offsets(
        self, group: str, partitions: Partitions, *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Delete a group's committed offsets of these partitions. No member may be subscribed to their topics."""
        return checked(
            await self._shell.run(timeout, _offsets.delete_consumer_group_offsets, group, partitions),
            raise_errors,
        )

    async def describe_producers(
        self, partitions: Partitions, *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[TopicPartition, list[ProducerState]]:
        """The idempotent and transactional producers that partitions remember, by producer id (KIP-664).

        Use it to find the open transaction that holds up ``read_committed`` readers of a partition: the one whose
        ``transaction_start`` is the last stable offset. `list_transactions` has its transactional id.
        """
        return checked(
            await self._shell.run(timeout, _producers.describe_producers, partitions), raise_errors
        )

    async def delete_records(
        self,
        before: Mapping[P, int | Literal["latest"]],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, int]:
        """Delete all records below an offset (KIP-107). It cannot be undone.

        Args:
            before: for each partition the first offset that is kept; ``"latest"`` deletes all records.

        Returns:
            The first offset of each partition's log after the deletion.

        Raises:
            OffsetOutOfRangeError: an offset beyond the end of the log. BrokerError: with the name POLICY_VIOLATION:
                the topic's cleanup.policy is compact, without delete.
        """
        return checked(await self._shell.run(timeout, _records.delete_records, before), raise_errors)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Partitions | None = None,
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Let partitions elect a leader (KIP-460), such as after a broker came back.

        If an election is not possible now, that is an error: the call does not try again.

        Args:
            election_type: "preferred": the first of the partition's replicas becomes the leader. "unclean", for
                partitions without a leader: any replica may become it, even one that lacks records. These records are
                lost.
            partitions: None: all that need an election.

        Returns:
            The partitions that have elected, and of those that were named the ones that needed no election.

        Raises:
            BrokerError: PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE: no broker that runs has such a
                replica.
        """
        return checked(
            await self._shell.run(timeout, _replicas.elect_leaders, election_type, partitions), raise_errors
        )

    async def describe_log_dirs(
        self,
        brokers: int | Iterable[int] | None = None,
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[int, dict[str, LogDirDescription]]:
        """The log directories of brokers by their paths, with the size of each replica in them.

        Args:
            brokers: ids of brokers; None: all that run.

        Returns:
            The directories of each broker.

        Raises:
            BrokerError: BROKER_NOT_AVAILABLE: no such broker runs. CLUSTER_AUTHORIZATION_FAILED.
        """
        return checked(await self._shell.run(timeout, _replicas.describe_log_dirs, brokers), raise_errors)

    async def describe_share_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, ShareGroupDescription]:
        """State, members and assignment of share groups (KIP-932).

        Brokers do not say which records a member holds.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND: there is no such group, or it is of another type.
            UnsupportedVersionError: the brokers are older than Kafka 4.1.
        """
        return checked(
            await self._shell.run(timeout, _share_groups.describe_share_groups, groups), raise_errors
        )

    async def delete_share_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete share groups, their offsets and delivery counts. A group that has members is refused.

        The settings of a group stay. If an answer is lost and the group is not there, it counts as deleted.
        """
        return checked(
            await self._shell.run(timeout, _share_groups.delete_share_groups, groups), raise_errors
        )

    async def list_share_group_offsets(
        self,
        group: str,
        partitions: Partitions | None = None,
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, ShareGroupOffset]:
        """Start offset and lag of a share group, for all partitions that its members were ever assigned, or for these.

        A group that does not exist, or is of another type, has none.
        """
        return checked(
            await self._shell.run(timeout, _share_offsets.list_share_group_offsets, group, partitions),
            raise_errors,
        )

    async def list_offsets_of_share_groups(
        self, groups: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, dict[TopicPartition, ShareGroupOffset]]:
        """Start offset and lag of several share groups, for all their partitions.

        Each coordinator gets one request for all of its groups. A group that does not exist, or is of another type, has
        none.
        """
        return checked(
            await self._shell.run(timeout, _share_offsets.list_offsets_of_share_groups, groups), raise_errors
        )

    async def alter_share_group_offsets(
        self,
        group: str,
        offsets: Mapping[P, int],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[TopicPartition, int]:
        """Set where a share group without members begins in these partitions. A group that does not exist is created.

        All records from the offset on are delivered, with new delivery counts. A new group has no start offset before
        it acknowledges a first record: with ``share.auto.offset.reset=latest`` it misses records written before that
        while it has no member. This call prevents that.

        Raises:
            BrokerError: NON_EMPTY_GROUP: the group has members. GROUP_ID_NOT_FOUND: it is of another type.
        """
        return checked(
            await self._shell.run(timeout, _share_offsets.alter_share_group_offsets, group, offsets),
            raise_errors,
        )

    async def delete_share_group_offsets(
        self,
        group: str,
        topics: str | Iterable[str],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, None]:
        """Delete the start offsets of a share group without members, in all partitions of these topics.

        The group begins there again by ``share.auto.offset.reset``.

        Raises:
            BrokerError: NON_EMPTY_GROUP: the group has members. GROUP_ID_NOT_FOUND: there is no such group, or it is of
                another type.
        """
        return checked(
            await self._shell.run(timeout, _share_offsets.delete_share_group_offsets, group, topics),
            raise_errors,
        )

    async def create_topics(
        self,
        topics: Mapping[str, int] | str | NewTopic | Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, NewTopic]:
        """Create topics, given as ``{name: partitions}``, or as one or several names or `NewTopic` values.

        If an answer is lost and the topic exists with the partitions, replicas and settings asked for, it counts as
        created.

        Returns:
            The created topics, with the numbers of partitions and replicas that the broker chose, if it reports them.
        """
        return checked(
            await self._shell.run(timeout, _topics.create_topics, topics, validate_only=validate_only),
            raise_errors,
        )

    async def delete_topics(
        self, names: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, None]:
        """Delete topics and all their records.

        If an answer is lost and the topic is not there, it counts as deleted.
        """
        return checked(await self._shell.run(timeout, _topics.delete_topics, names), raise_errors)

    async def create_partitions(
        self, totals: Mapping[str, int], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, int]:
        """Add partitions to topics until they have these total numbers.

        A key's new records may then go to another partition than its old ones. If an answer is lost and the topic has
        the number asked for, the call counts as successful.
        """
        return checked(await self._shell.run(timeout, _topics.create_partitions, totals), raise_errors)

    async def list_topics(
        self, *, internal: bool = False, timeout: Seconds | None = None
    ) -> dict[str, TopicDescription]:
        """All topics that this client may see, by name, sorted; Kafka's internal ones only if ``internal`` is true."""
        return await self._shell.run(timeout, _topics.list_topics, internal=internal)

    async def describe_topics(
        self, names: str | Iterable[str], *, raise_errors: bool = True, timeout: Seconds | None = None
    ) -> Outcomes[str, TopicDescription]:
        """Partitions, leaders and replicas of topics."""
        return checked(await self._shell.run(timeout, _topics.describe_topics, names), raise_errors)

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), timeout: Seconds | None = None
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers, sorted (KIP-664). Those that this client may not describe are left out.

        Args:
            states: only those in one of these states, such as "Ongoing"; empty: all. producer_ids: only those of these
                producers; empty: all.
        """
        return await self._shell.run(
            timeout, _transactions.list_transactions, states=states, producer_ids=producer_ids
        )

    async def describe_transactions(
        self,
        transactional_ids: str | Iterable[str],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, TransactionDescription]:
        """The coordinators' state of transactional ids: state, producer, partitions and start time (KIP-664).

        Raises:
            BrokerError: TRANSACTIONAL_ID_NOT_FOUND: brokers do not know the id (any more).
        """
        return checked(
            await self._shell.run(timeout, _transactions.describe_transactions, transactional_ids),
            raise_errors,
        )

    async def fence_producers(
        self,
        transactional_ids: str | Iterable[str],
        *,
        raise_errors: bool = True,
        timeout: Seconds | None = None,
    ) -> Outcomes[str, FencedProducer]:
        """Fence the producers with these transactional ids (KIP-730): their transactions fail.

        Open transactions are aborted. An id that no producer has used is created.
        """
        return checked(
            await self._shell.run(timeout, _transactions.fence_producers, transactional_ids), raise_errors
        )

    async def abort_transaction(
        self,
        partition: TopicPartition | tuple[str, int],
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = 0,
        timeout: Seconds | None = None,
    ) -> None:
        """Abort a hanging transaction in one partition: only its leader gets a request, no coordinator does (KIP-664).

        Use it only for a transaction that no coordinator will end. Otherwise call `fence_producers`, which aborts in
        all partitions: a transaction that is aborted in one of them may be committed in others.

        Args:
            producer_id, producer_epoch: of the producer, as `describe_producers` has them.
            coordinator_epoch: as `describe_producers` has it; 0 where that is None.

        Raises:
            BrokerError: CLUSTER_AUTHORIZATION_FAILED: this login may not write markers. INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED: the partition knows a later epoch.
        """
        return await self._shell.run(
            timeout,
            _transactions.abort_transaction,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
