"""How a thread carries the producer's calls. The asyncio twin is async_shell.py.

A call that may wait is a generator (`waits.Waits`). It yields with the producer's lock held; its shell waits for the
next change, at most until the deadline that was yielded, and resumes it with the lock held again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar, cast

from kadence.client.engine import Engine
from kadence.client.gate import Gate
from kadence.client.waits import BREATH, Waits
from kadence.clock import Clock, add_ms, wait_seconds
from kadence.producer.futures import RecordFuture, RecordMetadata, check_may_wait
from kadence.producer.network_state import END_MS, NetworkState

__all__ = ["Shell"]

T = TypeVar("T")


class Shell:
    """Waits on the calling thread for what the producer's calls need.

    Args:
        gate: the producer's lock, made by `new_gate`.
    """

    def __init__(self, gate: Gate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock

    AWAITS: ClassVar[bool] = False
    """Whether calls are awaited."""

    @staticmethod
    def new_gate() -> Gate:
        """The lock of one producer."""
        return Gate()

    @staticmethod
    def stopped() -> None:
        """What `stop` returns."""

    def run(self, call: Waits[T]) -> T:
        """Carry a call on this thread until it returns.

        Raises:
            IllegalStateError: it has to wait, and this is a callback on the network thread, which it would wait for. Or
                this is a signal handler that interrupted another call.
        """
        self._gate.check_entry()
        try:
            deadline = next(call)
            while True:
                assert isinstance(deadline, int), "a producer runs no user code in its calls"
                if deadline != BREATH:
                    check_may_wait(self._gate)
                    self._gate.wait(wait_seconds(deadline, self._clock.now_ms()))
                deadline = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            # Not left to the collector: it holds the lock, and after Ctrl-C the traceback keeps it alive.
            call.close()

    def guarded(self, put: Callable[..., T]) -> Callable[..., T]:
        """The short way of a record, which any thread may take."""
        return put

    def breathe(self) -> None:
        """Let others go on; threads do so by themselves."""

    def outcome(self, future: RecordFuture) -> RecordMetadata:
        """Wait until a record is acknowledged."""
        return future.result()

    def end(self, network: NetworkState, engine: Engine, deadline: int) -> None:
        """Wait until the network thread, which was told to end, has ended; in a callback on it, do not."""
        if not engine.runs_here():
            engine.join(wait_seconds(add_ms(deadline, END_MS), self._clock.now_ms()))
            if engine.is_alive():
                network.left_behind()
