"""Requests that managers pass to the network, in which version, and their results. Values, of the network thread only.

A broker serves the requests of one connection one after the other, so a parked long poll delays whatever is
behind it. Requests therefore name a purpose, and each node has a connection for each purpose. Whoever repeats a request
keeps a `Backoff`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from kadence.errors import UnsupportedVersionError
from kadence.protocol.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections import deque

    from kadence.errors import KafkaError
    from kadence.wire import Writer

__all__ = [
    "ANY_NODE",
    "Arrivals",
    "Backoff",
    "Completed",
    "ConnectionPurpose",
    "Loan",
    "Message",
    "NativeHeartbeatPlan",
    "Ranges",
    "Repeat",
    "Request",
    "choose",
    "common",
    "ranges_of",
]


class Backoff:
    """Exponential backoff with jitter: ``first·2ⁿ`` ms capped at ``most``, ±20 % (KIP-580)."""

    __slots__ = ("_attempts", "_first", "_most", "_uniform", "until")

    def __init__(self, first_ms: int, most_ms: int, rng: random.Random | None = None) -> None:
        self._first = first_ms
        self._most = most_ms
        # Without one of its own it shares the process's generator, which a test can seed and a fork seeds anew.
        self._uniform = rng.uniform if rng else random.uniform
        self._attempts = 0
        self.until = 0
        """Absolute ms before which nothing may be tried again."""

    def delay_ms(self, attempts: int) -> int:
        """The wait after the ``attempts``-th failure in a row (0 = the first)."""
        base: int = min(self._first * 2 ** min(attempts, 30), self._most)
        return max(0, round(base * self._uniform(0.8, 1.2)))

    def failed(self, now: int) -> None:
        """An attempt failed at ``now``: wait longer than after the one before."""
        self.until = now + self.delay_ms(self._attempts)
        self._attempts += 1

    def succeeded(self) -> None:
        """Forget the failures."""
        self._attempts = 0
        self.until = 0

    def ready(self, now: int) -> bool:
        return now >= self.until


ANY_NODE: Final = -1
"""Whichever broker is nearest at hand: connected and least loaded, else reachable, else a bootstrap address."""


class ConnectionPurpose(IntEnum):
    """Which of a node's connections a request takes."""

    MAIN = 0
    """Metadata, offsets and whatever else is short."""
    JOIN = 1
    """JoinGroup and SyncGroup, which the broker parks during a rebalance."""
    FETCH = 2
    """Long-poll fetches of the session."""
    SIDE = 3
    """Fetches outside the session, for a partition that cannot wait behind a parked one."""
    GROUP = 4
    """Heartbeats, commits and the goodbye: what a membership hangs on is delayed by no other request (B10)."""


class Message(Protocol):
    """A request message of `kadence.protocol`, as far as a connection looks at it."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    RESPONSE: ClassVar[type]

    def write(self, w: Writer, version: int) -> None: ...


class Loan(Protocol):
    """The arena in which a Fetch response lies. Its holder releases it once it has copied what it needs.

    `retain` and `release` may be called from any thread; the last release gives the arena back to its pool,
    and from then on the response's record views show whatever is read next. Never keep a view longer.
    """

    @property
    def size(self) -> int:
        """Bytes of memory that are lent."""
        ...

    @property
    def holds(self) -> int:
        """How many hold it."""
        ...

    def retain(self) -> None:
        """One more holder."""
        ...

    def release(self) -> None:
        """One holder less."""
        ...


Part = tuple[bytes, int, int, int, int, bytes | None]
"""Of one partition in an answer: topic id, number, high watermark, last stable offset, start of the log, records."""


class Arrival(Protocol):
    """An answer with records that came without the interpreter, and was followed by the next fetch.

    Attributes:
        number: which answer it was, counted from 1 for the first since its sender was told.
        parts: what it brought. fetches: what `Follow.read` made of that; None: it did not fit.
    """

    number: int
    parts: list[Part]
    fetches: list[Any] | None


class Follow(Protocol):
    """Leave to do so also with answers that bring records, which go to `Arrivals`.

    Attributes:
        table: of each partition of the session the topic id, number, leader epoch and size, as a request has them.
        asked: what the application knows of the fetch that is answered next.
    """

    table: bytes
    asked: Any

    def room(self) -> int:
        """How many bytes of answers may come before the sender is told. Asked as `Repeat.allowed` is."""
        ...

    def read(self, parts: list[Part]) -> tuple[list[Any] | None, Any]:
        """What the application takes of the next answer, and ``asked`` after it. None: not what was asked for.

        Read once, but for an interruption; from the first on that does not fit nothing is passed on any more.
        """
        ...


class Arrivals(Protocol):
    """Answers with records that came while the network thread waited without the interpreter, to be taken.

    They woke the application, and the network thread may not know of them yet.
    """

    def flag(self) -> Any:
        """What the application waits on: as `kadence.consumer`'s signal, and raised also when records come."""
        ...

    def has_some(self) -> bool:
        """Whether there is anything to take."""
        ...

    def take(self, into: deque[Any]) -> None:
        """Append what came and fits, as `Follow.read` has it. Any thread; an interruption loses nothing."""
        ...


