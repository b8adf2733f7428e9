"""Polls for tables, loaded with the first of them: waiting for a table's rows, and undoing a table that failed.

Whenever a table is not returned its rows are put back, so the next poll returns them (C7, C9). Application
side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.client.waits import Waits
from kadence.clock import Clock
from kadence.config import ConsumerConfig
from kadence.consumer.application.arrow_values import ArrowValues, LettersPendingError
from kadence.consumer.application.core import Core
from kadence.errors import DeadLetterError, KafkaError, RecordDeserializationError
from kadence.errors.local import AnswerPendingError
from kadence.records import arrow
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ArrowPolls"]


class ArrowPolls:
    """The polls for tables of one consumer."""

    def __init__(self, config: ConsumerConfig, core: Core, clock: Clock) -> None:
        self._config = config
        self._core = core
        self._clock = clock
        self._values: tuple[str, ArrowValues] | None = None
        self._pending: AnswerPendingError | LettersPendingError | None = None
        """The answer for which the rows that a poll has put back must wait."""
        self._pending_of: tuple[TopicPartition, ...] = ()
        """The partitions whose next rows wait for an answer."""

    def poll(
        self, until: int, limit: int, max_bytes: int | None, names: tuple[str, ...], value: str | None
    ) -> Waits[pyarrow.Table]:
        """A table as soon as there are any rows.

        Args:
            names: its columns. value: the format of the column ``value``; None: bytes.
        """
        core = self._core
        polled = names
        if value is not None and "value" in names:
            polled = self._arrow_values(value).needed(names)
        while True:
            is_answered = yield from self._answered(until)
            begun = core.polls.begun
            chunks = (
                (yield from core.polls.poll_columns(until, limit, columns=polled, max_bytes=max_bytes))
                if is_answered
                else []
            )
            try:
                table = arrow.to_table([part for _, parts in chunks for part in parts], names=polled)
                if value is None or "value" not in names:
                    return table
                core.polls.steps.is_taking = True
                try:
                    table, again = self._arrow_values(value).decoded(table, names)
                finally:
                    core.polls.steps.is_taking = False
                for partition, offset in again.items():
                    core.polls.cut(partition, offset)
                return table
            except AnswerPendingError as pending:
                # Other tasks may commit the taken rows while this one waits.
                core.polls.put_back(begun)
                self._pending = pending.with_traceback(None)
                self._pending_of = tuple(partition for partition, _ in chunks)
                pending.call_back(core.polls.look_again)
            except LettersPendingError as pending:
                core.polls.put_back(begun)
                self._pending = pending.with_traceback(None)
            except RecordDeserializationError as error:
                core.polls.put_back(begun)
                core.polls.note_raised((error.partition,), error)
                raise
            except DeadLetterError as error:
                core.polls.put_back(begun)
                assert value is not None
                core.polls.note_raised(self._arrow_values(value).raised_for, error)
                raise
            except Exception as error:
                # Out of memory, or the registry cannot be reached: the next poll must return these rows.
                core.polls.put_back(begun)
                if isinstance(error, KafkaError):
                    core.polls.note_raised((partition for partition, _ in chunks), error)
                raise

    def _answered(self, until: int) -> Waits[bool]:
        """Wait for the answer that the next rows need.

        False: it did not come in time. Raises the error if that came.
        """
        while (pending := self._pending) is not None:
            if pending.is_over:
                self._pending = None
                if isinstance(pending, LettersPendingError):
                    pending.settle()
                    break
                try:
                    pending.check()
                except KafkaError as error:
                    self._core.polls.note_raised(self._pending_of, error)
                    raise
                break
            self._core.check()
            if self._core.stopping or self._clock.now_ms() >= until:
                return False
            yield until
        return True

    def _arrow_values(self, kind: str) -> ArrowValues:
        """Created at the first use, and again for another format."""
        if self._values is None or self._values[0] != kind:
            self._values = kind, ArrowValues(self._config, self._core.polls.decoding, kind)
        return self._values[1]
