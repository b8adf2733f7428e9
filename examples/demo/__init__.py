"""``python -m examples.demo``: the main use case on real data, with checks. `command` describes the three parts.

`flights` reads the data set. `group` runs three `member` processes and causes the failures. `ledger` counts
processed records (pure). `timeline` and `picture` draw the group (pure). `table` runs the pipeline
`examples/flights.toml` on Spark. `records` prints the records.
"""
