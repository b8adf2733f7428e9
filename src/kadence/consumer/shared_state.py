"""What both threads of a consumer use: the client state, and fetched bytes on their way (C1, C2, C6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kadence.clock import Clock, wall_ms
from kadence.connection.request import Arrivals
from kadence.consumer.client_state import ClientState
from kadence.consumer.completed_fetch import CompletedFetch, Copies
from kadence.consumer.measures import Measures
from kadence.consumer.shared_partition import SharedPartition, Unfetched
from kadence.types import TopicPartition

__all__ = ["SharedState"]


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
