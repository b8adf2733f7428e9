"""The hook by which Spark finds ``format("kadence-iceberg")``: it looks through all packages named ``pyspark_*``."""

from kadence_spark.lakehouse.datasource import IcebergSource as DefaultSource

__all__ = ["DefaultSource"]
