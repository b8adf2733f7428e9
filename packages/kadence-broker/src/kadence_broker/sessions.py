"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that a request names only changes.

    (id 0, epoch 0)     full request that asks for a session        (id n, epoch 0)   close n and open another
    (id n, epoch e)     incremental: changes, and what to forget    (id n, epoch -1)  close n, fetch without
    (id 0, epoch -1)    no session

Versions below 7 have no sessions and look like (0, -1). From v13 partitions are named by topic id; a
session keeps to the kind of name that it was opened with.

An unchanged partition costs nothing: if a client is up to date with it, it rests until it changes or the client names
it again, and a fetch of the session skips it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.fetch import FetchRequest

if TYPE_CHECKING:
    from kadence_broker.storage import Partition

__all__ = ["FetchContext", "FetchSession", "SessionCache", "WantedPartition"]

_EVICTION_MS: Final = 120_000
_FIRST_TOPIC_ID_VERSION: Final = 13

_Key = tuple[str, bytes, int]
"""Topic name, topic id (one of them empty), partition."""


@dataclass(slots=True, eq=False)
class WantedPartition:
    """One partition of a fetch, and the last answer about it.

    Attributes:
        known_as: the name of the topic whose id was given, once it has been found.
        place: its place in the order of its session. session: None for a fetch without one.
        rests_at: the partition that wakes it when it changes; None while fetches look at it.
    """

    topic: str
    topic_id: bytes
    index: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    known_high_watermark: int = -1
    known_log_start: int = -1
    known_as: str = ""
    place: int = 0
    session: FetchSession | None = None
    rests_at: Partition | None = None

    def rest(self, partition: Partition) -> None:
        """The client knows all of ``partition``: no fetch of the session looks at it until it changes."""
        if self.session is not None and self in self.session.awake:
            del self.session.awake[self]
            self.rests_at = partition
            partition.resting[self] = None

    def wake(self) -> None:
        """Let fetches look at it again, those that wait among them."""
        partition = self._leave()
        if partition is not None and self.session is not None:
            self.session.awake[self] = None
            for watch in self.session.waiting:
                watch(partition, self)

    def end(self) -> None:
        """The session has it no longer."""
        self._leave()
        if self.session is not None:
            self.session.awake.pop(self, None)

    def _leave(self) -> Partition | None:
        partition, self.rests_at = self.rests_at, None
        if partition is not None:
            del partition.resting[self]
        return partition


