"""Runs a pipeline: one streaming query whose batches are written by `outputs`, until it ends or is asked to stop.

A request to stop (Ctrl-C, SIGTERM, `Run.stop`) only sets an event. The present batch gets a grace period to end in;
otherwise it is abandoned, and Spark repeats it at the next start, which the outputs handle.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.environment import Environment
from kadence.errors import ConfigError, IllegalStateError
from kadence_spark.jvm import close_session, session_apart
from kadence_spark.pipeline.aggregating import Aggregation, check_groups
from kadence_spark.pipeline.checkpoint import committed, planned, query_id
from kadence_spark.pipeline.columns import check_columns
from kadence_spark.pipeline.failures import PipelineError, reason, reason_of, thrown, told_simply
from kadence_spark.pipeline.files import Files, HadoopFiles
from kadence_spark.pipeline.frames import (
    decoded,
    expectation_counts,
    filled,
    judged_rows,
    letters,
    loaded,
    rows,
    undecodable,
)
from kadence_spark.pipeline.judging import ROWS, Judge, named, observed, record_counts
from kadence_spark.pipeline.lock import Lock
from kadence_spark.pipeline.model import Pipeline
from kadence_spark.pipeline.outputs import topic_options, writer
from kadence_spark.pipeline.places import check_clusters
from kadence_spark.pipeline.progress import Batch, Progress, progress_file
from kadence_spark.progress import lag
from kadence_spark.sink.options import parse as parse_sink
from kadence_spark.source.options import parse as parse_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["PipelineError", "Run", "check_plan", "close_session", "open_session"]

_LOOK_S: Final = 0.2
"""How often the waiting thread checks the query."""

_FILE_S: Final = 1.0
"""How often the progress is written while only the lag changes."""

Tell = Callable[[Progress], None]


def open_session(
    pipeline: Pipeline, environment: Environment, *, quiet: bool = True, hold: bool = True
) -> SparkSession:
    """The session with the file's settings; spark-submit's settings take precedence.

    Args:
        quiet: without progress bars and log, unless the file sets them: the run itself reports failures.
        hold: whether handlers of SIGINT and SIGTERM wait until Spark has started; False within `Signals`.
    """
    if "SPARK_REMOTE" in os.environ:
        raise ConfigError("a pipeline runs on a Spark session of its own; unset the variable SPARK_REMOTE")
    settings = {f"spark.{key}": value for key, value in environment.fill_all(pipeline.spark).items()}
    # With a log level the user wants to see the log, so bars must not hide it.
    if quiet and "spark.log.level" not in settings:
        settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL"} | settings
    for key in _submitted():
        settings.pop(key, None)
    name = settings.pop("spark.app.name", pipeline.name)
    with told_simply(environment, "Spark did not start: "):
        return session_apart(name, master=settings.pop("spark.master", None), conf=settings, hold=hold)


def _submitted() -> list[str]:
    """The keys of spark-submit's settings, if it started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return []
    from pyspark import SparkConf, SparkContext

    # spark-submit passes them to its JVM.
    SparkContext._ensure_initialized()
    return [key for key, _ in SparkConf().getAll()]


