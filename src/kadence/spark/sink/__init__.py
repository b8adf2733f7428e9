"""The sink: rows of a batch or of a stream as records of topics.

`options`: what the user says. `columns`: which columns make a record, checked once on the driver. `task`: what a task
does. `clients` is the only file that knows Kadence's clients; `writers` and `stream_writer` are the classes that Spark
loads, `spark_task` is what a task learns from Spark.

Without transactions at least once: a task's rows are written when brokers have acknowledged all of them. A task that
Spark repeats, or runs twice (speculation), writes its rows again, and so does a micro-batch repeated after a crash.

With transactions no task commits anything. It leaves its transaction open, and tells the driver which one it is;
`ending` commits those that Spark has accepted and aborts all others. For streams `decision` keeps in Kafka what is
decided of a batch, before the first transaction is committed, and `digest` sums up each task's rows, so that a driver
that died in between is followed by one that completes the batch, or recognises that it is done.

If two drivers of one checkpoint are at work at once, one of them fails before it commits. docs/spark.md names, under
Transactions, the moment in which Kafka cannot tell them apart.
"""
