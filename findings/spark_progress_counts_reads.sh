#!/usr/bin/env bash
# PySpark 4.3.0: the numbers of rows in a query's progress depend on what foreachBatch does with the batch.
#
# Guess: numInputRows is the number of rows that the sources gave, and observe() sees each row once: with 3 rows a batch both
#       say 3. What the function does with the rows changes neither.
# Seen: numInputRows counts rows as often as the function reads them, without a word: 6 where it counts the batch twice, 1
#       where it takes one row, 0 where it looks at none, though each time the query steps over 3 rows. An observed count
#       says 3, 1 and 0; so a check by observe() passes over rows that the function left out. With cache() both say 3.
# Who meets it: whoever writes a batch to two places, or asks isEmpty() first, and has alerts or a bill on these numbers; and
#       whoever compares them with another system's count. Cache the batch, or count in the function.
# Needs Java 17. Takes a minute, and downloads 450 MB. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   counts twice: numInputRows 6, observed 3
#   takes one row: numInputRows 1, observed 1
#   looks at none: numInputRows 0, observed 0
#   caches, counts twice: numInputRows 3, observed 3
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset SPARK_HOME SPARK_REMOTE SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS
# Spark's own temporary folders go with ours.
mkdir tmp
export TMPDIR="$work/tmp" SPARK_LOCAL_DIRS="$work/tmp"
export JAVA_TOOL_OPTIONS="${JAVA_TOOL_OPTIONS:-} -Djava.io.tmpdir=$work/tmp -XX:-UsePerfData"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==3.1.1 || exit 2

cat >progress.py <<'PY'
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, lit

settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g"}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
Path("in").mkdir()
Path("in/rows.json").write_text("\n".join(json.dumps({"v": value}) for value in range(3)))


def counts_twice(batch, number):
    batch.count()
    batch.count()


def takes_one_row(batch, number):
    batch.limit(1).collect()


def looks_at_none(batch, number):
    pass


def caches(batch, number):
    batch.cache()
    counts_twice(batch, number)
    batch.unpersist()


def progress(said, function):
    rows = spark.readStream.schema("v int").json("in").observe("seen", count(lit(1)).alias("rows"))
    writer = rows.writeStream.foreachBatch(function).trigger(availableNow=True)
    query = writer.option("checkpointLocation", function.__name__).start()
    query.awaitTermination()
    (told,) = query.recentProgress
    found = told.numInputRows, told.observedMetrics["seen"]["rows"]
    print("{}: numInputRows {}, observed {}".format(said, *found), flush=True)
    return found


seen = [
    progress("counts twice", counts_twice),
    progress("takes one row", takes_one_row),
    progress("looks at none", looks_at_none),
    progress("caches, counts twice", caches),
]
spark.stop()
sys.exit(0 if seen == [(6, 3), (1, 1), (0, 0), (3, 3)] else 3)
PY
status=0
venv/bin/python progress.py 2>spark.log || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) tail -20 spark.log; exit 2 ;;
esac
