"""Previews a run: offsets, sizes, the columns of the sink, and a sample of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kadence.environment import Environment
from kadence_spark.pipeline.aggregating import groups
from kadence_spark.pipeline.directory import TIMES
from kadence_spark.pipeline.failures import told_simply
from kadence_spark.pipeline.files import HadoopFiles
from kadence_spark.pipeline.frames import (
    decoded,
    filled,
    judged_rows,
    letters,
    loaded,
    rows,
    undecodable,
    written,
)
from kadence_spark.pipeline.judging import ROWS
from kadence_spark.pipeline.model import Pipeline
from kadence_spark.pipeline.ranges import Range, batch_options, pending
from kadence_spark.pipeline.run import check_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Preview", "preview"]


@dataclass(frozen=True, slots=True)
class Preview:
    """The input and output of a run of a pipeline, if it began now.

    Attributes:
        origin: where the starts come from, in words.
        columns: names and types of the sink's columns.
        sample: rows of the sink as parsed JSON: numbers, texts, lists, objects; bytes of a column as UTF-8.
        letters: dead letter records of the same sample, with their reasons.
    """

    origin: str
    ranges: Sequence[Range]
    columns: Sequence[tuple[str, str]]
    sample: Sequence[dict[str, Any]] = ()
    letters: Sequence[dict[str, Any]] = field(default=())


def preview(pipeline: Pipeline, environment: Environment, spark: SparkSession, count: int = 5) -> Preview:
    """Preview a run.

    Args:
        count: about so many records are read for the sample; 0: none.

    Raises:
        ConfigError: Spark refuses the SQL.
        KafkaError: the brokers refuse, or do not answer.
    """
    with told_simply(environment):
        return _preview(filled(pipeline, environment), environment, spark, count)


def _preview(pipeline: Pipeline, environment: Environment, spark: SparkSession, count: int) -> Preview:
    options = environment.fill_all(pipeline.source_options())
    empty = loaded(pipeline, options, spark.read).limit(0)
    columns = [(each.name, each.dataType.simpleString()) for each in check_plan(empty, pipeline).schema]
    origin, ranges = pending(pipeline, environment, HadoopFiles(spark))
    chosen = _first(ranges, count)
    if not chosen:
        return Preview(origin, ranges, columns)
    source = loaded(pipeline, batch_options(options, chosen), spark.read)
    # For so few records, data loss may end the command.
    records = decoded(source, pipeline).localCheckpoint()
    made = judged_rows(records, pipeline).localCheckpoint()
    if pipeline.aggregate is None:
        found = rows(made, pipeline.sink)
    else:
        found = written(groups(rows(made, ROWS), pipeline), pipeline.sink)
    sample = _documents(found.limit(count))
    reasons = None
    if pipeline.dead_letters is not None and pipeline.dead_letters.topic is None:
        reasons = letters(undecodable(records), made, pipeline, "plan")
    dead = [] if reasons is None else reasons.selectExpr("topic", "partition", "offset", "reason").take(count)
    return Preview(origin, ranges, columns, sample, [row.asDict() for row in dead])


def _documents(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows as parsed JSON, by Spark's own conversion."""
    from pyspark.sql import functions as f

    columns = [
        f.col(f"`{name}`").cast("string").alias(name) if kind == "binary" else f.col(f"`{name}`")
        for name, kind in frame.dtypes
    ]
    made = frame.select(f.to_json(f.struct(*columns), TIMES | {"ignoreNullFields": "false"}).alias("row"))
    return [json.loads(each.row) for each in made.collect()]


def _first(ranges: Sequence[Range], count: int) -> list[Range]:
    """The first parts of the ranges, with about so many records together."""
    chosen: list[Range] = []
    left = count
    waiting = [each for each in ranges if each.end > each.start]
    for place, each in enumerate(waiting):
        share = min(-(-left // (len(waiting) - place)), each.end - each.start)
        if share > 0:
            chosen.append(Range(each.partition, each.start, each.start + share))
            left -= share
    return chosen
