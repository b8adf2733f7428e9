"""When a client that gets no metadata begins again at ``bootstrap.servers`` (KIP-899, KIP-1102). Sans-IO.

No broker has answered its metadata requests for ``metadata.recovery.rebootstrap.trigger.ms``, or one says that it is
not to be asked any more.
"""

from __future__ import annotations

from kadence.clock import FOREVER, add_ms
from kadence.config import ClientConfig

__all__ = ["Recovery"]


class Recovery:
    """Told how metadata requests end; tells when it is time.

    Attributes:
        is_on: whether this ever happens: ``metadata.recovery.strategy``.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.is_on = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        self._failing_since: int | None = None

    def succeeded(self) -> None:
        """A broker has answered, or the client has begun again."""
        self._failing_since = None

    def failed(self, since: int) -> None:
        """No answer came to what was sent at ``since``; a broker that swallows requests was silent all that time."""
        if self._failing_since is None:
            self._failing_since = since

    @property
    def due(self) -> int:
        """When to begin again, unless a broker answers before (ms)."""
        if self._failing_since is None or not self.is_on:
            return FOREVER
        return add_ms(self._failing_since, self._trigger_ms)

    def why(self, now: int) -> str:
        """What the log says when it is due."""
        return f"no broker has answered for {now - (self._failing_since or now)} ms"
