"""The data source: topics as batches and streams.

`options` and `start` parse the options. `driver` with `cluster` (its view of the brokers, and its waits for them),
`judge` (compares a point of the stream with the logs), `offsets`, `limits`, `loss`, `commits` is the driver's side of a
stream, `batch` that of a batch query. `planning` packs offset ranges into tasks. `executor` with `same_topics` reads.
`clients` is the only module that uses Kadence's clients; `reads` (a batch's reader, and the values for executors) and
`stream_reader` are the only ones that use Spark's classes.
"""
