"""Records that are deleted before a command reads them, by retention or DeleteRecords.

They are not skipped silently. Output of lines continues behind them: a message names the missing offsets, and the
command's status is 1. Output to a file ends with an error, because the file would not be complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kadence.errors import OffsetOutOfRangeError
from kadence_cli.common import CommandError, say
from kadence_cli.names import spelled

if TYPE_CHECKING:
    from kadence import Consumer, Record

__all__ = ["Losses", "whole"]


class Losses:
    """The deleted records of one command. Its consumer has ``auto.offset.reset=none``.

    Attributes:
        status: of the command: 1 as soon as a record was missed.
    """

    def __init__(self) -> None:
        self.status = 0

    def pass_over(self, consumer: Consumer[Any, Any], error: OffsetOutOfRangeError) -> None:
        """Continue at the first record that is left, and report the missing offsets.

        Raises:
            OffsetOutOfRangeError: no record was deleted before that offset: the log was truncated, or recreated.
        """
        partition, position = error.partition, error.position
        if partition is None or position is None:
            raise error
        first = consumer.beginning_offsets([partition])[partition]
        if first <= position:
            raise error
        self.status = 1
        say(f"{spelled(partition)}: the offsets {position} to {first - 1} were deleted before they were read")
        consumer.seek(partition, first)

    def records(self, consumer: Consumer[Any, Any]) -> Iterator[Record[Any, Any]]:
        """All records of the consumer's ranges."""
        while True:
            try:
                yield from consumer
                return
            except OffsetOutOfRangeError as error:
                self.pass_over(consumer, error)


@contextlib.contextmanager
def whole(name: str) -> Iterator[None]:
    """A context in which records that are deleted before they are read raise an error about the file ``name``.

    Raises:
        CommandError: some were.
    """
    try:
        yield
    except OffsetOutOfRangeError as error:
        if error.partition is None:
            raise
        raise CommandError(
            f"offset {error.position} of {spelled(error.partition)} was deleted before it was read, so {name} would "
            "be incomplete: run the command again, or begin later with --from"
        ) from error
