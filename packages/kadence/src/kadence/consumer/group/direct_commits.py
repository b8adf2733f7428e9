"""Commits that the application's thread sends by itself: of one offset each, while nothing is in its way.

A program that commits each record waits for nearly nothing but a round trip then. The commit takes the same door as any
other (`CommitRequestManager.seen`, C19), and only if nothing of it is odd. The application's thread may look through
that door, for what it has seen counts only if the network thread has not run meanwhile (`OffsetForm.ask`). What
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
from kadence.consumer.subscription import PartitionState
from kadence.errors import UnsupportedVersionError
from kadence.lazy_dataclasses import replace
from kadence.net.direct import Asked, DirectWay, OffsetForm
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
    """See `kadence.consumer.shared_state.CommitForm`."""

    __slots__ = ("ask", "least_epoch", "least_offset", "partition", "shared_partition", "topic_id", "turn")

    def __init__(self, partition: TopicPartition, held: PartitionState, form: OffsetForm) -> None:
        self.partition = partition
        self.topic_id = held.topic_id
        self.shared_partition = held.shared_partition
        self.least_offset = self.least_epoch = self.turn = 0
        # Kept bound: it is called for each commit.
        self.ask = form.ask

    def found_in_order(self, turn: int, held: PartitionState) -> None:
        """A commit is in order in this turn, of any offset that `SharedPartition.counts` lets pass.

        A turn that is over by now does no harm: no request is written under its number.
        """
        shared_partition = held.shared_partition
        origin = shared_partition.origin
        start = None if origin is None else origin.start
        if origin is None or shared_partition.fetch_epoch < shared_partition.read_since:
            self.turn = 0
            return
        self.shared_partition = shared_partition
        self.least_offset = 0 if start is None else start.offset
        self.least_epoch = shared_partition.topic_since
        self.turn = turn


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
        self.given_at = commits.given_at
        # For the application's thread: the forms by partition, for this way and this identity.
        self.forms: dict[TopicPartition, _Form | None] = {}
        self._forms_of: tuple[DirectWay | None, GroupMetadata | None] = (None, None)

    def may(self, way: DirectWay) -> bool:
        now = self._clock.now_ms()
        if self._commits.free_for(now) != way.node_id or not way.is_free(now):
            return False
        self._way = way
        return True

    def took_over(self, way: DirectWay, request: Commit | Callable[[], Commit], now: int) -> Request:
        call = request if isinstance(request, Commit) else request()
        self._reaper.watch(call)
        made = self._commits.took_over(now, call, way.node_id)
        self._delegate.sent_by_others(self._commits, [made])
        return made

    def ask(self, call: Commit) -> Asked | None:
        """Send a commit of one offset. None: nothing is sent, and the network thread has to."""
        way = self._way
        turn = 0 if way is None else way.turn()
        now = self._clock.now_ms()
        # Without any time left nothing is sent.
        if way is None or not turn or call.deadline <= now:
            return None
        ((partition, at),) = call.offsets.items()
        pending = self._commits.seen(call)
        held = pending.tenure[partition]
        # What the network thread changes meanwhile is seen in part. `OffsetForm.ask` refuses then, so it need not fit.
        if at.metadata or held is None or not pending.is_plain:
            return None
        form = self._form(way, turn, call, partition, held)
        if form is None:
            return None
        self._commits.given(call, now)
        form.found_in_order(turn, held)
        return form.ask(turn, at.offset, at.leader_epoch, call)

    def _form(
        self, way: DirectWay, turn: int, call: Commit, partition: TopicPartition, held: PartitionState
    ) -> _Form | None:
        group = self._commits.identity
        if self._forms_of[0] is not way or self._forms_of[1] is not group:
            self.forms, self._forms_of = {}, (way, group)
        # Kept here: a signal handler's commit in the midst of this one may begin anew, under another identity.
        forms = self.forms
        form = forms.get(partition)
        if form is None or form.topic_id != held.topic_id:
            marked = replace(call, offsets={partition: OffsetAndMetadata(*_MARK)}, read_under={})
            form = self._made(way, marked, held, partition)
            if way.turn() != turn:
                # It may be made of two identities.
                return None
            forms[partition] = form
        return form

    def _made(
        self, way: DirectWay, marked: Commit, held: PartitionState, partition: TopicPartition
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
        topic = OffsetCommitResponseTopic(topic_id=held.topic_id, name=partition.topic, partitions=[stored])
        OffsetCommitResponse(topics=[topic]).write(answer, version)
        body = answer.getvalue()
        form = way.offset_form(frame, frame.index(mark), len(body).to_bytes(4) + body, self._flag)
        return _Form(partition, held, form)
