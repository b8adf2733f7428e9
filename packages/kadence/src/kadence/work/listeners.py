"""The rebalance listener that `process` gives to the consumer; it calls the application's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kadence.types import TopicPartition
from kadence.work.processing import Processing
from kadence.work.steps import Steps

__all__ = ["AsyncListener", "Listener"]


class _Untold:
    """Assigned partitions for which the application's listener has not been called yet.

    `process` looks up offsets first. If partitions go meanwhile, the listener is called neither for their assignment
    nor for their revocation.
    """

    def __init__(self) -> None:
        self._calls: dict[TopicPartition, object] = {}

    def come(self, partitions: Iterable[TopicPartition]) -> object:
        """These are assigned. Returns a token for `here`."""
        call = object()
        self._calls.update(dict.fromkeys(partitions, call))
        return call

    def here(self, partitions: Sequence[TopicPartition], call: object) -> list[TopicPartition] | None:
        """The partitions to call the listener with; None: all have gone, and it is not called."""
        told = [partition for partition in partitions if self._calls.get(partition) is call]
        for partition in told:
            del self._calls[partition]
        return told if told or not partitions else None

    def go(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition] | None:
        """As `here`, for partitions that are revoked or lost."""
        told = [partition for partition in partitions if self._calls.pop(partition, None) is None]
        return told if told or not partitions else None


class Listener:
    """Passes rebalances to the processing, and then to the application's own listener."""

    def __init__(self, processing: Processing, carry: Callable[[Steps], None], theirs: Any) -> None:
        self._processing = processing
        self._carry = carry
        self._theirs = theirs
        self._untold = _Untold()

    def _tell(self, name: str, partitions: list[TopicPartition] | None) -> None:
        if self._theirs is not None and partitions is not None:
            getattr(self._theirs, name)(partitions)

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        call = self._untold.come(partitions)
        # Call theirs whatever that raises: it will be called when these partitions go, too.
        try:
            self._carry(self._processing.assigned(tuple(partitions)))
        finally:
            self._tell("on_partitions_assigned", self._untold.here(partitions, call))

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        told = self._untold.go(partitions)
        try:
            self._carry(self._processing.revoked(tuple(partitions)))
        finally:
            self._tell("on_partitions_revoked", told)

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        told = self._untold.go(partitions)
        self._processing.lost(tuple(partitions))
        self._tell("on_partitions_lost", told)


class AsyncListener:
    """As `Listener`, on an event loop."""

    def __init__(self, processing: Processing, carry: Callable[[Steps], Any], theirs: Any) -> None:
        self._processing = processing
        self._carry = carry
        self._theirs = theirs
        self._untold = _Untold()

    async def _tell(self, name: str, partitions: list[TopicPartition] | None) -> None:
        if self._theirs is not None and partitions is not None:
            result = getattr(self._theirs, name)(partitions)
            if result is not None:
                await result

    async def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        call = self._untold.come(partitions)
        try:
            await self._carry(self._processing.assigned(tuple(partitions)))
        finally:
            await self._tell("on_partitions_assigned", self._untold.here(partitions, call))

    async def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        told = self._untold.go(partitions)
        try:
            await self._carry(self._processing.revoked(tuple(partitions)))
        finally:
            await self._tell("on_partitions_revoked", told)

    async def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        told = self._untold.go(partitions)
        self._processing.lost(tuple(partitions))
        await self._tell("on_partitions_lost", told)
