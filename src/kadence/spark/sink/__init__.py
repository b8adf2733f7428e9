"""The sink: rows of a batch or of a stream as records of topics.

`options`: what the user says. `columns`: which columns make a record, checked once on the driver. `task`: what a task
does, and when its rows count as written. `clients` is the only file that knows Kadence's producer; `writers` is the
only one that knows Spark's classes.

At least once: a task's rows are written when brokers have acknowledged all of them. A task that Spark repeats, or runs
twice (speculation), writes its rows again, and so does a micro-batch that is repeated after a crash.
"""
