"""The only room of the client with sockets: one `NetworkClient` per network thread.

It moves bytes for `kadence.connection`, which interprets them. Everything here runs on the thread that
owns the client; only `NetworkClient.wakeup` and an arena's ``retain`` and ``release`` may come from others.
"""

from kadence.net.client import NetworkClient
from kadence.net.config import ConnectionConfig

__all__ = ["ConnectionConfig", "NetworkClient"]
