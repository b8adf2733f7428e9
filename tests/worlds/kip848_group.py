"""The broker's side of a KIP-848 group, small enough to read, and whole groups of our members under virtual time.

The coordinator follows KIP-848: a group epoch, a target assignment, and a partition that is nobody's until its old
owner has said that it gave it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.worlds.cluster import id_of, name_of
from tests.worlds.members import Member
from tests.worlds.network import Network, found

from kadence.clock import FOREVER
from kadence.connection.request import Request
from kadence.protocol import error_codes
from kadence.protocol.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.registry import decode_request
from kadence.types import TopicPartition

INTERVAL = 5_000
SESSION = 45_000

Partitions = frozenset[TopicPartition]


@dataclass
class Known:
    """What the coordinator knows of a member."""

    id: str
    instance: str | None
    epoch: int = 0
    previous: int = 0
    topics: frozenset[str] = frozenset()
    rebalance_ms: int = 0
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    """No longer assigned, but it has not said that it gave them up."""
    expires: int = FOREVER
    must_revoke_by: int = FOREVER
    away: bool = False
    """A static member that said that it comes back."""


class GroupOf848:
    """One group's coordinator."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.members: dict[str, Known] = {}
        self.epoch = 0
        self.thinks_until = 0
        """Before that it has no new target (KIP-1263)."""
        self._topics = topics
        self._target_epoch = 0
        self._target: dict[str, Partitions] = {}

    @property
    def reconciled(self) -> bool:
        """Everybody has what it should have, and has been told so."""
        return all(
            known.epoch == self.epoch and not known.revoking and known.assigned == self._target.get(known.id)
            for known in self.members.values()
        )

    # ------------------------------------------------------------ requests

    def heartbeat(self, now: int, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return self._leave(request)
        before = self.members.get(request.member_id)
        if request.member_epoch == 0:
            code, known = self._join(request)
        else:
            code, known = self._judge(request, before)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
        assert known is not None
        known.expires = now + SESSION
        if request.rebalance_timeout_ms > 0:
            known.rebalance_ms = request.rebalance_timeout_ms
        if request.subscribed_topic_names is not None:
            topics = frozenset(request.subscribed_topic_names)
            self.epoch += topics != known.topics
            known.topics = topics
        if now >= self.thinks_until:
            self._assign()
        shown = known.assigned
        self._reconcile(now, known, _owned(request))
        whole = request.member_epoch == 0 or request.topic_partitions is not None
        return ConsumerGroupHeartbeatResponse(
            member_id=known.id,
            member_epoch=known.epoch,
            heartbeat_interval_ms=INTERVAL,
            assignment=_told(known.assigned) if whole or known.assigned != shown else None,
        )

    def _join(self, request: ConsumerGroupHeartbeatRequest) -> tuple[int, Known | None]:
        known = self.members.get(request.member_id)
        if known is None:
            known = Known(request.member_id, request.instance_id)
            if request.instance_id is not None:
                for other in list(self.members.values()):
                    if other.instance == request.instance_id:
                        if not other.away:
                            return error_codes.UNRELEASED_INSTANCE_ID, None
                        del self.members[other.id]
                        known.assigned = other.assigned
                        known.topics = other.topics
                        self._target[known.id] = self._target.pop(other.id, frozenset())
            self.members[known.id] = known
            self.epoch += 1
        known.epoch = known.previous = 0
        known.revoking = frozenset()  # it joins owning nothing
        return 0, known

    def _judge(self, request: ConsumerGroupHeartbeatRequest, known: Known | None) -> tuple[int, Known | None]:
        if known is None:
            return error_codes.UNKNOWN_MEMBER_ID, None
        if request.member_epoch == known.epoch:
            return 0, known
        owned = _owned(request)
        lost_answer = request.member_epoch == known.previous and owned is not None
        if lost_answer and owned is not None and owned <= known.assigned:
            return 0, known
        return error_codes.FENCED_MEMBER_EPOCH, None

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        known = self.members.get(request.member_id)
        if known is None:
            return ConsumerGroupHeartbeatResponse(
                error_code=error_codes.UNKNOWN_MEMBER_ID, member_epoch=0, heartbeat_interval_ms=0
            )
        if request.member_epoch == -2:
            known.away = True
        else:
            self._remove(known)
        return ConsumerGroupHeartbeatResponse(
            member_id=known.id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )

    # ------------------------------------------------------------ time

    def next_deadline(self) -> int:
        return min((min(k.expires, k.must_revoke_by) for k in self.members.values()), default=FOREVER)

    def poll(self, now: int) -> None:
        for known in list(self.members.values()):
            if now >= min(known.expires, known.must_revoke_by):
                self._remove(known)

    def _remove(self, known: Known) -> None:
        del self.members[known.id]
        self._target.pop(known.id, None)
        self.epoch += 1

    # ------------------------------------------------------------ who gets what

    def _assign(self) -> None:
        """The target: even, and everybody keeps what it may (as the uniform assignor does)."""
        if self._target_epoch == self.epoch:
            return
        self._target_epoch = self.epoch
        before, self._target = self._target, {}
        names = sorted(self.members)
        for topic, count in self._topics.items():
            members = [name for name in names if topic in self.members[name].topics]
            free = {TopicPartition(topic, number) for number in range(count)}
            least, extra = divmod(count, len(members)) if members else (0, 0)
            quota = {}
            # Whoever holds more keeps the odd one.
            for name in sorted(members, key=lambda name: -len(before.get(name, ()))):
                quota[name] = least + (extra > 0)
                extra -= 1
                kept = sorted(p for p in before.get(name, ()) if p in free)[: quota[name]]
                self._target[name] = self._target.get(name, frozenset()) | set(kept)
                free -= set(kept)
            for name in members:
                mine = sum(p.topic == topic for p in self._target[name])
                given = sorted(free)[: quota[name] - mine]
                self._target[name] |= set(given)
                free -= set(given)

    def _reconcile(self, now: int, known: Known, owned: Partitions | None) -> None:
        target = self._target.get(known.id, frozenset())
        if known.revoking and owned is not None and not owned & known.revoking:
            known.revoking = frozenset()
            known.must_revoke_by = FOREVER
            known.previous, known.epoch = known.epoch, max(known.epoch, self._target_epoch)
        going = known.assigned - target
        if going:
            if known.epoch == 0:
                known.assigned -= going  # it owns nothing yet
            else:
                known.assigned -= going
                known.revoking |= going
                known.must_revoke_by = min(known.must_revoke_by, now + known.rebalance_ms)
        if known.revoking:
            return
        taken = {
            p
            for other in self.members.values()
            if other is not known
            for p in other.assigned | other.revoking
        }
        known.assigned |= target - taken
        if known.epoch != self._target_epoch:
            known.previous, known.epoch = known.epoch, self._target_epoch


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicPartition(name_of(topic.topic_id), number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def _told(assigned: Partitions) -> Assignment:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(assigned):
        topics.setdefault(topic, []).append(number)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=id_of(topic), partitions=numbers) for topic, numbers in topics.items()
        ]
    )


