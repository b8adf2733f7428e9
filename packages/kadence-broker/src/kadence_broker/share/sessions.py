"""Share sessions (KIP-932): what a leader remembers of each member of a share group that reads from it.

    epoch 0      opens one, in the place of an earlier one      epoch -1     closes it, after its acknowledgements
    epoch 1, 2…  goes on; ShareFetch and ShareAcknowledge count together     (after 2**31 - 1 comes 1)

A session belongs to the connection that opened it, its owner here, and ends with it. A full cache refuses new sessions,
and none makes room for another.
Nothing here reads a clock or knows a socket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kadence.protocol import error_codes as codes

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "SessionKey", "ShareSession", "ShareSessions", "TopicIdPartition"]

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1


class SessionKey(NamedTuple):
    """A member of a group, and the node that it talks to."""

    node_id: int
    group_id: str
    member_id: str


class TopicIdPartition(NamedTuple):
    """A partition as these requests name it."""

    topic_id: bytes
    partition: int


@dataclass(slots=True, eq=False)
class ShareSession:
    """One member's session at one node.

    Attributes:
        owner: the connection with which it ends.
        epoch: the one that the next request must carry.
        partitions: what it reads, in the order of its turns. The value: the next answer must name it.
    """

    key: SessionKey
    owner: Hashable
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict)
    epoch: int = 1

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Take partitions in; then let others go."""
        for each in added:
            self.partitions.setdefault(each, True)
        for each in forgotten:
            self.partitions.pop(each, None)

    def count(self) -> None:
        """A request has been accepted."""
        self.epoch = next_epoch(self.epoch)

    def must_answer(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether an answer names a partition. One that gave records goes to the end, so that all get their turn."""
        if partition not in self.partitions:
            return True
        is_owed = self.partitions[partition]
        if has_records:
            del self.partitions[partition]
        if has_records or is_owed or has_error:
            self.partitions[partition] = has_error
        return has_records or is_owed or has_error


def next_epoch(epoch: int) -> int:
    """The epoch after this one."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class ShareSessions:
    """The sessions at all nodes of this broker.

    Args:
        most: of one node (``group.share.max.share.sessions``).
    """

    __slots__ = ("_by_group", "_by_node", "_by_owner", "_most", "_sessions")

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_node: Counter[int] = Counter()
        self._by_group: Counter[tuple[int, str]] = Counter()
        self._by_owner: dict[Hashable, dict[SessionKey, ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def open(
        self, key: SessionKey, partitions: Iterable[TopicIdPartition], owner: Hashable
    ) -> ShareSession | None:
        """A new session, in the place of an earlier one of the member; None: there are too many.

        What the member has acquired stays its own.
        """
        earlier = self._sessions.get(key)
        if earlier is not None:
            self.close(earlier)
        if self._by_node[key.node_id] >= self._most:
            return None
        session = ShareSession(key, owner, dict.fromkeys(partitions, False))
        self._sessions[key] = session
        self._by_node[key.node_id] += 1
        self._by_group[key[:2]] += 1
        self._by_owner.setdefault(owner, {})[key] = session
        return session

    def check(self, key: SessionKey, epoch: int) -> tuple[ShareSession | None, int]:
        """The session that a request goes on with or closes, and an error code."""
        session = self._sessions.get(key)
        if session is None:
            return None, codes.SHARE_SESSION_NOT_FOUND
        if epoch not in (FINAL_EPOCH, session.epoch):
            return None, codes.INVALID_SHARE_SESSION_EPOCH
        return session, codes.NONE

    def close(self, session: ShareSession) -> bool:
        """Let a session go. False: it has gone before, or another has taken its place."""
        key = session.key
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        self._by_node[key.node_id] -= 1
        self._by_group[key[:2]] -= 1
        if not self._by_group[key[:2]]:
            del self._by_group[key[:2]]
        owned = self._by_owner[session.owner]
        del owned[key]
        if not owned:
            del self._by_owner[session.owner]
        return True

    def of(self, owner: Hashable) -> list[ShareSession]:
        """The sessions that end with a connection."""
        return list(self._by_owner.get(owner, {}).values())

    def has_members(self, node_id: int, group_id: str) -> bool:
        """True while some member of the group has a session at the node."""
        return (node_id, group_id) in self._by_group

    def topics(self, key: SessionKey) -> set[bytes]:
        """The topics of a session; none if there is no such session."""
        session = self._sessions.get(key)
        return set() if session is None else {each.topic_id for each in session.partitions}
