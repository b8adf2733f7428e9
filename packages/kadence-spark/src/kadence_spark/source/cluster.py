"""The cluster as seen by a query's driver, and the driver's waits for brokers that do not answer.

The client repeats failed requests within its timeouts. In addition:

* requests with a retriable error code are repeated as often as fetchOffset.numRetries;
* brokers that do not answer are *away*: all of them, or the leaders of some partitions. A running query waits with all
  of its partitions, as with Spark's own connector: continuing with the others would move the watermark past records
  that are still to come, which stateful queries would drop. The log ends are unknown meanwhile, so that the lag is not
  reported as zero, and after brokerTimeoutMs the query fails. If brokers have never answered this query, it fails after
  default.api.timeout.ms, because the address is probably wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from kadence.clock import Clock, SystemClock
from kadence.errors import KafkaError, KafkaTimeoutError, TransportError
from kadence.logs import logger
from kadence.types import TopicPartition
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.ports import LeadersAwayError, Listing, OffsetClient

__all__ = ["Cluster", "Pace", "SystemPace"]

_log = logger("kadence.spark")

DISCOVERY_MS: Final = 1_000
"""The greatest age of the list of partitions."""

REMINDER_MS: Final = 60_000
"""How often it is logged that brokers are still away."""

_T = TypeVar("_T")


class Pace(Clock, Protocol):
    """A clock that can also wait."""

    def sleep_ms(self, duration: int) -> None: ...


class SystemPace(SystemClock):
    """The machine's clock; it sleeps to wait."""

    __slots__ = ()

    def sleep_ms(self, duration: int) -> None:
        time.sleep(duration / 1000)


class Cluster:
    """Lists partitions and offsets for a query's driver, and waits while brokers do not answer.

    Attributes:
        listing: partitions and topic ids as last listed. ranges: start and end of each log as last seen.
    """

    def __init__(
        self, options: SourceOptions, connect: Callable[[], OffsetClient], pace: Pace | None = None
    ) -> None:
        self._options = options
        self._connect = connect
        self.pace: Pace = pace or SystemPace()
        self._client: OffsetClient | None = None
        self.listing = Listing()
        self._listed_at: int | None = None
        self.ranges: Mapping[TopicPartition, tuple[int, int]] = {}
        self._has_answered = False
        self._away_since: int | None = None
        self._told_at = 0

    @property
    def client(self) -> OffsetClient:
        """The client, made at the first request."""
        if self._client is None:
            self._client = self._connect()
        return self._client

    @property
    def is_connected(self) -> bool:
        """Whether a request was made yet."""
        return self._client is not None

    @property
    def is_away(self) -> bool:
        """Whether the last request got no answer."""
        return self._away_since is not None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ------------------------------------------------------------ looking

    def list(self, max_age_ms: int = DISCOVERY_MS) -> bool:
        """List the partitions, unless the list is recent; returns whether they were listed now."""
        now = self.pace.now_ms()
        if self._listed_at is not None and now - self._listed_at < max_age_ms:
            return False
        self.listing = self.client.partitions(self._options.topics)
        self._listed_at = now
        return True

    def look(self) -> None:
        """Look up start and end of the logs of all listed partitions."""
        partitions = self.listing.leaders
        self.ranges = self.client.log_ranges(partitions) if partitions else {}

    def confirm_missing(self, partitions: Iterable[TopicPartition]) -> None:
        """The metadata may be outdated for a moment; only a partition that stays missing is gone."""
        missing = set(partitions)
        for _ in range(self._options.offset_retries):
            self.pace.sleep_ms(self._options.offset_retry_interval_ms)
            self.list(0)
            if self.listing.leaders.keys() >= missing:
                return

    # ------------------------------------------------------------ patience

    def ask(self, question: Callable[[], _T]) -> _T:
        """Make a request; retriable errors are repeated as often as fetchOffset.numRetries."""
        for _ in range(self._options.offset_retries):
            try:
                return self._answered(question())
            except KafkaError as problem:
                if not problem.retriable or _is_silence(problem):
                    raise
                _log.warning("looking up offsets failed, trying again: %s", problem)
                self.pace.sleep_ms(self._options.offset_retry_interval_ms)
        return self._answered(question())

    def ask_unless_away(self, question: Callable[[], _T]) -> _T | None:
        """As `ask`; None if required brokers do not answer.

        Raises:
            KafkaTimeoutError: they have not answered for brokerTimeoutMs.
        """
        began = self.pace.now_ms()
        try:
            return self.ask(question)
        except KafkaError as problem:
            if not self._has_answered or not _is_silence(problem):
                raise
            self._bear(problem, began)
            return None

    def insist(self, question: Callable[[], _T]) -> _T:
        """As `ask`, repeated while no broker answers, up to brokerTimeoutMs."""
        while (answer := self.ask_unless_away(lambda: (question(),))) is None:
            self.pace.sleep_ms(self._options.offset_retry_interval_ms)
        return answer[0]

    def _answered(self, answer: _T) -> _T:
        self._has_answered = True
        if self._away_since is not None:
            seconds = (self.pace.now_ms() - self._away_since) / 1000
            _log.warning("the brokers answer again, after %.0f s; the query goes on", seconds)
            self._away_since = None
        return answer

    def _bear(self, problem: KafkaError, began: int) -> None:
        now, limit = self.pace.now_ms(), self._options.broker_timeout_ms
        who, last = (
            (problem.who, problem.problem)
            if isinstance(problem, LeadersAwayError)
            else ("any broker", problem)
        )
        if self._away_since is None:
            self._away_since, self._told_at = began, now
            _log.warning(
                "there is no answer from %s; the query waits for up to %d s (option brokerTimeoutMs) with all of its "
                "partitions, and its lag is unknown: %s",
                who,
                limit // 1000,
                last,
            )
        elif now - self._told_at >= REMINDER_MS:
            self._told_at = now
            _log.warning(
                "there has been no answer from %s for %d s, and the query waits",
                who,
                (now - self._away_since) // 1000,
            )
        if now - self._away_since >= limit:
            raise KafkaTimeoutError(
                f"there has been no answer from {who} for {(now - self._away_since) / 1000:.0f} s, and the option "
                f"brokerTimeoutMs allows {limit} ms; nothing is lost: the query goes on where it stands when it is "
                f"started again. The last problem: {last}"
            ) from problem


def _is_silence(problem: KafkaError) -> bool:
    """Whether no broker answered, as opposed to an error response."""
    return problem.retriable and isinstance(problem, KafkaTimeoutError | TransportError)
