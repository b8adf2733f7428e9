"""Processes a range of offsets again with the present file, and replaces the tables' rows of that range.

Only offsets that are in the tables already can be replayed. The next run processes those after them.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kadence.environment import Environment
from kadence.errors import ConfigError, IllegalStateError, KafkaError
from kadence.types import TopicPartition
from kadence_spark.pipeline.checkpoint import committed, query_id
from kadence_spark.pipeline.failures import told_simply
from kadence_spark.pipeline.files import HadoopFiles
from kadence_spark.pipeline.frames import PROVENANCE, RECORD, decoded, filled, letters, loaded
from kadence_spark.pipeline.judging import Judge
from kadence_spark.pipeline.lock import Lock
from kadence_spark.pipeline.model import Pipeline
from kadence_spark.pipeline.outputs import directory
from kadence_spark.pipeline.ranges import Range, batch_options
from kadence_spark.pipeline.replace import must_be_replaceable, replace
from kadence_spark.source.clients import driver_client
from kadence_spark.source.offsets import Offsets
from kadence_spark.source.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Replayed", "Wanted", "replay"]


@dataclass(frozen=True, slots=True)
class Bound:
    """An offset, or a time in ms since 1970."""

    number: int
    is_time: bool = False

    @classmethod
    def read(cls, text: str) -> Bound:
        """``1200`` or ``time:1700000000000``."""
        match = re.fullmatch(r"(time:)?(\d+)", text)
        if match is None:
            raise ConfigError(
                f"{text!r} is neither an offset, such as 1200, nor a time, such as time:1700000000000 (ms)"
            )
        return cls(int(match.group(2)), match.group(1) is not None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The range to replay.

    Attributes:
        partitions: None: all of the topic. end: the first offset, or time, behind it; None: the end of the table.
    """

    topic: str
    partitions: tuple[int, ...] | None
    begin: Bound
    end: Bound | None

    @classmethod
    def read(cls, topic: str, partitions: Sequence[int] | None, begin: str, end: str | None) -> Wanted:
        """Parse the options of the command line.

        Raises:
            ConfigError: a bound is invalid.
        """
        numbers = None if partitions is None else tuple(sorted(set(partitions)))
        return cls(topic, numbers, Bound.read(begin), None if end is None else Bound.read(end))


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result: the ranges, and the numbers of the sink's rows before and after."""

    ranges: Sequence[Range]
    before: int
    after: int


def replay(pipeline: Pipeline, environment: Environment, spark: SparkSession, wanted: Wanted) -> Replayed:
    """Replay a range.

    Raises:
        ConfigError: the sink cannot be replaced, or the range is not in it.
        IllegalStateError: the pipeline is running, or has never run.
        PipelineError: Spark failed; the tables are unchanged, or the next replay or run finishes it.
    """
    if pipeline.aggregate is not None:
        raise ConfigError(
            "the pipeline has an aggregate, whose rows are made of many records: replay cannot replace some of them. "
            "Run the file with another checkpoint into another place instead"
        )
    must_be_replaceable(pipeline.sink, "the sink")
    dead = pipeline.dead_letters
    if dead is not None:
        must_be_replaceable(dead, "the table of dead letters")
    from py4j.protocol import Py4JError

    checkpoint = environment.fill(pipeline.checkpoint).rstrip("/")
    files = HadoopFiles(spark)
    table = directory(pipeline.sink, pipeline, environment, files)
    letter_table = None if dead is None else directory(dead, pipeline, environment, files)
    pipeline = filled(pipeline, environment)
    with Lock(checkpoint, pipeline.name), told_simply(environment):
        done = committed(files, checkpoint)
        if done is None:
            raise IllegalStateError(
                f"no batch has ended with the checkpoint {checkpoint}: there is nothing to replay"
            )
        ranges = _ranges(pipeline, environment, wanted, done.offsets)
        is_compacted = _is_compacted(pipeline, environment, wanted.topic, done.ids.get(wanted.topic))
        # Deleted records cannot be replayed, and their rows must not be removed.
        options = batch_options(environment.fill_all(pipeline.source_options()), ranges) | {
            "failOnDataLoss": "true"
        }
        source = loaded(pipeline, options, spark.read)
        judge = Judge(pipeline, files, f"{checkpoint}/kadence/replayed")
        # Files that another replay has left are of other ranges.
        judge.forget()
        for each in filter(None, (table, letter_table)):
            each.claim(query_id(files, checkpoint))
        seen = _places(source, pipeline) if is_compacted else None
        try:
            # A failed expectation ends it here, before the tables are changed.
            with judge.verdict(source, 0, "", "") as verdict:
                bad = letters(verdict.undecoded, verdict.dropped, pipeline, f"replay of {pipeline.name}")
                if letter_table is not None:
                    letter_table.check(bad)
                before = replace(verdict.rows, pipeline.sink, ranges, PROVENANCE, table, files, seen)
                if dead is not None and letter_table is not None:
                    names = ("topic", "partition", "offset")
                    replace(bad, dead, ranges, names, letter_table, files, seen)
        finally:
            # Otherwise records would stay there until the next replay.
            with contextlib.suppress(Py4JError, ConnectionError):
                judge.forget()
    after = verdict.counts["rows"] - verdict.counts["dropped"]
    return Replayed(ranges, before, after)


