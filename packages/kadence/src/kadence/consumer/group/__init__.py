"""Membership in a group, its coordinator, heartbeats and commits. Network thread, sans-IO.

The files of the two protocols begin with `classic_` and `kip848_`. These do not know each other; `auto` knows both.
"""
