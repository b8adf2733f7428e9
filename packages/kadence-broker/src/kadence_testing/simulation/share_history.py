"""The share groups of a simulation, and the rules that are checked at every step of it (KIP-932, Q7).

It sees each share request that reaches the broker and each answer to one, the share-partitions after each turn of the
broker's loop, and the records that programs report.

* One member has a record at a time, and only by a fetch of its own; its lock ends in time.
* The count of deliveries of each record is that of Kafka's rules (`share_rules`), also after a restart.
* A member's word counts while it has the record, and never otherwise; the answer says so.
* The start moves only over what is done. An accepted record is never delivered again.
* What a member has is free again when its session has ended: at its close, or with its connection.
* A poll returns no record whose lock has ended, nor does a program count on a lock that has.
* Every record is accepted, rejected, delivered as often as the group allows, or still to be had.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.protocol import error_codes as codes
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence.types import TopicPartition
from kadence_broker.share.stored import ShareKey
from kadence_testing.simulation.scheduler import Scheduler, SimulationError
from kadence_testing.simulation.share_partitions import (
    Acknowledgement,
    BrokerTurn,
    End,
    Fate,
    SharePartitionHistory,
    Verdict,
)
from kadence_testing.simulation.share_rules import ACCEPT, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kadence.records import Record
    from kadence.share.async_share_consumer import AsyncShareConsumer
    from kadence_broker.core import BrokerCore
    from kadence_broker.server.connection import Connection
    from kadence_broker.service import Call

__all__ = ["ShareHistory"]

_OPENS, _CLOSES = 0, -1

_UNKNOWN_OUTCOME: Final = frozenset({codes.COORDINATOR_NOT_AVAILABLE})
"""Of an acknowledgement that counts until the next crash, and may not count after it."""


class _Member(NamedTuple):
    """A member at one node."""

    node_id: int
    group_id: str
    member_id: str


class _Answer(NamedTuple):
    call: Call
    response: Any
    said: dict[ShareKey, Acknowledgement]


class ShareHistory:
    """See the top of the file.

    Attributes:
        partitions: every share-partition that there was. unseen: records that were archived at the limit of deliveries
            although no program has reported any of these. late: locks that ended before their member said anything.
    """

    def __init__(self, scheduler: Scheduler, object_to: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._object_to = object_to
        self.partitions: dict[ShareKey, SharePartitionHistory] = {}
        self.late: list[str] = []
        self._sessions: dict[_Member, Connection] = {}
        self._fetches: dict[Call, _Member] = {}
        self._said: dict[ShareKey, list[Acknowledgement]] = defaultdict(list)
        self._loose: list[tuple[Call, ShareKey, Acknowledgement]] = []
        self._answers: list[_Answer] = []
        self._closing: set[_Member] = set()
        self._closed: set[_Member] = set()
        self._unsure: set[_Member] = set()
        """Members whose session a fault may have kept from being opened, changed or closed."""
        self._out_of_step: set[_Member] = set()
        """Members that may count another epoch than the broker, since a fault answered a request in its place."""
        self._steady: set[_Member] = set()
        """Members with a session all through the turn."""
        self._reads: dict[_Member, set[tuple[bytes, int]]] = {}
        """The partitions in the sessions. The end of one with its connection releases only these."""
        self._lost: set[_Member] = set()
        self._consumers: dict[str, AsyncShareConsumer[Any, Any]] = {}

    def __repr__(self) -> str:
        fates = [fate for each in self.partitions.values() for fate in each.fates.values()]
        counts = ", ".join(f"{fates.count(fate)} {fate.value}" for fate in Fate)
        return f"<share history of {len(self.partitions)} share-partitions: {counts}>"

    @property
    def unseen(self) -> list[tuple[TopicPartition, int]]:
        """See the class."""
        return [
            (each.partition, offset)
            for each in self.partitions.values()
            for offset, fate in each.fates.items()
            if fate is Fate.AT_THE_LIMIT and offset not in each.seen
        ]

    def fates(self, group_id: str) -> dict[tuple[TopicPartition, int], Fate]:
        """What became of the records of a group that are done."""
        return {
            (each.partition, offset): fate
            for key, each in self.partitions.items()
            if key.group_id == group_id
            for offset, fate in each.fates.items()
        }

    def is_empty(self, core: BrokerCore, group_id: str) -> bool:
        """Whether every record of a group's topics is done."""
        known = [each for key, each in self.partitions.items() if key.group_id == group_id]
        return bool(known) and all(
            core.partition(*each.partition) is each.log and each.is_empty for each in known
        )

    # ------------------------------------------------------------ reports of programs

    def took(self, consumer: AsyncShareConsumer[Any, Any], record: Record[Any, Any]) -> None:
        """A poll has returned a record to a program."""
        group = consumer._core.exchange.group
        self._consumers[group.member_id] = consumer
        for key, each in self.partitions.items():
            if key.group_id == group.group_id and each.partition == (record.topic, record.partition):
                break
        else:
            self._object_to(f"a poll returned {record!r}, and group {group.group_id!r} has no such partition")
            return
        offset, member, count = record.offset, group.member_id, record.delivery_count or 0
        each.seen.add(offset)
        if offset < each.log.start_offset:
            # It was deleted. Of a batch that lies across the start of the log all records are given out.
            return
        slot = each.slots.get(offset)
        if slot is not None and slot.is_acquired and (slot.member, slot.deliveries) == (member, count):
            return
        why = each.ended.get((offset, member, count))
        if why is None or why in (End.LOCK, End.SAID):
            self._object_to(
                f"{each.name} offset {offset}: a poll returned delivery {count} of it to {member!r}, and "
                + ("that never was" if why is None else f"{why.value} before")
                + f"; it is {slot}"
            )

    def has_accepted(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """A program heard that the acceptance of a record counts."""
        for key, each in self.partitions.items():
            if key.group_id == group_id and each.partition == partition:
                each.accepted.add(offset)

    def _late(self, each: SharePartitionHistory, offset: int, slot: Slot) -> None:
        """The broker has ended a lock."""
        self.late.append(f"{each.name} offset {offset}: {slot}")
        consumer = self._consumers.get(slot.member)
        if consumer is None:
            return
        holding, now = consumer._core.holding, self._scheduler.now_ms()
        held = (chunk for of_one in holding._partitions.values() for chunk in of_one.chunks)
        chunks = (
            [chunk for chunk in held if chunk.place(offset) >= 0]
            if holding.is_explicit
            else holding._returned
        )
        for chunk in chunks:
            if chunk.partition == each.partition and chunk.fetch.is_locked(now):
                for record in chunk.records:
                    if (record.offset, record.delivery_count) == (offset, slot.deliveries):
                        self._object_to(
                            f"{each.name} offset {offset}: its lock has ended, and {slot.member!r} counts on it"
                        )

    # ------------------------------------------------------------ events of the broker

    def watch(self, core: BrokerCore, call: Call) -> None:
        """A share request has reached the broker."""
        message: ShareFetchRequest | ShareAcknowledgeRequest = call.message
        member = _member_of(call)
        is_loose = core.faults.in_force
        if message.share_session_epoch not in (_OPENS, _CLOSES):
            session = self._sessions.get(member)
            # A request of an earlier connection, which was on its way for long, may use up the epoch of the next one.
            if is_loose or (session is not None and session is not call.connection):
                self._out_of_step.add(member)
            is_loose = member in self._out_of_step
        said: dict[ShareKey, Acknowledgement] = {}
        for key, batches in _acknowledged(message):
            said[key] = each = Acknowledgement(member.member_id, member.node_id, batches, is_loose)
            if is_loose:
                self._loose.append((call, key, each))
            else:
                self._said[key].append(each)
        self._watch_session(call, member, is_loose=is_loose)
        if isinstance(message, ShareFetchRequest) and message.max_records > 0:
            self._fetches[call] = member
            for key, partition in self.partitions.items():
                if key.group_id == member.group_id and partition.log.leader_id == member.node_id:
                    partition.taken.pop(member.member_id, None)
        call.on_reply = lambda response: self._answers.append(_Answer(call, response, said))

    def _watch_session(self, call: Call, member: _Member, *, is_loose: bool) -> None:
        """A request opens a session, goes on with it, or ends it."""
        message: ShareFetchRequest | ShareAcknowledgeRequest = call.message
        epoch = message.share_session_epoch
        if epoch in (_OPENS, _CLOSES):
            self._steady.discard(member)
        if epoch == _CLOSES:
            self._closing.add(member)
            if is_loose:
                self._unsure.add(member)
            else:
                self._closed.add(member)
                self._sessions.pop(member, None)
        elif isinstance(message, ShareFetchRequest):
            named = {
                (topic.topic_id, each.partition_index)
                for topic in message.topics
                for each in topic.partitions
            }
            left = {
                (topic.topic_id, index)
                for topic in message.forgotten_topics_data
                for index in topic.partitions
            }
            reads = set() if epoch == _OPENS else self._reads.get(member, set())
            self._reads[member] = (reads | named) - left
            if is_loose and (named or left):
                self._unsure.add(member)
            if epoch == _OPENS:
                before = self._sessions.get(member)
                if before is not None and before.is_closed:
                    # In this turn: the new session does not hide that the old one ended.
                    self._closing.add(member)
                self._sessions[member] = call.connection
                self._closed.discard(member)
                if not is_loose:
                    self._unsure.discard(member)
                    self._out_of_step.discard(member)

    def turned(self, core: BrokerCore) -> None:
        """The broker's loop has run a turn."""
        for member, connection in list(self._sessions.items()):
            if connection.is_closed:
                del self._sessions[member]
                self._steady.discard(member)
                self._closing.add(member)
                if member not in self._unsure:
                    self._lost.add(member)
        shares, now = core.shares, self._scheduler.now_ms()
        for key in shares._led.keys() - self.partitions.keys():
            self._begin(core, key)
        for _, key, each in self._loose:
            self._said[key].append(each)
        for key in list(self.partitions):
            stored = shares.store.get(key)
            if stored is None:
                del self.partitions[key]
                continue
            if self.partitions[key].version != (stored.state_epoch, stored.snapshot_epoch):
                # It was altered: its records begin anew.
                self._begin(core, key)
            history = self.partitions[key]
            place = history.log.leader_id, key.group_id
            turn = BrokerTurn(
                now,
                self._said.get(key, ()),
                frozenset(each.member_id for each in self._fetches.values() if each[:2] == place),
                frozenset(each.member_id for each in self._closing if each[:2] == place),
                frozenset(
                    each.member_id
                    for each in self._closed | self._lost
                    if each[:2] == place
                    and (each in self._closed or (key.topic_id, key.partition) in self._reads[each])
                ),
                any(each[:2] == place for each in self._steady),
                shares.settings_of(key.group_id),
            )
            history.turned(shares._led.get(key), stored, turn)
        for answer in self._answers:
            self._judge(core, answer)
        self._fetches = {call: member for call, member in self._fetches.items() if not call.is_done}
        self._loose = [each for each in self._loose if not each[0].is_done]
        self._answers.clear()
        self._said.clear()
        self._closing.clear()
        self._closed.clear()
        self._lost.clear()
        self._steady = self._sessions.keys() - self._unsure

    def crashes(self) -> None:
        """The broker crashes now."""
        for each in self.partitions.values():
            each.crashed()
        for collection in (
            self._sessions,
            self._steady,
            self._fetches,
            self._said,
            self._loose,
            self._answers,
        ):
            collection.clear()

    def restarted(self, core: BrokerCore) -> None:
        """Another broker has loaded the files of the one before it."""
        for key, each in self.partitions.items():
            each.log = core.partition(*each.partition)
            each.restarted(core.shares.store.get(key))

    def check(self, core: BrokerCore) -> None:
        """Check that no record is lost.

        Raises:
            SimulationError: one is.
        """
        for each in self.partitions.values():
            for offset in sorted(each.deliverable()):
                if offset < each.start and offset not in each.fates:
                    raise SimulationError(
                        f"{each.name} offset {offset} is behind the start, and nobody had it"
                    )

    # ------------------------------------------------------------ inside

    def _begin(self, core: BrokerCore, key: ShareKey) -> None:
        topic, stored = core.cluster.topic_by_id(key.topic_id), core.shares.store.get(key)
        assert topic is not None
        assert stored is not None
        self.partitions[key] = each = SharePartitionHistory(
            key,
            topic.partitions[key.partition],
            stored,
            self._object_to,
            lambda offset, slot: self._late(each, offset, slot),
        )

    def _judge(self, core: BrokerCore, answer: _Answer) -> None:
        """Compare an answer with what happened."""
        call, response = answer.call, answer.response
        member = _member_of(call)
        is_fetch = isinstance(call.message, ShareFetchRequest)
        found = {
            ShareKey(call.message.group_id, topic.topic_id, each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }
        for key, said in answer.said.items():
            history, each = self.partitions.get(key), found.get(key)
            if history is None:
                continue
            code: int = response.error_code
            if each is not None and not code:
                code = each.acknowledge_error_code if is_fetch else each.error_code
            self._judge_code(history, said, code)
        if not is_fetch or response.error_code:
            return
        for key, each in found.items():
            if (history := self.partitions.get(key)) is not None:
                named = {
                    offset: batch.delivery_count
                    for batch in each.acquired_records
                    for offset in range(max(batch.first_offset, history.start), batch.last_offset + 1)
                }
                self._judge_fetch(core, history, member, named)

    def _judge_code(self, history: SharePartitionHistory, said: Acknowledgement, code: int) -> None:
        first = said.batches[0][0]
        if code == codes.NONE:
            if said.verdict is Verdict.REFUSED:
                self._object_to(
                    f"{history.name} offset {first}: {said.member!r} was told that its word counts, and it did not "
                    f"have the record: {history.slots.get(first)}"
                )
            elif said.verdict is Verdict.COUNTS:
                history.accepted.update(
                    offset for offset, kind in said.kinds(0) if kind == ACCEPT and offset in history.fates
                )
        elif said.verdict is Verdict.COUNTS and code not in _UNKNOWN_OUTCOME:
            self._object_to(
                f"{history.name} offset {first}: {said.member!r} had the record, and its word was refused with "
                f"{codes.name(code)}"
            )

    def _judge_fetch(
        self, core: BrokerCore, history: SharePartitionHistory, member: _Member, named: dict[int, int]
    ) -> None:
        taken = history.taken.pop(member.member_id, {})
        # A connection may end with its answer.
        if named != taken and member not in self._closing:
            self._object_to(
                f"{history.name}: {member.member_id!r} acquired {taken}, by offset and count, and its answer says "
                f"{named}"
            )
        limit = core.shares.settings_of(history.key.group_id).delivery_count_limit
        if limit > 2 and limit in named.values() and len(named) > 1:
            self._object_to(f"{history.name}: the last delivery of a record is not alone: {named}")


def _member_of(call: Call) -> _Member:
    return _Member(call.node_id, call.message.group_id or "", call.message.member_id or "")


def _acknowledged(
    message: ShareFetchRequest | ShareAcknowledgeRequest,
) -> Iterator[tuple[ShareKey, list[tuple[int, int, list[int]]]]]:
    """The partitions of which a request says something, and what."""
    for topic in message.topics:
        for each in topic.partitions:
            if each.acknowledgement_batches:
                yield (
                    ShareKey(message.group_id or "", topic.topic_id, each.partition_index),
                    [
                        (batch.first_offset, batch.last_offset, list(batch.acknowledge_types))
                        for batch in each.acknowledgement_batches
                    ],
                )
