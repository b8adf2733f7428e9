"""Decoding in the source: bytes of keys and values become typed Arrow columns before Spark sees them.

The options are read in `options`, the query's schema in `layout`; both are values that travel with the tasks. In a
worker `batches` turns each Arrow batch of records into the query's batch with one format for a side (`texts`,
`json_values`, `avro`, `protobuf`). Every format decodes a batch at once and looks at single records only where that
fails (`isolation`), so one bad record neither loses nor changes its neighbours.

Knows Arrow, not Spark: only `layout` is given Spark's types. Knows nothing of brokers either.
"""
