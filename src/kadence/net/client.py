"""The network client: interface first, so that the other rooms can be written against it."""

from __future__ import annotations

from collections.abc import Iterable

from kadence.clock import Clock
from kadence.connection.request import Completed, Lane, Request
from kadence.net.config import ConnectionConfig
from kadence.types import Node

__all__ = ["NetworkClient"]


class NetworkClient:
    """All connections of one network thread."""

    def __init__(self, config: ConnectionConfig, clock: Clock) -> None:
        raise NotImplementedError

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        raise NotImplementedError

    def nodes(self) -> tuple[Node, ...]:
        raise NotImplementedError

    def send(self, request: Request) -> None:
        raise NotImplementedError

    def poll(self, wait_ms: int | None) -> list[Completed]:
        raise NotImplementedError

    def wakeup(self) -> None:
        raise NotImplementedError

    def in_flight(self, node_id: int | None = None, lane: Lane | None = None) -> int:
        raise NotImplementedError

    def can_send(self, node_id: int, lane: Lane, now: int) -> bool:
        raise NotImplementedError

    def api_range(self, node_id: int, api_key: int) -> tuple[int, int] | None:
        raise NotImplementedError

    def next_deadline(self, now: int) -> int:
        raise NotImplementedError

    def trouble(self) -> str | None:
        """Why no broker can be reached, one clause per address; None while one can."""
        raise NotImplementedError

    def close(self, timeout_ms: int = 0) -> None:
        raise NotImplementedError
