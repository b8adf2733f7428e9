"""Meters that one thread writes and any thread reads, without a lock.

A `Meter` takes values; what Kafka calls rate, average, maximum and minimum are read from the last two windows of
30 s (metrics.num.samples × metrics.sample.window.ms), exactly as the Java client's SampledStat does: a new sample
begins with the first value after the present one is 30 s old, a sample counts until 60 s after its last value, and
a rate divides by the time since the oldest sample began, but never by less than one whole window.

The writer pays for integers; everything else is done by the reader. A reader changes nothing, so no lock is
needed: closed samples are one immutable tuple, replaced as a whole. While a value is being recorded, a reader may see
its count without its sum, one event's worth.

`NetworkMeters` has those of a network client: connections, bytes, requests, waiting.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, nan
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = [
    "NANOS",
    "WINDOW_MS",
    "Joint",
    "Meter",
    "NetworkMeters",
    "NodeMeters",
    "Reading",
    "Tally",
    "rate_of",
]

WINDOW_MS: Final = 30_000
_WINDOWS: Final = 2
_EXPIRE_MS: Final = _WINDOWS * WINDOW_MS
_KEPT: Final = _WINDOWS
"""Closed samples that are kept: one more than counts in full, for the one that overlaps the beginning."""


class _Sample(NamedTuple):
    """The values between ``start`` and ``last`` (ms)."""

    start: int
    last: int
    number: int
    total: float
    high: float
    low: float


class _Marks(NamedTuple):
    """Closed samples, oldest first, and where the present one began."""

    closed: tuple[_Sample, ...]
    start: int
    number: int
    total: float


class Reading:
    """The methods with which any thread reads recorded values: of one `Tally`, or of several together (`Joint`)."""

    __slots__ = ()

    def rate(self, now: int, per_ms: int = 1_000) -> float:
        """The sum of the values per ``per_ms`` ms; 0 when nothing came."""
        samples, oldest = self._samples(now)
        return sum(sample.total for sample in samples) * per_ms / _elapsed(now, oldest)

    def frequency(self, now: int, per_ms: int = 1_000) -> float:
        """The number of values per ``per_ms`` ms."""
        samples, oldest = self._samples(now)
        return sum(sample.number for sample in samples) * per_ms / _elapsed(now, oldest)

    def average(self, now: int) -> float:
        """Of the values in the windows; NaN without any."""
        samples, _ = self._samples(now)
        count = sum(sample.number for sample in samples)
        return sum(sample.total for sample in samples) / count if count else nan

    def highest(self, now: int) -> float:
        """The greatest value in the windows; NaN without any."""
        samples, _ = self._samples(now)
        high = max((sample.high for sample in samples), default=-inf)
        return nan if high == -inf else high

    def lowest(self, now: int) -> float:
        """The least value in the windows; NaN without any."""
        samples, _ = self._samples(now)
        low = min((sample.low for sample in samples), default=inf)
        return nan if low == inf else low

    @abstractmethod
    def _samples(self, now: int) -> tuple[list[_Sample], int]:
        """The samples that still count, and since when they do."""


class Tally(Reading):
    """Totals that are only added to, in the writer's own way; windows come from `mark`.

    The writer adds to ``count`` and ``total`` itself (it may be on a hot path) and calls `mark` when it knows that
    the present sample is complete. If one event has several values, the tallies of the others are made
    with the first one as ``of``, and its count and times are theirs.

    Attributes:
        count, total: ever. high, low: of the present sample. last: when (ms) something was last added.
    """

    __slots__ = ("_marks", "_of", "count", "high", "last", "low", "total")

    def __init__(self, now: int, of: Tally | None = None) -> None:
        self._of = of or self
        self.count = 0
        self.total: float = 0
        self.high = -inf
        self.low = inf
        self.last = now
        # Made for an event of the other that is already counted.
        self._marks = _Marks((), now, 0 if of is None else max(of.count - 1, 0), 0)

    def mark(self, now: int) -> None:
        """Close the present sample; the next one starts now."""
        marks = self._marks
        number = self._of.count
        count = number - marks.number
        closed = marks.closed
        if count:
            sample = _Sample(marks.start, self._of.last, count, self.total - marks.total, self.high, self.low)
            closed = (*closed[1 - _KEPT :], sample)
        # In this order: a reader in between sees the old extremes twice, never not at all.
        self._marks = _Marks(closed, now, number, self.total)
        self.high, self.low = -inf, inf

    def _samples(self, now: int) -> tuple[list[_Sample], int]:
        marks = self._marks
        count, total, last = self._of.count, self.total, self._of.last
        samples = [sample for sample in marks.closed if now - sample.last < _EXPIRE_MS]
        if count != marks.number and now - last < _EXPIRE_MS:
            samples.append(
                _Sample(marks.start, last, count - marks.number, total - marks.total, self.high, self.low)
            )
        return samples, min((sample.start for sample in samples), default=now)


class Meter(Tally):
    """A `Tally` that knows the time of each value and closes its samples itself."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        super().__init__(0)
        # The first value begins the first sample.
        self._ends_at = 0

    def record(self, now: int, value: float = 1) -> None:
        if now >= self._ends_at:
            self.mark(now)
            self._ends_at = now + WINDOW_MS
        self.last = now
        self.count += 1
        self.total += value
        if value > self.high:  # noqa: PLR1730 - max() and min() would cost more than all the rest
            self.high = value
        if value < self.low:  # noqa: PLR1730
            self.low = value

    def record_each(self, now: int, values: Sequence[float]) -> None:
        """Several values of the same time; at least one."""
        self.record(now, values[0])
        if len(values) > 1:
            self.count += len(values) - 1
            self.total += sum(values) - values[0]
            self.high, self.low = max(self.high, *values), min(self.low, *values)

    def record_alike(self, now: int, total: float, count: int) -> None:
        """So many values that make ``total`` together, of which nothing more is known; at least one."""
        value = total / count
        self.record(now, value)
        self.count += count - 1
        self.total += total - value


