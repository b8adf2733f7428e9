"""From fetched bytes to what a poll returns. Application side; `fetch.manager` alone is the network thread's.

Each partition has one reader (`partition_reader`), and the collector gives them their turns. Small polls are steps of
an index (`steps`).
"""
