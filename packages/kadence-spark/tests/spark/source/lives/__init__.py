"""Random lives of a streaming query without Spark and brokers: ``python -m tests.spark.source.lives --count 1000``.

`world` is a cluster whose topics come, go and are recreated. `engine` is what Spark's micro-batch engine does with a
source: offset log, commit log, restarts. `life` makes a story of a seed, lets the driver and the tasks of Kadence's
source live it, and compares the rows with what a query has to read by the rules of docs/spark.md.
"""