class Joint(Reading):
    """Several tallies read as if they were one. Nothing is recorded twice for it.

    Args:
        of: returns them for each reading.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Callable[[], Iterable[Tally]]) -> None:
        self._of = of

    @property
    def count(self) -> int:
        """The number of all values so far."""
        return sum(tally.count for tally in self._of())

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(tally.total for tally in self._of())

    def _samples(self, now: int) -> tuple[list[_Sample], int]:
        found = [tally._samples(now) for tally in self._of()]
        return [sample for samples, _ in found for sample in samples], min(
            (oldest for samples, oldest in found if samples), default=now
        )


def rate_of(tallies: Iterable[Tally], now: int, per_ms: int = 1_000) -> float:
    """As `Reading.rate`, of several as if they were one."""
    found = tuple(tallies)
    return Joint(lambda: found).rate(now, per_ms)


def _elapsed(now: int, oldest: int) -> int:
    elapsed = now - oldest
    missing = _WINDOWS - 1 - elapsed // WINDOW_MS
    return max(1, elapsed + missing * WINDOW_MS if missing > 0 else elapsed)


NANOS: Final = 1_000_000
"""In a millisecond. Kafka names some durations in ns; ours are whole ms of the one clock, right on average."""


class NodeMeters:
    """Of one broker, all its connections together. Channels record what happens.

    Attributes:
        requests: bytes of each request that was encoded. latency: ms from a request to its answer.
        incoming: bytes of each whole answer. outgoing: bytes of each write.
    """

    __slots__ = ("incoming", "latency", "outgoing", "requests")

    def __init__(self) -> None:
        self.requests = Meter()
        self.latency = Meter()
        self.incoming = Meter()
        self.outgoing = Meter()


class NetworkMeters:
    """Of a whole client.

    Attributes:
        nodes: by broker id (below 0: bootstrap addresses); replaced as a whole when one is added.
        connections: open now. connected, disconnected: how many ever were.
        incoming, outgoing, requests: those of all nodes. operations: answers and writes together.
        unsent_ms: how long each request lay here before it was written. unsent: those that lie.
        waits, works: ms of each wait for the network, and of what was done between two waits.
        logins, failed_logins: SASL of new connections. relogins, failed_relogins: of standing ones (KIP-368), with ms.
    """

    def __init__(self) -> None:
        self.nodes: Mapping[int, NodeMeters] = MappingProxyType({})
        self.connections = 0
        self.connected = Meter()
        self.disconnected = Meter()
        self.incoming = Joint(lambda: (node.incoming for node in self.nodes.values()))
        self.outgoing = Joint(lambda: (node.outgoing for node in self.nodes.values()))
        self.requests = Joint(lambda: (node.requests for node in self.nodes.values()))
        self.operations = Joint(self._operations)
        self.unsent = 0
        self.unsent_ms = Meter()
        self.waits = Meter()
        self.works = Meter()
        self.logins = Meter()
        self.failed_logins = Meter()
        self.relogins = Meter()
        self.failed_relogins = Meter()

    def node(self, node_id: int) -> NodeMeters:
        found = self.nodes.get(node_id)
        if found is None:
            found = NodeMeters()
            self.nodes = MappingProxyType({**self.nodes, node_id: found})
        return found

    def _operations(self) -> Iterator[Tally]:
        for node in self.nodes.values():
            yield node.incoming
            yield node.outgoing

    # -- what happens

    def opened(self, now: int) -> None:
        """A connection stands."""
        self.connections += 1
        self.connected.record(now)

    def closed(self, now: int) -> None:
        """A connection that stood is gone."""
        self.connections -= 1
        self.disconnected.record(now)

    def logged_in(self, now: int, took_ms: int, *, again: bool) -> None:
        (self.relogins if again else self.logins).record(now, took_ms)

    def refused(self, now: int, *, again: bool) -> None:
        """The broker did not accept who we are."""
        (self.failed_relogins if again else self.failed_logins).record(now)
