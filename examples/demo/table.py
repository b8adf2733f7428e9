"""The third part: the pipeline `PIPELINE` writes the topic to a partitioned Parquet table, and a query checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kadence_spark.pipeline.progress import Progress

__all__ = ["PIPELINE", "Landed", "land"]

PIPELINE: Final = Path(__file__).parent.with_name("flights.toml")
"""What Spark does, in a file."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The pipeline's progress, and the sums of the table, in whole minutes, so that comparisons are exact.

    Attributes:
        group: the group to which the pipeline commits its offsets.
    """

    group: str
    told: Progress
    rows: int
    delays: int
    delay_minutes: int
    by_carrier: list[dict[str, Any]]


def land(servers: str, directory: Path, tell: Callable[[Progress], None]) -> Landed:
    """Run the pipeline until it has read all, into ``directory/flights``, then ask the table.

    Args:
        tell: called with its progress.

    Raises:
        MissingDependencyError: PySpark or Java is missing.
        PipelineError: the pipeline failed.
    """
    from kadence.environment import Environment
    from kadence_spark.pipeline.checks import checked
    from kadence_spark.pipeline.reading import read
    from kadence_spark.pipeline.run import Run, close_session, open_session

    variables = {"KADENCE_BOOTSTRAP_SERVERS": servers, "FLIGHTS_OUTPUT": str(directory)}
    environment = Environment(variables)
    pipeline = checked(read(PIPELINE, variables), environment)
    spark = open_session(pipeline, environment)
    try:
        told = Run(pipeline, environment, spark, tell=tell).run()
        return _ask(spark, directory / "flights", pipeline.source.options["kafka.group.id"], told)
    finally:
        close_session(spark)


def _ask(spark: SparkSession, place: Path, group: str, told: Progress) -> Landed:
    from pyspark.sql import functions as f

    table = spark.read.parquet(str(place))
    by_carrier = (
        table.groupBy("carrier")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("minutes"),
            f.avg("dep_delay").alias("mean_delay"),
            f.percentile_approx("dep_delay", 0.9).alias("worst_tenth_from"),
        )
        .orderBy(f.desc("mean_delay"))
        .collect()
    )
    rows = [row.asDict() for row in by_carrier]
    return Landed(
        group=group,
        told=told,
        rows=sum(row["flights"] for row in rows),
        delays=sum(row["departed"] for row in rows),
        delay_minutes=sum(row["minutes"] for row in rows),
        by_carrier=rows,
    )
