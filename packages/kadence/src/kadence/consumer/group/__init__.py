"""Membership in a group, its coordinator, heartbeats and commits. Network thread, sans-IO.

The files of the two protocols begin with `classic_` and `kip848_`. Neither protocol imports the other; `auto` imports
both.
"""
