"""The third act: the same topic through Spark Structured Streaming into a partitioned Parquet table, and a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kadence.cli.demo.flights import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Landed", "land", "plot"]

_SETTINGS: Final = {
    "spark.driver.memory": "1g",
    # Half a minute of work: the second compiler would cost more (46 s of CPU, 26 without) than it could save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class Landed:
    """What is in the table. Sums of whole minutes, so that comparing them is exact."""

    rows: int
    delays: int
    delay_minutes: int
    by_carrier: list[dict[str, Any]]


def land(servers: str, topic: str, group: str, directory: Path) -> Landed:
    """Stream everything there is into ``directory/flights``, then ask the table.

    Raises:
        MissingDependencyError: PySpark or Java is missing.
    """
    from kadence.spark import session

    warehouse = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    spark = session("kadence-demo", master="local[2]", conf={**_SETTINGS, **warehouse})
    try:
        _stream(spark, servers, topic, group, directory)
        return _ask(spark, directory)
    finally:
        spark.stop()


def _stream(spark: SparkSession, servers: str, topic: str, group: str, directory: Path) -> None:
    from pyspark.sql import functions as f

    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    flights = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", group)
        .load()
        .select(f.from_json(f.col("value").cast("string"), schema).alias("flight"))
        .select("flight.*")
    )
    query = (
        flights.writeStream.format("parquet")
        .partitionBy("carrier")
        .option("path", str(directory / "flights"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _ask(spark: SparkSession, directory: Path) -> Landed:
    from pyspark.sql import functions as f

    table = spark.read.parquet(str(directory / "flights"))
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
        rows=sum(row["flights"] for row in rows),
        delays=sum(row["departed"] for row in rows),
        delay_minutes=sum(row["minutes"] for row in rows),
        by_carrier=rows,
    )


def plot(by_carrier: Sequence[dict[str, Any]], path: Path) -> None:
    """Mean departure delay by carrier as a PNG.

    Raises:
        MissingDependencyError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        from kadence.errors import MissingDependencyError

        raise MissingDependencyError("the plot needs matplotlib: pip install 'kadence[demo]'") from error
    rows = sorted(by_carrier, key=lambda row: row["mean_delay"])
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bars = axes.barh(
        [row["carrier"] for row in rows], [row["mean_delay"] for row in rows], color="#30638e", height=0.7
    )
    axes.bar_label(
        bars, labels=[f"{row['mean_delay']:.1f}  ({row['flights']:,})" for row in rows], padding=4, fontsize=8
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.margins(x=0.15)
    axes.set_xlabel("mean departure delay, minutes (number of departures)")
    axes.set_title("Departures from New York in 2013, by carrier", loc="left")
    figure.savefig(path, dpi=150)
