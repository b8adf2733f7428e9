#!/usr/bin/env bash
# PySpark 4.3.0 and PyArrow 26.0.1: a day before 1582-10-15 in an ORC file is another day for the other one, and ten days
# become one.
#
# Guess: Spark counts days by the proleptic Gregorian calendar, as PyArrow does, and Parquet files of one have the same days
#       for the other. So have ORC files, and what Spark reads back is what it wrote.
# Seen: Spark's ORC files have days of the Julian calendar there, and nothing in the file's schema says so: of 1500-01-01
#       PyArrow makes 1500-01-10. PyArrow's 1500-01-01 is 1499-12-23 for Spark. The days from 1582-10-05 to 1582-10-14,
#       which the old calendars leave out, are all 1582-10-15 when Spark reads them back. Nobody warns. For Parquet both
#       agree.
# Who meets it: whoever hands ORC files with old days, or with 0001-01-01 for "not known", to a reader other than Spark; and
#       whoever has a day of these ten as a mark.
# Needs Java 17. Takes a minute, and downloads 450 MB. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   Spark writes 1500-01-01, 1582-10-05, 1582-10-14, 1582-10-15
#   ORC, read by Spark: 1500-01-01, 1582-10-15, 1582-10-15, 1582-10-15
#   ORC, read by PyArrow: 1500-01-10, 1582-10-15, 1582-10-15, 1582-10-15
#   Parquet, read by PyArrow: 1500-01-01, 1582-10-05, 1582-10-14, 1582-10-15
#   PyArrow writes 1500-01-01
#   ORC, read by Spark: 1499-12-23
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
venv/bin/pip install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 || exit 2

cat >days.py <<'PY'
import datetime
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from pyspark.sql import SparkSession

DAYS = ["1500-01-01", "1582-10-05", "1582-10-14", "1582-10-15"]
settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
seen = []


def shows(what, days):
    days = [str(day) for day in days]
    print(what, ", ".join(days), flush=True)
    seen.append(days)


def by_spark(folder):
    return [row.d for row in spark.read.orc(folder).collect()]


def written(folder, kind):
    (file,) = Path(folder).glob(f"*.{kind}")
    return file


shows("Spark writes", DAYS)
rows = spark.sql("select d from values " + ", ".join(f"(date'{day}')" for day in DAYS) + " as rows(d)").coalesce(1)
rows.write.orc("orc")
rows.write.parquet("parquet")
shows("ORC, read by Spark:", by_spark("orc"))
shows("ORC, read by PyArrow:", pa.orc.read_table(written("orc", "orc"))["d"].to_pylist())
shows("Parquet, read by PyArrow:", pa.parquet.read_table(written("parquet", "parquet"))["d"].to_pylist())
Path("other").mkdir()
shows("PyArrow writes", DAYS[:1])
pa.orc.write_table(pa.table({"d": [datetime.date(1500, 1, 1)]}), "other/a.orc")
shows("ORC, read by Spark:", by_spark("other"))
spark.stop()
late = "1582-10-15"
expected = [DAYS, [DAYS[0], late, late, late], ["1500-01-10", late, late, late], DAYS, DAYS[:1], ["1499-12-23"]]
sys.exit(0 if seen == expected else 3)
PY
status=0
venv/bin/python days.py 2>spark.log || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) tail -20 spark.log; exit 2 ;;
esac
