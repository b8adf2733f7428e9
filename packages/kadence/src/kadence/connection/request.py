"""Requests that managers pass to the network, in which version, and their results. Values, of the network thread only.

A broker serves the requests of one connection one after the other, so a parked long poll delays every
later request. Requests therefore name a purpose, and each node has a connection for each purpose. The owner of a
repeated request keeps a `Backoff`.
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
    "ForPoll",
    "Loan",
    "Message",
    "NativeHeartbeatPlan",
    "PlainPollWait",
    "PollWait",
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
        # Without one of its own it shares the process's generator, which a test can seed and a fork seeds again.
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
    """The purpose of a request, which has its own connection to a node."""

    MAIN = 0
    """Metadata, offsets and whatever else is short."""
    JOIN = 1
    """JoinGroup and SyncGroup, which the broker parks during a rebalance."""
    FETCH = 2
    """Long-poll fetches of the session."""
    SIDE = 3
    """Fetches outside the session, for a partition that cannot wait behind a parked one."""
    GROUP = 4
    """Heartbeats, commits and the goodbye: the requests of a membership are delayed by no other request (B10)."""


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
        """The number of holders."""
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
        number: the number of its fetch, counted from 1 for the first since the last call of `Repeat.told`.
        parts: its partitions. fetches: the result of `Follow.read`; None: it did not fit.
    """

    number: int
    parts: list[Part]
    fetches: list[Any] | None


class Follow(Protocol):
    """Leave to do so also with answers that bring records, which go to `Arrivals`.

    Attributes:
        table: of each partition of the session the topic id, number, leader epoch and size, as a request has them.
        asked: the application's state of the fetch that is answered next.
    """

    table: bytes
    asked: Any

    def room(self) -> int:
        """The bytes of answers that may come before the next call of `Repeat.told`. Called as `Repeat.allowed` is."""
        ...

    def read(self, parts: list[Part]) -> tuple[list[Any] | None, Any]:
        """The next answer for the application, and ``asked`` after it. None: it does not fit the request.

        Called once, unless interrupted; after the first that does not fit none is passed on any more.
        """
        ...


class Arrivals(Protocol):
    """Answers with records that came while the network thread waited without the interpreter, to be taken.

    They woke the application, and the network thread may not know of them yet.
    """

    def flag(self) -> Any:
        """The flag that the application waits on: as `kadence.consumer`'s signal, and also raised when records come."""
        ...

    def has_some(self) -> bool:
        """True if there is anything to take."""
        ...

    def take(self, into: deque[Any]) -> None:
        """Append the answers that fit, as `Follow.read` returns them. Any thread; an interruption loses nothing."""
        ...


class PollWait(Protocol):
    """The poll for which ShareFetches are repeated: how long it waits, and for how many records.

    The application's thread writes it, and the compiled poller reads it without the interpreter. So a poll that follows
    another one goes on with the fetches of that one, and wakes no thread for it.
    """

    def begin(self, until: int, count: int) -> None:
        """A poll waits until then (ms) for so many records."""
        ...

    def end(self) -> None:
        """It is over."""
        ...


class PlainPollWait:
    """Where no fetch is repeated without the interpreter, nobody reads it."""

    __slots__ = ()

    def begin(self, until: int, count: int) -> None:
        """See `PollWait`."""

    def end(self) -> None:
        """See `PollWait`."""


class ForPoll(NamedTuple):
    """A ShareFetch is repeated only while a poll waits for so many records.

    Attributes:
        poll_wait: that poll. records: so many.
        shortest_ms, longest_ms: the broker is to hold each fetch as long as the poll waits, within these bounds.
    """

    poll_wait: PollWait
    records: int
    shortest_ms: int
    longest_ms: int


class Repeat:
    """Permission to send a fetch again while the broker answers that there is nothing, without its sender each time.

    The compiled poller does so without the GIL, each time with the next correlation id and session epoch.

    Args:
        may: whether it may; asked before each wait of the network thread, which may be long.
        told: called with the time (ms), the number of repetitions since its last call, the time (ms) of the last one,
            and the answers with records that came. Returns whether all of these fit the request.

    Attributes:
        follow: permission for answers with records, too; None: they come to the sender.
        empty: the answer that says there is nothing, for a ShareFetch; None: the request itself says what that is.
        for_poll: the poll that a ShareFetch is for; None: it goes out as long as ``may`` is true.
    """

    __slots__ = ("_is_withdrawn", "_may", "empty", "follow", "for_poll", "told")

    def __init__(
        self, may: Callable[[], bool], told: Callable[[int, int, int, Sequence[Arrival]], bool]
    ) -> None:
        self._may = may
        self._is_withdrawn = False
        self.told = told
        self.follow: Follow | None = None
        self.empty: Any = None
        self.for_poll: ForPoll | None = None

    @property
    def allowed(self) -> bool:
        """The result of ``may``, until the permission is withdrawn."""
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
        request: it is sent any number of times. Each is answered as a request of its own with the same tag.
        due: when the network thread will have sent one itself. until: when the permission ends (ms).
        interval_ms: how long after one the next is due.
        counter_behind: bytes that the frame has once, directly before a number of 4 bytes that goes up by one with each
            time it is sent: the epoch of a share session; empty: there is none.
    """

    request: Request
    due: int
    until: int
    interval_ms: int
    counter_behind: bytes = b""


class Completed(NamedTuple):
    """The end of a request: an answer or an error, exactly one of them (acks=0 has neither).

    Attributes:
        request: the one that was sent. response: the decoded answer, None with an error.
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
