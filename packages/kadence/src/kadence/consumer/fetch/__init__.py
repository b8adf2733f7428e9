"""From fetched bytes to what a poll returns. Application side; `fetch.manager` alone is the network thread's.

Each partition has one reader (`_partition_reader`), and the collector gives them their turns (`_fetch_collector`).
Small polls are steps of an index (`_steps`).
"""
