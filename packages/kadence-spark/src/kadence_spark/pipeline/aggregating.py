"""Groups of rows over all batches: a second, stateful query of Spark's, behind the one that judges the records.

The first query judges the records of a batch and keeps the verdict in files (`judging`). This one reads the rows there
that no expectation drops, and writes the groups to the sink. The batch of the first one ends when this one has written
all of it. So rows are judged before they are counted, the first query alone writes dead letter records, and after a
crash this query finds the same files again. Its state is in the checkpoint, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kadence.errors import ConfigError, IllegalStateError
from kadence_spark.pipeline.checkpoint import query_id
from kadence_spark.pipeline.failures import reason
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.frames import written
from kadence_spark.pipeline.judging import Judge, named, observed
from kadence_spark.pipeline.model import FIRST_VIEW, Aggregate, Pipeline
from kadence_spark.pipeline.outputs import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["Aggregation", "check_groups", "groups"]

_LOOK_MS: Final = 1_000
"""The longest trigger interval of the query; that of the pipeline if it is shorter."""

_LOOK_FAST_MS: Final = 200
"""The same for available-now pipelines."""


class Aggregation:
    """The second query."""

    def __init__(self, pipeline: Pipeline, files: Files, checkpoint: str, judge: Judge, sink: Writer) -> None:
        self._pipeline = pipeline
        self._files = files
        self._checkpoint = f"{checkpoint}/kadence/aggregate"
        self._judge = judge
        self._sink = sink
        self._query: StreamingQuery | None = None
        self._rows = 0
        self._problem: BaseException | None = None

    def start(self, session: SparkSession, schema: StructType) -> None:
        """Begin, or continue at the checkpoint.

        Args:
            schema: of the rows after the transforms.

        Raises:
            ConfigError: Spark refuses the statement in this mode.
            IllegalStateError: rows that wait for it have other columns.
        """
        made = groups(self._judge.stream(session, schema), self._pipeline)
        every = min(self._pipeline.trigger_ms or _LOOK_FAST_MS, _LOOK_MS)
        self._query = (
            written(made, self._pipeline.sink)
            .writeStream.queryName(f"{self._pipeline.name}-aggregate")
            .option("checkpointLocation", self._checkpoint)
            .outputMode(_step(self._pipeline).mode)
            .trigger(processingTime=f"{every} milliseconds")
            .foreachBatch(self._batch)
            .start()
        )

    def take(self) -> int:
        """Wait until all judged rows are in the state and in the sink; returns how many rows the sink got."""
        from pyspark.errors import StreamingQueryException

        if self._query is None:
            raise IllegalStateError("the aggregate was not started")
        before = self._rows
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as problem:
            # Spark reports a batch's own exception as text.
            raise self._problem or problem from None
        return self._rows - before

    def stop(self) -> None:
        """End it; rows that are not written yet are written after its next start."""
        if self._query is not None:
            self._query.stop()

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            self._write(frame, number)
        except BaseException as problem:
            self._problem = problem
            raise

    def _write(self, frame: DataFrame, number: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        query = query_id(self._files, self._checkpoint)
        assert query is not None  # Spark writes it before the first batch
        told = Observation()
        self._sink.write(frame.observe(told, *named({"rows": f.count(f.lit(1))})), number, query)
        self._rows += observed(told)["rows"]


def _step(pipeline: Pipeline) -> Aggregate:
    if pipeline.aggregate is None:
        raise ConfigError("the pipeline has no aggregate")
    return pipeline.aggregate


def groups(rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The result of the statement over the rows after the expectations.

    Raises:
        ConfigError: Spark refuses the statement, or the column of the watermark.
    """
    from pyspark.errors import AnalysisException, ParseException

    step, session = _step(pipeline), rows.sparkSession
    try:
        if step.watermark is not None:
            rows = rows.withWatermark(step.watermark, f"{step.delay_ms or 0} milliseconds")
        # Earlier views have rows that are not judged, so a statement must not find them.
        for name in (FIRST_VIEW, *(each.name for each in pipeline.transform)):
            session.catalog.dropTempView(name)
        rows.createOrReplaceTempView(pipeline.last_view)
        return session.sql(step.sql)
    except (AnalysisException, ParseException) as problem:
        raise ConfigError(f"aggregate: {reason(problem)}", key="aggregate") from None


def check_groups(session: SparkSession, schema: StructType, pipeline: Pipeline) -> DataFrame:
    """The groups over a stream without rows, for their columns only.

    Raises:
        ConfigError: Spark refuses the statement, or cannot run it in this mode: then a watermark may be missing.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    columns = [f.lit(None).cast(each.dataType).alias(each.name) for each in schema]
    made = groups(session.readStream.format("rate").load().select(*columns), pipeline)
    step = _step(pipeline)
    jvm: Any = session._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, step.mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(made._jdf.queryExecution().analyzed(), mode)
        result = written(made, pipeline.sink)
        result.schema  # noqa: B018 - asking for the schema analyses it
    except AnalysisException as problem:
        raise ConfigError(f"aggregate, in mode {step.mode}: {reason(problem)}", key="aggregate") from None
    return result
