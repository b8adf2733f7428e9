"""The data source: topics as batches and streams.

`options` and `start`: what the user says. `driver` with `cluster` (what it knows of the brokers, and its patience with
them), `judge` (a point of the stream compared with the logs), `offsets`, `limits`, `loss`, `commits`: the driver's side
of a stream. `batch`: of a batch query. `planning`: offset ranges to tasks. `executor` with `same_topics`: reading.
`clients` is the only file that knows Kadence's clients; `reads` (a batch's reader, and what travels to the executors)
and `stream_reader` are the only ones that know Spark's classes.
"""