class World(Network):
    """KIP-848 members and one coordinator.

    Attributes:
        lose: what becomes of the next request: "request" or "answer" is lost with the connection; None.
        refuse: an error code that the next heartbeat is answered with instead, or 0.
    """

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.group = GroupOf848(topics)
        self.lose: Callable[[], str | None] = lambda: None
        self.refuse: Callable[[], int] = lambda: 0

    def member(self, name: str, subscribe: Iterable[str] = ("t",), **config: Any) -> Member:
        member = Member(name, self.topics, protocol="consumer", subscribe=subscribe, **config)
        member.poll(self.now)
        self.members.append(member)
        return member

    @property
    def settled(self) -> bool:
        """Everybody is stable, and between them they own everything."""
        living = [member for member in self.members if not member.dead and member.membership.managed]
        states = {member.membership.state.name for member in living}
        flowing = sum(len(member.flowing) for member in living)
        return states <= {"STABLE"} and flowing == sum(self.topics.values()) and self.group.reconciled

    def deadline(self) -> int:
        return self.group.next_deadline()

    def elapse(self) -> None:
        self.group.poll(self.now)

    def check(self) -> None:
        """No partition is ever in two hands, as far as the coordinator has both for members."""
        owners: dict[TopicPartition, str] = {}
        for member in self.members:
            if member.dead or member.membership.group.member_id not in self.group.members:
                continue
            for partition in member.owned:
                other = owners.setdefault(partition, member.name)
                assert other == member.name, f"{partition} is owned by {other} and {member.name}"

    def deliver(self, member: Member, request: Request, version: int, frame: bytes) -> None:
        fate = self.lose()
        if fate == "request":
            self.lost(member, request)
            return
        answered = fate != "answer"
        self.at(
            self.arrival(member, request), lambda: self._arrive(member, request, version, frame, answered)
        )

    def _arrive(self, member: Member, request: Request, version: int, frame: bytes, answered: bool) -> None:
        _, message = decode_request(frame)
        response: Any
        if isinstance(message, FindCoordinatorRequest):
            response = found(message, version)
        elif code := self.refuse():
            response = ConsumerGroupHeartbeatResponse(
                error_code=code, member_epoch=0, heartbeat_interval_ms=0
            )
        else:
            assert isinstance(message, ConsumerGroupHeartbeatRequest)
            response = self.group.heartbeat(self.now, message)
        if answered:
            self.answer(member, request, version, response)
        else:
            self.lost(member, request, back=True)
