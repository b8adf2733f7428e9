"""Spark's query plans from the records of a batch to the rows of the sink and the dead letter records.

Each row has the struct `RECORD`, its source record, of which dead letter records and provenance are made. Transforms
keep it: a SELECT without it gets it added. So a transform makes each row from one row. An aggregate is refused, because
its rows have no single record: it has a query of its own (`aggregating`).

Records that cannot be decoded bypass the transforms, where a WHERE would drop them silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from kadence.environment import Environment
from kadence.errors import ConfigError
from kadence_spark.pipeline.directory import TIMES
from kadence_spark.pipeline.failures import reason
from kadence_spark.pipeline.keeping import with_column_kept
from kadence_spark.pipeline.model import FIRST_VIEW, Expectation, Output, Pipeline, Transform
from kadence_spark.source.schema import all_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "PROVENANCE",
    "REASON",
    "RECORD",
    "decodable",
    "decoded",
    "expectation_counts",
    "filled",
    "judged",
    "judged_rows",
    "letters",
    "loaded",
    "rows",
    "shaped",
    "transform",
    "undecodable",
    "value_type",
    "written",
]

RECORD: Final = "_record"
REASON: Final = "_reason"
PROVENANCE: Final = ("_topic", "_partition", "_offset")

_ERROR: Final = "_error"
_FAILED: Final = "_failed"
_PREFIX: Final = "_kafka_"
_RECORD_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_OF_TOPICS: Final = ("key", "value", "headers", "partition")
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def filled(pipeline: Pipeline, environment: Environment) -> Pipeline:
    """The pipeline with the environment's values in its SQL: statements, conditions, keys, columns."""
    fill = environment.fill

    def output(each: Output) -> Output:
        key = None if each.key is None else fill(each.key)
        return replace(each, key=key, partition_by=tuple(map(fill, each.partition_by)))

    decode, group, dead = pipeline.decode, pipeline.aggregate, pipeline.dead_letters
    if decode is not None and decode.schema is not None:
        decode = replace(decode, schema=fill(decode.schema))
    mark = None if group is None or group.watermark is None else fill(group.watermark)
    return replace(
        pipeline,
        decode=decode,
        transform=tuple(replace(each, sql=fill(each.sql)) for each in pipeline.transform),
        expect=tuple(replace(each, condition=fill(each.condition)) for each in pipeline.expect),
        sink=output(pipeline.sink),
        aggregate=None if group is None else replace(group, sql=fill(group.sql), watermark=mark),
        dead_letters=None if dead is None else output(dead),
    )


def loaded(pipeline: Pipeline, options: Mapping[str, str], reader: Any, kind: str | None = None) -> DataFrame:
    """The topics' records: the decoded value, and Kafka's columns under names of their own.

    Args:
        options: of the source, filled in. reader: ``spark.read`` or ``spark.readStream``.
        kind: Spark's type of the decoded value; found by `value_type` if None.
    """
    reading = reader.format("kadence").options(**options)
    if pipeline.decode is None:
        return cast("DataFrame", reading.load())
    columns = [f"value {kind or value_type(pipeline, options, reader)}", f"{_ERROR} string"]
    columns += [f"`{_PREFIX}{name}` {column}" for name, column in _kafka_columns(pipeline).items()]
    frame = reading.option("metadataPrefix", _PREFIX).schema(", ".join(columns)).load()
    return cast("DataFrame", frame)


def value_type(pipeline: Pipeline, options: Mapping[str, str], reader: Any) -> str:
    """Spark's type of the decoded value. For Avro and Protobuf the source finds it, in a registry or a file."""
    step = pipeline.decode
    if step is None:
        return "binary"
    if step.format == "string":
        return "string"
    if step.is_json:
        return f"struct<{step.schema}>"
    return str(reader.format("kadence").options(**options).load().schema["value"].dataType.simpleString())


def _kafka_columns(pipeline: Pipeline) -> dict[str, str]:
    """Kafka's columns that are read, with their types."""
    known = all_columns()
    if pipeline.source_options().get("includeHeaders", "false").strip().lower() != "true":
        del known["headers"]
    if pipeline.decode is not None and pipeline.dead_letters is None:
        # Then the bytes are not needed beside the decoded value.
        del known["value"]
    return known


