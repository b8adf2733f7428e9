"""Use a pipeline's file in Spark's own declarative pipelines, ``spark-pipelines``.

A file of definitions has two lines::

    from kadence.spark.pipeline.declare import declare
    declare("flights.toml")

There Spark decides where tables are stored, when they are updated and on which session. So the file's sink,
trigger, checkpoint and Spark settings have no effect.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kadence.errors import ConfigError
from kadence.spark.pipeline.checks import checked
from kadence.spark.pipeline.environment import Environment
from kadence.spark.pipeline.frames import (
    decodable,
    decoded,
    filled,
    judged,
    letters,
    loaded,
    rows,
    undecodable,
    value_type,
    with_record,
)
from kadence.spark.pipeline.model import FIRST_VIEW, Transform
from kadence.spark.pipeline.reading import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["declare"]


def declare(file: str | os.PathLike[str]) -> None:
    """Declare the table of a pipeline's file under the pipeline's name.

    A file with dead letters gets a second table, ``<name>_dead_letters``, and where expectations drop rows a third one,
    ``<name>_judged``: it holds all rows with what was found of them, and the other two are made of it, so that each row
    is judged once. Records that cannot be decoded are found by a query of their own, which reads the topics again.
    Steps become temporary views under their names. Expectations drop records and fail as in `kadence pipeline`, but
    violations are not counted.

    Raises:
        PipelineFileError: the file has mistakes.
        ConfigError: the file cannot be read, or has an aggregate.
    """
    from pyspark import pipelines as dp

    environment = Environment(os.environ)
    pipeline = filled(checked(read(file), environment), environment)
    if pipeline.aggregate is not None:
        raise ConfigError(
            "declare() takes no file with an aggregate; declare the rows without it, and make a table of your own "
            "of them"
        )
    options = environment.fill_all(pipeline.source_options())
    # Nothing may be analysed within the functions below: what a type needs is asked here.
    kind = value_type(pipeline, options, _session().read)

    def all_records() -> DataFrame:
        return decoded(loaded(pipeline, options, _session().readStream, kind), pipeline)

    @dp.temporary_view(name=FIRST_VIEW)
    def records() -> DataFrame:
        return decodable(all_records(), pipeline)

    for step in pipeline.transform:
        _declare_step(step)

    def result() -> DataFrame:
        return judged(_session().readStream.table(pipeline.last_view), pipeline.expect)

    dead = pipeline.dead_letters
    if dead is not None and any(each.action == "drop" for each in pipeline.expect):
        # Two flows would judge each row twice, and a condition may tell them different things.
        name = f"{pipeline.name}_judged"
        dp.table(name=name)(result)

        def made() -> DataFrame:
            return _session().readStream.table(name)
    else:
        made = result

    @dp.table(name=pipeline.name, partition_cols=list(pipeline.sink.partition_by) or None)
    def table() -> DataFrame:
        return rows(made(), replace(pipeline.sink, topic=None))

    if dead is not None:
        # A table here, also where the file sends them to a topic.
        kept = replace(pipeline, dead_letters=replace(dead, topic=None))

        @dp.table(name=f"{pipeline.name}_dead_letters")
        def dead_letters() -> DataFrame:
            return letters(undecodable(all_records()), made(), kept, "spark-pipelines")


def _declare_step(step: Transform) -> None:
    from pyspark import pipelines as dp

    @dp.temporary_view(name=step.name)
    def view() -> DataFrame:
        return _session().sql(with_record(step.sql))


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.active()
