"""Tells the application what became of its acknowledgements (KIP-932). Application side.

The callback runs on the application's thread, inside poll, commit, commit_async, unsubscribe and close. What it
raises is logged, as in Kafka's own client, and a call of the consumer inside it is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from kadence.client.waits import Run, Waits
from kadence.consumer.events import BackgroundEvent
from kadence.errors import IllegalStateError, KafkaError
from kadence.logs import logger
from kadence.share.acknowledgements import GAP
from kadence.share.application.holding import Holding
from kadence.share.events import AcknowledgementsEnded, Ended
from kadence.share.share_state import ShareState
from kadence.types import TopicPartition

__all__ = ["AcknowledgementCallback", "Results"]

log = logger("kadence.share")

AcknowledgementCallback = Callable[[TopicPartition, frozenset[int], KafkaError | None], object]
"""Called with a partition, offsets of it, and why their acknowledgement failed (None: the broker has taken them).

The result is ignored. `AsyncShareConsumer` also takes a coroutine function, and awaits it.
"""

_inside: Final[ContextVar[tuple[Results, ...]]] = ContextVar("inside", default=())
"""Whose callbacks make the present call. Tasks that a callback makes, and waits for, are inside it as well."""


class Results:
    """Ended acknowledgements with which the callback was not called yet."""

    def __init__(self, shared_state: ShareState, holding: Holding) -> None:
        self._shared_state = shared_state
        self._holding = holding
        self._callback: Callable[..., Any] | None = None
        self._untold: deque[Ended] = deque()
        self._last: BackgroundEvent | None = None

    def call(self, callback: Callable[..., Any] | None) -> None:
        """Call this from now on; None: nothing."""
        self._callback = callback
        self._shared_state.wants_results = callback is not None
        if callback is None:
            self._untold.clear()

    def take(self, event: BackgroundEvent) -> None:
        """An event has come. Twice of the same, after an interruption, is as once."""
        if not isinstance(event, AcknowledgementsEnded) or event is self._last:
            return
        for ended in event.ended:
            self._holding.ended(ended)
        if self._callback is not None:
            self._untold += event.ended
        self._last = event

    @property
    def running(self) -> int:
        """How many calls of the callback are under way, whoever makes the present call."""
        return self._holding.marks.calls

    @property
    def has_some(self) -> bool:
        """Whether the callback is to be told something."""
        return bool(self._untold)

    def run(self) -> Waits[None]:
        """Call the callback."""
        marks = self._holding.marks
        while self._untold and self._callback is not None:
            ended = self._untold.popleft()
            offsets = frozenset(
                offset
                for first, last, kind in ended.acknowledged
                if kind != GAP
                for offset in range(first, last + 1)
            )
            if not offsets:
                continue
            outer = _inside.set((*_inside.get(), self))
            marks.calls += 1
            try:
                yield Run(partial(self._callback, ended.partition.topic_partition, offsets, ended.error))
            except Exception:
                log.exception("the acknowledgement callback raised, which is ignored")
            finally:
                marks.calls -= 1
                _inside.reset(outer)

    def is_inside(self) -> bool:
        """Whether the callback makes the present call."""
        return self.running > 0 and any(each is self for each in _inside.get())

    def refuse_inside(self, what: str) -> None:
        """Raise IllegalStateError if the callback makes this call."""
        if self.is_inside():
            raise IllegalStateError(f"{what} is not possible inside the acknowledgement callback")
