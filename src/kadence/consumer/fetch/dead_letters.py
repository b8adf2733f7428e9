"""Bad records on their way to the dead letter topic, acknowledged before anything goes on. Application side.

Sending may block (an unknown topic, a full buffer), and a poll must neither hang nor stop an event loop. So each batch
of bad records is sent by a short-lived thread of its own, which ends with the broker's acknowledgement; the poll waits
for it as for anything else. Bad records are rare; a thread each time costs less than one that always waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kadence.logs import OwnThread, logger
from kadence.printable import text_of
from kadence.records import MOST_HEADERS, Record

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
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Any: ...

    def close(self, timeout: float | None = None) -> None: ...


LetterProducers = Callable[..., LetterProducer]
"""Makes a consumer's producer of dead letters, and that of `process`; see `assembly.letter_producer`."""


class BadRecord(NamedTuple):
    """A record as it lay in its topic, which part of it is bad (``key`` or ``value``), and what that raised."""

    record: Record
    field: str
    error: Exception


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
            futures = [self._post(producer, each) for each in delivery.bad]
            for future in futures:
                future.result()
        except Exception as error:  # noqa: BLE001 - raised by the poll that waits for it
            delivery.error = error
        delivery.done = True
        self._wake()

    def _post(self, producer: LetterProducer, bad: BadRecord) -> Any:
        record, field, error = bad
        origin: list[tuple[str, bytes | None]] = [
            ("kadence.error.topic", record.topic.encode()),
            ("kadence.error.partition", b"%d" % record.partition),
            ("kadence.error.offset", b"%d" % record.offset),
            ("kadence.error.field", field.encode()),
            ("kadence.error.class", type(error).__name__.encode()),
            ("kadence.error.message", text_of(error).encode(errors="replace")),
        ]
        if self._group is not None:
            origin.append(("kadence.error.group", self._group.encode()))
        return producer.send(
            self.topic,
            record.value,
            record.key,
            timestamp=record.timestamp if record.timestamp >= 0 else None,
            headers=(*record.headers[: MOST_HEADERS - len(origin)], *origin),
        )

    def _end(self, closing: Delivery, producer: LetterProducer, seconds: float) -> None:
        try:
            producer.close(timeout=seconds)
        except Exception as error:  # noqa: BLE001 - every letter was acknowledged before; this is only tidying up
            log.info("closing the dead letters' producer: %s", error)
        closing.done = True
        self._wake()
