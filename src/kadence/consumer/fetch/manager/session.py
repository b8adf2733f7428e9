"""Incremental fetch sessions (KIP-227): after the first full fetch only what changed is named.

One session per broker. The broker keeps the list of partitions with their offsets; this is the client's copy of it.
Whoever has something to ask or to take back says so with `ask` and `drop`, and `plan` names what that changed since the
fetch before. So a fetch costs what changed, not what is assigned. Every field that a request can change is compared,
topic ids included (a recreated topic is a new one).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "FetchSession", "SessionPlan", "Wanted"]

INITIAL_EPOCH: Final = 0
"""Open a new session with a full fetch."""
FINAL_EPOCH: Final = -1
"""Outside any session; with a session id: close it."""
_MAX_EPOCH: Final = 2**31 - 1
_LAST_TO_REPEAT: Final = _MAX_EPOCH - 10_000


class Wanted(NamedTuple):
    """What a fetch asks of one partition."""

    fetch_epoch: int
    """The stretch of reading that it is asked for; the broker is not told."""
    offset: int
    leader_epoch: int
    """−1: not known."""
    topic_id: bytes
    max_bytes: int
    last_epoch: int = -1
    """Leader epoch of the last record before ``offset``; the broker tells when its log parted before it (KIP-320)."""


class SessionPlan(NamedTuple):
    """The session part of one request: partitions to name, and partitions to forget (with their topic ids)."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forget: dict[TopicPartition, bytes]

    @property
    def is_repeatable(self) -> bool:
        """Whether the same request with the next epoch says the same: it names nothing, and no epoch begins anew."""
        return bool(self.session_id) and not (self.send or self.forget) and 0 < self.epoch < _LAST_TO_REPEAT


class FetchSession:
    """The client's copy of one broker's session.

    Attributes:
        wanted: what the next fetch is to ask for. asked: what the latest fetch asked for, and so what the broker keeps.
        names: the topics of the ids in ``asked``.
        under_way: a fetch of it has no answer yet. answers: how many fetches were answered.
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
        """Whether the topic id of everything that is asked for is known."""
        return not self._unnamed

    def want(self, partition: TopicPartition, wanted: Wanted) -> bool:
        """From the next fetch on, ask for this. False when that is so already."""
        if self.wanted.get(partition) == wanted:
            return False
        # To the end: a full fetch, too, names first what was asked for longest.
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
        """The broker answered without a session error; id 0: it keeps no session for us."""
        if session_id == 0:
            self.restart()
        elif session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def repeated(self, count: int) -> None:
        """So many fetches of it were answered with nothing, and each was followed by the same one again."""
        self._epoch += count
        self.answers += count

    def failed(self) -> None:
        """No answer, or the broker's session differs from ours: close it (by its id) and open a new one."""
        self._epoch = INITIAL_EPOCH

    def restart(self) -> None:
        """The broker does not know the session: open a new one."""
        self._id, self._epoch = 0, INITIAL_EPOCH

    def __repr__(self) -> str:
        return f"<FetchSession {self._id}@{self._epoch} partitions={len(self.asked)}>"
