"""Kafka topics on Spark, without a connector jar: ``spark.read.format("kadence")`` and ``spark.readStream``.

    from kadence_spark import session
    spark = session()
    source = spark.read.format("kadence").option("kafka.bootstrap.servers", "localhost:9092")
    source.option("subscribe", "flights").load()

No registration is needed: Spark finds the source through the package ``pyspark_kadence``. The modules:
`datasource` has the class that Spark loads; `source` reads topics as batches and streams, and `sink` writes them;
`session` makes a Spark session, with `interpreter` for its workers; `progress` computes a query's lag.

PySpark is needed to use this package, but not to import it. The import sets ``PYSPARK_PYTHON`` to this interpreter if
it is not set.
"""

from kadence_spark.interpreter import choose as _choose
from kadence_spark.progress import lag
from kadence_spark.session import session

_choose()

__all__ = ["lag", "session"]
