"""A job for spark-submit, with a master in its own words: ``submitted.py MASTER SERVERS TOPIC``."""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession

from kadence_spark import session

master, servers, topic = sys.argv[1:]


def load(spark: SparkSession) -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    return spark.read.format("kadence").options(**options).load()


plain = load(SparkSession.builder.master(master).getOrCreate()).rdd.getNumPartitions()
spark = session()
told = load(spark)
print(json.dumps({"plain": plain, "session": told.rdd.getNumPartitions(), "rows": told.count()}))
spark.stop()
