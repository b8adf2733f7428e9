"""How much is fetched ahead (A3): `buffer.memory` bounds the bytes (KIP-81), `Prefetch` says what is enough.

`Memory` counts what is held, what fetches under way may bring, and what is left.

Held are the arenas with fetched bytes, batches that are decompressed, bytes copied out of arenas, and records decoded
ahead of small polls (for which a little is always kept free). Room is
reserved before a fetch leaves and the broker is told the size, so nothing has to be refused when it comes. Three
things are not known beforehand:

- A broker sends one batch of the first partition whatever its size (KIP-74). What came beyond its reservation is
  counted, and the next fetches reserve as much; that fades, so one large record does not slow a consumer for good.
- What a batch decompresses to. A quarter of the memory is kept free for it while compressed batches come, more once a
  larger batch was seen.
- A batch above the whole cap. It is let in when nothing else is held, and counted.

How many bytes to ask for when a partition is fetched up to an end (C11). Network thread, sans-IO.

A broker sends what it has up to partition_max_bytes, so a fetch for the last thousand records of a range would bring a
mebibyte. What an offset takes, and a batch, is known from earlier fetches of the topic, and from any other topic before
that. Before anything is known little is asked for: whatever the bound, the broker sends at least one whole batch of the
first partition, and that teaches the rest.

When enough is buffered: a partition is fetched while no more than one full fetch of it is buffered. That knows nothing
of records, so it costs nothing per poll, and what is kept ahead does not shrink with small records. Whoever says that
there is enough also sets the mark at which the application is to say that there no longer is (`SharedState.made_room`).
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
"""A producer's batch.size, unless it says otherwise."""
_LENGTH_AT: Final = slice(8, 12)
_LOG_OVERHEAD: Final = 12


class Sizes:
    """Running means of what was fetched: bytes for an offset, and for a batch, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, tuple[float, float]] = {}
        self._latest: tuple[float, float] = (_UNKNOWN_OFFSET, _UNKNOWN_BATCH)

    def saw(self, topic: str, offsets: int, batches: memoryview | bytes) -> None:
        """Whole batches came, which take so many offsets."""
        size = len(batches) / max(offsets, 1)
        batch = float(int.from_bytes(batches[_LENGTH_AT], "big") + _LOG_OVERHEAD)
        before = self._by_topic.get(topic)
        if before is not None:
            size, batch = (before[0] + size) / 2, (before[1] + batch) / 2
        self._by_topic[topic] = self._latest = size, batch

    def room_for(self, topic: str, offsets: int) -> int:
        """Bytes that so many offsets should take, and what of their first and last batch lies beside them."""
        size, batch = self._by_topic.get(topic, self._latest)
        return int(offsets * size + batch)


_OVERHEAD: Final = 16_384
"""A response's own fields."""
_MEMORY_OF_CODECS: Final = 64
"""So many answers without compressed batches say that none are to be expected."""


class Arenas(Protocol):
    """Where responses lie.

    Attributes:
        slack: how many bytes the arenas lent from now on may be larger than a fresh one would be.
        limit: how many bytes they may take together with what is kept for the next ones.
    """

    slack: int
    limit: int

    @property
    def in_use(self) -> int:
        """Bytes of arenas that somebody holds."""
        ...


