"""The driver's side of a stream: one of these lives in the query's runner process.

What Spark does not do, and what follows (reference: Structured Streaming's micro-batch engine):

* It calls ``commit(end)`` one batch late and never for the last batch, but `latest(start)` only after all below
  ``start`` is in the sink and in its commit log, also as the last call of an availableNow query and after a crash. So
  ``start`` is what gets committed to the group, there.
* It asks about 86 times a second when there is nothing new. So `latest` waits for data itself
  (`kadence.spark.source.idle`); blocking is harmless, a query is stopped by ending the process.
* It compares offsets as text. So ``start`` comes back as the very dict it was when nothing is new.
* It evaluates the initial offset again after a crash of the first batch. So that offset is `NOT_BEGUN` always, and
  where the partitions start is written into the end of the first batch. Where "start" cannot be found again the same
  (latest, times) an empty first batch is worth having: it pins it down before the first record arrives.

A batch waits for one round trip: starts and ends of all logs, asked from all leaders at once. Partitions are listed
once a second, a commit is under way while the batch runs, and an idle query waits for a record rather than look.

Partitions belong to the query, not to members of a group: nobody joins, nothing rebalances, and neither session nor
poll interval has a meaning here. Joining would be wrong: the process is killed before it could leave the group, and a
second query of the same group would take half of the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kadence.errors import IllegalStateError
from kadence.spark.source.cluster import DISCOVERY_MS, Cluster, Pace
from kadence.spark.source.commits import Commits
from kadence.spark.source.idle import IdleWait
from kadence.spark.source.judge import Judge, Step
from kadence.spark.source.limits import ByteEstimate, Gate, measured, offsets_for_bytes, spread
from kadence.spark.source.offsets import FIRST_MARK, Json, Offsets, Point, to_shape
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.planning import OffsetRange, Task, plan
from kadence.spark.source.ports import OffsetClient
from kadence.spark.source.start import Everywhere, Found
from kadence.types import TopicPartition

__all__ = ["StreamDriver"]

SAMPLED_TOPICS: Final = 8
"""Most topics that are sampled for their bytes in one batch."""


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
        """Freeze what this run will read: these partitions, up to their present ends."""
        self._cluster.ask(self._judge.freeze_target)

    def latest(self, start_json: Json, *, unlimited: bool = False) -> Json:
        """The end of the next batch, or ``start_json`` itself: nothing is new, or a needed broker does not answer.

        Args:
            start_json: everything below it is in the sink.
            unlimited: Spark wants all there is, whatever the options (``Trigger.Once``).

        Raises:
            DataLossError: see failOnDataLoss. ConfigError: the options do not fit the topics.
            IllegalStateError: others use the group (with commitOffsets), or the checkpoint is not ours.
            KafkaTimeoutError: no broker has answered for brokerTimeoutMs.
        """
        start = Point.from_json(start_json)
        if self._options.commit_offsets:
            self._committing()  # refuses a group in use before anything is read
        try:
            end = self._latest(start_json, start, unlimited=unlimited)
            self._idle.answered(self._pace.now_ms(), has_news=end is not start_json)
            return end
        finally:
            # The commit runs beside the batch. Begun any sooner, its thread would slow down the look at the offsets.
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
        """The ends of the logs as last seen, for the query's progress. Asks nobody.

        None of them while a broker that is needed does not answer. With partitions that no batch has met yet comes
        where the query will begin in them.
        """
        ranges = self._cluster.ranges
        if self._cluster.is_away:
            return {}  # for None the progress would show what was reported before
        if not ranges:
            return None
        ends = {partition: end for partition, (_, end) in ranges.items()}
        return to_shape(self._begins, FIRST_MARK) | to_shape(ends)

    def plan(self, start_json: Json, end_json: Json) -> list[Task]:
        """The tasks of a batch, also of one that was begun before a crash: the same offsets always.

        Raises:
            IllegalStateError: Spark's connector planned it as the first one, and began elsewhere than at the earliest.
        """
        start, end = Point.from_json(start_json), Point.from_json(end_json)
        ids = self._ids_of(end)
        # A checkpoint of Spark's own connector has no starts in its points. What it meets later begins at the earliest.
        unknown = [p for p in end.next if end.start_after(start, p) is None]
        if unknown and not start.has_begun and self._options.starting != Everywhere(Found.EARLIEST):
            raise IllegalStateError(
                "the checkpoint has a first batch that Spark's connector planned and that has not ended. Where it "
                "begins stands in a file of the connector, which a source in Python cannot read: let the connector end "
                "this batch once (format kafka, same options), then go on with format kadence"
            )
        earliest = self._cluster.insist(lambda: self._cluster.client.log_starts(unknown)) if unknown else {}
        ranges: list[OffsetRange] = []
        for partition, until in end.next.items():
            begin = end.start_after(start, partition)
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
        """The ids of a batch's topics. One that was begun before the option adoptTopicIds came has those of before."""
        if not self._options.adopt_topic_ids.keys() & end.ids.keys():
            return end.ids
        self._cluster.insist(self._judge.look)
        copies = {topic: self._cluster.listing.ids[topic] for topic in self._judge.copies()}
        for partition, until in end.next.items():
            if end.ids.get(partition.topic) != copies.get(partition.topic, end.ids.get(partition.topic)):
                self._judge.check_copy(partition, until)
        return {**end.ids, **copies}

    def close(self) -> None:
        """Let go of the client. Spark rarely calls this."""
        self._cluster.close()

    # ------------------------------------------------------------ looking at the cluster

    def _look(self, start: Point) -> Step | None:
        """None: a needed broker does not answer. An availableNow query must not end then, so it waits here."""
        if self._judge.target is not None:
            return self._cluster.insist(lambda: self._judge.step(start))
        return self._cluster.ask_unless_away(lambda: self._judge.step(start))

    def _wait(self, timeout_ms: int) -> None:
        """Until there may be news."""
        ends = {partition: end for partition, (_, end) in self._cluster.ranges.items()}
        self._cluster.client.wait_for_records(ends, timeout_ms)

    # ------------------------------------------------------------ deciding

    def _may_start(self, step: Step) -> bool:
        """MinOffsetsPerTrigger does not hold back an availableNow query: it would never end."""
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
        """Look at some records of the longest backlog of each topic."""
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
        """What of ``start`` the group may have: nothing of topics that are gone, or that another has the name of now.

        With it the ids of those topics, so that a broker can tell what has changed since they were listed.
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
            self._cluster.ask(self._cluster.list)  # brokers that never answer are told as that
            self._commits = Commits(self._options.group_id or "", self._cluster.client, self._pace)
        self._commits.check_free(self._cluster.listing.leaders)
        return self._commits