class Run:
    """One run of a pipeline on a session.

    Args:
        tell: called with the progress whenever it changes, on the thread that calls `run`.
        grace: seconds in which a batch must end after `stop`.
        adopt_topic_ids: the source's option adoptTopicIds for this run.

    Attributes:
        run_id: in dead letter records and in the progress.
        has_begun: whether its query was started, so that a batch may be running.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        environment: Environment,
        spark: SparkSession,
        *,
        tell: Tell = lambda progress: None,
        grace: float = 30.0,
        adopt_topic_ids: str | None = None,
    ) -> None:
        self.run_id = uuid.uuid4().hex[:12]
        self._pipeline = filled(pipeline, environment)
        self._environment = environment
        self._spark = spark
        self._tell = tell
        self.grace = grace
        self.has_begun = False
        self._checkpoint = environment.fill(pipeline.checkpoint).rstrip("/")
        self._options = environment.fill_all(pipeline.source_options())
        self._adopt_topic_ids = adopt_topic_ids
        self._files: Files = HadoopFiles(spark)
        self._sink = writer(pipeline.sink, pipeline, environment, self._files)
        dead = pipeline.dead_letters
        self._dead = None if dead is None else writer(dead, pipeline, environment, self._files)
        self._judge = Judge(self._pipeline, self._files, f"{self._checkpoint}/kadence/judged")
        self._aggregation = (
            None
            if pipeline.aggregate is None
            else Aggregation(self._pipeline, self._files, self._checkpoint, self._judge, self._sink)
        )
        self._asked = threading.Event()
        self._at_work = threading.Event()
        self._latest: int | None = None
        self._problem: BaseException | None = None
        self._guard = threading.Lock()
        self._reported = ""
        now = _now_ms()
        self.progress = Progress(
            name=pipeline.name,
            run_id=self.run_id,
            state="starting",
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=now,
            updated_ms=now,
            sink=f"{pipeline.sink.written_as} {environment.hide(environment.fill(pipeline.sink.place))}".strip(),
            expectations={each.name: 0 for each in pipeline.expect},
        )

    def stop(self) -> None:
        """Ask the run to end. May be called from any thread, and from a signal's handler."""
        self._asked.set()

    def run(self) -> Progress:
        """Run until the end; returns the last progress, with the final state.

        Raises:
            PipelineError: a batch failed.
            ConfigError, IllegalStateError: it could not begin.
        """
        with Lock(self._checkpoint, self._pipeline.name), told_simply(self._environment):
            columns = self._check_plan()
            self._check_clusters()
            self._check_places()
            if self._asked.is_set():
                self._end("stopped")
                return self.progress
            self._publish()
            self.has_begun = True
            if self._aggregation is not None:
                done = committed(self._files, self._checkpoint)
                if done is not None:
                    self._judge.forget_ended(done.batch)
                self._aggregation.start(self._spark, columns)
            try:
                query = self._start()
            except BaseException:
                self._stop_aggregation()
                raise
            try:
                # Without records to read there is neither a batch nor a report of Spark's.
                with self._guard:
                    self.progress = self.progress.begun(_now_ms())
                self._tell(self.progress)
                self._wait(query)
                failure = None if self._asked.is_set() else self._failure_of(query)
            finally:
                query.stop()
                self._stop_aggregation()
            if failure is not None:
                text = self._environment.hide(failure)
                self._end("failed", text)
                raise PipelineError(text)
            if not self._asked.is_set():
                # All batches are committed: none will be repeated.
                self._judge.forget()
            self._end("stopped" if self._asked.is_set() else "finished")
        return self.progress

    # ------------------------------------------------------------ the query

    def _check_plan(self) -> StructType:
        """Analyse the plan once without rows, so that a misspelt column ends the run before it begins.

        Returns the columns of the rows after the transforms.
        """
        empty = loaded(self._pipeline, self._options, self._spark.read).limit(0)
        check_plan(empty, self._pipeline)
        return rows(judged_rows(decoded(empty, self._pipeline), self._pipeline), ROWS).schema

    def _check_clusters(self) -> None:
        """Check that no output is a topic that the pipeline reads, under another address of the cluster."""
        source = parse_source(self._options, streaming=True)
        for output in (self._pipeline.sink, self._pipeline.dead_letters):
            if output is not None and output.topic is not None:
                options = parse_sink(topic_options(output, self._options, self._environment))
                check_clusters(source, options.client, options.topic or "")

    def _check_places(self) -> None:
        """Check that the outputs belong to this checkpoint. The first dead letter record may be far away."""
        query = query_id(self._files, self._checkpoint)
        if self._dead is not None:
            self._dead.begin(query)
        if self._aggregation is not None:
            query = query_id(self._files, f"{self._checkpoint}/kadence/aggregate")
        self._sink.begin(query)

    def _stop_aggregation(self) -> None:
        if self._aggregation is not None:
            self._aggregation.stop()

    def _start(self) -> StreamingQuery:
        once = {} if self._adopt_topic_ids is None else {"adoptTopicIds": self._adopt_topic_ids}
        frame = loaded(self._pipeline, self._options | once, self._spark.readStream)
        starter = frame.writeStream.queryName(self._pipeline.name).option(
            "checkpointLocation", self._checkpoint
        )
        every = self._pipeline.trigger_ms
        starter = (
            starter.trigger(availableNow=True)
            if every is None
            else starter.trigger(processingTime=f"{every} milliseconds")
        )
        return starter.foreachBatch(self._batch).start()

    def _wait(self, query: StreamingQuery) -> None:
        written = 0.0
        while query.isActive and not self._asked.wait(_LOOK_S):
            self._report(query)
            if time.monotonic() - written >= _FILE_S:
                written = time.monotonic()
                self._publish()
        if self._asked.is_set():
            self._let_the_batch_end(query)
        self._report(query)

    def _let_the_batch_end(self, query: StreamingQuery) -> None:
        """Wait until the present batch is in Spark's commit log, too, or the grace period is over."""
        deadline = time.monotonic() + self.grace
        while query.isActive and time.monotonic() < deadline:
            done = query.lastProgress
            if not self._at_work.is_set() and (
                self._latest is None or (done is not None and done.batchId >= self._latest)
            ):
                return
            time.sleep(_LOOK_S / 4)

    def _report(self, query: StreamingQuery) -> None:
        report = query.lastProgress
        if report is None or report.json == self._reported:
            return
        self._reported = report.json
        behind = lag(report)
        with self._guard:
            self.progress = self.progress.after_report(behind, _ends(report.json), _now_ms())
        self._tell(self.progress)

    def _failure_of(self, query: StreamingQuery) -> str | None:
        """The error that ended the query; None: it ended as planned."""
        if self._problem is not None:
            return reason(self._problem)
        java: Any = query._jsq.exception()
        return reason_of(thrown(java.get())) if java.isDefined() else None

    def _end(self, state: str, error: str | None = None) -> None:
        with self._guard:
            self.progress = self.progress.ended(state, _now_ms(), error)
        self._publish()
        self._tell(self.progress)

    def _publish(self) -> None:
        with self._guard:
            text = self.progress.to_json()
        self._files.write(progress_file(self._checkpoint), text)

    # ------------------------------------------------------------ a batch, on the thread of Spark's call back

    def _batch(self, frame: DataFrame, number: int) -> None:
        if self._asked.is_set():
            # The previous batch is committed. This one is left to the next start: wait until the query is stopped.
            self._latest = None
            raise IllegalStateError("the pipeline was asked to stop")
        self._latest = number
        self._at_work.set()
        try:
            done = self._write(frame, number)
        except BaseException as problem:
            # Spark reports it as text in an exception of its own.
            self._problem = problem
            raise
        finally:
            self._at_work.clear()
        with self._guard:
            self.progress = self.progress.after_batch(done, _now_ms())

    def _write(self, source: DataFrame, number: int) -> Batch:
        began = time.monotonic()
        query = query_id(self._files, self._checkpoint)
        assert query is not None  # Spark writes it before the first batch
        if self._dead is None and self._aggregation is None:
            counts = self._write_rows(source, number, query)
            written = counts["rows"] - counts["dropped"]
        else:
            counts, written = self._write_verdict(source, number, query)
        return Batch(
            number=number,
            rows_in=counts["records"],
            rows_out=written,
            undecoded=counts["undecoded"],
            dropped=counts["dropped"],
            expectations={each.name: counts[f"expect.{each.name}"] for each in self._pipeline.expect},
            seconds=time.monotonic() - began,
        )

    def _write_rows(self, source: DataFrame, number: int, query: str) -> Mapping[str, int]:
        """Write only a sink: Spark judges each row while it writes it."""
        from pyspark.sql import Observation

        seen, told = Observation(), Observation()
        before, after = record_counts(), expectation_counts(self._pipeline.expect)
        records = decoded(source, self._pipeline).observe(seen, *named(before))
        made = judged_rows(records, self._pipeline)
        self._sink.write(rows(made.observe(told, *named(after)), self._pipeline.sink), number, query)
        return observed(seen) | observed(told)

    def _write_verdict(self, source: DataFrame, number: int, query: str) -> tuple[Mapping[str, int], int]:
        """Write both outputs, or groups; returns the counters, and the number of the sink's rows."""
        plan = planned(self._files, self._checkpoint, number)
        with self._judge.verdict(source, number, query, plan) as verdict:
            counts = verdict.counts
            if self._aggregation is None:
                self._sink.write(verdict.rows, number, query)
                written = counts["rows"] - counts["dropped"]
            else:
                written = self._aggregation.take()
            if self._dead is not None and (counts["undecoded"] or counts["dropped"]):
                bad = letters(verdict.undecoded, verdict.dropped, self._pipeline, self.run_id)
                self._dead.write(bad, number, query)
        return counts, written


