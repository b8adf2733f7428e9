"""Connections to brokers without sockets: a connection turns bytes into answers; also cluster metadata and backoff.

Nothing here uses a socket, a thread or a clock. Code that needs the time takes ``now``, and code that needs bytes
takes them as an argument. `kadence.net` has the sockets and passes bytes and time in.
"""