class Memory:
    """Counts the bytes that `buffer.memory` bounds: held, reserved for fetches in flight, and free.

    Attributes:
        most_held, exceeded: see `Books`.
        oversized: answers that brought more than was reserved for them.
    """

    def __init__(self, config: ConsumerConfig, arenas: Arenas, shared_state: SharedState) -> None:
        self._cap = config.buffer_memory
        self._unpack_bytes = config.unpack_bytes
        self._decoded_bytes = config.decoded_bytes
        self._arenas = arenas
        self._shared_state = shared_state
        # For each fetch without an answer, what was reserved for it.
        self._reserved: dict[Request, int] = {}
        # As far as looked at.
        self._held = 0
        self._largest_answer = 0
        self._expects_compressed = _MEMORY_OF_CODECS
        self._is_over = False
        # What was decompressed when no more than the cap was held.
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
        """Once a turn: keep the statistics, and tell the arenas what they may waste and keep."""
        shared_state = self._shared_state
        # Read once, for the application may be decompressing.
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
            # Else it came with a batch that was decompressed, which the application counts.
            self.exceeded += unpacked == self._unpacked
        self._arenas.slack = max(self._free(), 0)
        self._arenas.limit = self._cap - others

    def share(self, brokers: int) -> int:
        """What a fetch may ask for so that one from each of so many brokers can be on its way at once."""
        return _fits((self._cap - self._unpack_bytes) // max(brokers, 1))

    def admit(self, wanted: int, least: int) -> int:
        """How many bytes a fetch may ask for, 0 when it has to wait.

        Args:
            wanted: what it would like. least: it is not worth a request for less.
        """
        free = self._free()
        if _reservation(least) <= free and self._largest_answer <= free:
            return max(min(wanted, _fits(free)), 1)
        # Records decoded ahead do not count: they have their own part, and whoever holds them waits for this fetch.
        if not self._reserved and self.held() == self._shared_state.decoded_bytes:
            return max(min(wanted, max(_fits(free), _fits(self._unpack_bytes))), 1)
        return 0

    def has(self, size: int) -> bool:
        """Whether so many bytes may come beside what is reserved."""
        return self._free() >= size

    def level(self, least: int) -> int:
        """How much `SharedState.fetched_bytes` may be for a fetch of ``least`` bytes to be admitted.

        Never below 0, where one is always admitted that is alone.
        """
        missing = max(_reservation(least), self._largest_answer) - self._free()
        return max(self._arenas.in_use + self._shared_state.copied_bytes - max(missing, 0), 0)

    def reserve(self, request: Request, max_bytes: int) -> None:
        """Book a fetch of ``max_bytes``."""
        self._reserved[request] = max(_reservation(max_bytes), self._largest_answer)
        self._arenas.slack = max(self._free(), 0)

    def ended(self, request: Request, size: int) -> None:
        """The fetch has ended; its answer takes ``size`` bytes of arena (0: none came)."""
        reserved = self._reserved.pop(request)
        if size > reserved:
            self.oversized += 1
            self._largest_answer = size
        elif self._largest_answer and size:
            self._largest_answer -= self._largest_answer // 8 + 1

    def saw(self, *, compressed: bool) -> None:
        """Whether an answer had compressed batches."""
        if compressed:
            self._expects_compressed = _MEMORY_OF_CODECS
        elif self._expects_compressed:
            # Believe the very first answer: most topics are of one kind.
            self._expects_compressed -= min(self._expects_compressed, 8)

    def _free(self) -> int:
        shared_state = self._shared_state
        expected = 0
        for request, reserved in self._reserved.items():
            # What has begun to arrive lies in an arena, and counts as that.
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
    """Arenas come in sizes an eighth apart."""
    return max_bytes + (max_bytes >> 3) + _OVERHEAD


def _fits(room: int) -> int:
    """The largest fetch whose reservation is not above ``room``."""
    return (room - _OVERHEAD) * 8 // 9


class FetchChoice(enum.Enum):
    """Which of a broker's partitions to ask for now."""

    ALL = "all that are to be fetched"
    HUNGRY = "those of which nothing is buffered"
    NONE = "enough is buffered of all"


class Prefetch:
    """Says when enough is buffered: of a partition, and of all that a broker has."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._per_partition = config.max_partition_fetch_bytes

    def has_enough(self, state: PartitionState) -> bool:
        """Whether a partition is to be left out. Whatever drains it below that wakes the network thread."""
        shared_partition, mark = state.shared_partition, state.fetched_bytes - self._per_partition
        if shared_partition.drained_bytes >= mark:
            return False
        shared_partition.wake_bytes = mark
        # Looked at again: what was drained before the mark was set has woken nobody.
        return shared_partition.drained_bytes < mark

    def weigh(self, broker: Broker) -> FetchChoice:
        """What to ask a broker for. Whatever changes the verdict wakes the network thread.

        Partitions with data are fetched together: while they hold more than one fetch each on average, none is.

        Those that have nothing to give, as far as the broker was asked, do not count: they would make all others look
        hungry, and have them fetched one by one. They are asked for all the same.
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
                # Looked at again when half of it is drained, and again, until nothing is left.
                shared_partition, mark = state.shared_partition, state.fetched_bytes - held // 2
                shared_partition.wake_bytes = mark
                if shared_partition.drained_bytes >= mark:
                    # Drained before the mark was set, which has woken nobody.
                    return FetchChoice.ALL
        return FetchChoice.HUNGRY if has_idle else FetchChoice.NONE
