"""Calls serialisers, names the field in their errors, and waits for those that an event loop must serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kadence._native.shared import failed, made_bytes
from kadence.client.waits import Waits
from kadence.clock import FOREVER
from kadence.errors import SerializationError
from kadence.errors.local import AnswerPendingError

if TYPE_CHECKING:
    from kadence._native.append import ShortWay
    from kadence.producer.send_checks import SendChecks

__all__ = ["Serializing", "checked_bytes", "serialized"]


def checked_bytes(what: str, data: Any) -> bytes:
    """Bytes of any bytes-like object."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    advice = ""
    if isinstance(data, str) and what in ("key", "value"):
        advice = f", e.g. {what}.encode(); a Producer does that with {what}_serializer='string'"
    raise SerializationError(
        f"{what} must be bytes or None, not {type(data).__name__}: encode it first{advice}"
    )


def serialized(
    field: str, serializer: Any, topic: str, headers: Sequence[tuple[str, bytes | None]], data: Any
) -> bytes | None:
    """The bytes that a serialiser makes of a key or value; None stays None.

    Args:
        field: ``key`` or ``value``. serializer: None takes bytes as they are.
    """
    if data is None:
        return None
    if serializer is None:
        return checked_bytes(field, data)
    try:
        method = getattr(serializer, "serialize", None)
        made = serializer(data) if method is None else method(topic, headers, data)
    except Exception as error:
        raise failed(field, topic, error) from error
    return made_bytes(field, topic, made)


class Serializing:
    """Calls serialisers on the long way of a record, and waits if one needs a response.

    While a record waits, later ones of its topic wait behind it, so that tasks keep the order in which they called
    ``send()``. Serialisers that need no event loop wait themselves, on their threads.
    """

    def __init__(self, send_checks: SendChecks, short_way: ShortWay) -> None:
        self._send_checks = send_checks
        self._gate = send_checks.gate
        self._short_way = short_way
        self._held = short_way.held

    @contextmanager
    def record(self, topic: str) -> Iterator[Turn]:
        """A context that lasts as long as a record is on the long way."""
        turn = Turn()
        if topic in self._held:
            self._held[topic][turn] = None
        try:
            yield turn
        finally:
            line = self._held.get(topic)
            if line is not None and turn in line:
                del line[turn]
                if not line:
                    del self._held[topic]
                self._look_again()

    def made(
        self,
        field: str,
        serializer: Any,
        topic: str,
        headers: Sequence[tuple[str, bytes | None]],
        data: Any,
        turn: Turn,
    ) -> Waits[bytes | None]:
        """As `serialized`. The serialiser decides how long to wait for its response, as with threads."""
        count = len(headers)
        while True:
            self._short_way.is_serializing = True
            try:
                return serialized(field, serializer, topic, headers, data)
            except AnswerPendingError as error:
                pending = error.with_traceback(None)
            finally:
                self._short_way.is_serializing = False
            if isinstance(headers, list):
                # The serialiser adds its headers again when it is called again.
                del headers[count:]
            self._held.setdefault(topic, {})[turn] = None
            pending.call_back(self._look_again)
            with self._gate:
                while not pending.is_over:
                    yield from self._send_checks.wait(FOREVER, "")
            try:
                pending.check()
            except Exception as error:
                raise failed(field, topic, error) from error

    def is_next(self, topic: str, turn: Turn) -> Waits[None]:
        """Wait until no earlier record of the topic is on the long way."""
        line = self._held.get(topic)
        if line is not None and turn in line:
            with self._gate:
                while next(iter(line)) is not turn:
                    yield from self._send_checks.wait(FOREVER, "")

    def _look_again(self) -> None:
        with self._gate:
            self._gate.notify_all()


class Turn:
    """The place of a record among those that wait."""

    __slots__ = ()
