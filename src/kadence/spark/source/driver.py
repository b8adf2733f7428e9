"""The driver's side of a stream: one of these lives in the query's runner process.

What Spark does not do, and what follows (reference: Structured Streaming's micro-batch engine):

* It calls ``commit(end)`` one batch late and never for the last batch, but `latest(start)` only after all below
  ``start`` is in the sink and in its commit log, also as the last call of an availableNow query and after a crash. So
  ``start`` is what gets committed to the group, there.
* It asks about 86 times a second when there is nothing new. So `latest` waits for data itself; blocking is
  harmless, a query is stopped by ending the process.
* It compares offsets as text. So ``start`` comes back as the very dict it was when nothing is new.
* It evaluates the initial offset again after a crash of the first batch. So that offset is ``{}`` always, and where
  the partitions start is written into the end of the first batch. Where "start" cannot be found again the same
  (latest, times) an empty first batch is worth having: it pins it down before the first record arrives.

Partitions belong to the query, not to members of a group: nobody joins, nothing rebalances, and neither session nor
poll interval has a meaning here. Joining would be wrong: the process is killed without a goodbye, and a second
query of the same group would take half of the partitions.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from kadence.clock import Clock, SystemClock
from kadence.errors import KafkaError
from kadence.spark.source.commits import Commits
from kadence.spark.source.limits import ByteEstimate, Gate, offsets_for_bytes, spread
from kadence.spark.source.loss import Loss
from kadence.spark.source.offsets import Json, Offsets, Point, to_shape
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.planning import OffsetRange, Task, plan
from kadence.spark.source.ports import OffsetClient
from kadence.spark.source.start import Everywhere, Found, check_existence, resolve
from kadence.types import TopicPartition

__all__ = ["Pace", "StreamDriver", "SystemPace"]

_log = logging.getLogger("kadence.spark")

DISCOVERY_MS: Final = 1_000
"""How old the list of partitions may get."""

LOOK_MS: Final = 50
"""How often an idle query looks for new data, while it waits inside `StreamDriver.latest`."""

SAMPLED_TOPICS: Final = 8
"""Most topics that are sampled for their bytes in one batch."""

_T = TypeVar("_T")


class Pace(Clock, Protocol):
    """A clock that can also wait."""

    def sleep_ms(self, duration: int) -> None: ...


class SystemPace(SystemClock):
    """The machine's clock; waits by sleeping."""

    __slots__ = ()

    def sleep_ms(self, duration: int) -> None:
        time.sleep(duration / 1000)


@dataclass(slots=True)
class _View:
    """What is known of the cluster: partitions with leaders, when they were listed, and ends of logs."""

    partitions: dict[TopicPartition, int | None] = field(default_factory=dict)
    listed_at: int | None = None
    ends: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Step:
    """One look at the cluster against ``start``: what a batch from there could hold.

    Attributes:
        backlog: partitions with something to read. first: starts that the end offset must carry.
        next: where partitions stand that have nothing to read, or had to be set back. drop: gone ones.
        must_move: the end has to differ from the start even without records.
    """

    backlog: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    next: dict[TopicPartition, int] = field(default_factory=dict)
    drop: set[TopicPartition] = field(default_factory=set)
    must_move: bool = False

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.backlog.values())