def decoded(source: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The columns of `loaded` as the value's columns and `RECORD`, whose field ``error`` has the decoding error."""
    from pyspark.sql import functions as f

    step = pipeline.decode
    prefix = "" if step is None else _PREFIX
    read, known = _kafka_columns(pipeline), all_columns()
    kept = [
        f.col(prefix + name).alias(name) if name in read else f.lit(None).cast(known[name]).alias(name)
        for name in _RECORD_FIELDS
    ]
    error = f.lit(None).cast("string") if step is None else f.col(_ERROR)
    record = f.struct(*kept, error.alias("error")).alias(RECORD)
    if step is None:
        return source.select("key", "value", record)
    if step.format == "string":
        return source.select(f.col(prefix + "key").cast("string").alias("key"), "value", record)
    return source.select("value.*", record)


def transformed(frame: DataFrame, steps: Sequence[Transform]) -> DataFrame:
    """The rows after the SQL steps.

    Raises:
        ConfigError: Spark refuses a statement, or it loses `RECORD`.
    """
    frame.createOrReplaceTempView(FIRST_VIEW)
    for step in steps:
        frame = transform(frame.sparkSession, step)
        frame.createOrReplaceTempView(step.name)
    return frame


def transform(session: SparkSession, step: Transform) -> DataFrame:
    """One step, which reads views of the session."""
    from pyspark.errors import AnalysisException

    try:
        result = session.sql(step.sql)
        kept = result if RECORD in result.columns else with_column_kept(result, RECORD)
    except AnalysisException as problem:
        raise ConfigError(f"transform {step.name}: {reason(problem)}", key=f"transform {step.name}") from None
    if kept is None:
        raise ConfigError(
            f"transform {step.name} loses the column {RECORD}, by which each row knows its record; an aggregate, also "
            "DISTINCT, belongs into [aggregate]",
            key=f"transform {step.name}",
        )
    return kept


def expectation_counts(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """The counters over the rows of `judged`, by name."""
    from pyspark.sql import functions as f

    counts = {"rows": f.count(f.lit(1)), "dropped": f.count(REASON)}
    return counts | {
        f"expect.{each.name}": f.count_if(f.array_contains(_FAILED, each.name)) for each in expectations
    }


def judged_rows(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The plan from the rows of `decoded` to `judged`, through the transforms; lazily evaluated.

    Raises:
        ConfigError: Spark refuses a statement, or the rows have a column that Kadence would overwrite.
    """
    made = transformed(decodable(records, pipeline), pipeline.transform)
    own = [_FAILED, REASON]
    if pipeline.sink.topic is None and pipeline.sink.provenance and pipeline.aggregate is None:
        own += PROVENANCE
    for name in made.columns:
        if name.lower() in own:
            step = f"transform {pipeline.last_view}" if pipeline.transform else None
            raise ConfigError(
                f"the rows have a column {name}, which is a name of Kadence's: rename it", key=step
            )
    return judged(made, pipeline.expect)


def decodable(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The rows of `decoded` without errors, for the transforms; if the file says so, an error ends the query."""
    from pyspark.sql import functions as f

    if pipeline.decode_action == "fail":
        error = _or_raise(f.col(f"{RECORD}.error"))
        frame = frame.withColumn(RECORD, f.col(RECORD).withField("error", error))
    return frame.where(f.col(f"{RECORD}.error").isNull())


def undecodable(frame: DataFrame) -> DataFrame:
    """The rows of `decoded` with errors."""
    from pyspark.sql import functions as f

    return frame.where(f.col(f"{RECORD}.error").isNotNull())


def judged(rows: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The rows with the column `REASON`: why a row is dropped; null if it is not.

    Each condition is evaluated once, into a column with the names of the failed ones.
    """
    return rows.withColumn(_FAILED, _failed(expectations)).withColumn(REASON, _reason(expectations))


def _is_true(each: Expectation) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.expr(each.condition).cast("boolean"), f.lit(False))


def _failed(expectations: Sequence[Expectation]) -> Column:
    from pyspark.sql import functions as f

    names: list[Column] = []
    for each in expectations:
        name = f.lit(each.name)
        if each.action == "fail":
            text = f.concat(f.lit(f"expectation {each.name} ({each.condition}) is not true of "), _place())
            name = f.raise_error(text).cast("string")
        names.append(f.when(~_is_true(each), name))
    return f.array_compact(f.array(*names).cast("array<string>"))


def _reason(expectations: Sequence[Expectation]) -> Column:
    from pyspark.sql import functions as f

    names = [f.lit(each.name) for each in expectations if each.action == "drop"]
    # Spark prunes unused columns, so the failed ones are selected even if none of them drops a row.
    dropping = f.array_intersect(f.col(_FAILED), f.array(*names).cast("array<string>"))
    return f.when(f.size(dropping) > 0, f.concat(f.lit("expectation "), f.array_join(dropping, ", ")))


def _or_raise(error: Column) -> Column:
    from pyspark.sql import functions as f

    text = f.concat(f.lit("cannot decode "), _place(), f.lit(": "), error)
    return f.when(error.isNotNull(), f.raise_error(text)).cast("string")


def _place() -> Column:
    from pyspark.sql import functions as f

    parts = (f.col(f"{RECORD}.{name}").cast("string") for name in ("topic", "partition", "offset"))
    topic, partition, offset = parts
    return f.concat(topic, f.lit("-"), partition, f.lit(" at offset "), offset)


def rows(judged: DataFrame, output: Output) -> DataFrame:
    """The rows for the sink: a table's columns and its provenance, or a topic's key and value."""
    from pyspark.sql import functions as f

    return shaped(judged.where(f.col(REASON).isNull()), output)


def shaped(judged: DataFrame, output: Output, *also: str) -> DataFrame:
    """All rows in the form of the sink, with additional columns of `judged`: `REASON`, `RECORD`."""
    from pyspark.sql import functions as f

    own = (RECORD, _FAILED, REASON)
    kept = [f.col(name) for name in also]
    if output.topic is not None:
        names = [name for name in judged.columns if name not in own]
        return judged.select(*_message(judged, names, output), *kept)
    if output.provenance:
        judged = judged.withColumns(
            {name: f.col(f"{RECORD}.{name.removeprefix('_')}") for name in PROVENANCE}
        )
    # Not drop(): Spark Connect analyses it at once, when spark-pipelines has not defined the views yet.
    return judged.select(f.expr(f"* EXCEPT ({', '.join(own)})"), *kept)


def written(frame: DataFrame, output: Output) -> DataFrame:
    """Rows without a record of their own, in the form of the sink."""
    return frame if output.topic is None else frame.select(*_message(frame, frame.columns, output))


def _named(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def _message(frame: DataFrame, own: Sequence[str], output: Output) -> list[Column]:
    """Key, value and headers of the records to write: a column value unchanged, else the row as JSON.

    Raises:
        ConfigError: columns beside value would be lost.
    """
    from pyspark.sql import functions as f

    lost = [name for name in own if name not in _OF_TOPICS and name not in (output.key or "")]
    if "value" in own and lost:
        raise ConfigError(
            f"sink: the column value is the record's value, and {', '.join(lost)} would be lost: leave it out, or "
            "rename value to have the row as JSON",
            key="sink",
        )
    columns = []
    if output.key is not None:
        columns.append(f.expr(output.key).cast("string").alias("key"))
    elif "key" in own:
        columns.append(f.col("key"))
    if "value" in own:
        columns.append(f.col("value"))
    else:
        columns.append(
            f.to_json(f.struct(*(_named(name) for name in own if name != "headers")), TIMES).alias("value")
        )
    columns += [f.col(name) for name in ("headers", "partition") if name in own]
    return columns


def letters(undecoded: DataFrame, dropped: DataFrame, pipeline: Pipeline, run_id: str) -> DataFrame:
    """The dead letter records of a batch: each record unchanged, with the reason, the pipeline and its run.

    Args:
        undecoded: `RECORD` of records that could not be decoded. dropped: `RECORD` and `REASON` of rows.
    """
    from pyspark.sql import functions as f

    undecoded = undecoded.select(
        RECORD, f.concat(f.lit("decode: "), f.col(f"{RECORD}.error")).alias("reason")
    )
    dropped = dropped.where(f.col(REASON).isNotNull()).select(RECORD, f.col(REASON).alias("reason"))
    both = undecoded.unionByName(dropped)
    record = [f.col(f"{RECORD}.{name}").alias(name) for name in _RECORD_FIELDS]
    if pipeline.dead_letters is not None and pipeline.dead_letters.topic is not None:
        return both.select(
            f.col(f"{RECORD}.key").alias("key"),
            f.col(f"{RECORD}.value").alias("value"),
            _context(pipeline, run_id),
        )
    return both.select(
        *record, "reason", f.lit(pipeline.name).alias("pipeline"), f.lit(run_id).alias("run_id")
    )


def _context(pipeline: Pipeline, run_id: str) -> Column:
    """The headers of a dead letter record in a topic: as many of the record's as fit, then those about the error."""
    from pyspark.sql import functions as f

    from kadence.records import MOST_HEADERS
    from kadence.work.letters import OF_PIPELINES

    texts: list[Any] = [f.col(f"{RECORD}.{name}").cast("string") for name in _RECORD_FIELDS[:3]]
    # A time without a zone is none: dead-letters replay takes milliseconds.
    texts += [f.unix_millis(f.col(f"{RECORD}.timestamp")).cast("string")]
    texts += [f.col("reason"), f.lit(pipeline.name), f.lit(run_id)]
    ours = [
        f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value"))
        for name, text in zip(OF_PIPELINES, texts, strict=True)
    ]
    own = f.col(f"{RECORD}.headers").cast(_HEADERS)
    kept = f.slice(f.coalesce(own, f.array().cast(_HEADERS)), 1, MOST_HEADERS - len(ours))
    return f.concat(kept, f.array(*ours)).alias("headers")
