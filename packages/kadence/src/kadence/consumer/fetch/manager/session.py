"""Incremental fetch sessions (KIP-227): after the first full fetch a request names only changes.

One session per broker. The broker keeps the list of partitions with their offsets; this is the client's copy of it.
`want` and `drop` change the list, and `plan` names the changes since the last fetch. So the cost of a fetch depends on
the changes, not on the number of partitions. Every field that a request can change is compared, including topic ids (a
recreated topic is a different one).

A fetch as a message, and the data kept until its response comes.

The fetch manager's state of one broker. Network thread, plain data.

The poller may continue a session by itself (`SessionFollow`). The positions of its partitions are then known only after
the network thread has counted the responses, which it does first in each turn (`FetchRequestManager`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from kadence.clock import FOREVER
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.consumer.shared_state import Wanted
from kadence.consumer.subscription import PartitionState
from kadence.lazy_dataclasses import dataclass
from kadence.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic
from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = [
    "FINAL_EPOCH",
    "MOST_FOLLOWED",
    "Broker",
    "FetchSession",
    "PartitionBucket",
    "Sent",
    "SessionPlan",
    "forgotten_topics",
    "table_of",
    "topics",
]

_LEAST_PATIENCE_MS: Final = 5
_MOST_PATIENCE_MS: Final = 100
_SIDE_WAIT_MS: Final = 10
"""The first wait of a side fetch after one that brought nothing."""


class PartitionBucket:
    """Partitions in the same situation, in the order in which they came. ``broker``: their broker, if any."""

    __slots__ = ("broker", "states")

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker
        self.states: dict[PartitionState, None] = {}


class Broker:
    """One broker, its partitions and the fetches on their way to it.

    Attributes:
        wanted: partitions to fetch from it. full: those of which enough is buffered.
        unsettled: partitions of both that must be looked at to decide. Of the others nothing is buffered, and the
            broker had nothing when it was asked: they cost a turn nothing, however many they are.
        session, parked: its fetch session, and the session's fetch under way. side: the fetch outside the session.
        late: those of ``wanted`` that no fetch under way asks for; only kept while there is a ``parked``.
        urgent: whether one of them was moved, resumed or assigned, and not just drained.
        changed: partitions that may differ from the session's list.
        noted: the reason that was noted for partitions of ``wanted`` that wait for the whole broker.
        blocked: the reason against the latest fetch. stirred: something has changed since then.
        again_at: when to try again (ms). least: bytes that the next fetch needs at least.
        served_at: when the latest fetch left.
        side_wait_ms: how long the broker may hold the next side fetch when it has no data. answer_bytes: bytes of
            records in the latest response. has_enough: enough is buffered of a partition that the session asks for by
            itself.
    """

    __slots__ = (
        "_answer_ms",
        "again_at",
        "answer_bytes",
        "blocked",
        "changed",
        "full",
        "has_enough",
        "late",
        "least",
        "node_id",
        "noted",
        "parked",
        "served_at",
        "session",
        "side",
        "side_wait_ms",
        "stirred",
        "unsettled",
        "urgent",
        "wanted",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.wanted = PartitionBucket(self)
        self.full = PartitionBucket(self)
        self.unsettled: dict[PartitionState, None] = {}
        self.session = FetchSession()
        self.parked: Sent | None = None
        self.side: Sent | None = None
        self.late: dict[PartitionState, None] = {}
        self.urgent = False
        self.changed: dict[PartitionState, None] = {}
        self.noted: dict[PartitionState, NotFetchedReason] = {}
        self.blocked: NotFetchedReason | None = None
        self.stirred = False
        self.again_at = FOREVER
        self.least = 0
        self.served_at = -1
        self.side_wait_ms = 0
        self.answer_bytes = 0
        self.has_enough = False
        self._answer_ms = 0

    @property
    def candidates(self) -> dict[PartitionState, None]:
        """Partitions that the next fetch may ask for."""
        return self.wanted.states if self.parked is None else self.late

    def add_late(self, state: PartitionState, *, drained: bool) -> None:
        """Mark a partition that no fetch under way asks for."""
        self.late[state] = None
        self.urgent = self.urgent or not drained
        if not isinstance(state.flight, Sent) or state.in_flight != state.shared_partition.fetch_epoch:
            # No side fetch has asked for it, so the next one must not wait for partitions that were asked for.
            self.side_wait_ms = 0

    def parked_at(self, sent: Sent) -> int:
        """When a fetch without a response must have been parked: with data the broker would have answered before."""
        patience = max(2 * self._answer_ms, _LEAST_PATIENCE_MS)
        return sent.sent_at + min(patience, _MOST_PATIENCE_MS)

    def answered(self, now: int, sent: Sent, size: int, enough: int) -> None:
        """A fetch returned ``size`` bytes of records; ``enough``: fetch.min.bytes."""
        if sent.session is None:
            if size < enough:
                self.side_wait_ms = max(2 * self.side_wait_ms, _SIDE_WAIT_MS)
        elif size:
            # The shortest recent time: a fetch that waited for data says nothing about it.
            self._answer_ms = min(now - sent.sent_at, self._answer_ms + (self._answer_ms >> 2) + 1)

    def __repr__(self) -> str:
        return (
            f"<Broker {self.node_id} wanted={len(self.wanted.states)} full={len(self.full.states)} "
            f"late={len(self.late)} parked={self.parked is not None} side={self.side is not None}>"
        )


@dataclass(slots=True, eq=False)
class Sent:
    """A fetch that is on its way.

    Attributes:
        asked: its partitions. names: the topics of the ids in it.
        session: None outside any. sent_at, ends_at: when it was sent, and when its long poll ends (ms). under_way,
            answers: as in a session.
    """

    node_id: int
    asked: Mapping[TopicPartition, Wanted]
    names: Mapping[bytes, str]
    session: FetchSession | None
    sent_at: int
    ends_at: int
    under_way: bool = True
    answers: int = 0


def topics(wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    """Partitions by topic, in the order of their turns."""
    by_name: dict[str, FetchTopic] = {}
    for partition, want in wanted.items():
        topic = by_name.get(partition.topic)
        if topic is None:
            topic = by_name[partition.topic] = FetchTopic(
                topic=partition.topic, topic_id=want.topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=want.max_bytes,
                last_fetched_epoch=want.last_epoch,
            )
        )
    return list(by_name.values())


def forgotten_topics(forget: dict[TopicPartition, bytes]) -> list[ForgottenTopic]:
    """Partitions that leave a session, by topic and topic id."""
    by_key: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, topic_id in forget.items():
        key = (partition.topic, topic_id)
        if key not in by_key:
            by_key[key] = ForgottenTopic(topic=partition.topic, topic_id=topic_id, partitions=[])
        by_key[key].partitions.append(partition.partition)
    return list(by_key.values())


INITIAL_EPOCH: Final = 0
"""Open a new session with a full fetch."""
FINAL_EPOCH: Final = -1
"""Outside any session; with a session id: close it."""
_MAX_EPOCH: Final = 2**31 - 1
_LAST_TO_REPEAT: Final = _MAX_EPOCH - 10_000


class SessionPlan(NamedTuple):
    """The session part of one request: partitions to name, and partitions to forget (with their topic ids)."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forget: dict[TopicPartition, bytes]

    @property
    def is_repeatable(self) -> bool:
        """Whether an empty request with the next epoch may follow it, because it opens no session."""
        return bool(self.session_id) and 0 < self.epoch < _LAST_TO_REPEAT


