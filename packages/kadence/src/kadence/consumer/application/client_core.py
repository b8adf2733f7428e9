"""A client's application side, without a way to wait: how it leaves its group, and how it ends. Application side.

Each call is a generator of waits (`client.waits`), one text for every shell (G1): it yields what must be
waited for or run, and its shell (`shell.py` for threads, `async_shell.py` for asyncio) does so and resumes it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kadence.client.engine import Engine
from kadence.client.waits import Waits
from kadence.clock import Clock
from kadence.consumer import events as m
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.processing import Stalls
from kadence.consumer.client_state import ClientState
from kadence.types import GroupMetadata

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import DeadLetters, LetterProducers
    from kadence.work.driver import Insides
    from kadence.work.meters import Meters
    from kadence.work.tracing import Tracing

__all__ = ["Chosen", "ClientCore"]


class Chosen:
    """What the program has chosen to read: topics by a subscription, or partitions by hand.

    Attributes:
        subscribed: topics by name. pattern: of either kind. patterns: one that is matched here, and one that the
            broker matches; they outlast an unsubscribe().
        by_hand: whether partitions are assigned by hand. followed: topics of which all partitions are.
        times: how often the program has chosen.
    """

    __slots__ = ("by_hand", "followed", "pattern", "patterns", "subscribed", "times")

    def __init__(self) -> None:
        self.subscribed: frozenset[str] | None = None
        self.pattern: str | None = None
        self.patterns: tuple[str | None, str | None] = (None, None)
        self.by_hand = False
        self.followed: frozenset[str] = frozenset()
        self.times = 0

    @property
    def is_anything(self) -> bool:
        """Whether there is a subscription, or an assignment by hand."""
        return self.by_hand or self.subscribed is not None or self.pattern is not None

    def nothing(self) -> None:
        """An unsubscribe()."""
        self.subscribed = self.pattern = None
        self.by_hand = False
        self.followed = frozenset()


class ClientCore(abc.ABC):
    """One client's application side, whatever it reads.

    `kadence.consumer.application.core.Core` adds assignments and commits. A share consumer, which has neither, adds
    acknowledgements: what is sent before it leaves, and the callback that is told of them.

    Attributes:
        exchange, stalls: parts of it. chosen: what the program reads.
        processing_timeout_ms: how long the application may work between two polls.
        work: of `process`, from its first call on. tracing: who makes spans of what `process` does.
        has_deserializers: whether polls call some.
        is_inside_elsewhere: whether another thread is inside without having entered the shell, see `fetch._steps`;
            None: none ever is.
        is_taking: whether a poll takes records just now. is_in_callback: whether a callback makes the present call.
    """

    NOTHING_CHOSEN: ClassVar = "it has no subscription and no assignment"
    """Why it reads nothing, in words."""
    FREE_CALLS: ClassVar = (
        "stop, wakeup, pause, resume, close and calls that read its state (metrics, not_fetched, …)"
    )
    """What another thread may call meanwhile, in words."""
    CUT_SHORT: ClassVar = "nothing is committed"
    """What it means to leave without the application, in words."""

    def __init__(
        self,
        client_state: ClientState,
        engine: Engine,
        clock: Clock,
        *,
        chosen: Chosen,
        exchange: Exchange,
        stalls: Stalls,
        dead_letters: DeadLetters | None,
        request_timeout_ms: int,
        processing_timeout_ms: int,
    ) -> None:
        self.clock = clock
        self.chosen = chosen
        self.exchange = exchange
        self.stalls = stalls
        self.processing_timeout_ms = processing_timeout_ms
        self.work: Meters | None = None
        self.tracing: Tracing | None = None
        self._client_state = client_state
        self._engine = engine
        self._dead_letters = dead_letters
        self._request_timeout_ms = request_timeout_ms
        self.has_deserializers = False
        self.is_inside_elsewhere: Callable[[], bool] | None = None
        self.is_taking: Callable[[], bool] = lambda: False
        self.is_in_callback: Callable[[], bool] = lambda: False
        self.call = exchange.call
        self.hand_over = exchange.hand_over
        self.wakeup = exchange.wakeup
        self.nudge = exchange.nudge
        self.stop = exchange.stop

    @property
    def stopping(self) -> bool:
        """`stop` was called: polls return nothing."""
        return self.exchange.stopping

    @property
    def closing(self) -> bool:
        """It is closed, or a call of close() is under way."""
        return self.exchange.closed or self.exchange.closing

    @property
    def group(self) -> GroupMetadata:
        """This member's identity, as last heard from the network thread."""
        return self.exchange.group

    @property
    def identity(self) -> GroupMetadata:
        """The identity that goes with the records that polls have returned."""
        return self.exchange.identity

    # ------------------------------------------------------------ what a client adds

    @abc.abstractmethod
    def _before_unsubscribing(self, deadline: int) -> Waits[None]:
        """What is to be sent before unsubscribe() leaves the group. A failure ends nothing."""

    @abc.abstractmethod
    def _before_closing(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        """What is to be sent before close() leaves the group. A failure ends nothing."""

    @abc.abstractmethod
    def _serving_until(self, deadline: int) -> Callable[[], Waits[None]]:
        """What the application has to do while the group is left."""

    @abc.abstractmethod
    def _run_callbacks(self) -> Waits[None]:
        """Run the application's callbacks of what was sent before the end."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """The program reads nothing any more."""

    @abc.abstractmethod
    def _drop(self) -> None:
        """It is closed: give back what was fetched."""

    @abc.abstractmethod
    def inside(self, run: Callable[[Waits[Any]], Any], producers: LetterProducers, aside: Aside) -> Insides:
        """What `process` needs beyond the public calls. ``run`` carries a call; see `kadence.work.driver.Insides`."""

    def end_work(self, inside: Insides) -> None:
        """`process` has ended in whatever way, such as by a second Ctrl-C. ``inside``: what `inside` gave it."""
        inside.abandon()

    # ------------------------------------------------------------ the end

    def unsubscribe(self, deadline: int) -> Waits[None]:
        """Leave, serving revocation callbacks; what the group answers is not waited for beyond the deadline.

        What was sent takes effect even when the wait is interrupted. The listener stays then: callbacks may be to come,
        which the next call runs that serves them.
        """
        error: Exception | None = None
        times = self.chosen.times
        try:
            yield from self._before_unsubscribing(deadline)
            yield from self.exchange.leave(m.Unsubscribe, deadline, self._serving_until(deadline))
        except Exception as raised:  # noqa: BLE001 - raised below: whatever a callback raised, the group is left
            error = raised
        finally:
            # Another task may have said meanwhile what to read next.
            if times == self.chosen.times:
                self.chosen.nothing()
        if times == self.chosen.times:
            self._forget()
        self.exchange.adopt_identity()
        if error is not None:
            raise error

    def close(self, deadline: int, *, processed_only: bool, leave: bool | None) -> Waits[None]:
        """Send what is left to send, leave, stop: each within the deadline, none of them able to hang (B7)."""
        exchange = self.exchange
        if self.closing:
            return
        error: Exception | None = None
        try:
            exchange.closing = True
            exchange.woken = False
            exchange.grace.end()
            try:
                if not self._client_state.ended:
                    yield from self._before_closing(deadline, processed_only=processed_only)
                    yield from exchange.leave(m.Close, deadline, self._serving_until(deadline), leave=leave)
            except Exception as raised:  # noqa: BLE001 - raised below, once everything is stopped
                error = raised
            exchange.take_background_events()
            try:
                yield from self._run_callbacks()
            except Exception as raised:  # noqa: BLE001 - as above
                error = error or raised
            if self._dead_letters is not None:
                closing = self._dead_letters.close(max(deadline - self.clock.now_ms(), 100) / 1000)
                while not closing.done and self.clock.now_ms() < deadline:
                    yield deadline
            self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        except BaseException:
            # Ctrl-C, or a cancelled task: the client is not closed, so close() may be called again.
            exchange.closing = False
            raise
        exchange.closed = True
        self._client_state.attention.up = True
        self._drop()
        if error is not None:
            raise error

    def abandon(self, deadline: int) -> None:
        """From another thread, while the one inside does not come back: leave the group, and be closed."""
        self._client_state.begin_close(deadline)
        self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        self.exchange.closed = True
        self._client_state.attention.up = True

    def _half_way(self, deadline: int) -> int:
        """Half of the time that is left is for what is sent before: the other half is for leaving the group.

        A coordinator that is silent is waited for no longer than one request is, with both.
        """
        now = self.clock.now_ms()
        return now + min(max(deadline - now, 0), self._request_timeout_ms) // 2

    # ------------------------------------------------------------ refusals

    def forgive(self) -> None:
        """A new subscription begins anew: what ended the old membership for good is no longer raised."""
        self.exchange.fatal = None

    def check(self) -> None:
        """Called during a wait: raise the error, or the wakeup, that must end it."""
        self.exchange.take_background_events()
        self.exchange.raise_failure()
        self.exchange.raise_wakeup()
