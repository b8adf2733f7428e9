"""The hook by which Spark finds ``format("kadence-delta")``: it looks through all packages named ``pyspark_*``."""

from kadence_spark.lakehouse.datasource import DeltaSource as DefaultSource

__all__ = ["DefaultSource"]
