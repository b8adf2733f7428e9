"""Applies the application's events on the network side, and reports rebalances (C2). Network thread.

- `ApplicationEventProcessor`: applies the application's calls, one method for each application event.
- `RebalanceEventHandler`: measures and logs rebalances, and shows the assignment to the application side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.consumer import events as m
from kadence.consumer.background_events import BackgroundEventHandler, Reaper
from kadence.consumer.group.commit import CommitRequestManager
from kadence.consumer.group.membership import Membership
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.positions.offsets import OffsetsRequestManager
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.consumer.turn import EventProcessor
from kadence.errors import InvalidGroupIdError
from kadence.lazy_dataclasses import replace
from kadence.logs import in_short, logger
from kadence.types import TopicPartition

__all__ = ["ApplicationEventProcessor", "RebalanceEventHandler"]

log = logger("kadence.consumer")

_EARLIEST: Final = -2


class ApplicationEventProcessor(EventProcessor):
    """Applies application events to the managers and the subscription."""

    def __init__(
        self,
        subscription: Subscription,
        metadata: MetadataManager,
        offsets: OffsetsRequestManager,
        membership: Membership | None,
        commits: CommitRequestManager | None,
        tell: Callable[[m.BackgroundEvent], None],
    ) -> None:
        super().__init__(membership, tell)
        self._subscription = subscription
        self._metadata = metadata
        self._offsets = offsets
        self._membership = membership
        self._commits = commits
        self._followed: frozenset[str] = frozenset()
        """Topics whose new partitions are assigned when they are found."""
        self.keep: Callable[[int, int, Callable[[int], None]], None] = lambda now, deadline, done: done(now)
        """Commits the committed offsets again."""
        self._steps |= {
            m.Subscribe: self._subscribe,
            m.Assign: self._assign,
            m.AddPartitions: self._add_partitions,
            m.RemovePartitions: self._remove_partitions,
            m.AssignTopics: self._assign_topics,
            m.Seek: self._seek,
            m.ResetPositions: self._reset,
            m.Commit: self._commit,
            m.KeepCommitted: self._keep_committed,
            m.FetchCommitted: self._fetch_committed,
            m.ListOffsets: self._list_offsets,
            m.TopicMetadata: self._topic_metadata,
            m.ReadFromStart: self._read_from_start,
            m.RefreshMetadata: self._refresh_metadata,
            m.EnforceRebalance: self._enforce_rebalance,
            m.CallbackDone: self._callback_done,
        }

    @property
    def _is_member(self) -> bool:
        return self._subscription.by_group

    @property
    def _is_pending(self) -> bool:
        return self._commits is not None and bool(self._commits.pending)

    def _forget(self) -> None:
        self._subscription.unsubscribe()
        self._followed = frozenset()
        self._metadata.need("subscription", frozenset())

    def topics_changed(self, now: int) -> None:
        """Metadata changed: a pattern may match other topics now, and a followed topic may have more partitions.

        The membership checks by itself (C5).
        """
        del now
        subscription = self._subscription
        if made := [p for p in self._partitions_of(self._followed) if p not in subscription.partitions]:
            log.info("found new partitions, reading them from the beginning: %s", in_short(made))
            self._add(made, _EARLIEST)
        if subscription.pattern is None or self._membership is None:
            return
        matching = self._metadata.matching()
        if matching != subscription.topics:
            log.info("pattern %r matches %d topics now", subscription.pattern, len(matching))
            subscription.topics = matching

    # ------------------------------------------------------------ one method for each application event

    def _subscribe(self, now: int, call: m.Subscribe) -> None:
        if self._leaving:
            self._have_left()
        topics = call.topics if call.topics is not None else self._topics_of(call.pattern)
        log.info(
            "subscribed to %s",
            ", ".join(sorted(call.topics or ())) or f"the pattern {call.pattern or call.regex!r}",
        )
        subscription = self._subscription
        subscription.subscribe(topics, call.pattern, has_listener=call.has_listener, regex=call.regex)
        subscription.mark_revoking(subscription.deserted)
        self._metadata.want_matching(call.pattern)
        self._metadata.need("subscription", call.topics or frozenset())
        assert self._membership is not None
        self._membership.subscription_changed(now)
        self._answer(call)

    def _topics_of(self, pattern: str | None) -> frozenset[str]:
        self._metadata.want_matching(pattern)
        return self._metadata.matching()

    def _unsubscribe(self, now: int, call: m.Unsubscribe) -> None:
        self._metadata.want_matching(None)
        super()._unsubscribe(now, call)

    def _assign(self, now: int, call: m.Assign) -> None:
        del now
        if self._leaving:
            self._have_left()
        self._followed = frozenset()
        self._metadata.need("subscription", frozenset(p.topic for p in call.partitions))
        self._subscription.assign(call.partitions)
        for partition, (offset, leader_epoch) in call.starts.items():
            if call.ends.get(partition) is None or not self._subscription.continues(partition, offset):
                self._subscription.position(partition, offset, leader_epoch)
        for partition, end in call.ends.items():
            floor = 0 if end is None or partition not in call.starts else call.starts[partition][0]
            self._subscription.limit(partition, floor, end)
        log.info("assigned by hand: %s", in_short(call.partitions))
        self._answer(call)

    def _add_partitions(self, now: int, call: m.AddPartitions) -> None:
        # While leaving the group, the previous assignment no longer counts.
        assigned = () if self._leaving else self._subscription.partitions
        partitions = tuple(dict.fromkeys((*assigned, *call.partitions)))
        self._assign(now, replace(call, partitions=partitions))

    def _remove_partitions(self, now: int, call: m.RemovePartitions) -> None:
        removed = frozenset(call.partitions)
        assigned = () if self._leaving else self._subscription.partitions
        left = tuple(p for p in assigned if p not in removed)
        self._assign(now, m.Assign(call.id, call.deadline, left))

    def _assign_topics(self, now: int, call: m.AssignTopics) -> None:
        del now
        if self._leaving:
            self._have_left()
        self._metadata.need("subscription", call.topics)
        self._followed = call.topics
        subscription = self._subscription
        partitions = self._partitions_of(call.topics)
        subscription.assign([p for p in subscription.partitions if p.topic in call.topics])
        for partition in subscription.partitions:
            subscription.limit(partition, 0, None)
        self._add([p for p in partitions if p not in subscription.partitions], None)
        if call.timestamp is not None:
            for partition in partitions:
                subscription.await_reset(partition, call.timestamp)
        log.info("topics assigned by hand: %s", in_short(partitions))
        self._answer(call)

    def _partitions_of(self, topics: frozenset[str]) -> list[TopicPartition]:
        cluster = self._metadata.cluster
        return [
            TopicPartition(topic, each.partition)
            for topic in sorted(topics)
            for each in cluster.partitions_for(topic)
        ]

    def _add(self, partitions: list[TopicPartition], timestamp: int | None) -> None:
        subscription = self._subscription
        subscription.assign((*subscription.partitions, *partitions))
        if timestamp is not None:
            for partition in partitions:
                subscription.await_reset(partition, timestamp)

    def _seek(self, now: int, call: m.Seek) -> None:
        del now
        if self._is_held(call.shared_partition):
            partition = call.shared_partition.partition
            self._subscription.widen(partition, call.offset)
            # No call waits for offsets that the consumer itself looks up.
            self._subscription.position(
                partition,
                call.offset,
                call.leader_epoch,
                call.processed,
                call.committed,
                goes_on=not call.id,
                rereads=not call.id,
            )
        self._answer(call)

    def _reset(self, now: int, call: m.ResetPositions) -> None:
        del now
        for shared_partition in call.shared_partitions:
            if self._is_held(shared_partition):
                partition = shared_partition.partition
                if call.timestamp == _EARLIEST:
                    self._subscription.widen(partition, 0)
                self._subscription.await_reset(partition, call.timestamp)
        self._answer(call)

    def _is_held(self, shared_partition: SharedPartition) -> bool:
        """Whether this assignment of a partition is the current one.

        Otherwise nothing is moved, not even in the current one.
        """
        state = self._subscription.partitions.get(shared_partition.partition)
        return state is not None and state.shared_partition is shared_partition

    def _commit(self, now: int, call: m.Commit) -> None:
        if self._commits is None:
            self._answer(call, InvalidGroupIdError("a commit needs group.id"))
        else:
            self._commits.commit(now, call)

    def _keep_committed(self, now: int, call: m.KeepCommitted) -> None:
        self.keep(now, call.deadline, lambda _: self._answer(call))

    def _fetch_committed(self, now: int, call: m.FetchCommitted) -> None:
        if self._commits is None:
            self._answer(call, InvalidGroupIdError("committed() needs group.id"))
        else:
            self._commits.fetch_committed(now, call)

    def _list_offsets(self, now: int, call: m.ListOffsets) -> None:
        del now
        self._offsets.list_offsets(call)

    def _topic_metadata(self, now: int, call: m.TopicMetadata) -> None:
        del now
        self._metadata.ask(call)

    def _read_from_start(self, now: int, call: m.ReadFromStart) -> None:
        del now
        self._subscription.from_start |= call.topics

    def _refresh_metadata(self, now: int, call: m.RefreshMetadata) -> None:
        del call
        self._metadata.request_update(now)

    def _enforce_rebalance(self, now: int, call: m.EnforceRebalance) -> None:
        if self._membership is not None:
            self._membership.rebalance(now, call.reason)

    def _callback_done(self, now: int, call: m.CallbackDone) -> None:
        """Commits made before it, perhaps in the callback, count: the member still owned the partitions."""
        self._subscription.loss_told(call.id)
        member = self._membership
        if member is None:
            return

        def done(now: int) -> None:
            member.callback_done(now, call.id, call.error)

        if call.gave_up and self._commits is not None:
            # Leaving does not wait for a coordinator that cannot be found.
            stays = self.closing is None and not self._leaving
            self._commits.after(now, call.gave_up, done, patient=stays)
        else:
            done(now)


class RebalanceEventHandler(BackgroundEventHandler):
    """Measures and logs rebalances on their way to the application.

    The assignment is shown before the background event about it, so a callback sees the partitions that it is
    called for.
    """

    def __init__(self, shared_state: SharedState, subscription: Subscription, reaper: Reaper) -> None:
        super().__init__(shared_state, reaper)
        self._shared_state = shared_state
        self._subscription = subscription
        self._moves = 0

    def __call__(self, event: m.BackgroundEvent) -> None:
        if isinstance(event, m.RebalanceFinished):
            event = self._finished(event)
        elif isinstance(event, m.AssignPartitions):
            if event.finished is not None:
                event = replace(event, finished=self._finished(event.finished))
        elif isinstance(event, m.RebalanceFailed):
            measures = self._shared_state.measures
            measures.group.failed.record(measures.turned_at)
            return
        elif isinstance(event, m.RevokePartitions):
            log.info("revoking %s", in_short(event.partitions))
        elif isinstance(event, m.LosePartitions):
            log.warning(
                "lost %s: records after their committed offsets will be processed again",
                in_short(event.partitions),
            )
        super().__call__(event)

    def _finished(self, event: m.RebalanceFinished) -> m.RebalanceFinished:
        """Count and log the rebalance, and convert its times to wall-clock time."""
        rebalance = event.rebalance
        self._shared_state.measures.group.rebalanced(rebalance)
        log.info(
            "group %s: rebalanced in %.1f s (%s): generation %d, owns %s; added %s, removed %s",
            event.group.group_id,
            rebalance.duration,
            rebalance.cause,
            rebalance.generation,
            in_short(rebalance.assigned),
            in_short(rebalance.added),
            in_short(rebalance.removed),
        )
        return replace(event, rebalance=rebalance.by_wall_clock(self._shared_state.wall_offset_ms()))

    def show(self) -> None:
        shared_state, subscription = self._shared_state, self._subscription
        if shared_state.shared_partitions is not subscription.snapshot:
            shared_state.shared_partitions = subscription.snapshot
        shared_state.starts = subscription.starts
        shared_state.topics = subscription.topics
        if self._moves != subscription.moves:
            self._moves = shared_state.moves = subscription.moves
            shared_state.signal.set()
