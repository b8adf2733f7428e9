"""The steps of a rebalance that the application takes: callbacks, and the commit before partitions go (C5).

The network side asks for them (`CallbackNeeded`), and each is answered by `CallbackDone`, whatever the
callback raised. They run on the application's thread, inside poll(), unsubscribe() and close(). Application side.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from kadence.client.waits import Run, Waits
from kadence.clock import FOREVER, Clock
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import AsyncRebalanceListener
from kadence.consumer.application.commits import Commits
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.shared_state import SharedState

__all__ = ["Rebalancing", "without_void"]


class Rebalancing:
    """Runs the listener's callbacks of a rebalance, and commits before partitions are revoked.

    Attributes:
        listener: the application's own, None without.
        closing: the consumer is closing, and has committed already.
    """

    def __init__(self, shared_state: SharedState, exchange: Exchange, commits: Commits, clock: Clock) -> None:
        self.listener: AsyncRebalanceListener | None = None
        self.closing = False
        self._shared_state = shared_state
        self._exchange = exchange
        self._commits = commits
        self._clock = clock
        self._steps: dict[int, weakref.ref[Waits[None]]] = {}
        """By the number of its callback each call that runs one, until its end is told."""

    def serve(self, until: int = FOREVER) -> Waits[None]:
        """Run what is asked for, and callbacks of commits. The first exception is raised at the end.

        Before partitions are revoked what is processed of them is committed. Nobody waits for that here, so a
        revocation is finished by this one call (B12): the network thread gives the partitions up when the commit has
        ended.

        Args:
            until: when that commit has to be over; its request timeout counts, too.
        """
        error: BaseException | None = None
        try:
            yield from self._commits.run_callbacks()
        except Exception as raised:  # noqa: BLE001 - raised below: the group waits for what follows
            error = raised
        while (event := self._next()) is not None:
            if isinstance(event, m.RevokePartitions) and not self.closing:
                self._commits.commit_parting(event.partitions, until)
            step = self._run(event)
            self._steps[event.id] = weakref.ref(step)
            try:
                yield from step
            except Exception as raised:  # noqa: BLE001 - raised below, after the other callbacks
                error = error or raised
            self._exchange.take_background_events()
        if error is not None:
            raise error

    def _next(self) -> m.CallbackNeeded | None:
        """The first one that has not begun. Of those that ended untold (Ctrl-C in the telling) the end is told now."""
        callbacks = self._exchange.callbacks
        if any(isinstance(event, m.LosePartitions) and event.instead_of for event in callbacks):
            left = without_void(callbacks, self._steps)
            kept = {event.id for event in left}
            for event in callbacks:
                if isinstance(event, m.LosePartitions) and event.id not in kept:
                    # There is nothing to tell, but the network thread waits for the end of it.
                    self._shared_state.send(m.CallbackDone(event.id, 0, None))
            # In one step, so that an interruption finds all of it done or nothing.
            callbacks[:] = left
        for event in tuple(callbacks):
            known = self._steps.get(event.id)
            if known is None:
                return event
            if (step := known()) is None or getgeneratorstate(step) == GEN_CLOSED:
                self._tell_done(event, "interrupted")
        return None

    def _tell_done(self, event: m.CallbackNeeded, text: str | None) -> None:
        """Tell the network thread, which ignores a repetition. The background event is kept until it was told."""
        gave_up = event.partitions if isinstance(event, m.RevokePartitions) else ()
        self._shared_state.send(m.CallbackDone(event.id, 0, text, gave_up))
        self._exchange.callbacks.remove(event)
        del self._steps[event.id]

    def _run(self, event: m.CallbackNeeded) -> Waits[None]:
        """One step. Its end is always told, whatever the callback raised: the group waits for it."""
        text: str | None = "interrupted"
        try:
            if self.listener is not None:
                yield from self._timed(self.listener, event)
            text = None
        except BaseException as raised:
            text = repr(raised)
            raise
        finally:
            self._tell_done(event, text)

    def _timed(self, listener: AsyncRebalanceListener, event: m.CallbackNeeded) -> Waits[None]:
        began = self._clock.now_ms()
        try:
            yield Run(_callback(listener, event))
        finally:
            now = self._clock.now_ms()
            self._shared_state.measures.poll_measures.called(event, now, now - began)


def without_void(callbacks: Iterable[m.CallbackNeeded], begun: Container[int] = ()) -> list[m.CallbackNeeded]:
    """Callbacks that wait for their end, without those that the end of a membership made void (B11).

    What had not begun is left out, and its partitions are told as lost. What a callback that has begun revokes is told
    once, by that; so is what one revoked that has ended, and waits no more.
    """
    left = list(callbacks)
    for lost in [event for event in left if isinstance(event, m.LosePartitions)]:
        void = {event.id for event in left if event.id in lost.instead_of and event.id not in begun}
        told = {p for callback, going in lost.instead_of.items() if callback not in void for p in going}
        still = tuple(partition for partition in lost.partitions if partition not in told)
        left = [
            replace(lost, partitions=still, instead_of={}) if event is lost else event
            for event in left
            if event.id not in void and (event is not lost or still)
        ]
    return left


def _callback(listener: AsyncRebalanceListener, event: m.CallbackNeeded) -> Callable[[], Any]:
    partitions = list(event.partitions)
    if isinstance(event, m.RevokePartitions):
        return lambda: listener.on_partitions_revoked(partitions)
    if isinstance(event, m.LosePartitions):
        return lambda: listener.on_partitions_lost(partitions)
    return lambda: listener.on_partitions_assigned(partitions)
