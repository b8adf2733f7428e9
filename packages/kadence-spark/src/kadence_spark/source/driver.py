"""The driver's side of a stream: one of these is in the query's runner process.

Spark's behaviour, and the consequences here (reference: Structured Streaming's micro-batch engine):

* Spark calls ``commit(end)`` one batch late and never for the last batch. But it calls `latest(start)` only after all
  offsets below ``start`` are in the sink and in its commit log, also as the last call of an availableNow query and
  after a crash. So `latest` commits ``start`` to the group.
* Spark polls about 86 times a second without new records. So `latest` waits for records itself
  (`kadence_spark.source.idle`); blocking is harmless, because a query is stopped by ending the process.
* Spark compares offsets as text. So `latest` returns the same dict ``start`` if there are no new records.
* Spark evaluates the initial offset again after a crash of the first batch. So the initial offset is always
  `NOT_BEGUN`, and the end of the first batch has the partitions' starts. An empty first batch is useful: it fixes the
  starts before the first record arrives, and before the options change.

A batch waits for one round trip: starts and ends of all logs, requested from all leaders at once. Partitions are listed
once a second, a commit is sent while the batch runs, and an idle query waits for a record instead of polling.

Partitions belong to the query, not to members of a group: there is no join and no rebalance, and session timeout and
poll interval have no meaning. Joining would be wrong: the process is killed before it could leave the group, and a
second query of the same group would get half of the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kadence.errors import IllegalStateError
from kadence.types import TopicPartition
from kadence_spark.source.cluster import DISCOVERY_MS, Cluster, Pace
from kadence_spark.source.commits import Commits
from kadence_spark.source.idle import IdleWait
from kadence_spark.source.judge import Judge, Step
from kadence_spark.source.limits import ByteEstimate, Gate, measured, offsets_for_bytes, spread
from kadence_spark.source.offsets import FIRST_MARK, Json, Offsets, Point, to_shape
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.planning import OffsetRange, Task, plan
from kadence_spark.source.ports import OffsetClient
from kadence_spark.source.start import Everywhere, Found

__all__ = ["StreamDriver"]

SAMPLED_TOPICS: Final = 8
"""The most topics whose record sizes are sampled in one batch."""


class StreamDriver:
    """Offsets and plans of one streaming query.

    Args:
        options: the query's.
        connect: makes the client; called at the first request, never in ``__init__``, because Spark makes readers in
            several processes and uses only one of them.
        pace: time.
    """

    def __init__(
        self,
        options: SourceOptions,
        connect: Callable[[], OffsetClient],
        pace: Pace | None = None,
    ) -> None:
        self._options = options
        self._cluster = Cluster(options, connect, pace)
        self._pace = self._cluster.pace
        self._judge = Judge(options, self._cluster)
        self._commits: Commits | None = None
        self._gate = Gate(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._bytes = ByteEstimate()
        self._idle = IdleWait(options.idle_poll_ms)
        self._begins: Offsets = {}

    def __repr__(self) -> str:
        target = "" if self._judge.target is None else f" until {to_shape(self._judge.target)}"
        state = (
            f"{len(self._cluster.listing.leaders)} partitions"
            if self._cluster.is_connected
            else "not connected"
        )
        return f"<StreamDriver {self._options.topics} {state}{target}>"

    # ------------------------------------------------------------ what Spark asks

    def prepare_available_now(self) -> None:
        """Freeze the partitions and ends of this run."""
        self._cluster.ask(self._judge.freeze_target)

    def latest(self, start_json: Json, *, unlimited: bool = False) -> Json:
        """The end of the next batch, or ``start_json`` itself without new records or if a required broker is silent.

        Args:
            start_json: all offsets below it are in the sink.
            unlimited: without the options' limits (``Trigger.Once``).

        Raises:
            DataLossError: see failOnDataLoss. ConfigError: the options do not fit the topics.
            IllegalStateError: others use the group (with commitOffsets), or the checkpoint is another source's.
            KafkaTimeoutError: no broker has answered for brokerTimeoutMs.
        """
        start = Point.from_json(start_json)
        if self._options.commit_offsets:
            self._committing()  # refuses a group in use before records are read
        try:
            end = self._latest(start_json, start, unlimited=unlimited)
            self._idle.answered(self._pace.now_ms(), has_news=end is not start_json)
            return end
        finally:
            # The commit runs during the batch. An earlier start would slow down the look-up of offsets.
            if self._options.commit_offsets:
                self._committing().offer(*self._committable(start))

    def _latest(self, start_json: Json, start: Point, *, unlimited: bool) -> Json:
        now = self._pace.now_ms()
        deadline = now + self._idle.asked(now)
        if start.has_begun:
            self._judge.has_begun = True
        while True:
            step = self._look(start)
            if step is None:
                self._pace.sleep_ms(max(0, deadline - self._pace.now_ms()))
                return start_json
            self._judge.has_begun = True
            if step.must_move or (step.backlog and (unlimited or self._may_start(step))):
                end = self._end_of(start, step, unlimited=unlimited)
                self._begins = {p: begin for p, begin in step.first.items() if p not in end.next}
                return end.to_json()
            self._begins = step.first
            left = deadline - self._pace.now_ms()
            if left <= 0 or self._judge.target is not None:
                if self._options.commit_offsets:
                    self._committing().settle(
                        *self._committable(start), is_last=self._judge.target is not None
                    )
                return start_json
            self._wait(min(left, DISCOVERY_MS))

    def report(self) -> Json | None:
        """The last known log ends, for the query's progress. Sends no request.

        Without ends while a required broker does not answer. For partitions that no batch has read yet, with the
        offset at which the query will begin.
        """
        ranges = self._cluster.ranges
        if self._cluster.is_away:
            return {}  # with None the progress would keep the previous report
        if not ranges:
            return None
        ends = {partition: end for partition, (_, end) in ranges.items()}
        return to_shape(self._begins, FIRST_MARK) | to_shape(ends)

    def plan(self, start_json: Json, end_json: Json) -> list[Task]:
        """The tasks of a batch. A batch that was begun before a crash gets the same offsets again.

        Raises:
            IllegalStateError: Spark's connector planned it as the first one, and began elsewhere than at the earliest.
        """
        start, end = Point.from_json(start_json), Point.from_json(end_json)
        ids = self._ids_of(end)
        # A checkpoint of Spark's own connector has no starts in its points. Its later partitions begin at the earliest.
        begins = end.starts_after(start)
        unknown = [partition for partition, begin in begins.items() if begin is None]
        if unknown and not start.has_begun and self._options.starting != Everywhere(Found.EARLIEST):
            raise IllegalStateError(
                "the checkpoint has a first batch that Spark's connector planned and that has not ended. Where it "
                "begins stands in a file of the connector, which a source in Python cannot read: let the connector end "
                "this batch once (format kafka, same options), then go on with format kadence"
            )
        earliest = self._cluster.insist(lambda: self._cluster.client.log_starts(unknown)) if unknown else {}
        ranges: list[OffsetRange] = []
        for partition, until in end.next.items():
            begin = begins[partition]
            ranges.append(
                OffsetRange(
                    *partition,
                    earliest[partition] if begin is None else begin,
                    until,
                    ids.get(partition.topic, ""),
                )
            )
        if self._options.max_bytes_per_partition is not None:
            per_offset = measured(ranges, self._cluster.client, self._bytes)
        else:
            per_offset = self._bytes.per_offset(end.next)
        return plan(ranges, self._options.task_size(), self._cluster.listing.leaders, per_offset)

    def _ids_of(self, end: Point) -> Mapping[str, str]:
        """The ids of a batch's topics. A batch that was begun before the option adoptTopicIds has the old ids."""
        if not self._options.adopt_topic_ids.keys() & end.ids.keys():
            return end.ids
        self._cluster.insist(self._judge.look)
        copies = {topic: self._cluster.listing.ids[topic] for topic in self._judge.copies()}
        for partition, until in end.next.items():
            if end.ids.get(partition.topic) != copies.get(partition.topic, end.ids.get(partition.topic)):
                self._judge.check_copy(partition, until)
        return {**end.ids, **copies}

    def close(self) -> None:
        """Close the client. Spark rarely calls this."""
        self._cluster.close()

    # ------------------------------------------------------------ looking at the cluster

    def _look(self, start: Point) -> Step | None:
        """None: a required broker does not answer. An availableNow query must not end then, so it waits here."""
        if self._judge.target is not None:
            return self._cluster.insist(lambda: self._judge.step(start))
        return self._cluster.ask_unless_away(lambda: self._judge.step(start))

    def _wait(self, timeout_ms: int) -> None:
        """Wait until there may be new records."""
        ends = {partition: end for partition, (_, end) in self._cluster.ranges.items()}
        self._cluster.client.wait_for_records(ends, timeout_ms)

    # ------------------------------------------------------------ deciding

    def _may_start(self, step: Step) -> bool:
        """MinOffsetsPerTrigger does not apply to an availableNow query, which would never end."""
        return self._judge.target is not None or self._gate.lets_pass(step.offsets, self._pace.now_ms())

    def _end_of(self, start: Point, step: Step, *, unlimited: bool) -> Point:
        following: dict[TopicPartition, int] = {p: o for p, o in start.next.items() if p not in step.drop}
        following |= step.next
        following |= spread(step.backlog, None if unlimited else self._limit(step))
        self._gate.passed(self._pace.now_ms())
        ids = {**start.ids, **step.ids}
        topics = {partition.topic for partition in following} & ids.keys()
        return Point(following, step.first, {topic: ids[topic] for topic in topics})

    def _limit(self, step: Step) -> int | None:
        limits = [self._options.max_offsets_per_trigger]
        if self._options.max_bytes_per_trigger is not None:
            self._sample(step)
            limits.append(offsets_for_bytes(step.backlog, self._bytes, self._options.max_bytes_per_trigger))
        return min((limit for limit in limits if limit is not None), default=None)

    def _sample(self, step: Step) -> None:
        """Sample records of the longest backlog of each topic."""
        longest: dict[str, tuple[int, TopicPartition]] = {}
        for partition, (begin, end) in step.backlog.items():
            candidate = (end - begin, partition)
            longest[partition.topic] = max(candidate, longest.get(partition.topic, candidate))
        chosen = sorted(longest.values(), reverse=True)[:SAMPLED_TOPICS]
        samples = self._cluster.client.sample({p: step.backlog[p] for _, p in chosen})
        for partition, (size, offsets) in samples.items():
            self._bytes.learn(partition.topic, size, offsets)

    # ------------------------------------------------------------ committing

    def _committable(self, start: Point) -> tuple[Offsets, Mapping[str, str]]:
        """The offsets of ``start`` for the group, without topics that are gone or recreated.

        Also the ids of these topics, so that a broker can detect a later change.
        """
        listing = self._cluster.listing
        made_anew = {topic for topic, known in start.ids.items() if listing.ids.get(topic, known) != known}
        offsets = {
            partition: offset
            for partition, offset in start.next.items()
            if partition in listing.leaders and partition.topic not in made_anew
        }
        topics = {partition.topic for partition in offsets}
        return offsets, {topic: topic_id for topic, topic_id in start.ids.items() if topic in topics}

    def _committing(self) -> Commits:
        if self._commits is None:
            self._cluster.ask(self._cluster.list)  # brokers that never answer raise that error
            self._commits = Commits(self._options.group_id or "", self._cluster.client, self._pace)
        self._commits.check_free(self._cluster.listing.leaders)
        return self._commits
