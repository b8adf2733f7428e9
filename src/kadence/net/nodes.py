"""What the client knows about the brokers it may talk to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kadence.connection.versions import Ranges
    from kadence.net.backoff import Backoff
    from kadence.types import Node

__all__ = ["FIRST_BOOTSTRAP", "KnownNode"]

FIRST_BOOTSTRAP = -2
"""Bootstrap addresses have no id yet; they get -2, -3 … (-1 means any node)."""


class KnownNode:
    """A broker, or a bootstrap address, with its record of failures, shared by all its lanes.

    Attributes:
        ranges: API versions of its latest connection, None before the first.
        trouble: why the latest attempt to connect failed, None after a success.
    """

    __slots__ = ("backoff", "node", "ranges", "trouble")

    def __init__(self, node: Node, backoff: Backoff) -> None:
        self.node = node
        self.backoff = backoff
        self.ranges: Ranges | None = None
        self.trouble: str | None = None

    @property
    def is_bootstrap(self) -> bool:
        """Whether this is an address from the configuration whose broker id is not known."""
        return self.node.node_id <= FIRST_BOOTSTRAP

    @property
    def address(self) -> str:
        """host:port, for messages."""
        host = f"[{self.node.host}]" if ":" in self.node.host else self.node.host
        return f"{host}:{self.node.port}"

    def __str__(self) -> str:
        return (
            f"bootstrap {self.address}"
            if self.is_bootstrap
            else f"broker {self.node.node_id} ({self.address})"
        )