class StreamDriver:
    """Offsets and plans of one streaming query.

    Args:
        options: the query's.
        connect: makes the client; called at the first question, never in ``__init__``, since Spark builds readers
            in several processes and only one of them is asked anything.
        pace: time.
    """

    def __init__(
        self,
        options: SourceOptions,
        connect: Callable[[], OffsetClient],
        pace: Pace | None = None,
    ) -> None:
        self._options = options
        self._connect = connect
        self._pace: Pace = pace or SystemPace()
        self._client: OffsetClient | None = None
        self._commits: Commits | None = None
        self._loss = Loss(fail=options.fail_on_data_loss)
        self._gate = Gate(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._bytes = ByteEstimate()
        self._view = _View()
        self._target: dict[TopicPartition, int] | None = None
        self._has_begun = False

    def __repr__(self) -> str:
        target = "" if self._target is None else f" until {to_shape(self._target)}"
        state = "not connected" if self._client is None else f"{len(self._view.partitions)} partitions"
        return f"<StreamDriver {self._options.topics} {state}{target}>"

    # ------------------------------------------------------------ what Spark asks

    def prepare_available_now(self) -> None:
        """Freeze what this run will read: these partitions, up to their present ends."""
        self._list_partitions(max_age_ms=0)
        self._look_at_ends(set(self._view.partitions))
        self._target = dict(self._view.ends)

    def latest(self, start_json: Json, *, unlimited: bool = False) -> Json:
        """The end of the next batch, or ``start_json`` itself when there is nothing new.

        Args:
            start_json: everything below it is in the sink.
            unlimited: Spark wants all there is, whatever the options (``Trigger.Once``).

        Raises:
            DataLossError: see failOnDataLoss. ConfigError: the options do not fit the topics.
            IllegalStateError: the group has live members, or the checkpoint is not ours.
        """
        start = Point.from_json(start_json)
        self._commit(start.next)
        if start.next:
            self._has_begun = True
        deadline = self._pace.now_ms() + self._options.idle_poll_ms
        while True:
            step = self._retrying(lambda: self._step(start))
            self._has_begun = True
            if step.must_move or (step.backlog and self._may_start(step)):
                return self._end_of(start, step, unlimited=unlimited).to_json()
            now = self._pace.now_ms()
            if self._target is not None:
                self._commit(start.next, is_last=True)
                return start_json
            if now >= deadline:
                return start_json
            self._pace.sleep_ms(min(LOOK_MS, deadline - now))

    def report(self) -> Json | None:
        """The ends of the logs as last seen, for the query's progress. Asks nobody."""
        return to_shape(self._view.ends) if self._view.ends else None

    def plan(self, start_json: Json, end_json: Json) -> list[Task]:
        """The tasks of a batch, also of one that was begun before a crash: the same offsets always."""
        start, end = Point.from_json(start_json), Point.from_json(end_json)
        ranges: list[OffsetRange] = []
        for partition, until in end.next.items():
            begin = end.start_after(start, partition)
            if begin is None:  # a checkpoint of Spark's own connector: it asks for the earliest here
                begin = self._retrying(functools.partial(self._earliest, partition))
            ranges.append(OffsetRange(*partition, begin, until))
        return plan(ranges, self._options.task_size(), self._view.partitions)

    def close(self) -> None:
        """Let go of the client. Spark rarely calls this."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # ------------------------------------------------------------ looking at the cluster

    def _brokers(self) -> OffsetClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _retrying(self, ask: Callable[[], _T]) -> _T:
        """fetchOffset.numRetries: the client repeats on its own within its timeouts; this comes on top."""
        for _ in range(self._options.offset_retries):
            try:
                return ask()
            except KafkaError as problem:
                if not problem.retriable:
                    raise
                _log.warning("looking up offsets failed, trying again: %s", problem)
                self._pace.sleep_ms(self._options.offset_retry_interval_ms)
        return ask()

    def _list_partitions(self, max_age_ms: int) -> None:
        now = self._pace.now_ms()
        if self._view.listed_at is None or now - self._view.listed_at >= max_age_ms:
            self._view.partitions = self._brokers().partitions(self._options.topics)
            self._view.listed_at = now

    def _earliest(self, partition: TopicPartition) -> int:
        return self._brokers().log_starts([partition])[partition]

    def _look_at_ends(self, partitions: set[TopicPartition]) -> None:
        self._view.ends = self._brokers().log_ends(partitions) if partitions else {}

    def _step(self, start: Point) -> _Step:
        """Compare ``start`` with the logs. Nothing is remembered, so a failed look can simply be repeated."""
        self._list_partitions(DISCOVERY_MS)
        present = set(self._view.partitions)
        if not present >= start.next.keys():
            self._confirm_missing(start.next.keys() - present)
            present = set(self._view.partitions)
        self._look_at_ends(present)
        step = _Step()
        step.drop = set(start.next) - present
        if step.drop:
            self._loss.gone(step.drop)
            step.must_move = True
        wanted = present if self._target is None else present & (self._target.keys() | start.next.keys())
        self._meet_new(start, wanted, step)
        self._go_on(start, wanted, step)
        return step

    def _confirm_missing(self, missing: set[TopicPartition]) -> None:
        """Metadata may lag behind for a moment; only a partition that stays away is gone."""
        for _ in range(self._options.offset_retries):
            self._pace.sleep_ms(self._options.offset_retry_interval_ms)
            self._view.partitions = self._brokers().partitions(self._options.topics)
            if self._view.partitions.keys() >= missing:
                return

    def _meet_new(self, start: Point, wanted: set[TopicPartition], step: _Step) -> None:
        """Partitions that ``start`` does not name begin where the options say, later ones at their earliest."""
        new = wanted - start.next.keys()
        if not new and self._has_begun:
            return
        if self._has_begun:
            begins = self._brokers().log_starts(new)
        else:
            check_existence(self._options.topics, self._view.partitions)
            begins = resolve(self._options.starting, new, self._brokers())
            # Evaluated again later it would be another place: write it down now, records or not.
            step.must_move |= self._options.starting != Everywhere(Found.EARLIEST)
        for partition, begin in begins.items():
            step.first[partition] = step.next[partition] = begin
            self._extent(partition, begin, step)

    def _go_on(self, start: Point, wanted: set[TopicPartition], step: _Step) -> None:
        """Partitions that ``start`` names, with the checks for loss."""
        known = wanted & start.next.keys()
        for partition in known:
            self._extent(partition, start.next[partition], step)
        if not step.backlog:
            return
        log_starts = self._brokers().log_starts(step.backlog)
        for partition, log_start in log_starts.items():
            begin, end = step.backlog[partition]
            if log_start > begin:
                self._loss.aged_out(partition, begin, log_start)
                step.first[partition] = step.next[partition] = log_start
                step.backlog[partition] = (log_start, max(log_start, end))

    def _extent(self, partition: TopicPartition, begin: int, step: _Step) -> None:
        """How much is there from ``begin`` on."""
        end = self._view.ends[partition]
        if end < begin:
            self._loss.cut_off(partition, begin, end)
            step.first[partition] = step.next[partition] = end
            step.must_move = True
            return
        if self._target is not None:
            end = min(end, self._target.get(partition, begin))
        if end > begin:
            step.backlog[partition] = (begin, end)

    # ------------------------------------------------------------ deciding

    def _may_start(self, step: _Step) -> bool:
        """MinOffsetsPerTrigger does not hold back an availableNow query: it would never end."""
        return self._target is not None or self._gate.lets_pass(step.offsets, self._pace.now_ms())

    def _end_of(self, start: Point, step: _Step, *, unlimited: bool) -> Point:
        following: dict[TopicPartition, int] = {p: o for p, o in start.next.items() if p not in step.drop}
        following |= step.next
        following |= spread(step.backlog, None if unlimited else self._limit(step))
        self._gate.passed(self._pace.now_ms())
        return Point(following, step.first)

    def _limit(self, step: _Step) -> int | None:
        limits = [self._options.max_offsets_per_trigger]
        if self._options.max_bytes_per_trigger is not None:
            self._sample(step)
            limits.append(offsets_for_bytes(step.backlog, self._bytes, self._options.max_bytes_per_trigger))
        return min((limit for limit in limits if limit is not None), default=None)

    def _sample(self, step: _Step) -> None:
        """Look at some records of the longest backlog of each topic."""
        longest: dict[str, tuple[int, TopicPartition, int]] = {}
        for partition, (begin, end) in step.backlog.items():
            candidate = (end - begin, partition, begin)
            longest[partition.topic] = max(candidate, longest.get(partition.topic, candidate))
        for _, partition, begin in sorted(longest.values(), reverse=True)[:SAMPLED_TOPICS]:
            self._bytes.learn(partition.topic, *self._brokers().sample(partition, begin))

    # ------------------------------------------------------------ committing

    def _commit(self, offsets: Offsets, *, is_last: bool = False) -> None:
        if not self._options.commit_offsets:
            return
        if self._commits is None:
            self._commits = Commits(self._options.group_id or "", self._brokers(), self._pace)
            self._commits.check_free()
        self._commits.offer(offsets, is_last=is_last)
