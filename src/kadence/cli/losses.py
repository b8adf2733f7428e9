"""Records that are deleted while a command reads towards them, by retention or by somebody.

A reading that knows where it begins never passes over them in silence. Lines go on behind them: a sentence says which
offsets are missing, and the command's status is 1. A file would not be whole, so there is none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kadence.cli.common import CommandError, say
from kadence.cli.names import spelled
from kadence.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from kadence import Consumer, Record

__all__ = ["Losses", "whole"]


class Losses:
    """What one command could not read because it was deleted. Its consumer has ``auto.offset.reset=none``.

    Attributes:
        status: of the command: 1 as soon as something was missed.
    """

    def __init__(self) -> None:
        self.status = 0

    def pass_over(self, consumer: Consumer[Any, Any], error: OffsetOutOfRangeError) -> None:
        """Go on at the first record that is left, and say what is missing.

        Raises:
            OffsetOutOfRangeError: nothing was deleted before that offset: the log has lost its end, or is another one.
        """
        partition, position = error.partition, error.position
        if partition is None or position is None:
            raise error
        first = consumer.beginning_offsets([partition])[partition]
        if first <= position:
            raise error
        self.status = 1
        say(
            f"{spelled(partition)}: what it had from offset {position} to {first - 1} was deleted before it was read"
        )
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
    """Inside it, records that are deleted before they are read are an error about the file ``name``.

    Raises:
        CommandError: some were.
    """
    try:
        yield
    except OffsetOutOfRangeError as error:
        if error.partition is None:
            raise
        raise CommandError(
            f"offset {error.position} of {spelled(error.partition)} was deleted before it was read, and {name} would "
            "not be whole: write it again, or --from a later place"
        ) from error
