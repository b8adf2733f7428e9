"""The hook by which Spark finds ``format("kadence")``: it looks through all packages named ``pyspark_*``."""

from kadence_spark.datasource import KadenceDataSource as DefaultSource

__all__ = ["DefaultSource"]
