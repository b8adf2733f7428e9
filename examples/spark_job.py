"""A topic on Spark: a batch over all its records, and a stream that writes new ones to a table.

    python examples/spark_job.py [DIRECTORY]       (needs: pip install 'kadence[spark]')

It counts the flights of each carrier, and writes the topic ``flights`` to a table of Parquet files. Started again, the
stream continues where it ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from kadence_spark import session

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")
SCHEMA = "carrier string, origin string, dep_delay int"


def decoded(records: DataFrame) -> DataFrame:
    """Three columns of the JSON documents."""
    return records.select(from_json(col("value").cast("string"), SCHEMA).alias("flight")).select("flight.*")


def batch(spark: SparkSession) -> DataFrame:
    """Flights by carrier, of all records that the topic has now."""
    reader = (
        spark.read.format("kadence").option("kafka.bootstrap.servers", SERVERS).option("subscribe", "flights")
    )
    return decoded(reader.load()).groupBy("carrier").count().orderBy("carrier")


def stream(spark: SparkSession, directory: Path) -> None:
    """Write the records that no earlier run has written. Without the trigger the stream would wait for more."""
    reader = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
    )
    query = (
        decoded(reader.load())
        .writeStream.format("parquet")
        .option("path", str(directory / "flights"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(directory: str = "demo-output/spark-job") -> None:
    """Run both."""
    spark = session("flights")
    for row in batch(spark).collect():
        print(row["carrier"], row["count"])
    stream(spark, Path(directory))
    print(spark.read.parquet(f"{directory}/flights").count(), "rows landed")


if __name__ == "__main__":
    main(*sys.argv[1:])
