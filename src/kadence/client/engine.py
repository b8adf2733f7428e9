"""The engine of a client, as its calls see it: what runs its turns, and what is raised once that has ended."""

from __future__ import annotations

from typing import Protocol

from kadence.errors import ClosedError, FatalNetworkError, KafkaError

__all__ = ["Engine", "ended"]


class Engine(Protocol):
    """What runs the turns of one network side: a `kadence.client.network_thread.NetworkThread`, or a simulation."""

    def start(self) -> None:
        """Let the first turn come."""
        ...

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end."""
        ...

    def is_alive(self) -> bool:
        """Whether turns still come."""
        ...

    def runs_here(self) -> bool:
        """Whether this is the thread of its turns, which cannot wait for their end."""
        ...


def ended(kind: str, cause: BaseException | None) -> KafkaError:
    """What a call raises once the network side has ended: because of ``close()``, or of a bug (B6).

    Args:
        kind: of the client: consumer, producer, admin client.
    """
    if cause is None:
        return ClosedError(f"this {kind} is closed")
    fatal = FatalNetworkError(
        f"the {kind}'s network thread ended with a bug: {cause!r}; only close() works now"
    )
    fatal.__cause__ = cause
    return fatal