Watch = Callable[["Partition", WantedPartition], None]
"""Has a fetch that waits hear of a partition's changes."""


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that a client fetches, from request to request.

    Attributes:
        epoch: the one that the next request must carry.
        awake: the partitions that its next fetch looks at; the others rest.
        view: the (node, isolation level) for which they rest. waiting: of its fetches that wait.
    """

    session_id: int
    uses_topic_ids: bool
    epoch: int
    made_at: int
    used_at: int
    partitions: dict[_Key, WantedPartition] = field(default_factory=dict)
    awake: dict[WantedPartition, None] = field(default_factory=dict)
    view: tuple[int, int] = (-1, -1)
    waiting: dict[Watch, None] = field(default_factory=dict)
    _last_place: int = 0

    def add(self, wanted: WantedPartition) -> None:
        """Take a partition in, or put one that it has at the end of the order."""
        key = _key(wanted)
        self.partitions.pop(key, None)
        self.partitions[key] = wanted
        self._last_place += 1
        wanted.place = self._last_place
        if wanted.session is None:
            wanted.session = self
            self.awake[wanted] = None

    def look_as(self, node_id: int, isolation_level: int) -> None:
        """A fetch begins: what rests does so for others of its kind only."""
        if self.view != (node_id, isolation_level):
            self.view = node_id, isolation_level
            self.wake()

    def wake(self) -> None:
        """Let everything be looked at again."""
        for wanted in self.partitions.values():
            wanted.wake()


@dataclass(slots=True)
class FetchContext:
    """The partitions of one request after its session has been taken into account.

    Attributes:
        named: its partitions, where they are no session's.
    """

    named: list[WantedPartition]
    session: FetchSession | None = None
    is_incremental: bool = False
    error_code: int = codes.NONE

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.session_id

    @property
    def is_empty(self) -> bool:
        return not (self.named if self.session is None else self.session.partitions)

    def partitions(self) -> list[WantedPartition]:
        """The partitions to look at, in order: all that do not rest."""
        if self.session is None:
            return self.named
        return sorted(self.session.awake, key=attrgetter("place"))

    def answered(
        self, wanted: WantedPartition, high_watermark: int, log_start: int, *, has_records: bool
    ) -> None:
        """Remember the answer; partitions that returned records go to the end, so that all get their turn."""
        if self.session is None:
            return
        wanted.known_high_watermark = high_watermark
        wanted.known_log_start = log_start
        if has_records and self.session.partitions.get(_key(wanted)) is wanted:
            self.session.add(wanted)


class SessionCache:
    """The sessions of all clients, so many at most.

    A newcomer takes the place of one that has been idle for two minutes; else of the smallest that was in use for
    two minutes, if it is smaller (KIP-227). Kafka's brokers put followers first, and here are none.
    """

    __slots__ = ("_sessions", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def topics(self, session_id: int) -> set[tuple[str, bytes]]:
        """Name and id (one of them empty) of what a session holds; nothing for one that is not known."""
        session = self._sessions.get(session_id)
        return set() if session is None else {(name, topic_id) for name, topic_id, _ in session.partitions}

    def resolve(self, now: int, request: FetchRequest, version: int) -> FetchContext:
        """Find out which partitions ``request`` means."""
        uses_ids = version >= _FIRST_TOPIC_ID_VERSION
        if request.session_epoch == -1 or version < 7:
            self._end(request.session_id)
            return FetchContext(_once(_named(request)))
        if request.session_epoch == 0:
            self._end(request.session_id)
            return self._open(now, request, uses_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error_code=codes.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error_code=codes.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids is not uses_ids:
            return FetchContext([], error_code=codes.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request)
        session.used_at = now
        session.epoch = 1 if session.epoch == 2**31 - 1 else session.epoch + 1
        if not session.partitions:
            self._end(session.session_id)
            return FetchContext([])
        return FetchContext([], session, is_incremental=True)

    def _end(self, session_id: int) -> None:
        """Let a session go, if there is one; a fetch of it that waits goes on."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.wake()

    def _open(self, now: int, request: FetchRequest, uses_ids: bool) -> FetchContext:
        wanted = _named(request)
        once = _once(wanted)
        if not self._make_room(now, len(once)):
            return FetchContext(once)
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = FetchSession(session_id, uses_ids, epoch=1, made_at=now, used_at=now)
        for each in once:
            session.add(each)
        self._sessions[session_id] = session
        return FetchContext([], session)

    def _make_room(self, now: int, size: int) -> bool:
        """Make room for a session of ``size`` partitions; False if there is none now."""
        if len(self._sessions) < self._slots:
            return True
        sessions = self._sessions.values()
        gone = min(sessions, key=lambda each: each.used_at, default=None)
        if gone is None or now - gone.used_at <= _EVICTION_MS:
            old = [each for each in sessions if each.used_at - each.made_at > _EVICTION_MS]
            gone = min(old, key=lambda each: (len(each.partitions), each.session_id), default=None)
            if gone is None or len(gone.partitions) >= size:
                return False
        self._end(gone.session_id)
        return True

    @staticmethod
    def _update(session: FetchSession, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                gone = session.partitions.pop(_name_key(topic.topic, topic.topic_id, index), None)
                if gone is not None:
                    gone.end()
        for wanted in _named(request):
            known = session.partitions.get(_key(wanted))
            if known is None:
                session.add(wanted)
            else:
                known.wake()
                known.offset = wanted.offset
                known.max_bytes = wanted.max_bytes
                known.current_leader_epoch = wanted.current_leader_epoch
                known.last_fetched_epoch = wanted.last_fetched_epoch


def _named(request: FetchRequest) -> list[WantedPartition]:
    return [
        WantedPartition(
            topic=topic.topic,
            topic_id=topic.topic_id,
            index=each.partition,
            offset=each.fetch_offset,
            max_bytes=each.partition_max_bytes,
            current_leader_epoch=each.current_leader_epoch,
            last_fetched_epoch=each.last_fetched_epoch,
        )
        for topic in request.topics
        for each in topic.partitions
    ]


def _once(wanted: list[WantedPartition]) -> list[WantedPartition]:
    """Of a partition that is named twice the last holds, as in a session."""
    return list({_key(each): each for each in wanted}.values())


def _key(wanted: WantedPartition) -> _Key:
    return _name_key(wanted.topic, wanted.topic_id, wanted.index)


def _name_key(topic: str, topic_id: bytes, index: int) -> _Key:
    return topic, topic_id, index
