"""The state of a member of a group and the calls that any thread may make, whatever it reads.

Nothing here waits, and nothing sends a request. Application side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from kadence.clock import Seconds
from kadence.consumer.application.client_core import ClientCore
from kadence.consumer.application.processing import Stall
from kadence.consumer.client_state import NetworkLateness
from kadence.idioms import unmade
from kadence.metrics import MetricName

if TYPE_CHECKING:
    from kadence.consumer.application.health import Health

__all__ = ["MemberState"]


class _Calls(Protocol):
    """What these calls are carried out by."""

    @property
    def stopping(self) -> bool: ...
    def network_lateness(self) -> NetworkLateness: ...
    def stalls(self) -> Sequence[Stall]: ...
    def health(self) -> Health: ...
    def metrics(self) -> Mapping[MetricName, float]: ...
    def stop(self, grace: Seconds | None) -> None: ...
    def busy(self) -> str | None: ...
    def leave_unfinished(self) -> None: ...
    def describe(self, kind: str) -> str: ...


class MemberState:
    """The part of every client of a group that is one class for threads and asyncio."""

    _calls: _Calls
    _core: ClientCore

    # ------------------------------------------------------------ what was measured

    def network_lateness(self) -> NetworkLateness:
        """How late the network thread ran, and how many heartbeats a native thread sent in its place."""
        return self._calls.network_lateness()

    def stalls(self) -> Sequence[Stall]:
        """The last 100 times your code did not poll for long (stall.report.ratio): where, and with which records."""
        return self._calls.stalls()

    def health(self) -> Health:
        """Whether this consumer is alive and ready, and if not, why: for the probes of a supervisor.

        Any thread may call it; it sends no request and waits for nothing.
        """
        return self._calls.health()

    def metrics(self) -> Mapping[MetricName, float]:
        """All metrics, under the names of Kafka's own client (docs/metrics.md).

        Any thread may call it; sends no request.

        Rates and averages are of the last 60 to 90 s. An average of no values is NaN; a metric that says how long
        ago something happened is -1 if it never did.
        """
        return self._calls.metrics()

    # ------------------------------------------------------------ ending a wait

    def wakeup(self) -> None:
        """From any thread: make the call that waits now, or the next one that would, raise `WakeupError`.

        `subscribe`, `unsubscribe`, `assign`, `seek` and `close` never raise it.
        """
        self._core.wakeup()

    def stop(self, *, grace: Seconds | None = None) -> None:
        """Stop reading: iterations end after the current record, and polls return nothing, at once.

        No exception is raised. A poll that waits returns at once. Records that were fetched and not returned are
        left for the partitions' next owner. Commits, seeks and `close` work as before. It cannot be undone. Any
        thread and a signal handler may call it; `kadence.stop_on_signals` calls it when a signal comes.

        Args:
            grace: within how many seconds from now `close` must end, unless it gets a timeout of its own. Pass the time
                that the program's supervisor (Kubernetes, systemd) allows. A call that waits for brokers raises
                `ClosedError` two seconds before; one that begins later has two seconds. None: `close` may take 30 s,
                and other calls as long as their own timeouts allow.
        """
        return self._calls.stop(grace)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: for loops such as ``while not consumer.stopping``."""
        return self._calls.stopping

    def _unfinished(self) -> str | None:
        """The work that keeps the application from closing this consumer, and its stack; None when there is none."""
        return self._calls.busy()

    _end_means = "leaves the group"

    def _end_unfinished(self) -> None:
        """Leave the group, whatever the application is doing. Any thread; waits for nothing."""
        self._calls.leave_unfinished()

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} has connections and a thread, and cannot be pickled or copied: create one where it is used"
        )

    def __repr__(self) -> str:
        kind = type(self).__name__
        return self._calls.describe(kind) if "_calls" in vars(self) else unmade(kind)
