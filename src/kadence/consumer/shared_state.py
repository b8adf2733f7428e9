"""What both threads of a consumer use: the client state, and fetched bytes on their way (C1, C2, C6).

Fetched bytes are copied out of their arena where they keep much more memory of it than their own size. The network
thread copies small answers, for the smallest arena holds 16 KiB: thousands of answers with one record each would fill
`buffer.memory` with next to nothing. The application copies what paused partitions leave of an arena.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from kadence.clock import Clock, wall_ms
from kadence.connection.request import Loan
from kadence.consumer.client_state import ClientState, Signal
from kadence.consumer.measures import Measures
from kadence.consumer.shared_partition import SharedPartition, Unfetched
from kadence.types import TopicPartition

__all__ = [
    "CompletedFetch",
    "Copies",
    "SharedState",
    "frees",
    "is_small",
]

_OBJECTS: Final = 256
"""About what the objects take that belong to one copy."""

_LARGEST: Final = 16_384
"""The network thread copies nothing larger: large answers are read where they lie."""


class Copies:
    """All copies of one consumer. Each number has one writer.

    Attributes:
        packed: bytes that the network thread copied, ever. copied: those that the application did, ever.
        released: bytes that were given back, ever (application).
    """

    __slots__ = ("copied", "packed", "released")

    def __init__(self) -> None:
        self.packed = self.copied = self.released = 0

    @property
    def held(self) -> int:
        """Bytes that copies take. Any thread."""
        # What arrived may be given back before it is counted.
        return max(self.packed + self.copied - self.released, 0)

    def pack(self, data: memoryview) -> tuple[bytes, Loan]:
        """A copy and its loan. Network thread."""
        loan = _Copy(self, _taken((len(data),)))
        self.packed += loan.size
        return bytes(data), loan

    def arrived(self, sizes: Collection[int]) -> None:
        """Records came that the application has, or is to take, by `arrival`. Network thread."""
        self.packed += _taken(sizes)

    def arrival(self, size: int) -> Loan:
        """The loan of such records, which `arrived` counts, be it sooner or later. Application thread."""
        return _Copy(self, size + _OBJECTS)

    def copy(self, data: memoryview | bytes) -> tuple[bytes, Loan]:
        """A copy and its loan. Application thread."""
        loan = _Copy(self, _taken((len(data),)))
        self.copied += loan.size
        return bytes(data), loan


class _Copy:
    """The loan of one copy. The application gives it back."""

    __slots__ = ("_copies", "size")

    holds = 1

    def __init__(self, copies: Copies, size: int) -> None:
        self._copies = copies
        self.size = size

    def retain(self) -> None:
        raise NotImplementedError("nobody shares a copy")

    def release(self) -> None:
        self._copies.released += self.size


def is_small(sizes: Collection[int]) -> bool:
    """Whether parts of such sizes may be copied on the way from the network to the application."""
    return _taken(sizes) <= _LARGEST


def frees(sizes: Collection[int], arena: Loan) -> bool:
    """Whether copies of all parts of an arena take at most half as much as it does."""
    return 2 * _taken(sizes) <= arena.size


def _taken(sizes: Collection[int]) -> int:
    return sum(sizes) + _OBJECTS * len(sizes)


@dataclass(slots=True, eq=False)
class CompletedFetch:
    """One partition's bytes of one fetch response, still framed, lying in a lent arena or copied out of it.

    ``fetch_epoch`` is the reading stretch they belong to (see `SharedPartition`); ``arena`` is released by whoever
    takes them. ``aborted``: (producer id, first offset) of aborted transactions, for read_committed.
    """

    shared_partition: SharedPartition
    fetch_epoch: int
    offset: int
    data: memoryview | bytes
    arena: Loan
    aborted: tuple[tuple[int, int], ...] | None


class Arrivals(Protocol):
    """Fetched records that came while the network thread waited without the interpreter; they woke the application.

    The network thread may not know of them yet. See `consumer.fetch.manager.following`.
    """

    def flag(self) -> Signal:
        """What the application waits on: as a signal, and raised also when records come."""
        ...

    def has_some(self) -> bool:
        """Whether there is anything to take."""
        ...

    def take(self, into: deque[CompletedFetch]) -> None:
        """Move them there. Any thread; an interruption loses nothing."""
        ...


class SharedState(ClientState):
    """The whole shared state of one consumer: the client state, and what is fetched. Every attribute names its writer.

    Attributes:
        completed_fetches: network → application; they raise the attention and the signal, too. arrivals: see there;
            None: all records come by `put`.
        shared_partitions: of each partition that is assigned, replaced as a whole (network). Polls may not have told
            the application of all of them: it is shown `KnownAssignment.partitions` as its assignment.
        missing: topics that the application reads and the cluster does not have, or does not show (network).
        topics: what is subscribed to by name, or matches a pattern that is matched here (network).
        starts: how many places ``auto.offset.reset`` has chosen (network).
        changed: shared partitions that the network thread is to look at again: paused, resumed, drained to a mark
            (application).
        wake_held: a fetch waits for memory: when no more than this is taken (`fetched_bytes`) the network thread wants
            to know; -1: none waits. The network thread sets it, the application takes it away when it tells.
        moves: how many positions were ever set (network).
        decompressed_bytes: held by batches being read (application). copies: what was copied out of arenas.
            decoded_bytes: of records decoded ahead (application).
            largest_batch: what the largest batch of late decompressed to (application).
        pressing: a fetch waits for memory while paused partitions hold some (network). pressed: the application is to
            look whether it can give some of that back, and clears it; raised again with each fetch that is done with,
            for it may have shared its memory with a paused partition.
    """

    measures: Measures

    def __init__(
        self,
        wake: Callable[[], None],
        measures: Measures | None = None,
        clock: Clock | None = None,
        wall: Callable[[], int] = wall_ms,
        arrivals: Arrivals | None = None,
    ) -> None:
        super().__init__(
            wake, measures or Measures(), clock, wall, None if arrivals is None else arrivals.flag()
        )
        self.arrivals = arrivals
        self.completed_fetches: deque[CompletedFetch] = deque()
        self.shared_partitions: Mapping[TopicPartition, SharedPartition] = MappingProxyType({})
        self.moves = 0
        self.missing: Mapping[str, Unfetched] = MappingProxyType({})
        self.topics: frozenset[str] = frozenset()
        self.starts = 0
        self.changed: deque[SharedPartition] = deque()
        self.wake_held = -1
        self.decompressed_bytes = 0
        self.copies = Copies()
        self.decoded_bytes = 0
        self.largest_batch = 0
        self.pressing = False
        self.pressed = False

    # -- application thread

    def made_room(self, shared_partition: SharedPartition) -> None:
        """Bytes of a partition were handed out or dropped, and are counted in its shared partition already.

        Called for each fetch that is done with: it alone decides whether the network thread is woken for it. A mark is
        noted as told last, so an interruption tells it twice at worst.
        """
        # Read once: while we wake it the network thread may set another.
        wake_bytes = shared_partition.wake_bytes
        if shared_partition.drained_bytes >= wake_bytes != shared_partition.told_bytes:
            self.changed.append(shared_partition)
            self.wake()
            shared_partition.told_bytes = wake_bytes
        if self.wake_held >= 0:
            if self.fetched_bytes() <= self.wake_held:
                self.ask_for_memory_again()
            elif self.pressing:
                self.pressed = True

    def ask_for_memory_again(self) -> None:
        """Wake the network thread if a fetch waits for memory: there may be more of it."""
        if self.wake_held >= 0:
            try:
                # First: the network thread sets it again when it still has to wait.
                self.wake_held = -1
            finally:
                self.wake()

    def look_at(self, shared_partition: SharedPartition) -> None:
        """The application, or `process`, paused or resumed a partition. Any thread.

        The network thread sees a pause with its next turn; a resume wakes it, and so does a pause while a fetch waits
        for memory, for what paused partitions hold of it may be given back.
        """
        self.changed.append(shared_partition)
        if not shared_partition.is_paused:
            self.wake()
        if shared_partition.is_paused:
            self.ask_for_memory_again()

    def fetched_bytes(self) -> int:
        """What fetched bytes take of `buffer.memory`, wherever they lie. Any thread."""
        return self.measures.held_bytes() + self.copied_bytes

    def held_bytes(self) -> int:
        """What is held of `buffer.memory`. Any thread."""
        return self.fetched_bytes() + self.decompressed_bytes + self.decoded_bytes

    @property
    def copied_bytes(self) -> int:
        """What copies of fetched bytes take. Any thread."""
        return self.copies.held

    # -- network thread

    def press(self) -> None:
        self.pressing = self.pressed = True
        self.alert()

    def put(self, fetched: CompletedFetch) -> None:
        self.completed_fetches.append(fetched)
        self.alert()

    # -- any thread

    def take_arrivals(self) -> None:
        """Put what arrived without the network thread into `completed_fetches`. Before anything that came later."""
        if self.arrivals is not None:
            self.arrivals.take(self.completed_fetches)
