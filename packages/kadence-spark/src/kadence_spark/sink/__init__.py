"""The sink: rows of a batch or of a stream as records of topics.

`options` checks the options. `columns` chooses the columns of a record, once on the driver. `task` is the work of a
task. `clients` is the only module that uses Kadence's clients; `writers` and `stream_writer` are the classes that Spark
loads; `spark_task` has a task's information from Spark.

Without transactions the guarantee is at least once: a task's rows are written when brokers have acknowledged all of
them. A task that Spark repeats, or runs twice (speculation), writes its rows again, and so does a micro-batch repeated
after a crash.

With transactions tasks do not commit. A task leaves its transaction open, and returns its id to the driver; `ending`
commits those that Spark has accepted and aborts all others. For streams `decision` stores the decision on a batch in
Kafka before the first transaction is committed, and `digest` makes a checksum of each task's rows. So if the driver
dies in between, the next one completes the batch, or recognises that it is done.

If two drivers of one checkpoint run at once, one of them fails before it commits.
"""
