"""The retry policy: the number of attempts, and the waits between them (H5). Pure."""

from __future__ import annotations

import random
from numbers import Integral, Real
from typing import Any, Final

from kadence.lazy_dataclasses import dataclass

__all__ = ["NEVER", "Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """The retry policy of `Consumer.process`, for records whose attempt failed.

    After the n-th attempt it waits ``backoff * factor ** (n - 1)`` seconds, at most ``max_backoff``.

    Args:
        attempts: the most attempts, the first one included.
        backoff: seconds before the second attempt. factor: how much longer each wait is than the one before.
        max_backoff: the longest wait, in seconds.
        jitter: the random share of each wait, 0 to 1: 0.2 waits 80 to 100 % of it.
        on: the exceptions after which a record is tried again, a class or a tuple of classes; any other ends the
            attempts at once.
        topic: None retries in place, and later records wait as ``order`` says. Otherwise a failed record is written to
            this topic, with the time of its next attempt in a header, and later records do not wait. The consumer reads
            the topic, too; create one for each group.

    Raises:
        ValueError: a number outside its range. TypeError: an argument is something else.
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    max_backoff: float = 60.0
    jitter: float = 0.2
    on: type[BaseException] | tuple[type[BaseException], ...] = (Exception,)
    topic: str | None = None

    def __post_init__(self) -> None:
        for name in ("attempts", "backoff", "factor", "max_backoff", "jitter"):
            number: Any = getattr(self, name)
            # numpy's numbers are accepted, too.
            if not isinstance(number, Integral if name == "attempts" else Real):
                words = "a whole number" if name == "attempts" else "a number"
                raise TypeError(f"Retry({name}={number!r}): {words}")
        if self.attempts < 1:
            raise ValueError(f"Retry(attempts={self.attempts}): at least 1, the first attempt is one of them")
        for name, least in (("backoff", 0), ("factor", 1), ("max_backoff", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"Retry({name}={getattr(self, name)}): at least {least}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Retry(jitter={self.jitter}): from 0 to 1")
        topic: Any = self.topic
        if topic is not None and not isinstance(topic, str):
            raise TypeError(f"Retry(topic={topic!r}): a topic's name (str), or None")
        given: Any = self.on
        for each in given if isinstance(given, tuple) else (given,):
            # Checked here: otherwise isinstance() would raise at the first failed attempt.
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise TypeError(
                    f"Retry(on={self.on!r}): a class of exceptions or a tuple of them, such as (TimeoutError,); "
                    f"not {each!r}"
                )

    def allows(self, attempts: int, error: BaseException) -> bool:
        """Whether a record is tried again after so many failed attempts."""
        return attempts < self.attempts and isinstance(error, self.on)

    def wait_ms(self, attempts: int, chance: random.Random) -> int:
        """The wait after so many attempts (ms)."""
        # The exponent is bounded: a float overflows at 1,024 doublings.
        longest = min(self.backoff * self.factor ** min(attempts - 1, 64), self.max_backoff)
        return int(longest * (1 - self.jitter * chance.random()) * 1000)


NEVER: Final = Retry(attempts=1)
"""One attempt."""
