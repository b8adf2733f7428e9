"""The common part of all deserialisers: the schema of each key or value, and its parsed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kadence_schemas.framing import HEADER, KEY_HEADER, VALUE_HEADER, Frame, announced, frame_of, said_of
from kadence_schemas.subjects import SubjectNameStrategy, checked_subject, reading_strategy

__all__ = ["Frames"]

T = TypeVar("T")


class Frames(Generic[T]):
    """The schemas that keys or values name, with their parsed forms.

    Args:
        make: makes the reader of a frame's data. fixed: the reader of all data; none is made then. with_path: whether a
            message's index path follows the schema. is_key: None: as the client uses it, else for values.
        strategy: names the subject in which ids are looked up; None: without a subject. record: the record's name for
            the strategy, if known.

    Attributes:
        quick: the results of `of` by the first bytes of keys and values, for records without headers. It is empty if
            these bytes are not sufficient. subject: of a topic; None where no strategy was given.
    """

    def __init__(
        self,
        make: Callable[[Frame], T],
        *,
        fixed: T | None = None,
        with_path: bool = False,
        is_key: bool | None = None,
        strategy: SubjectNameStrategy | str | None = None,
        record: str | None = None,
    ) -> None:
        self._make = make
        self._fixed = fixed
        self._with_path = with_path
        self._is_key = is_key
        self._given = strategy
        self._record = record
        self._shortest = HEADER + with_path
        self._made: dict[Frame, T] = {}
        self._subjects: dict[str, str | None] = {}
        self.quick: dict[bytes, tuple[T, int]] = {}
        self.header = KEY_HEADER if is_key else VALUE_HEADER
        self.subject = None if strategy is None else self._subject
        self._strategy = None if strategy is None else reading_strategy(strategy)

    def of(self, topic: str, headers: Iterable[tuple[str, bytes | None]], data: bytes) -> tuple[T, int]:
        """The reader of the data, and where the data begins.

        Raises:
            SerializationError: no schema is named. Or the exception of ``make``.
        """
        header = announced(headers, self.header) if headers else None
        head = data[: self._shortest]
        is_first = header is None and len(head) == self._shortest
        is_first = is_first and not head[0] and not (self._with_path and head[-1])
        if is_first:
            found = self.quick.get(head)
            if found is not None:
                return found
        if self._fixed is not None:
            return self._fixed, self._shortest if is_first else self._frame(topic, header, data).size
        frame = self._frame(topic, header, data)
        made = self._made.get(frame)
        if made is None:
            made = self._made[frame] = self._make(frame)
        if is_first and self.subject is None:
            self.quick[bytes(head)] = made, frame.size
        return made, frame.size

    def said(self, topic: str, headers: Iterable[tuple[str, bytes | None]], data: bytes) -> str:
        """The schema found by `of`, in the words of errors."""
        return said_of(self._frame(topic, announced(headers, self.header), data).schema)

    def _frame(self, topic: str, header: bytes | None, data: bytes) -> Frame:
        subject = None if self.subject is None else self.subject(topic)
        return frame_of(data, header, with_path=self._with_path, name=self.header, subject=subject)

    def for_keys(self, make: Callable[[Frame], T]) -> Frames[T]:
        """The same for keys, unless ``is_key`` was given."""
        if self._is_key is not None:
            return self
        return Frames(
            make,
            fixed=self._fixed,
            with_path=self._with_path,
            is_key=True,
            strategy=self._given,
            record=self._record,
        )

    def _subject(self, topic: str) -> str | None:
        if topic not in self._subjects:
            assert self._strategy is not None
            found = self._strategy(topic, bool(self._is_key), self._record)
            self._subjects[topic] = None if found is None else checked_subject(found)
        return self._subjects[topic]
