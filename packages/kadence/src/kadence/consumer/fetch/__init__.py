"""From fetched bytes to the records of a poll. Application side; only `fetch.manager` runs on the network thread.

Each partition has one reader (`_partition_reader`), and the collector gives them their turns (`_fetch_collector`).
Small polls are steps of an index (`_steps`).
"""
