"""Runs loops that normally have a thread (a network loop, a broker's loop) as events of a simulated process.

If a turn would wait, its selector has the timeout. The next turn is due then, or as soon as a watched socket is
ready.
"""

from __future__ import annotations

from collections.abc import Callable

from kadence_testing.simulation.network import Network, SimulatedSelector
from kadence_testing.simulation.scheduler import Event, Process

__all__ = ["Driver"]


class Driver:
    """Runs turns until the last one.

    Args:
        on_turn: called after each turn.

    Attributes:
        selector: the selector of the turns. turn: runs one; returns False after the last. Set it before `stir`.
    """

    turn: Callable[[], bool]

    def __init__(self, process: Process, network: Network, on_turn: Callable[[], None] | None = None) -> None:
        self.selector = SimulatedSelector(network, self.stir)
        self._process = process
        self._on_turn = on_turn
        self._is_stirred = False
        self._timer: Event | None = None
        self.has_ended = False

    def stir(self) -> None:
        """Run the next turn now."""
        if not self._is_stirred and not self.has_ended:
            self._is_stirred = True
            self._process.soon(self._run)

    def _run(self) -> None:
        if self.has_ended:
            return
        self._is_stirred = False
        if self._timer is not None:
            self._timer.cancel()
        self.selector.has_found = False
        # A turn that does not call select() has more to do.
        self.selector.patience_ms = 0
        began_at = self._process.scheduler.now_ms()
        goes_on = self.turn()
        if self._on_turn is not None:
            self._on_turn()
        if not goes_on:
            self.has_ended = True
        elif self.selector.has_found or self.selector.patience_ms == 0:
            self.stir()
        elif self.selector.patience_ms is not None:
            self._timer = self._process.at(began_at + self.selector.patience_ms, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.stir()
