"""Fetches, acknowledgements and renewals of a share consumer: what goes to which broker, and when (KIP-932).

Network thread, sans-IO. Of one broker the first of these that applies is sent, when no request is under way to it:

    it is left                              what is still to be said, and releases of what its session does not have, in
                                            the request that closes the session
    its session was lost, not its locks     a fetch of nothing, which opens the session anew (§13.7 of our reference)
    commit(), commit_async()                an acknowledge request
    locks to be renewed                     an acknowledge request that renews, and acknowledges nothing
    something to be fetched                 a fetch, which carries what polls have acknowledged
    what polls have acknowledged            an acknowledge request
    nothing wanted, held or to be said      the request that closes the session

Records are acknowledged where they were fetched, whoever leads their partition by now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kadence.client.request_manager import Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import (
    Arrival,
    Backoff,
    Completed,
    ConnectionPurpose,
    ForPoll,
    Repeat,
    Request,
)
from kadence.consumer.events import AddBackgroundEvent
from kadence.consumer.group.membership import Liveness
from kadence.errors import KafkaError, LocalError
from kadence.logs import logger
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest, ShareFetchResponse
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, TopicIdPartition, joined
from kadence.share.events import Acknowledge, Sending
from kadence.share.keys import ShareKeys
from kadence.share.network.acknowledging import Acknowledgements, locks_ended
from kadence.share.network.answers import ShareAnswers, ShareCluster
from kadence.share.network.appetite import Appetite, Limits
from kadence.share.network.held import Held, Piece
from kadence.share.network.member import Assignment
from kadence.share.network.native_renewals import WITH_RENEWALS, NativeRenewals
from kadence.share.network.node import Sent, ShareNode, carried, released
from kadence.share.network.offsets import Range, count, without
from kadence.share.network.session import CLOSES, OPENS, acknowledge_topics, fetch_topics, forgotten_topics
from kadence.share.share_state import SHORT_MS, AcquiredFetch, ShareState

__all__ = ["ShareRequestManager"]

log = logger("kadence.share")

_QUIET_MS: Final = (20, 500)
"""The pauses between fetches ahead that bring nothing."""
_TOGETHER_MS: Final = 20
"""What polls say within so long is sent together."""
_LEAST_REPEATED_MS: Final = SHORT_MS
"""A fetch that the broker holds for less is not left to be repeated: there would be many of them at a time."""
_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


class ShareRequestManager:
    """See the top of the file.

    Args:
        member: whose sessions these are.
    """

    def __init__(
        self,
        config: ShareKeys,
        member: Liveness,
        metadata: ShareCluster,
        share_state: ShareState,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._member = member
        self._metadata = metadata
        self._share_state = share_state
        self._assignment: Assignment = {}
        self._nodes: dict[int, ShareNode] = {}
        self._acknowledgements = Acknowledgements(share_state, add_event)
        self._appetite = Appetite(config, share_state, self._acknowledgements.pace)
        self._answers = ShareAnswers(
            config, metadata, share_state, self._acknowledgements, self._appetite, add_event
        )
        self.native_renewals = NativeRenewals(config, share_state.progress)
        # What the partitions were divided among the brokers by.
        self._divided: object = None
        # When to look for what polls say, while `ShareState.looks_soon`.
        self._look_at = 0
        share_state.measures.held = self._count_held

    # ------------------------------------------------------------ what others say

    def assigned(self, now: int, assignment: Assignment) -> None:
        """The group has assigned this, from now on."""
        del now
        self._assignment = assignment
        self._answers.forget_all_but(
            {TopicIdPartition(topic_id, *partition) for partition, topic_id in assignment.items()}
        )
        self._share_state.assignment = frozenset(assignment)
        self._divided = None

    def leave(self, why: Callable[[], KafkaError] | None = None) -> None:
        """The group is left: close all sessions, which releases what is held. What was said before still goes out."""
        for node in self._nodes.values():
            node.closing = node.changed = True
            node.abandoned += node.held.values()
            for fetch in node.held:
                fetch.void = LocalError("the consumer has left the group") if why is None else why()
            node.held.clear()

    @property
    def pending(self) -> bool:
        """Whether a session is still to be closed, or something to be said, that is worth a wait."""
        return any(node.owes for node in self._nodes.values())

    def take_said(self, now: int) -> None:
        """Begin with what polls have said. While there is something, it is looked for again soon."""
        state = self._share_state
        if not (state.said or (state.looks_soon and now >= self._look_at)):
            return
        # First: who says something from here on wakes this thread.
        state.looks_soon = False
        fetches: dict[AcquiredFetch, list[Acknowledged]] = {}
        while state.said:
            for fetch, ranges in state.said.popleft().items():
                fetches.setdefault(fetch, []).extend(ranges)
        if fetches:
            state.looks_soon, self._look_at = True, now + _TOGETHER_MS
            said = {fetch: tuple(joined(ranges)) for fetch, ranges in fetches.items()}
            deadline = add_ms(now, self._config.default_api_timeout_ms)
            self.acknowledge(now, Acknowledge(0, deadline, said, Sending.WITH_FETCH))

    def acknowledge(self, now: int, event: Acknowledge) -> None:
        """The application acknowledges records."""
        call = self._acknowledgements.begin(event)
        for fetch, ranges in event.fetches.items():
            node = self._nodes.get(fetch.node_id)
            held = None if node is None else node.held.get(fetch)
            renewing = tuple(each for each in ranges if each.type == AcknowledgeType.RENEW)
            final = tuple(each for each in ranges if each.type != AcknowledgeType.RENEW)
            if node is not None and held is not None:
                self._acknowledgements.supersede(now, node, held, ranges)
            for said in filter(None, (*_divided(final, held), *_divided(renewing, held))):
                piece = Piece(call, held or Held(fetch), said)
                call.waiting.add(piece)
                # What the native thread has renewed meanwhile is known once it is answered.
                if (
                    node is None
                    or held is None
                    or not (held.has(said) and (node.native or held.is_locked(now, said)))
                ):
                    self._acknowledgements.late(now, fetch, piece)
                else:
                    node.pieces.append(piece)
                self._acknowledgements.worked_off(now, piece)
            if node is not None and held is not None and final:
                held.says(final)
                node.changed = True
            if any(each.type == AcknowledgeType.RELEASE for each in final):
                self._appetite.released()
        self._drop_done()
        self._acknowledgements.tell(now)

    # ------------------------------------------------------------ what to send

    def poll(self, now: int) -> Poll:
        self.take_said(now)
        self._divide(now)
        look_at = self._look_at if self._share_state.looks_soon else FOREVER
        if not self._nodes:
            self._share_state.fetches = True
            return Poll([], look_at)
        wake_at = min(look_at, self._answers.next_retry)
        requests = []
        # With record_limit one is fetched from at a time: the one that was longest ago comes first.
        for node in sorted(self._nodes.values(), key=lambda node: node.fetched_at):
            request, at = self._next(now, node)
            wake_at = min(wake_at, at)
            if request is not None:
                requests.append(request)
        # Behind the requests: a call without any time gets one attempt.
        for call in self._acknowledgements.overdue(now):
            self._acknowledgements.give_up(now, call)
            for node in self._nodes.values():
                node.pieces = [piece for piece in node.pieces if piece.call is not call]
        self._acknowledgements.tell(now)
        self.native_renewals.arrange(now, tuple(self._nodes.values()), self._appetite.lock_ms)
        self._share_state.fetches = all(
            node.sent is not None and node.sent.asked > 0 for node in self._nodes.values() if node.wants
        )
        return Poll(requests, min(wake_at, self._acknowledgements.next_deadline))

    def _divide(self, now: int) -> None:
        """Divide the assignment among the brokers, if anything changed that it depends on."""
        answers, metadata = self._answers, self._metadata
        by = (metadata.version, answers.retry_version(now))
        if by == self._divided:
            return
        self._divided = by
        # First: a poll that begins from here on wakes this thread, for there may be a broker without a fetch.
        self._share_state.fetches = False
        wants: dict[int, list[TopicIdPartition]] = {}
        for partition, topic_id in self._assignment.items():
            leader = metadata.leader(partition)
            tip = TopicIdPartition(topic_id, partition.topic, partition.partition)
            if leader is None or not metadata.has_node(leader):
                metadata.request_update(now)
            elif not answers.waits(now, tip):
                wants.setdefault(leader, []).append(tip)
        for node_id in wants:
            if node_id not in self._nodes:
                backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
                self._nodes[node_id] = ShareNode(node_id, backoff, Backoff(*_QUIET_MS))
        for node in self._nodes.values():
            node.wants = tuple(sorted(wants.get(node.node_id, ())))

    def _next(self, now: int, node: ShareNode) -> tuple[Request | None, int]:
        """What goes to this broker now; and when that must be looked at again."""
        if node.is_busy:
            return None, FOREVER
        self._drop_late(now, node)
        if not node.session.is_open and (node.closing or node.is_idle):
            return self._over(now, node)
        if not node.backoff.ready(now):
            return None, node.backoff.until
        if node.closing:
            return self._part(now, node)
        renews_at = self._renews_at(node)
        said, renewing = node.ready(now, renews=False), node.ready(now, renews=True)
        due = node.due_for_renewal(now, self._appetite.lock_ms) if renews_at <= now else {}
        wake_at = min([renews_at, *(piece.backoff.until for piece in node.pieces if piece.backoff)])
        if not node.session.is_open and (said or renewing or due):
            return self._fetch(now, node, Limits(0, 0), []), FOREVER
        if said and not all(piece.waits_for_fetch for piece in said):
            return self._acknowledge(now, node, said), FOREVER
        if renewing and (any(piece.alone for piece in renewing) or any(held.alone for held in due)):
            # What was refused together is not sent together again.
            due = {}
        if due or renewing:
            return self._acknowledge(now, node, renewing, due), FOREVER
        limits = self._appetite.limits(now, node, self._nodes.values(), carries=bool(said))
        if isinstance(limits, Limits):
            return self._fetch(now, node, limits, said), FOREVER
        if said:
            return self._acknowledge(now, node, said), FOREVER
        if not (node.wants or node.held or node.pieces):
            return self._close(now, node), FOREVER
        return None, min(wake_at, limits)

    def _part(self, now: int, node: ShareNode) -> tuple[Request | None, int]:
        """A session ends with the last of what is still to be said."""
        said = node.ready(now, renews=False)
        left = [piece for piece in node.pieces if not piece.renews and piece not in said]
        if node.only_closes or (not left and not (said and node.outside(now))):
            return self._close(now, node), FOREVER
        if said:
            return self._acknowledge(now, node, said), FOREVER
        return None, min((piece.backoff.until for piece in left if piece.backoff), default=FOREVER)

    def _over(self, now: int, node: ShareNode) -> tuple[None, int]:
        """Nothing is left to be done with a broker, or nothing can be."""
        for piece in node.pieces:
            self._acknowledgements.late(now, piece.held.fetch, piece)
        node.pieces, node.abandoned = [], []
        node.closing = node.only_closes = False
        if node.is_idle:
            del self._nodes[node.node_id]
        # With partitions to fetch it begins anew.
        return None, now if node.wants else FOREVER

    def _renews_at(self, node: ShareNode) -> int:
        """When locks are to be renewed next without being asked."""
        if not self._config.share_lock_renewal or not node.can_renew:
            return FOREVER
        at = node.renews_at(self._appetite.lock_ms)
        return FOREVER if at is None else at

    def _drop_late(self, now: int, node: ShareNode) -> None:
        """What is said of locks that have ended spoils what is said of others in the same request."""
        for fetch, held in tuple(node.held.items()):
            held.expire(now)
            if not held.open:
                del node.held[fetch]
                node.changed = True
        if not node.pieces:
            return
        kept: list[Piece] = []
        for piece in node.pieces:
            if piece.is_locked(now):
                kept.append(piece)
            else:
                self._acknowledgements.end(now, piece, locks_ended(piece.held.fetch))
        node.pieces = kept

    def _drop_done(self) -> None:
        """Fetches of which all is said are not held any more."""
        for node in self._nodes.values():
            for fetch in [fetch for fetch, held in node.held.items() if not held.open]:
                del node.held[fetch]

    def _count_held(self) -> int:
        """Any thread: no dictionary is walked over that this one may change."""
        held = [each for node in tuple(self._nodes.values()) for each in tuple(node.held.values())]
        return sum(count(each.open) for each in held)

    # ------------------------------------------------------------ requests

    def _close(self, now: int, node: ShareNode) -> Request:
        said = node.ready(now, renews=False)
        # Apart from what is said: of a partition that has moved meanwhile all of a request is refused.
        request = self._acknowledge(now, node, said, closes=True, releases=[] if said else node.outside(now))
        node.abandoned = []
        log.debug("closing the share session with broker %d", node.node_id)
        return request

    def _acknowledge(
        self,
        now: int,
        node: ShareNode,
        pieces: list[Piece],
        renewals: dict[Held, list[Range]] | None = None,
        *,
        closes: bool = False,
        releases: Sequence[Held] = (),
    ) -> Request:
        session, renewals = node.session, renewals or {}
        sent = Sent(node, session.member_id, now, None, pieces, renewals, closes=closes)
        renews = bool(renewals) or any(piece.renews for piece in pieces)
        message = ShareAcknowledgeRequest(
            group_id=self._config.group_id,
            member_id=session.member_id,
            share_session_epoch=CLOSES if closes else session.epoch,
            is_renew_ack=renews,
            topics=acknowledge_topics(carried(pieces, renewals) | released(releases)),
        )
        return self._send(now, sent, message, 0, WITH_RENEWALS if renews else None)

    def _fetch(self, now: int, node: ShareNode, limits: Limits, pieces: list[Piece]) -> Request:
        session, config = node.session, self._config
        if not session.is_open:
            session.member_id = self._member.group.member_id
        said = carried(pieces, {})
        plan = session.plan(node.wants, said)
        sent = Sent(
            node, session.member_id, now, node.wants, pieces, {}, limits.max_records, limits.max_wait_ms
        )
        asks = limits.max_records > 0
        if asks:
            node.fetched_at = now
            sent.max_bytes = self._appetite.max_bytes(self._nodes.values())
        message = ShareFetchRequest(
            group_id=config.group_id,
            member_id=session.member_id,
            share_session_epoch=OPENS if not session.is_open else plan.epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=config.fetch_min_bytes if asks else 0,
            max_bytes=sent.max_bytes,
            max_records=limits.max_records,
            batch_size=config.max_poll_records,
            share_acquire_mode=_RECORD_LIMIT if config.limits_records else _BATCH_OPTIMIZED,
            is_renew_ack=False,
            topics=fetch_topics(plan.joining, said),
            forgotten_topics_data=forgotten_topics(plan.leaving),
        )
        request = self._send(now, sent, message, limits.max_wait_ms)
        if limits.max_wait_ms >= _LEAST_REPEATED_MS and not (
            plan.joining or plan.leaving or said or node.held
        ):
            request.repeat = repeat = Repeat(
                lambda: self._may_repeat(sent), lambda *told: self._repeated(sent, *told)
            )
            repeat.empty = ShareFetchResponse(acquisition_lock_timeout_ms=self._appetite.lock_ms)
            state, longest_ms = self._share_state, self._appetite.longest_wait_ms
            repeat.for_poll = ForPoll(state.poll_wait, state.limit, _LEAST_REPEATED_MS, longest_ms)
        return request

    def _may_repeat(self, sent: Sent) -> bool:
        """Whether the next fetch would be the same one if this one brings nothing. The poller sees if a poll waits."""
        node, state = sent.node, self._share_state
        return (
            node.sent is sent
            and node.wants is sent.fetched
            # With record_limit another broker has its turn.
            and not (self._config.limits_records and len(self._nodes) > 1)
            and not (node.pieces or node.closing or state.said or state.application_events)
        )

    def _repeated(self, sent: Sent, now: int, count: int, sent_at: int, arrivals: Sequence[Arrival]) -> bool:
        """A fetch went out again so often, the last time at ``sent_at`` (`Repeat.told`)."""
        del now, arrivals
        node, measures = sent.node, self._share_state.measures
        took_ms = (sent_at - sent.sent_at) // count
        measures.fetch_ms.record_alike(sent_at, took_ms * count, count)
        measures.fetches.throttle_ms.record_alike(sent_at, 0, count)
        node.session.repeated(count)
        node.fetched_at = sent.sent_at = sent_at
        # The last one may have been held for no longer.
        sent.wait_ms = _LEAST_REPEATED_MS
        return True

    def _send(
        self, now: int, sent: Sent, message: object, wait_ms: int, min_version: int | None = None
    ) -> Request:
        node = sent.node
        node.sent, node.changed = sent, True
        if sent.pieces:
            going = set(sent.pieces)
            node.pieces = [piece for piece in node.pieces if piece not in going]
        deadline = add_ms(now, wait_ms + self._config.request_timeout_ms)
        return Request(
            message, node.node_id, deadline, ConnectionPurpose.FETCH, sent, min_version=min_version
        )

    # ------------------------------------------------------------ what came back

    def disconnected(self, now: int, node_id: int, error: KafkaError) -> None:
        """The connection of a share session has ended, and with it all locks: nobody asks, so nobody would be told."""
        node = self._nodes.get(node_id)
        # Also between two sessions, when the first was lost, not its locks.
        if node is not None and (node.session.is_open or node.held or node.pieces) and not node.is_busy:
            node.changed = True
            self._answers.disconnected(now, node, error)
            self._acknowledgements.tell(now)

    def renewed_natively(self, requests: Sequence[Request], sent_at: int) -> None:
        """The native thread has sent these, the last of them at ``sent_at``."""
        interval_ms = self._appetite.lock_ms // 3
        for place, request in enumerate(reversed(requests)):
            sent: Sent = request.tag
            sent.node.native[request] = sent_at - place * interval_ms
            sent.node.changed = True

    def on_response(self, now: int, completed: Completed) -> None:
        sent: Sent = completed.request.tag
        node = sent.node
        node.changed = True
        if (sent_at := node.native.pop(completed.request, None)) is not None:
            # Of several with one tag, each was sent at its own time.
            sent.sent_at = sent_at
        else:
            node.sent, self._share_state.fetches = None, False
        try:
            self._answers.answered(now, sent, completed)
        finally:
            if completed.loan is not None:
                completed.loan.release()
        self._drop_done()
        for fetch in self._answers.brought:
            self._answers.given_anew(now, node, fetch, self._nodes.values())
        if brought := self._answers.brought:
            # First: whoever gets these may hold the interpreter from then on.
            self.native_renewals.arrange(now, tuple(self._nodes.values()), self._appetite.lock_ms)
            self._answers.brought = []
            for fetch in brought:
                self._share_state.put(fetch)
        self._acknowledgements.tell(now)


def _divided(
    said: tuple[Acknowledged, ...], held: Held | None
) -> tuple[tuple[Acknowledged, ...], tuple[Acknowledged, ...]]:
    """What is said of offsets that are held, and what of others of the fetch: the locks of these have ended before."""
    if held is None or held.has(said):
        return said, ()
    spans = [(each.first, each.last) for each in said]
    ended = without(spans, held.open)
    kept = without(spans, ended)

    def besides(gone: list[Range]) -> tuple[Acknowledged, ...]:
        return tuple(
            Acknowledged(first, last, each.type)
            for each in said
            for first, last in without([(each.first, each.last)], gone)
        )

    return besides(ended), besides(kept)
