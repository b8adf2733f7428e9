"""Every call of the consumer as a generator of waits: one text for the thread and the asyncio shell (G1).

`core.Core` knows how to wait for what crosses the shared state; this knows what each public call means. The public
classes document the calls and carry them out, each in its way. Application side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kadence.client.waits import Waits
from kadence.clock import Clock, Seconds, to_ms
from kadence.config import ConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.arguments import (
    Assignable,
    Offsets,
    Partition,
    Partitions,
    StartOfTopics,
    Timestamps,
    callback_of,
    cap,
    columns_of,
    listener_of,
    partition_of,
    partitions_of,
    pattern_of,
    refuse_own_dead_letters,
    target,
    text,
    timestamps_of,
    to_offsets,
    topic_name,
    topic_names,
)
from kadence.consumer.application.callbacks import AsyncRebalanceListener, CommitCallback
from kadence.consumer.application.client_calls import ClientCalls
from kadence.consumer.application.commits import parts_of
from kadence.consumer.application.core import Core
from kadence.consumer.decoded_records import Records
from kadence.consumer.shared_partition import NotFetched, NotFetchedReason
from kadence.consumer.shared_state import SharedState
from kadence.errors import (
    ConfigError,
    IllegalStateError,
)
from kadence.lazy_dataclasses import replace
from kadence.loading import load
from kadence.metrics import MetricName
from kadence.records import Record
from kadence.types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    SubscriptionPattern,
    TopicPartition,
)
from kadence.wire import ZERO_UUID

if TYPE_CHECKING:
    import pyarrow

    from kadence.consumer.application.arrow_polls import ArrowPolls
    from kadence.consumer.application.by_hand import ByHand
    from kadence.consumer.application.health import Health
    from kadence.consumer.application.metrics import Metrics
    from kadence.work.track import Tracked, Work

__all__ = ["EARLIEST", "LATEST", "Calls", "Topics"]

Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern

LATEST, EARLIEST = -1, -2


class Calls(ClientCalls):
    """What each call of a consumer does."""

    _core: Core
    _config: ConsumerConfig

    def __init__(
        self, config: ConsumerConfig, shared_state: SharedState, core: Core, clock: Clock, *, awaits: bool
    ) -> None:
        super().__init__(config, shared_state, core, clock, awaits=awaits)
        self._shared_state = shared_state
        self._metrics: Metrics | None = None
        self._tracked: Tracked | None = None
        self._interceptors = core.interceptors
        self._arrow_polls: ArrowPolls | None = None

    # ------------------------------------------------------------ what to read

    def subscribe(self, topics: Topics, listener: AsyncRebalanceListener | None) -> Waits[None]:
        core = self._core
        core.need_group("subscribe()")
        if core.chosen.by_hand:
            raise IllegalStateError(
                "this consumer has partitions by assign(); unsubscribe() before subscribe()"
            )
        listener = listener_of(listener, awaits=self._awaits)
        names: frozenset[str] = frozenset()
        pattern: str | None = None
        regex: str | None = None
        if isinstance(topics, re.Pattern):
            pattern = pattern_of(topics)
        elif isinstance(topics, SubscriptionPattern):
            regex = self._broker_side(topics)
        else:
            names = topic_names(topics)
        if not (names or pattern is not None or regex is not None):
            yield from core.unsubscribe(self._deadline(None))
            return
        refuse_own_dead_letters(self._config.dead_letter_topic, names, pattern)
        yield from core.subscribe(names or None, pattern, regex, listener, self._deadline(None))

    def _broker_side(self, pattern: SubscriptionPattern) -> str:
        if self._config.group_protocol == "classic":
            raise ConfigError(
                "a SubscriptionPattern is matched by the broker, which only group.protocol=consumer (KIP-848) can "
                f"do, and this consumer's is classic: use re.compile({pattern.pattern!r}), which is matched here"
            )
        return pattern.pattern

    def assign(self, partitions: Assignable, timeout: Seconds | None) -> Waits[None]:
        return self._by_hand.assign(partitions, self._deadline(timeout))

    def assign_topics(
        self,
        topics: str | Iterable[str],
        start: StartOfTopics | None,
        end: StartOfTopics | None,
        timeout: Seconds | None,
    ) -> Waits[None]:
        return self._by_hand.assign_topics(topics, start, end, self._deadline(timeout))

    def incremental_assign(self, partitions: Assignable, timeout: Seconds | None) -> Waits[None]:
        return self._by_hand.add(partitions, self._deadline(timeout))

    def incremental_unassign(self, partitions: Partitions, timeout: Seconds | None) -> Waits[None]:
        return self._by_hand.remove(partitions, self._deadline(timeout))

    @property
    def _by_hand(self) -> ByHand:
        # Members of groups need none of it.
        from kadence.consumer.application.by_hand import ByHand

        return ByHand(self._core)

    def subscription(self) -> frozenset[str]:
        core = self._core
        if core.chosen.pattern is None:
            return core.chosen.subscribed or frozenset()
        if core.chosen.patterns[0] is not None:
            return self._shared_state.topics
        # The broker matches, and tells of topics by their partitions only.
        return frozenset(partition.topic for partition in core.known.partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._core.known.partitions)

    # ------------------------------------------------------------ records

    def poll_buffered(self, timeout: Seconds, max_records: int | None) -> Records[Any, Any] | None:
        """What can be had without waiting or looking at anything else (C6); None when there is more to do."""
        usual = self._core.polls.steps.usual
        limit = (
            usual
            if max_records is None and usual > 0
            else self._cap(max_records, self._config.max_poll_records)
        )
        if self._interceptors is not None and (kept := self._interceptors.surplus.take(limit)):
            self._shared_state.progress.polled(self._clock.now_ms())
            return Records.of(kept)
        if (decoding := self._core.polls.decoding) is not None:
            decoding.until = self._until(timeout)
        chunks = self._core.polls.poll_buffered(limit)
        return None if chunks is None else self._records(chunks)

    def poll(self, timeout: Seconds, max_records: int | None) -> Waits[Records[Any, Any]]:
        usual = self._core.polls.steps.usual
        limit = (
            usual
            if max_records is None and usual > 0
            else self._cap(max_records, self._config.max_poll_records)
        )
        self._look_at_unit(timeout)
        return self._core.polls.poll(self._until(timeout, self._core.polls.counted_at), limit, self._records)

    def _records(self, chunks: list[tuple[TopicPartition, list[Record]]]) -> Records[Any, Any]:
        records: Records[Any, Any] = Records(chunks, self._core.polls.moved())
        return (
            self._interceptors.on_consume(records) if chunks and self._interceptors is not None else records
        )

    def first(self, records: Records[Any, Any]) -> Record[Any, Any] | None:
        """The first of what a poll of one returned."""
        return next(iter(records), None) if self._interceptors is None else self._interceptors.first(records)

    def poll_arrow(
        self,
        timeout: Seconds,
        max_records: int | None,
        headers: bool,
        columns: Sequence[str] | None,
        value: str | None,
    ) -> Waits[pyarrow.Table]:
        # pyarrow is an extra, and takes a third of a second to import.
        from kadence.consumer.application.arrow_polls import ArrowPolls

        if self._arrow_polls is None:
            self._arrow_polls = ArrowPolls(self._config, self._core, self._clock)
        names = columns_of(columns, headers=headers)
        limit = self._cap(max_records, self._config.arrow_rows)
        max_bytes = self._config.max_poll_arrow_bytes if max_records is None else None
        return (yield from self._arrow_polls.poll(self._until(timeout), limit, max_bytes, names, value))

    def _cap(self, max_records: int | None, default: int) -> int:
        pace = self._core.polls.pace
        return cap(max_records, default if pace is None else pace.polls(self._clock.now_ms()))

    # ------------------------------------------------------------ positions

    def seek(
        self, partition: Partition, offset: int | OffsetAndMetadata, timeout: Seconds | None
    ) -> Waits[None]:
        start, epoch = target(offset)
        shared_partition = self._core.known.shared_partition(partition_of(partition))
        yield from self._core.seek(shared_partition, start, epoch, self._deadline(timeout))

    def reset(self, partitions: Partitions, timestamp: int, timeout: Seconds | None) -> Waits[None]:
        known = self._core.known
        chosen = tuple(map(known.shared_partition, partitions_of(partitions) or known.partitions))
        yield from self._core.hand_over(
            m.ResetPositions, self._deadline(timeout), shared_partitions=chosen, timestamp=timestamp
        )

    def position(self, partition: Partition, timeout: Seconds | None) -> Waits[int]:
        return (yield from self._core.placed(partition_of(partition), self._deadline(timeout))).offset

    def pause(self, partitions: Partitions) -> None:
        now = self._clock.now_ms()
        for partition in partitions_of(partitions):
            shared_partition = self._core.known.shared_partition(partition)
            if not shared_partition.paused:
                shared_partition.paused_at, shared_partition.paused = now, True
                self._shared_state.look_at(shared_partition)

    def resume(self, partitions: Partitions) -> None:
        for partition in partitions_of(partitions):
            shared_partition = self._core.known.shared_partition(partition)
            if shared_partition.paused:
                shared_partition.paused = False
                self._shared_state.look_at(shared_partition)

    def finished(self) -> frozenset[TopicPartition]:
        return frozenset(
            p for p, shared_partition in self._core.known.partitions.items() if shared_partition.is_finished
        )

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(
            p for p, shared_partition in self._core.known.partitions.items() if shared_partition.paused
        )

    def not_fetched(self) -> dict[TopicPartition, NotFetched]:
        now = self._clock.now_ms()
        core = self._core
        named = core.chosen.subscribed or core.chosen.followed
        found = {
            TopicPartition(topic, -1): _not_fetched(now, *why)
            for topic, why in self._shared_state.missing.items()
            if topic in named
        }
        for partition, shared_partition in self._shared_state.shared_partitions.items():
            if (why := shared_partition.why(now)) is not None:
                found[partition] = _not_fetched(now, *why)
        return found

    def current_lag(self, partition: Partition) -> int | None:
        shared_partition = self._core.known.shared_partition(partition_of(partition))
        return shared_partition.lag(read_committed=self._config.isolation_level == "read_committed")

    # ------------------------------------------------------------ commits

    def commit(self, offsets: Offsets | Work | None, timeout: Seconds | None) -> Waits[None]:
        # With a group alone there are direct commits.
        if type(offsets) is Record and self._shared_state.direct_commits is not None:
            ms = self._config.default_api_timeout_ms if timeout is None else cast(int, to_ms(timeout))
            return self._core.commits.commit_record(offsets, ms, self._to_offsets)
        self._core.need_group("commit()")
        given, read_under = self._to_offsets(offsets)
        return self._core.commits.commit(given, self._deadline(timeout), read_under)

    def commit_async(self, offsets: Offsets | Work | None, callback: CommitCallback | None) -> None:
        self._core.need_group("commit_async()")
        given, read_under = self._to_offsets(offsets)
        self._core.commits.commit_async(given, callback_of(callback, awaits=self._awaits), read_under)

    def _to_offsets(
        self, offsets: Offsets | Work | None
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata] | None, dict[TopicPartition, int]]:
        """What is to be committed, and of what was read the fetch epochs under which it counts."""
        if self._tracked is not None and isinstance(offsets, self._tracked.kind):
            return parts_of(self._tracked.offsets(self._read_since()))
        untracked: Any = offsets
        given = to_offsets(untracked)
        # Offsets that the program names are its word. Those of records are of the topic that these were read from.
        if not given or (type(untracked) is not Record and isinstance(untracked, Mapping)):
            return given, {}
        return given, self._read_under(given)

    def _read_under(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The fetch epochs under which what polls returned of these counts."""
        assignment = self._shared_state.shared_partitions
        return {
            partition: fetch_epoch
            for partition in partitions
            if (each := assignment.get(partition)) is not None
            and (fetch_epoch := each.read_under()) is not None
        }

    def track(self, records: Iterable[Record[Any, Any]]) -> Work:
        if self._config.auto_commit:
            raise ConfigError(
                "track() needs enable.auto.commit=false: automatic commits would commit records that are not done"
            )
        if self._tracked is None:
            # Most consumers do not need it.
            load("kadence.work.track")
            from kadence.work.track import Tracked

            self._tracked = Tracked()
        passed = records.next_offsets() if isinstance(records, Records) else {}
        # Only polls move these, so they are of what the last one returned.
        returned_under = {
            p: each.read_since if at.fetch_epoch >= each.read_since else at.fetch_epoch
            for p, each in self._shared_state.shared_partitions.items()
            if (at := each.position) is not None
        }
        return self._tracked.add(records, passed, returned_under)

    def _read_since(self) -> dict[TopicPartition, int]:
        return {p: each.read_since for p, each in self._core.known.partitions.items()}

    def committed(
        self, partitions: Partitions, timeout: Seconds | None
    ) -> Waits[dict[TopicPartition, OffsetAndMetadata | None]]:
        self._core.need_group("committed()")
        wanted = frozenset(partitions_of(partitions))
        if not wanted:
            return {}
        began = self._clock.now_ms()
        try:
            found = yield from self._core.call(m.FetchCommitted, self._deadline(timeout), partitions=wanted)
        finally:
            self._shared_state.measures.poll_measures.committed_ms += self._clock.now_ms() - began
        return cast("dict[TopicPartition, OffsetAndMetadata | None]", found)

    # ------------------------------------------------------------ the cluster

    def edge_offsets(
        self, partitions: Partitions, timestamp: int, timeout: Seconds | None
    ) -> Waits[dict[TopicPartition, int]]:
        from kadence.consumer.application.by_time import looked_up

        wanted = partitions_of(partitions)
        return (
            (yield from looked_up(self._core, wanted, timestamp, self._deadline(timeout))) if wanted else {}
        )

    def offsets_for_times(
        self, timestamps: Timestamps, timeout: Seconds | None
    ) -> Waits[dict[TopicPartition, OffsetAndTimestamp | None]]:
        return self._list_offsets(timestamps_of(timestamps), timeout)

    def _list_offsets(
        self, timestamps: Timestamps, timeout: Seconds | None
    ) -> Waits[dict[TopicPartition, OffsetAndTimestamp | None]]:
        if not timestamps:
            return {}
        found = yield from self._core.call(m.ListOffsets, self._deadline(timeout), timestamps=timestamps)
        return cast("dict[TopicPartition, OffsetAndTimestamp | None]", found)

    def topics(
        self, names: tuple[str, ...] | None, timeout: Seconds | None
    ) -> Waits[dict[str, list[PartitionInfo]]]:
        found = yield from self._core.call(m.TopicMetadata, self._deadline(timeout), topics=names)
        return cast("dict[str, list[PartitionInfo]]", found)

    def partitions_for(self, topic: str, timeout: Seconds | None) -> Waits[list[PartitionInfo]]:
        found = yield from self.topics((topic_name(topic),), timeout)
        return found.get(topic, [])

    # ------------------------------------------------------------ the group

    def group_metadata(self) -> GroupMetadata:
        self._core.need_group("group_metadata()")
        self._shared_state.is_transactional = True
        read = {p.topic: shared.topic_read() for p, shared in self._core.known.partitions.items()}
        ids = {name: topic_id for name, topic_id in read.items() if topic_id != ZERO_UUID}
        return replace(self._core.identity, topic_ids=ids)

    def rebalances(self) -> Sequence[m.Rebalance]:
        return tuple(self._core.rebalances)

    def health(self) -> Health:
        # Most consumers are never asked.
        from kadence.consumer.application.health import health

        return health(self._core, self._shared_state, self._clock.now_ms())

    def enforce_rebalance(self, reason: str) -> None:
        self._core.need_group("enforce_rebalance()")
        if not isinstance(reason, str):
            raise TypeError(f"a reason is a str, not {reason!r}")
        text(reason, "a reason")
        self._core.exchange.ready()
        self._shared_state.send(m.EnforceRebalance(0, 0, reason))

    def metrics(self) -> Mapping[MetricName, float]:
        metrics = self._metrics
        if metrics is None:
            # Not loaded before they are asked for, which most consumers never are.
            from kadence.consumer.application.metrics import Metrics

            metrics = self._metrics = Metrics(self._config, self._shared_state, self._core)
        return metrics.read(self._clock.now_ms())

    def describe(self, kind: str) -> str:
        """One line of state, for the repr."""
        return self._described(kind, len(self._core.known.partitions))


def _not_fetched(now: int, reason: NotFetchedReason, since: int, detail: str) -> NotFetched:
    return NotFetched(reason, max(now - since, 0) / 1000 if since >= 0 else 0.0, detail)
