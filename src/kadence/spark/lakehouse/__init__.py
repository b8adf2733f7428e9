"""Delta and Iceberg tables as sinks of Spark, by their Python libraries: for a PySpark that has no jar of theirs.

Tasks write Parquet files that no reader sees. The driver adds all of them to the table in one commit, which also holds
the number of the batch, so a batch that Spark repeats is known and added once. The modules: `options` what can be set,
`columns` how rows fit a table, `task` what a task does, `commit` what the driver does, `delta` and `iceberg` the two
libraries behind the port of `commit`, `writers` and `datasource` the classes that Spark loads.
"""
