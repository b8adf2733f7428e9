"""``kadence demo``: the main job on real data, checked as it goes. See `command` for the three acts.

`flights` reads the data set, `group` runs three `member` processes and the accidents, `ledger` keeps the accounts
(pure), `timeline` and
`picture` draw the group (pure), `table` runs the pipeline `flights.toml` on Spark.
"""
