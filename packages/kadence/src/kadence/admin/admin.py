"""The public `Admin`. Its calls are made of the operations in the files of their subjects; see operations.py."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kadence.admin.operations import Operations
from kadence.admin.shell import AdminShell
from kadence.client.engine import end_if_unclosed, opened
from kadence.clock import Seconds, SystemClock
from kadence.config import AdminConfig, generated_client_id
from kadence.idioms import advised, unmade

if TYPE_CHECKING:
    from kadence.admin.settings import AdminSettings

__all__ = ["Admin"]


@advised
class Admin(Operations):
    """Topics, settings, records, groups, offsets, transactions and access rules of a cluster.

    Any number of threads may share one; their calls run side by side. Every call blocks for at most
    ``timeout`` seconds (``default.api.timeout.ms`` when None). It repeats a request after a retriable error, such
    as a controller or coordinator that moved, or a broker that is down. If a call is for several items and some of
    them fail, it raises the first error, with a note for each other failed item; with ``raise_errors=False`` it
    returns the `Outcomes`, which have the ``errors``, instead.

    Raises of every call:
        KafkaTimeoutError: the call did not finish in time; the message has the last error. Its cause is a
            ConnectError if no broker could be reached.
        BrokerError: a broker refused. AuthenticationError: a login or a certificate was refused.
            UnsupportedVersionError: the broker is too old.
        ClosedError, ForkedError: this client cannot be used (any more).

    Args:
        config: Kafka's dotted keys. settings: the same in snake_case.

    Raises:
        ConfigError: a key or value that cannot be used.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[AdminSettings]) -> None:
        self._config = AdminConfig.parse(config, **settings)
        if not self._config.client_id:
            object.__setattr__(self._config, "client_id", generated_client_id("admin"))
        self._shell = AdminShell(self._config, SystemClock())
        network = self._shell.network
        self._finalizer = end_if_unclosed(self, "Admin", network, network, 0)
        opened(self)

    def close(self, timeout: Seconds | None = None) -> None:
        """Close the connections. Calls that other threads are making end with `ClosedError`.

        A second `close` does nothing.

        Args:
            timeout: has no effect, because this call waits for no broker.
        """
        del timeout
        self._finalizer.detach()
        self._shell.close()

    def stop(self, *, grace: Seconds | None = None) -> None:
        """Announce that the program is to end: no call waits for brokers beyond the grace period.

        Apart from that every call works as before, so that your program can finish its present work. Any thread and a
        signal handler may call it; `kadence.stop_on_signals` calls it when a signal comes.

        Args:
            grace: within how many seconds from now everything is to be closed. A call that waits raises `ClosedError`
                two seconds before. None: calls take as long as their own timeouts allow.
        """
        self._shell.network.stop(SystemClock().now_ms(), grace)

    def _unfinished(self) -> str | None:
        """Calls that wait for brokers, as a sentence; None if there are none. Any thread."""
        return self._shell.network.unfinished()

    _end_means = "closes its connections, which ends its calls"

    def _end_unfinished(self) -> None:
        """Close, whatever calls are being made. Any thread; waits for nothing."""
        self._finalizer.detach()
        self._shell.network.begin_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if "_shell" not in vars(self):
            return unmade(type(self).__name__)
        state = "closed" if self._shell.network.is_closing else "open"
        return f"<{type(self).__name__} {self._config.client_id} {state} {','.join(self._config.bootstrap_servers)}>"
