"""Writes bad records to the dead letter topic, which must acknowledge them before reading continues. Application side.

`kadence.work.letters` makes each dead letter, as for `Consumer.process`.

Sending may block (an unknown topic, a full buffer), and a poll must neither hang nor stop an event loop. So each batch
of bad records is sent by a `Caller` of its own, usually a short-lived thread. The last acknowledgement wakes the poll,
which waits for it as for any event. Bad records are rare, so a thread each time costs less than one that always waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from kadence.client.aside import Aside, Calls
from kadence.records import Record
from kadence.work.letters import BadRecord, Letter, bad_record, shorter

__all__ = ["BadRecord", "DeadLetters", "Delivery", "LetterProducer", "LetterProducers"]


class LetterProducer(Protocol):
    """The part of a producer that dead letters need."""

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Any: ...

    def close(self, timeout: float | None = None) -> None: ...


LetterProducers = Callable[..., LetterProducer]
"""Makes a consumer's producer of dead letters, and that of `process`; see `assembly.letter_producer`."""


class Delivery:
    """Some bad records being sent.

    ``done``: each was acknowledged, or ``error`` has the reason why not. ``shortened``: a log line for each that its
    topic accepts only in a shortened form.
    """

    __slots__ = ("bad", "done", "error", "shortened")

    def __init__(self, bad: Sequence[BadRecord]) -> None:
        self.bad = bad
        self.done = False
        self.error: Exception | None = None
        self.shortened: list[str] = []


class DeadLetters:
    """Writes bad records to the dead letter topic, and reports when the broker has acknowledged them.

    Args:
        topic: the dead letter topic. group: the group that could not read them, for their headers.
        make_producer: makes the producer, when the first bad record is there.
        wake: called, from any thread, when a delivery is done.
        aside: runs calls that may block.
    """

    def __init__(
        self,
        topic: str,
        group: str | None,
        make_producer: Callable[[], LetterProducer],
        wake: Callable[[], None],
        aside: Aside,
    ) -> None:
        self.topic = topic
        self._group = group
        self._make = make_producer
        self._wake = wake
        self._aside = aside
        self._producer: LetterProducer | None = None
        self._lock = threading.Lock()

    def deliver(self, bad: Sequence[BadRecord]) -> Delivery:
        """Begin to send; look at the result's ``done`` after each wake-up."""
        delivery = Delivery(bad)
        letters = [(each.record, bad_record(each, self.topic, self._group)) for each in bad]
        self._carry(self._sends(delivery, letters))
        return delivery

    def close(self, seconds: float) -> Delivery:
        """Begin to close the producer, if one was created."""
        closing = Delivery(())
        producer, self._producer = self._producer, None
        if producer is None:
            closing.done = True
        else:
            self._carry(self._closes(closing, producer, seconds))
        return closing

    def _carry(self, calls: Calls) -> None:
        caller = self._aside.caller("kadence-dead-letters")
        caller.carry(calls)
        caller.end()

    def _made(self) -> LetterProducer:
        with self._lock:
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    # ------------------------------------------------------------ may block

    def _sends(self, delivery: Delivery, letters: Sequence[tuple[Record, Letter]]) -> Calls:
        outcomes = []
        try:
            producer = yield self._made
            for record, letter in letters:
                outcomes.append((record, letter, (yield partial(_sent, producer, letter))))
        except Exception as error:  # noqa: BLE001 - raised by the poll that waits for it
            self._is_done(delivery, error)
            return
        _when_all_are_done([future for _, _, future in outcomes], partial(self._decided, delivery, outcomes))

    def _closes(self, closing: Delivery, producer: LetterProducer, seconds: float) -> Calls:
        try:
            yield partial(producer.close, timeout=seconds)
        except Exception:  # noqa: BLE001, S110 - every letter was acknowledged before; this is only tidying up
            pass
        self._is_done(closing, None)

    # ------------------------------------------------------------ any thread

    def _decided(self, delivery: Delivery, outcomes: Sequence[tuple[Record, Letter, Any]]) -> None:
        """All futures are done. Dead letters that are too large for their topic are written again, shortened."""
        instead = []
        try:
            for record, letter, outcome in outcomes:
                error = outcome if isinstance(outcome, Exception) else outcome.exception()
                if error is None:
                    continue
                if (found := shorter(letter, error)) is None:
                    raise error
                delivery.shortened.append(found.said(record, error))
                instead.append((record, found.letter))
            if instead:
                self._carry(self._sends(delivery, instead))
        except Exception as error:  # noqa: BLE001 - as above
            self._is_done(delivery, error)
        else:
            if not instead:
                self._is_done(delivery, None)

    def _is_done(self, delivery: Delivery, error: Exception | None) -> None:
        delivery.error = error
        delivery.done = True
        self._wake()


def _when_all_are_done(outcomes: Sequence[Any], call: Callable[[], None]) -> None:
    """Make a call when each of these is decided: futures, and errors of records that were never sent."""
    futures = [each for each in outcomes if not isinstance(each, Exception)]
    lock, left = threading.Lock(), len(futures)

    def told(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = not left
        if is_last:
            call()

    for future in futures:
        future.add_done_callback(told)
    if not futures:
        call()


def _sent(producer: LetterProducer, letter: Letter) -> Any:
    """The future of a dead letter, or the reason why it was not accepted."""
    try:
        return producer.send(letter.topic, letter.value, letter.key, headers=letter.headers)
    except Exception as error:  # noqa: BLE001 - looked at with the others
        return error
