"""Incremental fetch sessions (KIP-227): after the first full fetch only what changed is named.

One session per broker. The broker keeps the list of partitions with their offsets; this is the client's copy
of it. Every field that a request can change is compared, topic ids included (a recreated topic is a new one).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kadence.types import TopicPartition

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "FetchSession", "SessionPlan", "Wanted"]

INITIAL_EPOCH: Final = 0
"""Open a new session with a full fetch."""
FINAL_EPOCH: Final = -1
"""Outside any session; with a session id: close it."""
_MAX_EPOCH: Final = 2**31 - 1


class Wanted(NamedTuple):
    """What a fetch asks of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int
    last_epoch: int = -1
    """Leader epoch of the last record before ``offset``; the broker tells when its log parted before it (KIP-320)."""


class SessionPlan(NamedTuple):
    """The session part of one request: partitions to name, and partitions to forget (with their topic ids)."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forget: dict[TopicPartition, bytes]


class FetchSession:
    """The client's copy of one broker's session."""

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def plan(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionPlan:
        """The smallest request after which the session holds exactly ``wanted``, in that order of turns."""
        known = self._known
        if self._epoch == INITIAL_EPOCH:
            self._known = dict(wanted)
            return SessionPlan(self._id, INITIAL_EPOCH, self._known.copy(), {})
        send = {p: w for p, w in wanted.items() if known.get(p) != w}
        forget = {
            p: w.topic_id for p, w in known.items() if p not in wanted or wanted[p].topic_id != w.topic_id
        }
        self._known = dict(wanted)
        return SessionPlan(self._id, self._epoch, send, forget)

    def answered(self, session_id: int) -> None:
        """The broker answered without a session error; id 0: it keeps no session for us."""
        if session_id == 0:
            self.restart()
        elif session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def failed(self) -> None:
        """No answer, or the broker's session differs from ours: close it (by its id) and open a new one."""
        self._epoch = INITIAL_EPOCH

    def restart(self) -> None:
        """The broker does not know the session: open a new one."""
        self._id, self._epoch = 0, INITIAL_EPOCH

    def __repr__(self) -> str:
        return f"<FetchSession {self._id}@{self._epoch} partitions={len(self._known)}>"