def check_plan(empty: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Analyse the whole plan on a frame of the source; returns the rows of the sink.

    Raises:
        ConfigError: Spark refuses a statement or a condition.
    """
    from pyspark.errors import AnalysisException, ParseException

    zone = str(empty.sparkSession.conf.get("spark.sql.session.timeZone"))
    try:
        records = decoded(empty, pipeline)
        made = judged_rows(records, pipeline)
        if pipeline.dead_letters is not None:
            dead = letters(undecodable(records), made, pipeline, "").schema
            check_columns(dead, pipeline.dead_letters, "dead_letters", zone)
        if pipeline.aggregate is not None:
            result = check_groups(empty.sparkSession, rows(made, ROWS).schema, pipeline)
        else:
            result = rows(made, pipeline.sink)
        check_columns(result.schema, pipeline.sink, "sink", zone)
    except (AnalysisException, ParseException) as problem:
        raise ConfigError(reason(problem)) from None
    return result


def _ends(report: str) -> dict[Any, int]:
    from kadence_spark.source.offsets import Point

    ends: dict[Any, int] = {}
    for source in json.loads(report)["sources"]:
        shape = source.get("latestOffset")
        if shape:
            ends |= Point.from_json(json.loads(shape) if isinstance(shape, str) else shape).next
    return ends


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
