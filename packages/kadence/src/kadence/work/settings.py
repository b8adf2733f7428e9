"""The checked arguments of `Consumer.process`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Integral
from typing import Any, Final, Literal

from kadence.clock import Seconds, to_ms
from kadence.config.table import is_coroutine_function
from kadence.errors import ConfigError
from kadence.lazy_dataclasses import dataclass
from kadence.work.retry import NEVER, Retry
from kadence.work.scheduler import Limits, Order

__all__ = ["BatchFormat", "Executor", "Settings", "settings_of"]

Executor = Literal["threads", "loop", "processes"]
"""Where handlers run."""

BatchFormat = Literal["records", "arrow"]
"""The argument of a batch handler: a list of records, or a ``pyarrow.Table``."""

_NEAR: Final = 1_000
"""`Limits.near`, if it is more than twice the number of records that the workers hold."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked arguments of `Consumer.process`; durations are ms.

    Attributes:
        bad_letter: the dead letter topic for records that a deserialiser refuses; None: there is none. skips_bad:
            whether such records are skipped.
    """

    handler: Callable[..., Any]
    takes_context: bool
    workers: int
    order: Order
    executor: Executor
    retry: Retry
    dead_letter: str | None
    bad_letter: str | None
    skips_bad: bool
    timeout_ms: int | None
    batch: tuple[int, int] | None
    halves: bool
    as_arrow: bool
    limits: Limits
    drain_ms: int
    transactional_id: str | None


def settings_of(
    handler: Callable[..., Any],
    *,
    workers: int,
    order: Order,
    executor: Executor | None,
    retry: Retry | None,
    dead_letter: str | None,
    timeout: Seconds | None,
    batch: tuple[int, Seconds] | None,
    halve: bool,
    batch_format: BatchFormat,
    max_records: int,
    max_bytes: int,
    drain: Seconds,
    transactional_id: str | None,
    deserialization_errors: str = "raise",
    dead_letter_topic: str | None = None,
) -> Settings:
    """Check the arguments of `process`.

    Args:
        deserialization_errors, dead_letter_topic: the consumer's own settings, for records that a deserialiser refuses.
            ``dead_letter`` applies to these, too, and takes precedence.

    Raises:
        TypeError, ValueError, ConfigError: an argument is not allowed; the message has the allowed ones.
    """
    if not callable(handler):
        raise TypeError(f"a handler is a function that takes a record, not {handler!r}")
    is_coroutine = is_coroutine_function(handler) or inspect.isasyncgenfunction(handler)
    chosen: Executor = executor or ("loop" if is_coroutine else "threads")
    if chosen not in ("threads", "loop", "processes"):
        raise ValueError(f"executor is 'threads', 'loop' or 'processes', not {executor!r}")
    if is_coroutine != (chosen == "loop"):
        raise ConfigError(
            f"executor={chosen!r} with {'a coroutine function' if is_coroutine else 'a plain function'}: the event "
            "loop runs coroutine functions, and threads and processes run plain ones"
        )
    if order not in ("key", "partition", "none"):
        raise ValueError(f"order is 'key', 'partition' or 'none', not {order!r}")
    _check_numbers(workers=workers, max_records=max_records, max_bytes=max_bytes)
    _check_names(dead_letter=dead_letter, transactional_id=transactional_id)
    _check_failures(retry, dead_letter)
    if batch is not None and not _is_batch(batch):
        raise ValueError(f"batch={batch!r}: (records, seconds), such as (500, 1.0)")
    if halve and batch is None:
        raise ConfigError("halve=True needs a batch=(records, seconds)")
    if batch_format not in ("records", "arrow"):
        raise ValueError(f"batch_format is 'records' or 'arrow', not {batch_format!r}")
    if batch_format == "arrow":
        if batch is None:
            raise ConfigError("batch_format='arrow' needs a batch=(records, seconds)")
        # Without pyarrow this fails now, and not with the first batch.
        from kadence.records.arrow import schema

        schema()
    if transactional_id is not None and not transactional_id:
        raise ValueError(
            f"transactional_id={transactional_id!r}: a name that no other member has, or None for no transactions"
        )
    return Settings(
        handler,
        _takes_context(handler),
        workers,
        order,
        chosen,
        retry or NEVER,
        dead_letter,
        dead_letter or (dead_letter_topic if deserialization_errors == "dead-letter" else None),
        dead_letter is None and deserialization_errors == "skip",
        to_ms(timeout),
        None if batch is None else (batch[0], to_ms(batch[1]) or 0),
        halve,
        batch_format == "arrow",
        _limits(max_records, max_bytes, order, workers if batch is None else workers * batch[0]),
        to_ms(drain) or 0,
        transactional_id,
    )


def _check_numbers(**given: Any) -> None:
    for name, number in given.items():
        # numpy's numbers are accepted, too.
        if not isinstance(number, Integral):
            raise TypeError(f"{name}={number!r}: a whole number")
        if number < 1:
            raise ValueError(f"{name}={number}: at least 1")


def _check_names(**given: Any) -> None:
    for name, text in given.items():
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name}={text!r}: a name (str), or None")


def _check_failures(retry: Retry | None, dead_letter: str | None) -> None:
    if retry is None:
        return
    if not isinstance(retry, Retry):
        raise TypeError(f"retry={retry!r}: a Retry, such as Retry(attempts=5), or None")
    if retry.topic is not None and retry.topic == dead_letter:
        raise ConfigError(
            f"dead_letter={dead_letter!r} is also the retry topic: dead letter records would be retried without end"
        )


def _limits(records: int, nbytes: int, order: Order, held: int) -> Limits:
    """The limits for workers that hold so many records at once."""
    near = min(_NEAR, records // 4) if order != "partition" else _NEAR
    return Limits(records, nbytes, near=min(max(near, 2 * held), records), enough=held)


def _is_batch(given: Any) -> bool:
    match given:
        case (int(records), seconds):
            return records >= 1 and to_ms(seconds) is not None
    return False


def _takes_context(handler: Callable[..., Any]) -> bool:
    """Whether a handler wants a second argument.

    Raises:
        TypeError: it cannot be called with these arguments. Otherwise each record would fail.
    """
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        # A builtin without a signature.
        return False
    needed = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
    ]
    takes_context = len(needed) >= 2
    try:
        signature.bind(*(None,) * (2 if takes_context else 1))
    except TypeError as error:
        raise TypeError(
            "a handler takes a record (with batch, a list of records), or a record and a Context; "
            f"{handler!r} does not: {error}"
        ) from None
    return takes_context
