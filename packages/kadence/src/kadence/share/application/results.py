"""Tells the application what became of its acknowledgements (KIP-932). Application side.

The callback runs on the application's thread, inside poll, commit, commit_async, unsubscribe and close. What it
raises is logged, as in Kafka's own client, and a call of the consumer inside it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import GeneratorType
from typing import Any, Final, cast

from kadence.client.waits import Run, Waits
from kadence.consumer.events import BackgroundEvent
from kadence.errors import IllegalStateError, KafkaError
from kadence.lazy_dataclasses import dataclass
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


@dataclass(slots=True, eq=False)
class _Call:
    """A call of the callback of ``by`` that was not made to its end.

    Attributes:
        making: what makes it. An interruption ends it, wherever it comes, or keeps it from its beginning.
    """

    by: Results
    ended: Ended
    making: GeneratorType[Any, Any, None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self.making is not None and (self.making.gi_running or self.making.gi_suspended)


_inside: Final[ContextVar[tuple[_Call, ...]]] = ContextVar("inside", default=())
"""The calls of callbacks that make the present call. Tasks that one makes, and waits for, are inside it as well."""


class Results:
    """Ended acknowledgements with which the callback was not called yet."""

    def __init__(self, shared_state: ShareState, holding: Holding) -> None:
        self._shared_state = shared_state
        self._holding = holding
        self._callback: Callable[..., Any] | None = None
        self._calls: list[_Call] = []
        self._last: BackgroundEvent | None = None

    def call(self, callback: Callable[..., Any] | None) -> None:
        """Call this from now on; None: nothing."""
        self._callback = callback
        self._shared_state.wants_results = callback is not None
        if callback is None:
            self._calls = [each for each in self._calls if each.is_under_way]

    def take(self, event: BackgroundEvent) -> None:
        """An event has come. Twice of the same, after an interruption, is as once."""
        if not isinstance(event, AcknowledgementsEnded) or event is self._last:
            return
        for ended in event.ended:
            self._holding.ended(ended)
        new = event.ended if self._callback is not None else ()
        calls = [*self._calls, *(_Call(self, ended) for ended in new)]
        # In one step: an interruption leaves both as they were, or neither.
        self._calls, self._last = calls, event

    @property
    def running(self) -> int:
        """How many calls of the callback are under way, whoever makes the present call."""
        return sum(each.is_under_way for each in self._calls)

    @property
    def has_some(self) -> bool:
        """Whether the callback is to be told something."""
        return self._next() is not None

    def run(self) -> Waits[None]:
        """Call the callback. A call that is interrupted is made again."""
        while self._callback is not None and (call := self._next()) is not None:
            call.making = cast("GeneratorType[Any, Any, None]", self._make(call, self._callback))
            yield from call.making
            self._calls = [each for each in self._calls if each is not call]

    def _next(self) -> _Call | None:
        """The first call that no other task is making."""
        return next((each for each in self._calls if not each.is_under_way), None)

    def _make(self, call: _Call, callback: Callable[..., Any]) -> Waits[None]:
        ended, marks = call.ended, self._holding.marks
        offsets = frozenset(
            offset
            for first, last, kind in ended.acknowledged
            if kind != GAP
            for offset in range(first, last + 1)
        )
        if not offsets:
            return
        outer = tuple(each for each in _inside.get() if each.is_under_way)
        try:
            _inside.set((*outer, call))
            marks.calls = self.running
            yield Run(partial(callback, ended.partition.topic_partition, offsets, ended.error))
        except Exception:
            log.exception("the acknowledgement callback raised, which is ignored")
        finally:
            marks.calls = self.running - 1
            _inside.set(outer)

    def is_inside(self) -> bool:
        """Whether the callback makes the present call."""
        return any(each.by is self and each.is_under_way for each in _inside.get())

    def refuse_inside(self, what: str) -> None:
        """Raise IllegalStateError if the callback makes this call."""
        if self.is_inside():
            raise IllegalStateError(f"{what} is not possible inside the acknowledgement callback")
