"""What a user's own code meets in a session: ``python beside_plain.py plain|session SETTINGS``, settings as JSON.

It prints JSON. ``plain`` is a session as PySpark's documentation begins with.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

kind, settings = sys.argv[1], json.loads(sys.argv[2])
# What other users may do must not hang on it.
os.umask(0)
if kind == "session":
    from kadence_spark import session

    spark = session("beside plain", master="local[2]", conf=settings)
else:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("beside plain").master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()


def surroundings(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """First in the session, so in a worker that has run nothing else."""
    import json
    import os
    import sys

    for _ in batches:
        pass
    found = {"environment": sorted(os.environ), "modules": sorted(sys.modules), "python": sys.executable}
    yield pa.RecordBatch.from_pydict({"found": [json.dumps(found)]})


def numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Waits until another worker is there, too, so that it is not one that draws all of them."""
    import os
    import random
    import time
    from pathlib import Path

    import numpy as np

    meeting = Path(os.environ["TMPDIR"])
    (meeting / f"worker-{os.getpid()}").touch()
    while len(list(meeting.glob("worker-*"))) < 2:
        time.sleep(0.01)
    for _ in batches:
        pass
    # The global generators, as somebody uses them who thinks no more of it.
    drawn = {"numpy": [np.random.random()], "random": [random.random()]}  # noqa: NPY002
    yield pa.RecordBatch.from_pydict(drawn)


def every_second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = [None if number % 2 else number + 100 for number in range(batch.num_rows)]
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["v"])


def halved(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        even = frame.id.where(frame.id % 2 == 0)
        yield even.astype("Int64").floordiv(2).to_frame("v")


def said(of: Callable[[], object]) -> object:
    """A value, or the error in Spark's own words."""
    try:
        return of()
    except Py4JJavaError as problem:
        return next(line.strip() for line in str(problem).splitlines() if "null" in line.lower())


def nulls(schema: str) -> object:
    return said(
        lambda: [
            row.v for row in spark.range(0, 4, numPartitions=1).mapInArrow(every_second, schema).collect()
        ]
    )


told: dict[str, Any] = {}
(row,) = spark.range(0, 1, numPartitions=1).mapInArrow(surroundings, "found string").collect()
told["worker"] = json.loads(row.found)
drawn = spark.range(0, 8, numPartitions=8).mapInArrow(numbers, "numpy double, random double").collect()
told["numpy"] = len({row.numpy for row in drawn})
told["random"] = len({row.random for row in drawn})
told["null where there is none"] = nulls("v bigint NOT NULL")
told["null where there may be one"] = nulls("v bigint")
told["pandas"] = [
    row.v for row in spark.range(0, 4, numPartitions=1).mapInPandas(halved, "v bigint").collect()
]

java: Any = spark.sparkContext._jvm
told["settings"] = dict(spark.sparkContext.getConf().getAll())
told["of the session"] = {row.key: row.value for row in spark.sql("SET").collect()}
told["properties"] = {str(name): str(value) for name, value in java.java.lang.System.getProperties().items()}
told["environment"] = {str(name): str(value) for name, value in java.java.lang.System.getenv().items()}
apart = told["settings"].get("spark.python.unix.domain.socket.dir")
places = [*Path(tempfile.gettempdir()).rglob("*"), *([Path(apart), *Path(apart).iterdir()] if apart else [])]
modes = {str(place): place.stat().st_mode for place in places if place.exists()}
told["sockets"] = [place for place, mode in modes.items() if stat.S_ISSOCK(mode)]
told["ours"] = {place: stat.S_IMODE(mode) for place, mode in modes.items() if "kadence" in Path(place).name}
print(json.dumps(told))
spark.stop()
