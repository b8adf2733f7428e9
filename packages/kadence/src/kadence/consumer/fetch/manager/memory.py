"""How much is fetched ahead (A3): `buffer.memory` bounds the bytes (KIP-81), `Prefetch` decides how much is enough.

`Memory` counts the bytes that are held, that fetches under way may bring, and that are left.

Held are the arenas with fetched bytes, decompressed batches, bytes copied out of arenas, and records decoded ahead for
small polls (for which some memory is always kept free). Memory is reserved before a fetch is sent, and the request
names its size, so no response must be refused. Three things are not known in advance:

- A broker sends one batch of the first partition whatever its size (KIP-74). Bytes beyond its reservation are counted,
  and the next fetches reserve as much; that decays, so one large record does not slow a consumer for good.
- The decompressed size of a batch. A quarter of the memory is kept free for it while compressed batches come, more once
  a larger batch was seen.
- A batch above the whole cap. It is let in when nothing else is held, and counted.

How many bytes to ask for when a partition is fetched up to an end (C11). Network thread, sans-IO.

A broker sends what it has up to partition_max_bytes, so a fetch for the last thousand records of a range would bring a
mebibyte. The size of an offset, and of a batch, is estimated from earlier fetches of the topic, or at first of any
other topic. Before anything is known, little is requested: the broker always sends at least one whole batch of the
first partition, which gives the first estimate.

When enough is buffered: a partition is fetched while no more than one full fetch of it is buffered. That does not
depend on records, so it costs nothing per poll, and the amount kept ahead does not shrink with small records. When
there is enough, the network thread also sets the mark at which the application must wake it (`SharedState.made_room`).
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from kadence.config import ConsumerConfig
from kadence.connection.request import Request
from kadence.consumer.fetch.manager.session import Broker
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import PartitionState

__all__ = ["Arenas", "FetchChoice", "Memory", "Prefetch", "Sizes"]

_UNKNOWN_OFFSET: Final = 64
_UNKNOWN_BATCH: Final = 16_384
"""The default of a producer's batch.size."""
_LENGTH_AT: Final = slice(8, 12)
_LOG_OVERHEAD: Final = 12


class Sizes:
    """Running means of fetched data: bytes per offset, and per batch, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, tuple[float, float]] = {}
        self._latest: tuple[float, float] = (_UNKNOWN_OFFSET, _UNKNOWN_BATCH)

    def saw(self, topic: str, offsets: int, batches: memoryview | bytes) -> None:
        """Whole batches came, which span this many offsets."""
        size = len(batches) / max(offsets, 1)
        batch = float(int.from_bytes(batches[_LENGTH_AT], "big") + _LOG_OVERHEAD)
        before = self._by_topic.get(topic)
        if before is not None:
            size, batch = (before[0] + size) / 2, (before[1] + batch) / 2
        self._by_topic[topic] = self._latest = size, batch

    def room_for(self, topic: str, offsets: int) -> int:
        """Expected bytes of this many offsets, including the rest of their first and last batch."""
        size, batch = self._by_topic.get(topic, self._latest)
        return int(offsets * size + batch)


_OVERHEAD: Final = 16_384
"""A response's own fields."""
_MEMORY_OF_CODECS: Final = 64
"""After this many responses without compressed batches, none are expected."""


class Arenas(Protocol):
    """The memory of responses.

    Attributes:
        slack: how many bytes the arenas lent from now on may be larger than a fresh one would be.
        limit: how many bytes they may take, including memory kept for the next ones.
    """

    slack: int
    limit: int

    @property
    def in_use(self) -> int:
        """Bytes of arenas that are held."""
        ...


