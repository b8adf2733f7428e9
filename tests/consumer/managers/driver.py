"""A whole group in one process under virtual time: real members, the real coordinator, a network of our own.

Every request and response goes through the generated protocol code in the version under test, so what the
coordinator sees is what a broker would see. Nothing happens but by `Group.advance`, and in one order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kadence.clock import FOREVER
from kadence.cluster import Cluster, Topic
from kadence.config import ConsumerConfig
from kadence.connection.request import ANY_NODE, Completed, Lane, Request
from kadence.consumer.border import messages as m
from kadence.consumer.border.progress import Progress
from kadence.consumer.managers.classic import ClassicMembership
from kadence.consumer.managers.commit import CommitManager
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.heartbeat import HeartbeatManager
from kadence.consumer.state.subscription import Subscription
from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.coordinator import GroupCoordinator
from kadence.coordinator.effects import Caller
from kadence.errors import DisconnectedError, KafkaError, UnsupportedVersionError
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kadence.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kadence.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kadence.protocol.registry import decode_request, decode_response, encode_request, encode_response
from kadence.types import OffsetAndMetadata, PartitionInfo, TopicPartition

START = 1_000_003
NODE = 7


def id_of(name: str) -> bytes:
    """The topic id of a topic of this name."""
    return name.encode().ljust(16, b"\1")[:16]


def cluster_of(topics: dict[str, int]) -> Cluster:
    """A cluster whose topics have so many partitions."""
    return Cluster(
        topics={
            name: Topic(
                name,
                topic_id=id_of(name),
                partitions=tuple(PartitionInfo(name, n, NODE, 0, (NODE,), (NODE,)) for n in range(count)),
            )
            for name, count in topics.items()
        }
    )


class FakeMetadata:
    """What managers see of the cluster."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.cluster = cluster_of(topics or {})
        self.wanted: frozenset[str] = frozenset()
        self.nameless: frozenset[bytes] = frozenset()
        self.updates = 0

    def want(self, topics: frozenset[str]) -> None:
        self.wanted = topics

    def identify(self, topic_ids: frozenset[bytes]) -> None:
        self.nameless = topic_ids

    def request_update(self, now: int) -> None:
        del now
        self.updates += 1


