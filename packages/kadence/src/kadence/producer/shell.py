"""Runs the producer's calls on a thread: `client.waits` with the producer's additions.

A call yields with the producer's lock held; its shell waits for the next change without it. The asyncio twin is
async_shell.py.
"""

from __future__ import annotations

from kadence._native.append import ShortWay
from kadence.client import waits
from kadence.client.engine import END_MS, Engine
from kadence.client.gate import Gate
from kadence.clock import Clock, add_ms, wait_seconds
from kadence.producer.futures import RecordFuture, RecordMetadata, check_may_wait
from kadence.producer.network_state import NetworkState

__all__ = ["Shell"]


class Shell(waits.Shell):
    """Waits on the calling thread for the producer's calls.

    Args:
        gate: the producer's lock, made by `new_gate`.
    """

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate, clock: Clock) -> None:
        super().__init__(gate, clock)
        self._gate = gate

    @staticmethod
    def new_gate() -> Gate:
        """The lock of one producer."""
        return Gate("producer")

    @staticmethod
    def stopped() -> None:
        """The result of `stop`: None."""

    def _wait(self, deadline: int) -> None:
        check_may_wait(self._gate)
        super()._wait(deadline)

    def guard(self, short_way: ShortWay) -> None:
        """Any thread may take the short way of a record."""

    def breathe(self) -> None:
        """Let other tasks run; threads do so by themselves."""

    def outcome(self, future: RecordFuture) -> RecordMetadata:
        """Wait until a record is acknowledged."""
        return future.result()

    def end(self, network: NetworkState, engine: Engine, deadline: int) -> None:
        """Wait until the network thread, which was asked to end, has ended; but not in a callback on it."""
        if not engine.runs_here():
            if network.has_ended:
                # At the end of the process its thread was left running, or there is only a moment to wait for it.
                deadline = self._clock.now_ms()
            engine.join(wait_seconds(add_ms(deadline, END_MS), self._clock.now_ms()))
            if engine.is_alive() and not network.has_ended:
                network.left_behind()
