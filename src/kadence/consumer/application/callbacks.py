"""The callbacks that an application can give: for rebalances and for commits. They run on the application thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = ["AsyncRebalanceListener", "CommitCallback", "RebalanceListener"]

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object]
"""A function that a consumer calls at the end of a commit, with its offsets and its error (None: it succeeded).

The result is ignored. `AsyncConsumer` also takes a coroutine function, and awaits it.
"""


class RebalanceListener(Protocol):
    """Subclass it, or write a class with all its methods, and give an object of it to ``subscribe(..., listener=)``.

    Its methods run on the thread that polls, inside poll(), unsubscribe() or close(); commit(), seek(), pause() and
    position() work inside them. If a method raises, the rebalance goes on, and that call then raises the exception.
    The time that a method takes counts as processing time (max.poll.interval.ms).
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        """These partitions are about to be revoked; they are still this member's, so a commit works."""
        del partitions

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        """These partitions were added (may be none). None of them is fetched before this returns."""
        del partitions

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        """These partitions were lost: a commit would fail. By default it calls `on_partitions_revoked`."""
        # An AsyncConsumer awaits it, should it be a coroutine function in spite of its type.
        return self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """As `RebalanceListener`, for `AsyncConsumer`: each method may be a function or a coroutine function.

    Coroutine functions are awaited inside poll(), unsubscribe() or close(), on the consumer's event loop. A
    `RebalanceListener` does as well where nothing has to be awaited.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions are about to be revoked; they are still this member's, so a commit works."""
        return None

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions were added (may be none). None of them is fetched before this returns."""
        return None

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions were lost: a commit would fail. By default it calls `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)
