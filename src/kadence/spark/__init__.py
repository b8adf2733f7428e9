"""Kafka topics on Spark, without a connector jar: ``spark.read.format("kadence")`` and ``spark.readStream``.

    from kadence.spark import session
    spark = session()
    spark.read.format("kadence").option("kafka.bootstrap.servers", "localhost:9092") \
        .option("subscribe", "flights").load()

No registration is needed: Spark finds the source through the package ``pyspark_kadence``. For a reader of this
room: `options` and `start` (what the user says), `driver` with `offsets`, `limits`, `loss`, `commits` (the driver
side of a stream), `batch`, `planning` (ranges to tasks), `executor` with `pool` (reading), `clients` (the only file
that knows Kadence's clients), `datasource`, `stream_reader`, `reads` (the only ones that know Spark's classes).

Importing it needs no PySpark; using it does.
"""

from kadence.spark.progress import lag
from kadence.spark.session import session

__all__ = ["lag", "session"]
