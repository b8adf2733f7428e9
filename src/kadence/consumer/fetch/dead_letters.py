"""Bad records on their way to the dead letter topic, acknowledged before anything goes on. Application side.

What is written of each says `kadence.work.letters`, as for `Consumer.process`.

Sending may block (an unknown topic, a full buffer), and a poll must neither hang nor stop an event loop. So each batch
of bad records is sent by a short-lived thread of its own, which ends with the broker's acknowledgement; the poll waits
for it as for anything else. Bad records are rare; a thread each time costs less than one that always waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kadence.logs import OwnThread, logger
from kadence.records import Record
from kadence.work.letters import BadRecord, Letter, bad_record, shorter

__all__ = ["BadRecord", "DeadLetters", "Delivery", "LetterProducer", "LetterProducers"]

log = logger("kadence.consumer")


class LetterProducer(Protocol):
    """What dead letters need of a producer."""

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
    """Some bad records being sent. ``done`` says that each was acknowledged, or that ``error`` says why not."""

    __slots__ = ("bad", "done", "error")

    def __init__(self, bad: Sequence[BadRecord]) -> None:
        self.bad = bad
        self.done = False
        self.error: Exception | None = None


class DeadLetters:
    """Writes bad records to the dead letter topic, and says when the broker has acknowledged them.

    Args:
        topic: where to. group: who could not read them, for their headers.
        make_producer: makes the producer, when the first bad record is there.
        wake: called, from a sending thread, when a delivery is done.
    """

    def __init__(
        self,
        topic: str,
        group: str | None,
        make_producer: Callable[[], LetterProducer],
        wake: Callable[[], None],
    ) -> None:
        self.topic = topic
        self._group = group
        self._make = make_producer
        self._wake = wake
        self._producer: LetterProducer | None = None
        self._lock = threading.Lock()

    def deliver(self, bad: Sequence[BadRecord]) -> Delivery:
        """Begin to send; look at the result's ``done`` after each wake-up."""
        delivery = Delivery(bad)
        OwnThread(target=self._send, name="kadence-dead-letters", args=(delivery,)).start()
        return delivery

    def close(self, seconds: float) -> Delivery:
        """Begin to close the producer, if there ever was one."""
        closing = Delivery(())
        producer, self._producer = self._producer, None
        if producer is None:
            closing.done = True
        else:
            OwnThread(
                target=self._end, name="kadence-dead-letters", args=(closing, producer, seconds)
            ).start()
        return closing

    # ------------------------------------------------------------ on a sending thread

    def _send(self, delivery: Delivery) -> None:
        try:
            with self._lock:
                if self._producer is None:
                    self._producer = self._make()
                producer = self._producer
            letters = [(each.record, bad_record(each, self.topic, self._group)) for each in delivery.bad]
            while letters:
                letters = self._written(producer, letters)
        except Exception as error:  # noqa: BLE001 - raised by the poll that waits for it
            delivery.error = error
        delivery.done = True
        self._wake()

    def _written(
        self, producer: LetterProducer, letters: Sequence[tuple[Record, Letter]]
    ) -> list[tuple[Record, Letter]]:
        """Write these. Returns what is to be written in place of those that the topic does not take for their size."""
        outcomes = [(record, letter, _sent(producer, letter)) for record, letter in letters]
        instead = []
        for record, letter, outcome in outcomes:
            error = outcome if isinstance(outcome, Exception) else outcome.exception()
            if error is None:
                continue
            if (found := shorter(letter, error)) is None:
                raise error
            log.warning("%s", found.said(record, error))
            instead.append((record, found.letter))
        return instead

    def _end(self, closing: Delivery, producer: LetterProducer, seconds: float) -> None:
        try:
            producer.close(timeout=seconds)
        except Exception as error:  # noqa: BLE001 - every letter was acknowledged before; this is only tidying up
            log.info("closing the dead letters' producer: %s", error)
        closing.done = True
        self._wake()


def _sent(producer: LetterProducer, letter: Letter) -> Any:
    """The future of a letter, or why it was not taken."""
    try:
        return producer.send(letter.topic, letter.value, letter.key, headers=letter.headers)
    except Exception as error:  # noqa: BLE001 - looked at with the others
        return error
