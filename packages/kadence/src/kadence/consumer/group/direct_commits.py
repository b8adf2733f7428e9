"""Commits that the application's thread sends by itself: of one offset each, while nothing is in its way.

A program that commits each record waits for nearly nothing but a round trip then. The commit takes the same door as any
other (`CommitRequestManager.seen`, C19), and only if nothing of it is odd. The application's thread may look through
that door, for what it has seen counts only if the network thread has not run meanwhile (`DirectWay.ask`). What
is answered with anything but success, or not soon, becomes an ordinary commit of the network thread.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from kadence.client.network_thread import NetworkClientDelegate
from kadence.clock import Clock
from kadence.connection.request import Request
from kadence.consumer.background_events import Reaper
from kadence.consumer.events import Commit
from kadence.consumer.group.commit import CommitRequestManager
from kadence.errors import UnsupportedVersionError
from kadence.lazy_dataclasses import replace
from kadence.net.direct import Asked, DirectWay
from kadence.protocol.client_frames import answer_header_version
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.wire import WireError, Writer

__all__ = ["DirectCommits"]

_OFFSET: Final = Struct(">qi")
"""An offset and its leader epoch, as they stand in a request from version 6 on."""

_MARK: Final = (0x6B61_6465_6E63_6521, 0x5EED_F00D)
"""An offset and an epoch that show where they stand."""


class _Form:
    """The bytes of a commit of one partition, but for the offset, and of its answer."""

    __slots__ = ("answer", "offset_at", "request", "topic_id")

    def __init__(self, topic_id: bytes, request: bytes, offset_at: int, answer: bytes) -> None:
        self.topic_id = topic_id
        self.request = request
        self.offset_at = offset_at
        self.answer = answer


class DirectCommits:
    """See the top of the file. `ask` is for the application's thread, the rest for the network thread.

    The caller of `ask` finds out that an answer is late.

    Args:
        flag: what the application waits on. answered: called with the time (ms), a number of commits, and how long (ms)
            they took in all.
    """

    def __init__(
        self,
        commits: CommitRequestManager,
        delegate: NetworkClientDelegate,
        reaper: Reaper,
        clock: Clock,
        flag: Any,
        answered: Callable[[int, int, int], None],
    ) -> None:
        self.is_watched = False
        self._commits = commits
        self._delegate = delegate
        self._reaper = reaper
        self._clock = clock
        self._flag = flag
        self.answered = answered
        self._way: DirectWay | None = None
        # For the application's thread: the forms by partition, for this way and this identity.
        self._forms: dict[TopicPartition, _Form | None] = {}
        self._forms_of: tuple[DirectWay | None, GroupMetadata | None] = (None, None)

    def may(self, way: DirectWay) -> bool:
        now = self._clock.now_ms()
        if self._commits.free_for(now) != way.node_id or not way.is_free(now):
            return False
        self._way = way
        return True

    def took_over(self, way: DirectWay, request: Commit, now: int) -> Request:
        self._reaper.watch(request)
        made = self._commits.took_over(now, request, way.node_id)
        self._delegate.sent_by_others(self._commits, [made])
        return made

    def ask(self, call: Commit) -> Asked | None:
        """Send a commit of one offset. None: nothing is sent, and the network thread has to."""
        way = self._way
        turn = 0 if way is None else way.turn()
        now = self._clock.now_ms()
        # Event loops that cannot watch descriptors are woken by Python. Without any time left nothing is sent.
        if way is None or not turn or self._flag.on_set is not None or call.deadline <= now:
            return None
        ((partition, at),) = call.offsets.items()
        pending = self._commits.seen(call)
        # What the network thread changes meanwhile is seen in part. `DirectWay.ask` refuses then, so it need not fit.
        topic_id = pending.topic_ids.get(partition.topic)
        if at.metadata or topic_id is None or not pending.is_plain:
            return None
        form = self._form(way, turn, call, partition, topic_id)
        if form is None:
            return None
        epoch = -1 if at.leader_epoch is None else at.leader_epoch
        # One for each call: a signal handler may commit in the midst of this one.
        frame = bytearray(form.request)
        _OFFSET.pack_into(frame, form.offset_at, at.offset, epoch)
        self._commits.given(call, now)
        return way.ask(turn, frame, form.answer, call, self._flag)

    def _form(
        self, way: DirectWay, turn: int, call: Commit, partition: TopicPartition, topic_id: bytes
    ) -> _Form | None:
        group = self._commits.identity
        if self._forms_of[0] is not way or self._forms_of[1] is not group:
            self._forms, self._forms_of = {}, (way, group)
        # Kept here: a signal handler's commit in the midst of this one may begin anew, under another identity.
        forms = self._forms
        form = forms.get(partition)
        if form is None or form.topic_id != topic_id:
            marked = replace(call, offsets={partition: OffsetAndMetadata(*_MARK)}, read_under={})
            form = self._made(way, marked, topic_id, partition)
            if way.turn() != turn:
                # It may be made of two identities.
                return None
            forms[partition] = form
        return form

    def _made(
        self, way: DirectWay, marked: Commit, topic_id: bytes, partition: TopicPartition
    ) -> _Form | None:
        """The form of this commit; None: its bytes are not such."""
        commits = self._commits
        request = commits.attempt(0, way.node_id, [commits.seen(marked)]).request
        try:
            frame, version = way.frame(request)
        except (UnsupportedVersionError, WireError):
            # The network thread meets the same error, and reports it.
            return None
        mark = _OFFSET.pack(*_MARK)
        if frame.count(mark) != 1:
            return None
        answer = Writer()
        answer.put(bytes(4))
        if answer_header_version(OffsetCommitRequest, version):
            answer.tags({})
        stored = OffsetCommitResponsePartition(partition.partition, 0)
        topic = OffsetCommitResponseTopic(topic_id=topic_id, name=partition.topic, partitions=[stored])
        OffsetCommitResponse(topics=[topic]).write(answer, version)
        body = answer.getvalue()
        return _Form(topic_id, frame, frame.index(mark), len(body).to_bytes(4) + body)