class FetchSession:
    """The client's copy of one broker's session.

    Attributes:
        wanted: the partitions of the next fetch. asked: those of the latest fetch, which the broker keeps.
        names: the topics of the ids in ``asked``.
        under_way: a fetch of it has no response yet. answers: how many fetches were answered.
    """

    __slots__ = ("_changed", "_epoch", "_id", "_unnamed", "answers", "asked", "names", "under_way", "wanted")

    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._changed: dict[TopicPartition, None] = {}
        self._unnamed: set[TopicPartition] = set()
        self.wanted: dict[TopicPartition, Wanted] = {}
        self.asked: dict[TopicPartition, Wanted] = {}
        self.names: dict[bytes, str] = {}
        self.under_way = False
        self.answers = 0

    @property
    def has_ids(self) -> bool:
        """Whether all topic ids of the request are known."""
        return not self._unnamed

    def want(self, partition: TopicPartition, wanted: Wanted) -> bool:
        """From the next fetch on, ask for this. False if that is already the case."""
        if self.wanted.get(partition) == wanted:
            return False
        # To the end: a full fetch also names the longest-requested partitions first.
        self.wanted.pop(partition, None)
        self.wanted[partition] = wanted
        self._changed[partition] = None
        if wanted.topic_id == ZERO_UUID:
            self._unnamed.add(partition)
        else:
            self._unnamed.discard(partition)
        return True

    def drop(self, partition: TopicPartition) -> None:
        """From the next fetch on, do not ask for it."""
        if self.wanted.pop(partition, None) is not None:
            self._unnamed.discard(partition)
            self._changed[partition] = None

    def plan(self) -> SessionPlan:
        """The smallest request after which the broker's session holds exactly ``wanted``."""
        send: dict[TopicPartition, Wanted] = {}
        forget: dict[TopicPartition, bytes] = {}
        if self._epoch == INITIAL_EPOCH:
            send, self.asked = dict(self.wanted), dict(self.wanted)
            self.names.clear()
        else:
            for partition in self._changed:
                before, after = self.asked.get(partition), self.wanted.get(partition)
                if before == after:
                    continue
                if before is not None:
                    del self.asked[partition]
                    if after is None or before.topic_id != after.topic_id:
                        forget[partition] = before.topic_id
                if after is not None:
                    self.asked[partition] = send[partition] = after
        for partition, wanted in send.items():
            self.names[wanted.topic_id] = partition.topic
        self._changed.clear()
        return SessionPlan(self._id, self._epoch, send, forget)

    def answered(self, session_id: int) -> None:
        """The broker answered without a session error; id 0: it keeps no session."""
        if session_id == 0:
            self.restart()
        elif session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def repeated(self, count: int) -> None:
        """This many of its fetches were answered without data, and the same one followed each."""
        self._epoch += count
        self.answers += count

    def goes_on(self, partition: TopicPartition, wanted: Wanted) -> None:
        """A response had data, and the fetch that followed it asked for this."""
        self.asked[partition] = wanted
        # To the end, as in `want`.
        self.wanted.pop(partition, None)
        self.wanted[partition] = wanted

    def failed(self) -> None:
        """No response, or the broker's session differs from ours: close it (by its id) and open a new one."""
        self._epoch = INITIAL_EPOCH

    def restart(self) -> None:
        """The broker does not know the session: open a new one."""
        self._id, self._epoch = 0, INITIAL_EPOCH

    def __repr__(self) -> str:
        return f"<FetchSession {self._id}@{self._epoch} partitions={len(self.asked)}>"


MOST_FOLLOWED: Final = 256
"""The most partitions of a session that the poller continues. Each new request costs a look at all of them."""

_ASKED: Final = struct.Struct(">16siii")
"""Topic id, partition, leader epoch and size, as in a request."""


def table_of(asked: Mapping[TopicPartition, Wanted]) -> bytes | None:
    """The session's data of each partition, for the poller; None: the poller cannot continue it."""
    if len(asked) > MOST_FOLLOWED or any(wanted.topic_id == ZERO_UUID for wanted in asked.values()):
        return None
    return b"".join(
        _ASKED.pack(wanted.topic_id, partition.partition, wanted.leader_epoch, wanted.max_bytes)
        for partition, wanted in asked.items()
    )
