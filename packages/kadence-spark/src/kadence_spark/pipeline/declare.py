"""Use a pipeline's file in Spark's own declarative pipelines, ``spark-pipelines``.

A file of definitions has two lines::

    from kadence_spark.pipeline.declare import declare
    declare("flights.toml")

There Spark decides where tables are stored, when they are updated and on which session. So trigger, checkpoint and
Spark settings of the file have no effect, and of the sink only ``partition_by`` and ``provenance`` have one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kadence.environment import Environment
from kadence.errors import ConfigError
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.frames import (
    RECORD,
    decodable,
    decoded,
    filled,
    judged,
    letters,
    loaded,
    rows,
    undecodable,
    value_type,
)
from kadence_spark.pipeline.model import FIRST_VIEW, Pipeline, Transform
from kadence_spark.pipeline.reading import read
from kadence_spark.pipeline.statement import with_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["declare"]


def declare(file: str | os.PathLike[str]) -> None:
    """Declare a table with the rows of a pipeline's file, under the pipeline's name.

    A file with ``[dead_letters]`` gets more tables: ``<name>_dead_letters``; if expectations drop rows,
    ``<name>_judged``, with all rows and the results of the conditions, of which the other two are made, so that each
    condition is evaluated once; and with a schema registry ``<name>_decoded``, so that each record is decoded once.
    Transforms become temporary views under their names. Expectations drop rows, or fail, as in
    ``kadence pipeline run``, but they count no rows.

    Raises:
        PipelineFileError: the file has mistakes.
        ConfigError: the file cannot be read, or has an aggregate; or a statement loses the column ``_record``.
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
    # The functions below must not analyse plans, so the type is determined here.
    kind = value_type(pipeline, options, _session().read)

    steps = _keeping_records(pipeline)
    _check_records_kept(decoded(loaded(pipeline, options, _session().read, kind), pipeline), pipeline, steps)

    def all_records() -> DataFrame:
        return decoded(loaded(pipeline, options, _session().readStream, kind), pipeline)

    dead = pipeline.dead_letters
    if dead is not None and "schema.registry.url" in options:
        # Rows and dead letter records are two flows, between which a schema may be registered.
        all_records = _declare_table(f"{pipeline.name}_decoded", all_records)

    @dp.temporary_view(name=FIRST_VIEW)
    def records() -> DataFrame:
        return decodable(all_records(), pipeline)

    for step in steps:
        _declare_step(step)

    def result() -> DataFrame:
        return judged(_session().readStream.table(pipeline.last_view), pipeline.expect)

    made = result
    if dead is not None and any(each.action == "drop" for each in pipeline.expect):
        # Two flows would judge each row twice, and a condition may differ between them.
        made = _declare_table(f"{pipeline.name}_judged", result)

    @dp.table(name=pipeline.name, partition_cols=list(pipeline.sink.partition_by) or None)
    def table() -> DataFrame:
        return rows(made(), replace(pipeline.sink, topic=None))

    if dead is not None:
        # A table here, even if the file writes them to a topic.
        kept = replace(pipeline, dead_letters=replace(dead, topic=None))

        @dp.table(name=f"{pipeline.name}_dead_letters")
        def dead_letters() -> DataFrame:
            return letters(undecodable(all_records()), made(), kept, "spark-pipelines")


def _declare_table(name: str, rows: Callable[[], DataFrame]) -> Callable[[], DataFrame]:
    """Declare a table of rows; what reads it."""
    from pyspark import pipelines as dp

    dp.table(name=name)(rows)
    return lambda: _session().readStream.table(name)


def _keeping_records(pipeline: Pipeline) -> list[Transform]:
    """The steps with `RECORD` in each statement, as far as its text shows where."""
    views = [FIRST_VIEW]
    steps = []
    for step in pipeline.transform:
        steps.append(replace(step, sql=with_column(step.sql, RECORD, views)))
        views.append(step.name)
    return steps


def _check_records_kept(records: DataFrame, pipeline: Pipeline, steps: Sequence[Transform]) -> None:
    """Check that no statement loses `RECORD`.

    A statement that names tables which the project has yet to make cannot be analysed now; Spark checks it later.

    Args:
        records: the input of the first statement, as a batch. steps: as they are declared.
    """
    views = {FIRST_VIEW: records}
    for written, step in zip(pipeline.transform, steps, strict=True):
        made = _analysed(step.sql, views)
        if made is None and _analysed(written.sql, views) is None:
            return
        if made is None or RECORD not in made.columns:
            raise ConfigError(
                f"transform {step.name} loses the column {RECORD}, by which each row knows its record: name it in "
                f"the statement, as {FIRST_VIEW} has it; rows of several records belong into a table of your own",
                key=f"transform {step.name}",
            )
        views[step.name] = made


def _analysed(sql: str, views: Mapping[str, DataFrame]) -> DataFrame | None:
    """The result of a statement over views, which the session may not have; None: Spark refuses it."""
    from pyspark.errors import AnalysisException

    named = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in views)  # noqa: S608 - names of the file
    text = sql.strip().rstrip(";").replace("{", "{{").replace("}", "}}")
    try:
        made = _session().sql(f"WITH {named} SELECT * FROM ({text}\n)", None, **views)  # noqa: S608 - the file's own
        made.schema  # noqa: B018 - asking for the schema analyses it
    except AnalysisException:
        return None
    return made


def _declare_step(step: Transform) -> None:
    from pyspark import pipelines as dp

    @dp.temporary_view(name=step.name)
    def view() -> DataFrame:
        return _session().sql(step.sql)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.active()