def _places(source: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Topic, partition and offset of each record that is there."""
    columns = [f"{RECORD}.{name}" for name in ("topic", "partition", "offset")]
    return decoded(source, pipeline).select(*columns).localCheckpoint()


def _is_compacted(pipeline: Pipeline, environment: Environment, topic: str, topic_id: str | None) -> bool:
    """Whether brokers may have removed records of the topic between others. True if they do not say.

    Raises:
        IllegalStateError: the topic is not the one that the pipeline has read.
    """
    from kadence import Admin
    from kadence.admin import ConfigResource
    from kadence.config import AdminConfig, keys

    client = parse(environment.fill_all(pipeline.source_options()), streaming=True).client
    known = {key.name for key in keys(AdminConfig)}
    with Admin({name: text for name, text in client.items() if name in known}) as admin:
        found = base64.urlsafe_b64encode(admin.describe_topics([topic])[topic].topic_id).decode().rstrip("=")
        if topic_id not in (None, found):
            raise IllegalStateError(
                f"the topic {topic} is another one than the pipeline has read: at these offsets are other records"
            )
        at = ConfigResource("topic", topic)
        try:
            policy = admin.describe_configs(at)[at]["cleanup.policy"].value
        except (KafkaError, KeyError):
            return True
    return policy != "delete"


def _ranges(pipeline: Pipeline, environment: Environment, wanted: Wanted, done: Offsets) -> list[Range]:
    known = sorted(each for each in done if each.topic == wanted.topic)
    if not known:
        topics = sorted({each.topic for each in done})
        raise ConfigError(f"the pipeline has read no topic {wanted.topic!r}; it has read {', '.join(topics)}")
    chosen = (
        known if wanted.partitions is None else [TopicPartition(wanted.topic, n) for n in wanted.partitions]
    )
    unknown = [str(each) for each in chosen if each not in done]
    if unknown:
        raise ConfigError(f"the pipeline has read nothing of {', '.join(unknown)}")
    starts = _offsets(pipeline, environment, wanted.begin, chosen, done)
    ends = {each: done[each] for each in chosen}
    if wanted.end is not None:
        ends = _offsets(pipeline, environment, wanted.end, chosen, done)
    beyond = [each for each in chosen if ends[each] > done[each]]
    if beyond:
        raise ConfigError(
            f"offset {ends[beyond[0]] - 1} of {beyond[0]} is not in the table yet, which ends at {done[beyond[0]]}; "
            "a run will read it"
        )
    found = [Range(each, starts[each], ends[each]) for each in chosen if starts[each] < ends[each]]
    if not found:
        raise ConfigError(
            "the range is empty: its begin is not before its end, or before the end of the table"
        )
    return found


def _offsets(
    pipeline: Pipeline,
    environment: Environment,
    bound: Bound,
    chosen: Sequence[TopicPartition],
    done: Offsets,
) -> dict[TopicPartition, int]:
    if not bound.is_time:
        return dict.fromkeys(chosen, bound.number)
    brokers = driver_client(parse(environment.fill_all(pipeline.source_options()), streaming=True))
    try:
        at = brokers.offsets_for_times(dict.fromkeys(chosen, bound.number))
    finally:
        brokers.close()
    # A record that is later than all in the table is not part of it.
    found = {each: at.get(each) for each in chosen}
    return {each: done[each] if offset is None else min(offset, done[each]) for each, offset in found.items()}
