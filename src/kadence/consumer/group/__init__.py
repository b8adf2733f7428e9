"""Membership in a group, its coordinator, heartbeats and commits. Network thread, sans-IO.

`classic` and `kip848` are the two protocols. They do not know each other; `auto` knows both.
"""
