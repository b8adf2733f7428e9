"""A cache of answers, and one request for all threads that want the same answer.

The schema of an id never changes, so an answer is kept for ever, or for the time that its kind of question allows. Any
producer can put ids into records that the registry does not know, so a missing schema is remembered for a minute. Both
are bounded. Reading the cache takes no lock.

A serialiser or deserialiser on an event loop does not wait for an answer. A thread sends the request, and the call is
repeated.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeAlias, TypeVar

from kadence.clock import FOREVER, Clock, add_ms
from kadence.deserializers import must_not_wait
from kadence.errors import SchemaNotFoundError
from kadence.errors.local import AnswerPendingError
from kadence.logs import OwnThread

__all__ = ["LAG_EVERY_MS", "LAG_S", "MOST_KEPT", "REFUSED_MS", "Answers", "RefusedUntilError"]

LAG_S: Final = 1.0
"""How long (s) after a first "no such id" the request is repeated: a follower of the registry learns of an id slightly
later than the producer that registered it.
"""

LAG_EVERY_MS: Final = 10_000
"""How long (ms) after such a wait no other one begins: a producer can put any number of ids into records, and each
would hold up a poll for a second.
"""

REFUSED_MS: Final = 60_000
"""How long (ms) an id without a schema is not requested again: the schema may be registered meanwhile."""

MOST_KEPT: Final = 10_000
"""How many answers are kept, and how many missing ones."""

V = TypeVar("V")
K = TypeVar("K", bound=Hashable)

Asked: TypeAlias = "Mapping[K, V | SchemaNotFoundError]"
Ask: TypeAlias = "Callable[[list[K]], Asked[K, V]]"


class _AbandonedError(BaseException):
    """The thread that asked was interrupted before the answer."""


class RefusedUntilError(SchemaNotFoundError):
    """There is no schema, for a reason that was found earlier.

    Attributes:
        until_ms: when the request is worth repeating, whenever this answer is kept.
    """

    def __init__(self, message: str, until_ms: int = 0) -> None:
        super().__init__(message)
        self.until_ms = until_ms


class Answers(Generic[K, V]):
    """The answers to one kind of question.

    Args:
        clock: for how long to keep. sleep: waits so many seconds.
        keep_ms: how long an answer is kept.
        lags: whether a first "not found" is requested again after `LAG_S`, once in `LAG_EVERY_MS`.
    """

    def __init__(
        self, clock: Clock, sleep: Callable[[float], None], *, keep_ms: int = FOREVER, lags: bool = False
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._keep_ms = keep_ms
        self._lags = lags
        self._lag_ends = self._lags_again = -1
        self._known: dict[K, tuple[int, V]] = {}
        self._refused: dict[K, tuple[int, SchemaNotFoundError]] = {}
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[K, Future[V | SchemaNotFoundError]] = {}
        self._process = os.getpid()

    def get(self, keys: Iterable[K], ask: Ask[K, V]) -> dict[K, V | SchemaNotFoundError]:
        """The answers for these, or the reason why there is none.

        Args:
            ask: requests several at once. Another thread that wants one of them meanwhile waits for this answer, and
                also gets an exception of ``ask``.

        Raises:
            AnswerPendingError: a serialiser or deserialiser on an event loop would have to wait; a request is under
                way.
        """
        now = self._clock.now_ms()
        found: dict[K, V | SchemaNotFoundError] = {}
        unknown: dict[K, None] = {}
        for key in keys:
            kept: tuple[int, V | SchemaNotFoundError] | None = self._known.get(key) or self._refused.get(key)
            if kept is not None and now < kept[0]:
                found[key] = kept[1]
            else:
                unknown[key] = None
        return found | self._fetched(list(unknown), ask) if unknown else found

    def one(self, key: K, ask: Callable[[K], V | SchemaNotFoundError]) -> V:
        """The answer for one.

        Raises:
            SchemaNotFoundError: there is none.
        """
        kept = self._known.get(key)
        # The clock is read only if answers expire.
        if kept is not None and (kept[0] == FOREVER or self._clock.now_ms() < kept[0]):
            return kept[1]
        made = self.get((key,), lambda keys: {each: ask(each) for each in keys})[key]
        if isinstance(made, SchemaNotFoundError):
            # A new one each time: the traceback of an error that is raised repeatedly grows.
            raise SchemaNotFoundError(str(made))
        return made

    def forget(self, is_old: Callable[[K], bool]) -> None:
        """Forget the answers for these."""
        with self._lock:
            for kept in (self._known, self._refused):
                for key in [key for key in kept if is_old(key)]:
                    del kept[key]

    def _fetched(self, keys: list[K], ask: Ask[K, V]) -> dict[K, V | SchemaNotFoundError]:
        if self._process != os.getpid():
            # After fork() the threads that send requests do not exist in the child.
            self._begin()
        mine: dict[K, Future[V | SchemaNotFoundError]] = {}
        others: dict[K, Future[V | SchemaNotFoundError]] = {}
        with self._lock:
            for key in keys:
                flight = self._flights.get(key)
                if flight is None:
                    mine[key] = self._flights[key] = Future()
                else:
                    others[key] = flight
        if must_not_wait():
            if mine:
                OwnThread(target=self._lead, name="kadence-registry", args=(mine, ask)).start()
            raise AnswerPendingError((*mine.values(), *others.values()))
        found: dict[K, V | SchemaNotFoundError] = self._led(mine, ask) if mine else {}
        for key, flight in others.items():
            try:
                found[key] = flight.result()
            except _AbandonedError:
                found |= self._fetched([key], ask)
        return found

    def _lead(self, mine: dict[K, Future[V | SchemaNotFoundError]], ask: Ask[K, V]) -> None:
        """On a separate thread. Errors go into the futures."""
        with contextlib.suppress(Exception):
            self._led(mine, ask)

    def _led(
        self, mine: dict[K, Future[V | SchemaNotFoundError]], ask: Ask[K, V]
    ) -> dict[K, V | SchemaNotFoundError]:
        problem: BaseException = _AbandonedError()
        made: dict[K, V | SchemaNotFoundError] = {}
        try:
            made = self._asked(list(mine), ask)
        except Exception as error:
            problem = error
            raise
        finally:
            with self._lock:
                for key in mine:
                    del self._flights[key]
            for key, flight in mine.items():
                if key in made:
                    flight.set_result(made[key])
                else:
                    flight.set_exception(problem)
        return made

    def _asked(self, keys: list[K], ask: Ask[K, V]) -> dict[K, V | SchemaNotFoundError]:
        made = dict(ask(keys))
        if self._lags:
            late = [
                key
                for key, found in made.items()
                if isinstance(found, SchemaNotFoundError) and key not in self._refused
            ]
            if late and (wait := self._lag()):
                self._sleep(wait)
                made |= ask(late)
        now = self._clock.now_ms()
        with self._lock:
            for key, found in made.items():
                self._refused.pop(key, None)
                self._known.pop(key, None)
                if isinstance(found, SchemaNotFoundError):
                    until = add_ms(now, REFUSED_MS)
                    if isinstance(found, RefusedUntilError):
                        until = found.until_ms
                    _keep(self._refused, key, (until, found))
                else:
                    _keep(self._known, key, (add_ms(now, self._keep_ms), found))
        return made

    def _lag(self) -> float:
        """How long (s) to wait before the repetition: no longer than a wait that another thread has begun."""
        now = self._clock.now_ms()
        with self._lock:
            if now >= self._lags_again:
                self._lag_ends = add_ms(now, int(LAG_S * 1000))
                self._lags_again = add_ms(self._lag_ends, LAG_EVERY_MS)
            return max(self._lag_ends - now, 0) / 1000


def _keep(kept: dict[Any, Any], key: Hashable, value: object) -> None:
    while len(kept) >= MOST_KEPT:
        # The oldest comes first.
        del kept[next(iter(kept))]
    kept[key] = value
