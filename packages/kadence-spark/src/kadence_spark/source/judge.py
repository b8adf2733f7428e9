"""Compares a point of the stream with the present logs: the offsets that a batch from there could read.

It keeps only state that a repeated look would find again, so that a failed look can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kadence.logs import logger
from kadence.types import TopicPartition
from kadence_spark.source.cluster import Cluster
from kadence_spark.source.loss import Loss
from kadence_spark.source.offsets import Point
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.start import belongs, check_existence, resolve

__all__ = ["Judge", "Step"]

_log = logger("kadence.spark")


@dataclass(slots=True)
class Step:
    """One look at the cluster against a start.

    Attributes:
        backlog: partitions with offsets to read. first: starts that the end offset must include.
        next: positions of partitions without offsets to read, or with a changed position. drop: partitions that are
            gone. ids: of the topics. must_move: the end has to differ from the start even without records.
    """

    backlog: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    next: dict[TopicPartition, int] = field(default_factory=dict)
    drop: set[TopicPartition] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=dict)
    must_move: bool = False

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.backlog.values())


class Judge:
    """Compares starts with the logs, by the rules of the options.

    Attributes:
        target: the ends of an availableNow query, by partition; None for others.
        has_begun: whether the query has a start, so that later partitions begin at their earliest offset.
    """

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self._loss = Loss(fail=options.fail_on_data_loss)
        self._adopted: dict[str, str] = {}
        self._is_told = False
        self.target: dict[TopicPartition, int] | None = None
        self.has_begun = False

    def freeze_target(self) -> None:
        """Freeze the partitions and ends of an availableNow query."""
        self.look()
        self.target = {partition: end for partition, (_, end) in self._cluster.ranges.items()}

    def step(self, start: Point) -> Step:
        """The possible content of a batch from ``start``.

        Raises:
            DataLossError, ConfigError, UnknownTopicOrPartitionError: see `kadence_spark.source.driver`.
        """
        cluster = self._cluster
        listed_now = cluster.list()
        if not cluster.listing.leaders.keys() >= start.next.keys():
            cluster.confirm_missing(start.next.keys() - cluster.listing.leaders.keys())
            listed_now = True
        cluster.look()
        if not listed_now and self._looks_like_a_loss(start):
            # Topics may have been recreated since they were listed, which is another kind of loss.
            cluster.list(0)
            cluster.look()
        return self._compare(start)

    def _looks_like_a_loss(self, start: Point) -> bool:
        ranges = self._cluster.ranges
        return any(
            partition in ranges and not ranges[partition][0] <= offset <= ranges[partition][1]
            for partition, offset in start.next.items()
        )

    def _compare(self, start: Point) -> Step:
        present = set(self._cluster.ranges)
        step = Step(ids=dict(self._cluster.listing.ids))
        made_anew = self._made_anew(start, step)
        step.drop = set(start.next) - present
        gone = {partition for partition in step.drop if partition.topic not in made_anew}
        left_out = {p for p in gone if not belongs(p, self._options.topics)}
        if left_out:
            self._loss.left_out(left_out)
        if gone - left_out:
            self._loss.gone(gone - left_out)
        step.must_move |= bool(step.drop)
        begun = {partition for partition in start.next if partition.topic not in made_anew}
        wanted = present if self.target is None else present & (self.target.keys() | start.next.keys())
        self._begin_anew({p for p in wanted if p.topic in made_anew}, step)
        self._meet_new({p for p in wanted - begun if p.topic not in made_anew}, begun, step)
        self._go_on(start, wanted & begun, step)
        return step

    # ------------------------------------------------------------ recreated topics

    def _made_anew(self, start: Point, step: Step) -> set[str]:
        """Recreated topics of ``start``. A start without ids gets those of the first look."""
        ids = self._cluster.listing.ids
        others = {}
        for topic in {partition.topic for partition in start.next} & ids.keys():
            before = start.ids.get(topic) or self._adopted.setdefault(topic, ids[topic])
            if before != ids[topic]:
                others[topic] = before, ids[topic]
        copies = others.keys() & self.copies()
        if copies:
            # Into the checkpoint at once, so that one start with the option is enough, even without records.
            step.must_move = True
            self._check_copies(start, copies)
        self._tell_of_copies({topic: others[topic] for topic in copies})
        self._loss.made_anew({topic: both for topic, both in others.items() if topic not in copies})
        return others.keys() - copies

    # ------------------------------------------------------------ copies: adoptTopicIds

    def look(self) -> None:
        """Look up the cluster only."""
        self._cluster.list(0)
        self._cluster.look()

    def copies(self) -> set[str]:
        """Topics whose present id is in the option adoptTopicIds."""
        return {
            topic for topic, _ in self._options.adopt_topic_ids.items() & self._cluster.listing.ids.items()
        }

    def check_copy(self, partition: TopicPartition, offset: int) -> None:
        """Refuse a copy that lacks offsets which the query has read, even with failOnDataLoss=false."""
        end = self._cluster.ranges.get(partition, (0, offset))[1]
        if end < offset:
            self._loss.copy_is_short(partition, offset, end, self._cluster.listing.ids[partition.topic])

    def _check_copies(self, start: Point, copies: set[str]) -> None:
        for partition, offset in start.next.items():
            if partition.topic in copies:
                self.check_copy(partition, offset)

    def _tell_of_copies(self, copies: Mapping[str, tuple[str, str]]) -> None:
        if not self._options.adopt_topic_ids or (self._is_told and not copies):
            return
        self._is_told = True
        if not copies:
            _log.warning(
                "option adoptTopicIds has nothing to do: the checkpoint has these ids, or the topics have others. "
                "Leave it out"
            )
        for topic, (before, now) in copies.items():
            _log.warning(
                "topic %r: the offsets of the topic with id %s continue in the one with id %s (adoptTopicIds)",
                topic,
                before,
                now,
            )

    def _begin_anew(self, partitions: Iterable[TopicPartition], step: Step) -> None:
        """All records of a recreated topic are new."""
        for partition in partitions:
            begin, end = self._cluster.ranges[partition]
            step.first[partition] = step.next[partition] = begin
            step.must_move = True
            if self.target is not None:
                self.target[partition] = end  # the frozen ends are of the deleted topic
            if end > begin:
                step.backlog[partition] = (begin, end)

    # ------------------------------------------------------------ other partitions

    def _meet_new(self, new: set[TopicPartition], begun: set[TopicPartition], step: Step) -> None:
        """Partitions without a start begin according to the options, later ones at their earliest offset.

        A topic that is new to the query may be old. A partition that is new in a topic which the query reads is not, so
        what was deleted of it is a loss.
        """
        if self.has_begun:
            begins = {partition: self._cluster.ranges[partition][0] for partition in new}
            topics = {partition.topic for partition in begun}
            for partition, begin in begins.items():
                if begin and partition.topic in topics:
                    self._loss.aged_out(partition, 0, begin)
        else:
            check_existence(self._options.topics, self._cluster.listing.leaders)
            begins = resolve(self._options.starting, new, self._cluster.client)
            self._cluster.look()  # a start must not be above its end, although producers have written meanwhile
            # Write it down now, even without records: later, or with other options, the start would differ.
            step.must_move = True
        for partition, begin in begins.items():
            step.first[partition] = step.next[partition] = begin
            self._extent(partition, begin, step)

    def _go_on(self, start: Point, known: Iterable[TopicPartition], step: Step) -> None:
        """Partitions in ``start``, with the checks for loss."""
        proved = dict(self._cluster.listing.ids.items() & start.ids.items())
        for partition in known:
            begin = start.next[partition]
            self._extent(partition, begin, step, proved.get(partition.topic, ""))
            log_start = self._cluster.ranges[partition][0]
            if partition in step.backlog and log_start > begin:
                self._loss.aged_out(partition, begin, log_start)
                _, end = step.backlog[partition]
                step.first[partition] = step.next[partition] = log_start
                step.backlog[partition] = (log_start, max(log_start, end))

    def _extent(self, partition: TopicPartition, begin: int, step: Step, topic_id: str = "") -> None:
        """The backlog from ``begin`` on."""
        end = self._cluster.ranges[partition][1]
        if end < begin:
            self._loss.cut_off(partition, begin, end, topic_id)
            step.first[partition] = step.next[partition] = end
            step.must_move = True
            return
        if self.target is not None:
            end = min(end, self.target.get(partition, begin))
        if end > begin:
            step.backlog[partition] = (begin, end)
