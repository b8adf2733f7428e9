"""Delta and Iceberg tables as sinks of Spark, by their Python libraries: for a PySpark without their jars.

Tasks write Parquet files, which readers do not see yet. The driver adds all of them to the table in one commit, which
also stores the number of the batch, so that a batch that Spark repeats is added once. The modules: `options` checks the
options, `columns` matches rows with a table, `task` and `commit` are the work of a task and of the driver, `delta` and
`iceberg` implement the interface of `commit` with the two libraries, `writers` and `datasource` are the classes that
Spark loads.
"""