class Repeat:
    """Leave to send a fetch again while the broker answers that there is nothing, without telling its sender at once.

    The compiled poller does so without the interpreter, each time with the next correlation id and session epoch.

    Args:
        may: whether it may; asked before each wait of the network thread, which may be long.
        told: takes the time (ms), how often that was done since it was told last, when (ms) the last time, and the
            answers with records that came. Returns whether all of these fit to what was asked.

    Attributes:
        follow: leave for answers with records, too; None: they come to the sender.
    """

    __slots__ = ("_is_withdrawn", "_may", "follow", "told")

    def __init__(
        self, may: Callable[[], bool], told: Callable[[int, int, int, Sequence[Arrival]], bool]
    ) -> None:
        self._may = may
        self._is_withdrawn = False
        self.told = told
        self.follow: Follow | None = None

    @property
    def allowed(self) -> bool:
        """What ``may`` says, until the leave is withdrawn."""
        return not self._is_withdrawn and self._may()

    def withdraw(self) -> None:
        """Something else has gone out behind the fetch: its answer comes to the sender, whatever it is."""
        self._is_withdrawn = True


class Request:
    """One request on its way. Compared by identity: two equal heartbeats are still two requests.

    Attributes:
        message: a request of `kadence.protocol`.
        node_id: a broker's id, or `ANY_NODE`.
        deadline: absolute ms by which it must have been *sent*. Once sent it waits for its answer until the
            later of this and ``request.timeout.ms`` after sending: a short API deadline must not cost the
            connection, and a JoinGroup may wait as long as the rebalance timeout given here.
        purpose: which connection of the node.
        tag: anything of the sender's, untouched.
        min_version, max_version: narrow the versions to use, e.g. Fetch without topic ids is max_version=12.
        queued_at: when (ms) the network client took it.
        lent_bytes: of the arena in which its answer lies, from when that begins to arrive.
        repeat: see there; None: it is sent once.
    """

    __slots__ = (
        "deadline",
        "lent_bytes",
        "max_version",
        "message",
        "min_version",
        "node_id",
        "purpose",
        "queued_at",
        "repeat",
        "tag",
    )

    def __init__(
        self,
        message: Any,
        node_id: int,
        deadline: int,
        purpose: ConnectionPurpose = ConnectionPurpose.MAIN,
        tag: Any = None,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        self.message = message
        self.node_id = node_id
        self.deadline = deadline
        self.purpose = purpose
        self.tag = tag
        self.queued_at = self.lent_bytes = 0
        self.repeat: Repeat | None = None
        self.min_version = min_version
        self.max_version = max_version

    @property
    def name(self) -> str:
        """Kafka's name of the API, for messages."""
        return type(self.message).__name__.removesuffix("Request")

    def __repr__(self) -> str:
        where = "any node" if self.node_id == ANY_NODE else f"node {self.node_id}"
        return f"<Request {self.name} to {where} {self.purpose.name}>"


class NativeHeartbeatPlan(NamedTuple):
    """A request that the native thread sends when the network thread cannot (`kadence.net.native_heartbeat`).

    Attributes:
        request: what is sent, any number of times. Each is answered as a request of its own with the same tag.
        due: when the network thread will have sent one itself. until: from when on nobody may (ms).
        interval_ms: how long after one the next is due.
    """

    request: Request
    due: int
    until: int
    interval_ms: int


class Completed(NamedTuple):
    """The end of a request: an answer or an error, exactly one of them (acks=0 has neither).

    Attributes:
        request: what was sent. response: the decoded answer, None with an error.
        error: a transport error; a broker's error codes are inside ``response``.
        version: the version that was used, -1 if it was never sent.
        received_at: ms when it ended. loan: the arena of a Fetch response, else None.
        sent_at: ms when what was answered had been sent; -1 without an answer.
    """

    request: Request
    response: Any
    error: KafkaError | None
    version: int
    received_at: int
    loan: Loan | None = None
    sent_at: int = -1


Ranges = Mapping[int, tuple[int, int]]
"""Per API key, the lowest and the highest version that a broker offers."""


class OfferedApi(Protocol):
    """One line of an ApiVersions answer."""

    api_key: int
    min_version: int
    max_version: int


def ranges_of(offered: Iterable[OfferedApi]) -> dict[int, tuple[int, int]]:
    """The ranges of an ApiVersions answer."""
    return {api.api_key: (api.min_version, api.max_version) for api in offered}


def common(ours: tuple[int, int], theirs: tuple[int, int]) -> int | None:
    """The highest version in both ranges (inclusive), None when they do not meet."""
    low, high = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    return high if low <= high else None


def choose(request: Request, ranges: Ranges, address: str) -> int:
    """The version for one request.

    Raises:
        UnsupportedVersionError: the broker lacks the API, or the ranges do not meet.
    """
    message = request.message
    low: int = message.MIN_VERSION if request.min_version is None else request.min_version
    high: int = message.MAX_VERSION if request.max_version is None else request.max_version
    low, high = max(low, message.MIN_VERSION), min(high, message.MAX_VERSION)
    theirs = ranges.get(message.API_KEY)
    if theirs is None:
        # Every broker answers Metadata; a controller of KRaft does not.
        advice = (
            "is this a controller's port? Clients need a broker's"
            if message.API_KEY == MetadataRequest.API_KEY
            else "a newer broker, or another setting of this client, is needed"
        )
        raise UnsupportedVersionError(
            f"broker {address} does not offer {request.name} (API key {message.API_KEY}); {advice}"
        )
    version = common((low, high), theirs)
    if version is None:
        raise UnsupportedVersionError(
            f"broker {address} offers {request.name} in versions {theirs[0]} to {theirs[1]}, "
            f"this call needs {low} to {high}"
        )
    return version