class FakeJobs:
    """Jobs wait until `run`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], object], Callable[[int, object, Exception | None], None]]] = []

    def submit(
        self, work: Callable[[], object], done: Callable[[int, object, Exception | None], None]
    ) -> None:
        self.waiting.append((work, done))

    def run(self, now: int) -> None:
        waiting, self.waiting = self.waiting, []
        for work, done in waiting:
            try:
                result, error = work(), None
            except Exception as raised:  # noqa: BLE001 - it is the job's result
                result, error = None, raised
            done(now, result, error)


class Member:
    """One consumer's network side, and a small application before it.

    Attributes:
        busy: the application processes and does not poll, so callbacks wait.
        facts: everything told to the application, in order.
        history: names of callbacks run, with their partitions.
    """

    def __init__(
        self,
        name: str,
        topics: dict[str, int],
        *,
        has_listener: bool = False,
        subscribe: Iterable[str] = (),
        **config: Any,
    ) -> None:
        self.name = name
        self.config = ConsumerConfig(**{"group_id": "g", **config})
        self.facts: list[m.Fact] = []
        self.unread: list[m.Fact] = []
        self.history: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.busy = False
        self.dead = False
        self.jobs = FakeJobs()
        self.metadata = FakeMetadata(topics)
        self.progress = Progress()
        self.subscription = Subscription()
        self.coordinator = CoordinatorManager(self.config.group_id, self.config, self.tell)
        self.membership = ClassicMembership(
            self.coordinator, self.subscription, self.metadata, self.config, self.jobs, self.tell
        )
        self.heartbeat = HeartbeatManager(
            self.coordinator, self.membership, self.progress, self.config, self.tell
        )
        self.commits = CommitManager(self.coordinator, self.membership, self.metadata, self.config, self.tell)
        self.managers = (self.coordinator, self.commits, self.heartbeat, self.membership)
        self.owners: dict[Request, Any] = {}
        self.on_revoked: Callable[[tuple[TopicPartition, ...]], None] | None = None
        self._ids = itertools.count(1)
        self._has_listener = has_listener
        if subscribe:
            self.subscribe(START, subscribe)

    # -- the application

    def tell(self, fact: m.Fact) -> None:
        self.facts.append(fact)
        self.unread.append(fact)

    def subscribe(self, now: int, topics: Iterable[str]) -> None:
        self.subscription.subscribe(frozenset(topics), None, has_listener=self._has_listener)
        self.membership.subscription_changed(now)

    def work(self, now: int) -> None:
        """From now on the application processes and does not poll."""
        self.busy = True
        self.progress.leave_poll(now)

    def poll(self, now: int) -> None:
        """The application waits for records from now on."""
        self.busy = False
        self.progress.enter_poll(now)

    def serve(self, now: int) -> None:
        """What the application does inside poll: rebalance callbacks, and asking to join."""
        if self.busy or self.dead:
            return
        if self.membership.needs_polled:
            self.membership.polled(now)
        unread, self.unread = self.unread, []
        for fact in unread:
            if isinstance(fact, m.CallbackNeeded):
                self.history.append((type(fact).__name__, fact.partitions))
                if isinstance(fact, m.RevokePartitions) and self.on_revoked is not None:
                    self.on_revoked(fact.partitions)
                self.membership.callback_done(now, fact.id, None)

    def commit(
        self, now: int, offsets: dict[TopicPartition, int], *, retry: bool = True, timeout: int = 60_000
    ) -> int:
        call_id = next(self._ids)
        values = {p: OffsetAndMetadata(o) for p, o in offsets.items()}
        self.commits.commit(now, m.Commit(call_id, now + timeout, values, retry))
        return call_id

    def fetch_committed(self, now: int, partitions: Iterable[TopicPartition], timeout: int = 60_000) -> int:
        call_id = next(self._ids)
        self.commits.fetch_committed(now, m.FetchCommitted(call_id, now + timeout, frozenset(partitions)))
        return call_id

    # -- to look at

    def has_left(self) -> bool:
        return self.membership.left

    @property
    def owned(self) -> list[TopicPartition]:
        return sorted(self.subscription.partitions)

    @property
    def flowing(self) -> list[TopicPartition]:
        """Owned, and handed out."""
        return [p for p in self.owned if not self.subscription.partitions[p].cell.revoking]

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def answer_to(self, call_id: int) -> m.Answer | None:
        return next((fact for fact in self.of(m.Answer) if fact.id == call_id), None)

    @property
    def causes(self) -> list[str]:
        return [fact.rebalance.cause for fact in self.of(m.RebalanceFinished)]

    # -- the network thread

    def turn(self, now: int) -> tuple[list[Request], int]:
        """One pass over the managers: what they send, and when they must be asked again."""
        self.jobs.run(now)
        requests: list[Request] = []
        wake_at = now if self.jobs.waiting else FOREVER
        for manager in self.managers:
            poll = manager.poll(now)
            for request in poll.requests:
                self.owners[request] = manager
            requests += poll.requests
            wake_at = min(wake_at, poll.wake_at)
        if self.jobs.waiting:
            wake_at = now
        return requests, wake_at

    def complete(self, now: int, completed: Completed) -> None:
        self.owners.pop(completed.request).on_response(now, completed)


@dataclass(order=True)
class _Event:
    at: int
    order: int
    act: Callable[[], None] = field(compare=False)


class Group:
    """Members, one coordinator, and a network with a delay.

    Attributes:
        delay: how long (ms) the next request or answer travels.
        versions: the highest version of an API (by key) that the broker offers.
        lose: decides by (member, request) whether a request ends in a lost connection.
        zombies: two processes share an identity, so two may own a partition for a while.
        refuse: (member, request) -> a response that is given instead of the coordinator's, or None.
    """

    def __init__(self, topics: dict[str, int], *, delay_ms: int = 1, **config: Any) -> None:
        self.now = START
        self.topics = topics
        self.coordinator = GroupCoordinator(
            CoordinatorConfig(**{"min_session_timeout_ms": 100, **config}), new_id=_ids().__next__
        )
        self.members: list[Member] = []
        self.versions: dict[int, int] = {}
        self.lose: Callable[[Member, Request], bool] = lambda member, request: False
        self.refuse: Callable[[Member, Request], Any] = lambda member, request: None
        self.zombies = False
        self.log: list[tuple[int, str, Any]] = []
        self.delay: Callable[[], int] = lambda: delay_ms
        self._events: list[_Event] = []
        self._order = itertools.count()
        self._tickets: dict[int, tuple[Member, Request, int]] = {}
        self._lanes: dict[tuple[str, Lane, bool], int] = {}

    def member(self, name: str, subscribe: Iterable[str] = ("t",), **kwargs: Any) -> Member:
        member = Member(name, self.topics, **kwargs)
        member.subscribe(self.now, subscribe)
        member.poll(self.now)
        self.members.append(member)
        return member

    def advance(self, duration_ms: int) -> None:
        """Let time pass; everything that is due in it happens, in order."""
        end = self.now + duration_ms
        quiet = 0
        while True:
            wake_at = self._turns()
            at = min(
                wake_at, self.coordinator.next_deadline(), self._events[0].at if self._events else FOREVER
            )
            if at > end:
                self.now = end
                return
            quiet = quiet + 1 if at <= self.now else 0
            assert quiet < 1000, "the group spins without time passing"
            self.now = max(self.now, at)
            while self._events and self._events[0].at <= self.now:
                heapq.heappop(self._events).act()
            for answer in self.coordinator.poll(self.now):
                self._answered(answer)

    def settle(self, limit_ms: int = 30_000) -> None:
        """Advance until every living member is stable and between them they own everything."""
        end = self.now + limit_ms
        while self.now < end:
            self.advance(50)
            alive = [member for member in self.members if not member.dead]
            if all(member.membership.state.name == "STABLE" for member in alive) and self.complete:
                return
        raise AssertionError(f"not settled: {[repr(member.membership) for member in self.members]}")

    @property
    def complete(self) -> bool:
        owned = sorted(p for member in self.members if not member.dead for p in member.flowing)
        return owned == sorted(TopicPartition(t, n) for t, count in self.topics.items() for n in range(count))

    def kill(self, member: Member) -> None:
        """The process is gone; the coordinator hears nothing of it."""
        member.dead = True

    def _at(self, at: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, _Event(at, next(self._order), act))

    def _turns(self) -> int:
        wake_at = FOREVER
        for member in self.members:
            if member.dead:
                continue
            while True:
                member.serve(self.now)
                requests, wake = member.turn(self.now)
                for request in requests:
                    self._send(member, request)
                if not requests and not (member.unread and not member.busy):
                    break
            wake_at = min(wake_at, wake)
        self._check()
        return wake_at

    def _check(self) -> None:
        """No partition is ever read by two members of the same generation."""
        owners: dict[tuple[TopicPartition, int], str] = {}
        for member in self.members:
            if member.dead or self.zombies or not member.membership.active:
                continue
            generation = member.membership.group.generation_id
            for partition in member.owned:
                other = owners.setdefault((partition, generation), member.name)
                assert other == member.name, f"{partition} is owned by {other} and {member.name}"

    def _send(self, member: Member, request: Request) -> None:
        message = request.message
        top = min(request.max_version or 99, self.versions.get(message.API_KEY, 99), message.MAX_VERSION)
        self.log.append((self.now, member.name, message))
        try:
            frame = encode_request(message, top, 1, member.name)
        except Exception as error:  # noqa: BLE001 - what the connection room does
            unsupported = UnsupportedVersionError(str(error))
            self._at(
                self.now,
                lambda: member.complete(self.now, Completed(request, None, unsupported, -1, self.now)),
            )
            return
        if self.lose(member, request):
            self._fail(member, request, DisconnectedError("the connection was lost"))
            return
        self._at(self._arrival(member, request), lambda: self._arrive(member, request, top, frame))

    def _fail(self, member: Member, request: Request, error: KafkaError) -> None:
        def act() -> None:
            if not member.dead and request in member.owners:
                member.complete(self.now, Completed(request, None, error, -1, self.now))

        self._at(self._arrival(member, request), act)

    def _arrival(self, member: Member, request: Request, *, back: bool = False) -> int:
        """When what is sent now arrives: in order on each connection, in any order between two of them."""
        connection = (member.name, request.lane, back)
        self._lanes[connection] = max(self.now + self.delay(), self._lanes.get(connection, 0))
        return self._lanes[connection]

    def _arrive(self, member: Member, request: Request, version: int, frame: bytes) -> None:
        header, message = decode_request(frame)
        instead = self.refuse(member, request)
        ticket = next(self._order)
        self._tickets[ticket] = (member, request, version)
        if instead is not None:
            self._reply(ticket, instead)
        elif isinstance(message, FindCoordinatorRequest):
            self._reply(ticket, _coordinator(message, version))
        else:
            # From version 10 on a broker translates topic ids for its coordinator, which knows names.
            for topic in _topics(message) if version >= 10 else ():
                topic.name = topic.topic_id.rstrip(b"\1").decode()
            caller = Caller(ticket, version, header.client_id or "")
            for answer in self.coordinator.handle(self.now, caller, message):
                self._answered(answer)

    def _answered(self, answer: Any) -> None:
        self._reply(answer.caller.ticket, answer.response)

    def _reply(self, ticket: int, response: Any) -> None:
        member, request, version = self._tickets.pop(ticket)
        for topic in _topics(response) if version >= 10 else ():
            topic.topic_id = id_of(topic.name)
        frame = encode_response(response, version, 1)

        def act() -> None:
            if member.dead or request not in member.owners:
                return
            _, decoded = decode_response(type(request.message), version, frame)
            member.complete(self.now, Completed(request, decoded, None, version, self.now))

        self._at(self._arrival(member, request, back=True), act)

    def sent(self, kind: type[Any], name: str | None = None) -> list[Any]:
        return [message for _, who, message in self.log if isinstance(message, kind) and name in (None, who)]


def _topics(message: Any) -> list[Any]:
    if isinstance(message, OffsetCommitRequest | OffsetCommitResponse):
        return list(message.topics)
    if isinstance(message, OffsetFetchRequest | OffsetFetchResponse):
        return [topic for group in message.groups for topic in group.topics or ()]
    return []


def _coordinator(message: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    if version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=NODE, host="b7", port=9092) for key in message.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(node_id=NODE, host="b7", port=9092)


def _ids() -> Iterator[str]:
    for number in itertools.count(1):
        yield f"{number:04d}"


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


__all__ = [
    "ANY_NODE",
    "NODE",
    "START",
    "FakeJobs",
    "FakeMetadata",
    "Group",
    "Member",
    "cluster_of",
    "partitions",
]
