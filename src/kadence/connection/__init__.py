"""Talking to brokers, as values: a connection (bytes in, answers out), the cluster as last heard of, and backoff.

The rule of the room: no sockets, no threads, no clock. Everything that needs the time takes ``now``; everything
that needs bytes is handed them. `kadence.net` is the shell that moves bytes and tells the time.
"""
