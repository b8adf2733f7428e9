"""The history of a simulation, and the invariants that are checked at every step of it.

It sees each request that reaches the broker and each response that leaves it, the groups after each turn of its loop,
and the log at the end. The first violation ends the run.

* One owner for each partition in each generation of a classic group, and at any time in a KIP-848 group.
* Generations, group epochs and member epochs only grow.
* No member outlives its session, or the time for giving partitions up.
* No commit is accepted of a client that is not a member, or of an outdated generation or epoch.
* No offset is committed beyond a record that was not processed (if programs report processed records).
* No acknowledged record is lost or changed.
* No committed offset, generation or epoch goes back when the broker crashes and starts again (`restarts`).
* Share groups: counts, locks, and what members say of records (`share_history`).
* Readers of committed records get the records of committed transactions, and of no others (`transactions`).
* Outputs that are written in transactions are written exactly once (`outputs`).
* A listener is not called with a partition twice, nor with the revocation of one that was not assigned.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kadence.protocol.offset_delete import OffsetDeleteRequest
from kadence.protocol.registry import decode_versioned
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from kadence.records import FetchedRecords, iter_batches
from kadence.types import TopicPartition
from kadence_broker.coordinator import ClassicGroup
from kadence_broker.coordinator.classic.group import GroupState
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.group_settings import number_of
from kadence_broker.storage import Isolation
from kadence_testing.simulation.outputs import Outputs
from kadence_testing.simulation.restarts import Restarts
from kadence_testing.simulation.scheduler import Scheduler, SimulationError
from kadence_testing.simulation.share_history import ShareHistory
from kadence_testing.simulation.transactions import TransactionHistory, readable

if TYPE_CHECKING:
    from kadence_broker.core import BrokerCore
    from kadence_broker.service import Call

__all__ = ["History"]

_SLACK_MS: Final = 250
"""The tolerance for timeouts: a late loop reads arrived requests before it runs timers, and a turn takes time."""

_ALIVE: Final = (HeartbeatRequest, JoinGroupRequest, SyncGroupRequest, ConsumerGroupHeartbeatRequest)
"""Requests that keep a session alive."""

_READ_BYTES: Final = 1 << 20


class _Epochs(NamedTuple):
    """A group in its last seen state."""

    kind: type[Any]
    epoch: int
    has_members: bool
    members: dict[str, int]


class History:
    """Records the events of a simulation, and checks its invariants at every step.

    Attributes:
        acknowledged: the value of each record whose write was acknowledged to a program, by partition and offset.
        sent: how often a value was sent, by topic and value.
        committed: the last committed offset that the broker accepted, by group and partition.
        processed: the offsets that programs have reported as processed, by group and partition.
        deleted: the first offset of the log since records were deleted on purpose, by partition.
        late_groups: groups that need not begin with the first record. The first commit of each counts as its
            beginning.
        committed_readers: groups that read committed records only. transactions: the producers' transactions.
        outputs: the groups that write an output of each record exactly once. shares: the share groups.
        observers: called after each turn of the broker's loop.
        wrong: the first violated invariant; `Simulation.run` raises it.
        calls: how many requests the broker received. fingerprint: a hash of these requests and their times; equal runs
            have equal ones.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.acknowledged: dict[TopicPartition, dict[int, bytes | None]] = {}
        self.sent: Counter[tuple[str, bytes | None]] = Counter()
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.processed: dict[tuple[str, TopicPartition], set[int]] = {}
        self.deleted: dict[TopicPartition, int] = {}
        self.late_groups: set[str] = set()
        self.committed_readers: set[str] = set()
        self.wrong: str | None = None
        self.calls = 0
        self.fingerprint = 0
        self._frontier: dict[tuple[str, TopicPartition], int] = {}
        self._owners: dict[tuple[str, int], dict[TopicPartition, str]] = {}
        self._epochs: dict[str, _Epochs] = {}
        self._loaded: dict[str, object] = {}
        self._stable: dict[str, int] = {}
        self._heard_at: dict[tuple[str, str], int] = {}
        self._revoking_since: dict[tuple[str, str], tuple[object, int]] = {}
        self._restarts = Restarts(scheduler, self.object_to)
        self.transactions = TransactionHistory(self.object_to)
        self.outputs = Outputs()
        self.shares = ShareHistory(scheduler, self.object_to)
        self.observers: list[Callable[[BrokerCore], None]] = []

    def __repr__(self) -> str:
        written = sum(len(offsets) for offsets in self.acknowledged.values())
        done = sum(len(offsets) for offsets in self.processed.values())
        return f"<history of {self.calls} calls: {written} records acknowledged, {done} processed>"

    # Reports of programs

    def wrote(self, partition: TopicPartition, offset: int, value: bytes | None) -> None:
        """Note that the write of a record was acknowledged to a program."""
        known = self.acknowledged.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self.object_to(f"{partition} offset {offset} was acknowledged for {known!r} and for {value!r}")

    def has_processed(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Note that a program of the group has processed a record."""
        self.processed.setdefault((group_id, partition), set()).add(offset)
        if group_id in self.committed_readers:
            self.transactions.has_read(partition, offset)

    def has_deleted(self, partition: TopicPartition, before_offset: int) -> None:
        """Note that records below an offset were deleted on purpose: they do not count as lost or unprocessed."""
        self.deleted[partition] = max(before_offset, self.deleted.get(partition, 0))

    # Events of the broker

    def begins(self) -> None:
        """A broker starts on the files of the one before it: members get a new session."""
        self._heard_at.clear()
        self._revoking_since.clear()
        self._epochs.clear()

    def has_begun(self, core: BrokerCore) -> None:
        """It has loaded its files."""
        self._restarts.restarted(core)
        self.shares.restarted(core)

    def crashes(self, core: BrokerCore) -> None:
        """The broker crashes now."""
        self._restarts.crashed(core)
        self.shares.crashes()

    def watch(self, core: BrokerCore, call: Call) -> None:
        """A request has reached the broker."""
        self.calls += 1
        message = call.message
        line = f"{self.fingerprint} {call.now} {call.client_id} {call.connection.peer} {message!r}"
        self.fingerprint = zlib.crc32(line.encode())
        if isinstance(message, _ALIVE):
            self._heard_at[message.group_id, message.member_id] = self._scheduler.now_ms()
        if isinstance(message, OffsetCommitRequest):
            group = core.coordination.coordinator.groups.get(message.group_id)
            if isinstance(group, ClassicGroup):
                # There a commit counts as a heartbeat.
                self._heard_at[message.group_id, message.member_id] = self._scheduler.now_ms()
            generation = message.generation_id_or_member_epoch
            allowed = _may_commit(core, message.group_id, message.member_id, generation, message.topics)
            call.on_reply = lambda response: self._committed(core, message, response, allowed)
        elif isinstance(message, TxnOffsetCommitRequest):
            generation = message.generation_id_or_member_epoch
            if not _may_commit(core, message.group_id, message.member_id, generation, message.topics):
                call.on_reply = lambda response: self._committed_from_the_past(core, message, response)
        elif isinstance(message, OffsetDeleteRequest):
            self._restarts.may_forget_offsets(message.group_id)
        elif isinstance(message, DeleteGroupsRequest):
            for group_id in message.groups_names:
                self._restarts.may_forget_offsets(group_id)
        elif isinstance(message, SyncGroupRequest):
            call.on_reply = lambda response: self._synced(message, response)
        elif isinstance(message, ShareFetchRequest | ShareAcknowledgeRequest):
            self.shares.watch(core, call)

    def turned(self, core: BrokerCore) -> None:
        """The broker's loop has run a turn."""
        for group_id, group in core.coordination.coordinator.groups.items():
            if self._loaded.get(group_id) is not group:
                # Its coordinator has moved. As in Kafka, that gives each member a whole session.
                self._loaded[group_id] = group
                self._heard_at = {key: at for key, at in self._heard_at.items() if key[0] != group_id}
            if isinstance(group, ClassicGroup):
                self._look_at_classic(group)
            elif isinstance(group, ConsumerGroup):
                self._look_at_consumer(core, group)
        self._restarts.turned(core)
        self.shares.turned(core)
        for observe in self.observers:
            observe(core)

    def check_log(self, core: BrokerCore) -> None:
        """Check that every acknowledged record is in the log once, at its offset, and transactions are complete."""
        for partition, expected in self.acknowledged.items():
            found = dict(_records(core, partition))
            for offset, value in expected.items():
                if offset >= self.deleted.get(partition, 0) and found.get(offset) != value:
                    raise SimulationError(
                        f"{partition} offset {offset} was acknowledged as {value!r}, and the log has "
                        f"{found.get(offset)!r}"
                    )
            for value, count in Counter(found.values()).items():
                if count > self.sent[partition.topic, value] > 0:
                    raise SimulationError(
                        f"{partition} has {value!r} more often than it was sent, though producers are idempotent"
                    )
        self.transactions.check(core, self.deleted)
        self.outputs.check(core, self.deleted)
        self.shares.check(core)

    def object_to(self, what: str) -> None:
        """An invariant does not hold. Not raised here: the broker would catch it and go on serving."""
        if self.wrong is None:
            self.wrong = what

    # Inside

    def _committed(
        self,
        core: BrokerCore,
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        allowed: bool,
    ) -> None:
        for topic, answered in zip(request.topics, response.topics, strict=True):
            name = _name(core, topic)
            codes_of = {each.partition_index: each.error_code for each in answered.partitions}
            for each in topic.partitions:
                if codes_of.get(each.partition_index) != codes.NONE:
                    continue
                partition = TopicPartition(name, each.partition_index)
                if not allowed:
                    self.object_to(
                        f"a commit from the past was accepted: {partition} offset {each.committed_offset} of member "
                        f"{request.member_id!r}, generation or epoch {request.generation_id_or_member_epoch}, in "
                        f"{core.coordination.coordinator.groups.get(request.group_id)!r}"
                    )
                self._look_at_commit(core, request.group_id, partition, each.committed_offset)
                self._restarts.has_committed(
                    core, request.group_id, partition, each.committed_offset, request.retention_time_ms
                )

    def _committed_from_the_past(
        self, core: BrokerCore, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
    ) -> None:
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code == codes.NONE:
                    group = core.coordination.coordinator.groups.get(request.group_id)
                    self.object_to(
                        f"a commit from the past was accepted in a transaction of {request.transactional_id!r}: "
                        f"{TopicPartition(_name(core, topic), each.partition_index)} of member "
                        f"{request.member_id!r}, "
                        f"generation or epoch {request.generation_id_or_member_epoch}, in {group!r}"
                    )

    def _look_at_commit(
        self, core: BrokerCore, group_id: str, partition: TopicPartition, offset: int
    ) -> None:
        key = (group_id, partition)
        self.committed[key] = offset
        if not any(group == group_id for group, _ in self.processed):
            return
        done = self.processed.setdefault(key, set())
        frontier = self._frontier.get(key, offset if group_id in self.late_groups else 0)
        frontier = max(frontier, self.deleted.get(partition, 0))
        while frontier in done:
            frontier += 1
        if frontier < offset:
            # The group cannot process transaction markers and aborted records.
            isolation = Isolation.COMMITTED if group_id in self.committed_readers else Isolation.UNCOMMITTED
            log = core.partition(*partition)
            missed = readable(log, frontier, isolation) - done
            frontier = min(missed, default=max(frontier, min(offset, log.end_offset)))
        self._frontier[key] = frontier
        if offset > frontier:
            self.object_to(
                f"group {group_id!r} committed {partition} up to {offset}, and did not process the record at {frontier}"
            )

    def _synced(self, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        if response.error_code != codes.NONE or not response.assignment:
            return
        owners = self._owners.setdefault((request.group_id, request.generation_id), {})
        # A restarted static member has a new id, and the partitions of the old one.
        who = request.group_instance_id or request.member_id
        given = decode_versioned(ConsumerProtocolAssignment, response.assignment)[1]
        for topic in given.assigned_partitions:
            for index in topic.partitions:
                partition = TopicPartition(topic.topic, index)
                owner = owners.setdefault(partition, who)
                if owner != who:
                    self.object_to(
                        f"{partition} was given to {owner!r} and to {who!r} in generation "
                        f"{request.generation_id} of group {request.group_id!r}"
                    )

    def _look_at_classic(self, group: ClassicGroup) -> None:
        self._look_at_epochs(group, group.generation_id, {})
        was_stable = self._stable.get(group.group_id) == group.generation_id
        if group.state is not GroupState.STABLE or not was_stable:
            # Between generations a member may be parked for as long as the rebalance takes; its session begins then.
            for member_id in group.members:
                self._heard_at[group.group_id, member_id] = self._scheduler.now_ms()
            if group.state is GroupState.STABLE:
                self._stable[group.group_id] = group.generation_id
            return
        for member_id, member in group.members.items():
            self._look_at_session(group, member_id, member.session_timeout_ms)

    def _look_at_consumer(self, core: BrokerCore, group: ConsumerGroup) -> None:
        self._look_at_epochs(
            group, group.epoch, {member_id: member.epoch for member_id, member in group.members.items()}
        )
        owners: dict[tuple[bytes, int], str] = {}
        configs = core.cluster.group_configs.get(group.group_id, {})
        timeout = number_of(core.coordinator_config, configs, "consumer.session.timeout.ms")
        for member_id, member in group.members.items():
            for held in (member.assigned, member.revoking):
                for topic, partitions in held.items():
                    for index in partitions:
                        other = owners.setdefault((topic, index), member_id)
                        if other != member_id:
                            self.object_to(
                                f"partition {index} of topic {topic.hex()} is held by {other!r} and by {member_id!r} "
                                f"in {group!r}"
                            )
            if member.epoch >= 0:
                classic = member.classic
                self._look_at_session(
                    group, member_id, timeout if classic is None else classic.session_timeout_ms
                )
            self._look_at_revocation(group, member_id, member)

    def _look_at_epochs(
        self, group: ClassicGroup | ConsumerGroup, epoch: int, members: dict[str, int]
    ) -> None:
        known = self._epochs.get(group.group_id)
        if known is not None and known.kind is not type(group):
            # A group that changes its protocol gives its members new sessions.
            for member_id in group.members:
                self._heard_at[group.group_id, member_id] = self._scheduler.now_ms()
        # An empty group may be deleted, and another one of its name created.
        if known is not None and known.kind is type(group) and known.has_members:
            if epoch < known.epoch:
                self.object_to(f"{group!r} went back from generation or epoch {known.epoch}")
            for member_id, its in members.items():
                if 0 <= its < known.members.get(member_id, 0):
                    self.object_to(
                        f"member {member_id!r} of {group!r} went back from epoch {known.members[member_id]} to {its}"
                    )
        elif known is not None and epoch < known.epoch:
            self._owners = {key: owners for key, owners in self._owners.items() if key[0] != group.group_id}
        self._epochs[group.group_id] = _Epochs(type(group), epoch, bool(group.members), members)

    def _look_at_session(self, group: Any, member_id: str, timeout_ms: int) -> None:
        now = self._scheduler.now_ms()
        heard_at = self._heard_at.setdefault((group.group_id, member_id), now)
        if now - heard_at > timeout_ms + _SLACK_MS:
            self.object_to(
                f"member {member_id!r} of {group!r} was last heard {now - heard_at} ms ago, and its session is "
                f"{timeout_ms} ms"
            )

    def _look_at_revocation(self, group: ConsumerGroup, member_id: str, member: Any) -> None:
        key = (group.group_id, member_id)
        if not member.revoking or member.rebalance_timeout_ms < 0:
            self._revoking_since.pop(key, None)
            return
        now = self._scheduler.now_ms()
        # A member that gives up partitions and must give up others at once may stay in its epoch; its time restarts.
        asked = member.epoch, member.revoking
        known, since = self._revoking_since.setdefault(key, (asked, now))
        if known != asked:
            self._revoking_since[key] = asked, now
        elif now - since > member.rebalance_timeout_ms + _SLACK_MS:
            self.object_to(
                f"member {member_id!r} of {group!r} has not given partitions up for {now - since} ms, and its "
                f"rebalance timeout is {member.rebalance_timeout_ms} ms"
            )


def _may_commit(
    core: BrokerCore,
    group_id: str,
    member_id: str,
    generation: int,
    topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
) -> bool:
    """Whether the group may accept the commit of this member."""
    group = core.coordination.coordinator.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        if generation < 0:
            return group.state is GroupState.EMPTY
        return member_id in group.members and generation == group.generation_id
    if isinstance(group, ConsumerGroup):
        member = group.members.get(member_id)
        if member is None:
            return generation < 0 and not group.members
        if generation == member.epoch:
            return True
        # KIP-1251: an older epoch is valid for partitions that the member has had since then.
        return generation < member.epoch and all(
            (since := member.assignment_epoch(_topic_id(core, topic), each.partition_index)) is not None
            and generation >= since
            for topic in topics
            for each in topic.partitions
        )
    return generation < 0


def _topic_id(core: BrokerCore, topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic) -> bytes:
    """Requests name topics by their ids, or by their names."""
    if topic.name:
        known = core.cluster.topics.get(topic.name)
        return b"" if known is None else known.topic_id
    return topic.topic_id


def _name(
    core: BrokerCore,
    topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic | TxnOffsetCommitResponseTopic,
) -> str:
    known = None if topic.name else core.cluster.topic_by_id(topic.topic_id)
    return topic.name if known is None else known.name


def _records(core: BrokerCore, partition: TopicPartition) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of everything in the log."""
    log = core.partition(partition.topic, partition.partition)
    offset = log.start_offset
    while views := log.read(offset, _READ_BYTES):
        for header, batch in chain.from_iterable(map(iter_batches, views)):
            for record in FetchedRecords(batch, partition.topic, partition.partition, offset).take():
                yield record.offset, record.value
            offset = header.next_offset