class Memory:
    """Counts the bytes that `buffer.memory` bounds: held, reserved for fetches in flight, and free.

    Attributes:
        most_held, exceeded: see `Books`.
        oversized: responses that were larger than their reservation.
    """

    def __init__(self, config: ConsumerConfig, arenas: Arenas, shared_state: SharedState) -> None:
        self._cap = config.buffer_memory
        self._unpack_bytes = config.unpack_bytes
        self._decoded_bytes = config.decoded_bytes
        self._arenas = arenas
        self._shared_state = shared_state
        # The reservation of each fetch without a response.
        self._reserved: dict[Request, int] = {}
        # As of the last look.
        self._held = 0
        self._largest_answer = 0
        self._expects_compressed = _MEMORY_OF_CODECS
        self._is_over = False
        # Decompressed bytes when no more than the cap was held.
        self._unpacked = 0
        self.most_held = 0
        self.exceeded = 0
        self.oversized = 0

    def held(self) -> int:
        shared_state = self._shared_state
        return (
            self._arenas.in_use
            + shared_state.decompressed_bytes
            + shared_state.copied_bytes
            + shared_state.decoded_bytes
        )

    def look(self) -> None:
        """Once a turn: update the statistics, and set the arenas' slack and limit."""
        shared_state = self._shared_state
        # Read once, because the application may be decompressing.
        unpacked = shared_state.decompressed_bytes
        others = unpacked + shared_state.copied_bytes + shared_state.decoded_bytes
        held = self._arenas.in_use + others
        if not held and not self._held:
            return
        self._held = held
        self.most_held = max(self.most_held, held)
        if held <= self._cap:
            self._is_over, self._unpacked = False, unpacked
        elif not self._is_over:
            self._is_over = True
            # Otherwise a decompressed batch caused it, which the application counts.
            self.exceeded += unpacked == self._unpacked
        self._arenas.slack = max(self._free(), 0)
        self._arenas.limit = self._cap - others

    def share(self, brokers: int) -> int:
        """How many bytes a fetch may request so that one from each of this many brokers can be under way at once."""
        return _fits((self._cap - self._unpack_bytes) // max(brokers, 1))

    def admit(self, wanted: int, least: int) -> int:
        """How many bytes a fetch may request, 0 when it has to wait.

        Args:
            wanted: the desired size. least: less is not worth a request.
        """
        free = self._free()
        if _reservation(least) <= free and self._largest_answer <= free:
            return max(min(wanted, _fits(free)), 1)
        # Records decoded ahead do not count: they have their own share, and the application that holds them waits for
        # this fetch.
        if not self._reserved and self.held() == self._shared_state.decoded_bytes:
            return max(min(wanted, max(_fits(free), _fits(self._unpack_bytes))), 1)
        return 0

    def has(self, size: int) -> bool:
        """Whether this many bytes may come in addition to the reservations."""
        return self._free() >= size

    def level(self, least: int) -> int:
        """How much `SharedState.fetched_bytes` may be for a fetch of ``least`` bytes to be admitted.

        Never below 0, at which a single fetch is always admitted.
        """
        missing = max(_reservation(least), self._largest_answer) - self._free()
        return max(self._arenas.in_use + self._shared_state.copied_bytes - max(missing, 0), 0)

    def reserve(self, request: Request, max_bytes: int) -> None:
        """Reserve memory for a fetch of ``max_bytes``."""
        self._reserved[request] = max(_reservation(max_bytes), self._largest_answer)
        self._arenas.slack = max(self._free(), 0)

    def ended(self, request: Request, size: int) -> None:
        """The fetch has ended; its response takes ``size`` bytes of arena (0: none came)."""
        reserved = self._reserved.pop(request)
        if size > reserved:
            self.oversized += 1
            self._largest_answer = size
        elif self._largest_answer and size:
            self._largest_answer -= self._largest_answer // 8 + 1

    def saw(self, *, compressed: bool) -> None:
        """Record whether a response had compressed batches."""
        if compressed:
            self._expects_compressed = _MEMORY_OF_CODECS
        elif self._expects_compressed:
            # Believe the very first answer: most topics are of one kind.
            self._expects_compressed -= min(self._expects_compressed, 8)

    def _free(self) -> int:
        shared_state = self._shared_state
        expected = 0
        for request, reserved in self._reserved.items():
            # A response that has begun to arrive is in an arena, and counts as that.
            if reserved > request.lent_bytes:
                expected += reserved - request.lent_bytes
        unpacked = shared_state.decompressed_bytes
        if self._expects_compressed:
            unpacked = max(unpacked, self._unpack_bytes, shared_state.largest_batch)
        return (
            self._cap
            - self._arenas.in_use
            - shared_state.copied_bytes
            - self._decoded_bytes
            - expected
            - unpacked
        )


def _reservation(max_bytes: int) -> int:
    """The sizes of arenas are an eighth apart."""
    return max_bytes + (max_bytes >> 3) + _OVERHEAD


def _fits(room: int) -> int:
    """The largest fetch whose reservation is not above ``room``."""
    return (room - _OVERHEAD) * 8 // 9


class FetchChoice(enum.Enum):
    """Which of a broker's partitions to fetch now."""

    ALL = "all that are to be fetched"
    HUNGRY = "those of which nothing is buffered"
    NONE = "enough is buffered of all"


class Prefetch:
    """Decides when enough is buffered: of a partition, and of all of a broker's partitions."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._per_partition = config.max_partition_fetch_bytes

    def has_enough(self, state: PartitionState) -> bool:
        """Whether to leave a partition out. The network thread is woken when it is drained below that."""
        shared_partition, mark = state.shared_partition, state.fetched_bytes - self._per_partition
        if shared_partition.drained_bytes >= mark:
            return False
        shared_partition.wake_bytes = mark
        # Check again: bytes drained before the mark was set have woken no thread.
        return shared_partition.drained_bytes < mark

    def weigh(self, broker: Broker) -> FetchChoice:
        """Which partitions to fetch from a broker. A change of the result wakes the network thread.

        Partitions with data are fetched together: while they hold more than one fetch each on average, none is.

        Those for which the broker had nothing do not count: they would lower the average, and all others would be
        fetched one by one. They are fetched all the same.
        """
        total = 0
        holding: list[PartitionState] = []
        settled: list[PartitionState] = []
        has_idle = len(broker.unsettled) < len(broker.wanted.states) + len(broker.full.states)
        choice = None
        for state in broker.unsettled:
            held = state.fetched_bytes - state.shared_partition.drained_bytes
            if held > 0:
                total += held
                holding.append(state)
            elif state.is_idle:
                has_idle = True
                settled.append(state)
            elif state.awaits_fetch:
                has_idle = True
            else:
                choice = FetchChoice.ALL
                break
        for state in settled:
            del broker.unsettled[state]
        if choice is not None or total <= self._per_partition * len(holding):
            return FetchChoice.ALL
        candidates = broker.candidates
        for state in holding:
            held = state.buffered_bytes
            if held > 0 and state in candidates:
                # Look again whenever half of it has been drained, until nothing is left.
                shared_partition, mark = state.shared_partition, state.fetched_bytes - held // 2
                shared_partition.wake_bytes = mark
                if shared_partition.drained_bytes >= mark:
                    # Drained before the mark was set, which has woken no thread.
                    return FetchChoice.ALL
        return FetchChoice.HUNGRY if has_idle else FetchChoice.NONE
