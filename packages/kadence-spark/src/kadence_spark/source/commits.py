"""Commits a stream's progress to its group, so that others can see its lag. Spark resumes from its checkpoint.

So a failed commit does not fail the query: it is logged once, counted, and tried again later. Nor does it delay a
batch: commits are sent on a thread of their own, one at a time, and the latest offsets go with the next one. Only two
cases wait for it: the end of an availableNow query, because the process is killed next, and an idle query.

Each commit has the name of the query's run in its metadata. Offsets without such a name belong to an application, which
would lose them: a group with such offsets is refused before reading begins. Two queries with one group overwrite each
other's committed offsets. So at intervals a query looks up which run committed last, and warns if it was another one.
Runs of one Spark application count as one: the two sides of a self-join are two runs, which a source cannot distinguish
from two queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from shlex import quote
from threading import Thread
from types import MappingProxyType
from typing import Final

from kadence.clock import Clock
from kadence.errors import IllegalStateError, KafkaError
from kadence.logs import logger
from kadence.types import TopicPartition
from kadence_spark.source.offsets import Offsets
from kadence_spark.source.ports import OffsetClient

__all__ = ["Commits", "GroupInUseError", "Start"]

_log = logger("kadence.spark")

REPEAT_MS: Final = 3_600_000
"""How often an unchanged commit is repeated, so that an idle query's offsets do not expire on the broker."""

PAUSE_MS: Final = 30_000
"""The wait before the next commit after a failed one."""

LOOK_MS: Final = 10_000
"""How often commits of others to the group are looked for."""

IDLE_SECONDS: Final = 1.0
"""How long an idle query waits for its commit; new records wait meanwhile, too."""

LAST_SECONDS: Final = 20.0
"""How long the end of an availableNow query waits for one commit under way; the client gives up before."""

NO_IDS: Final[Mapping[str, str]] = MappingProxyType({})

_Others = set[str]
Start = Callable[[Callable[[], _Others]], "Future[_Others]"]
"""Begins some work, and reports its end."""


class GroupInUseError(IllegalStateError):
    """The query's group has live members or an application's offsets, so the query must not commit to it."""


def _on_a_thread(work: Callable[[], _Others]) -> Future[_Others]:
    """Uses a daemon thread, because the end of the process must not wait for it."""
    future: Future[_Others] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as problem:  # noqa: BLE001 - raised where the result is taken
            future.set_exception(problem)

    Thread(target=run, name="kadence-commit", daemon=True).start()
    return future


class Commits:
    """The last commit, the one under way, and the time of the next one."""

    def __init__(
        self, group_id: str, client: OffsetClient, clock: Clock, start: Start = _on_a_thread
    ) -> None:
        self._group_id = group_id
        self._client = client
        self._clock = clock
        self._start = start
        self._under_way: Future[_Others] | None = None
        self._sent: Offsets = {}
        self._committed: Offsets = {}
        self._committed_at = 0
        self._is_free = False
        self._looked_at: int | None = None
        self._failed_at: int | None = None
        self._told_of: set[str] = set()
        self.failures = 0

    def check_free(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse a group that others use, before the query reads records. If the look-up fails, it is repeated later.

        Args:
            partitions: of the query.

        Raises:
            GroupInUseError: it has live members, or an application's offsets of the partitions.
        """
        if self._is_free or not self._may_try():
            return
        try:
            members = self._client.live_members()
            committers = self._client.committers(partitions)
        except KafkaError as problem:  # e.g. no right to describe groups
            self._failed(problem)
            return
        if members:
            raise GroupInUseError(
                f"group.id {self._group_id!r} is in use by a live consumer group ({members} member"
                f"{'s' * (members > 1)}), which owns its committed offsets. Give the query a kafka.group.id of its "
                "own, or leave commitOffsets out"
            )
        if others := sorted(partition for partition, run in committers.items() if not run):
            raise GroupInUseError(
                f"group.id {self._group_id!r} has committed offsets of an application, e.g. of {others[0]}, which a "
                "commit of this query would overwrite. Give the query a kafka.group.id of its own, or leave "
                "commitOffsets out. If those offsets are not needed any more, delete them first: "
                f"kadence groups forget {quote(self._group_id)} --topic {others[0].topic}"
            )
        self._is_free = True
        self._failed_at = None

    def offer(self, offsets: Offsets, ids: Mapping[str, str] = NO_IDS) -> None:
        """Begin to commit ``offsets`` if that is due and no commit is under way. Does not block.

        Args:
            ids: of the offsets' topics, if known.
        """
        self._take_result(0)
        if self._under_way is None and self._is_due(offsets):
            self._send(offsets, ids)

    def settle(self, offsets: Offsets, ids: Mapping[str, str] = NO_IDS, *, is_last: bool = False) -> None:
        """Commit ``offsets`` if that is due, and wait for it.

        Args:
            ids: as in `offer`.
            is_last: this is the last call, so a failed commit is tried once more at once.
        """
        seconds = LAST_SECONDS if is_last else IDLE_SECONDS
        self._take_result(seconds)
        for _ in range(2 if is_last else 1):
            if self._under_way is None and self._is_due(offsets, is_last=is_last):
                self._send(offsets, ids)
                self._take_result(seconds)

    def _is_due(self, offsets: Offsets, *, is_last: bool = False) -> bool:
        now = self._clock.now_ms()
        if not offsets or (offsets == self._committed and now - self._committed_at < REPEAT_MS):
            return False
        return self._is_free and (is_last or self._may_try())

    def _may_try(self) -> bool:
        return self._failed_at is None or self._clock.now_ms() - self._failed_at >= PAUSE_MS

    def _send(self, offsets: Offsets, ids: Mapping[str, str]) -> None:
        now = self._clock.now_ms()
        ours: list[TopicPartition] = []
        if self._committed and (self._looked_at is None or now - self._looked_at >= LOOK_MS):
            ours, self._looked_at = list(self._committed), now
        self._sent = dict(offsets)

        def work() -> _Others:
            # Are the committed offsets still this run's?
            runs = set(self._client.committers(ours).values()) if ours else set()
            self._client.commit(offsets, ids)
            return {run for run in runs if _application(run) != _application(self._client.run)}

        self._under_way = self._start(work)

    def _take_result(self, seconds: float) -> None:
        if self._under_way is None:
            return
        try:
            others = self._under_way.result(seconds)
        except FutureTimeoutError:
            return
        except KafkaError as problem:
            self._under_way = None
            self._failed(problem)
            return
        self._under_way = None
        if self._failed_at is not None:
            _log.info("committing offsets to group %s works again", self._group_id)
            self._failed_at = None
        self._committed, self._committed_at = self._sent, self._clock.now_ms()
        self._tell_of(others)

    def _failed(self, problem: KafkaError) -> None:
        self.failures += 1
        if self._failed_at is None:
            _log.warning(
                "committing offsets to group %s failed; the query goes on: %s",
                self._group_id,
                problem,
            )
        self._failed_at = self._clock.now_ms()

    def _tell_of(self, others: _Others) -> None:
        for other in sorted(others - self._told_of):
            _log.warning(
                "%s commit offsets to group %s: this run %s and %s. Each overwrites the offsets that "
                "the other committed; what the queries read does not suffer. Give each a kafka.group.id of its own",
                "two queries" if other else "a query and an application",
                self._group_id,
                self._client.run,
                f"run {other}" if other else "one that is no query",
            )
        self._told_of |= others


def _application(run: str) -> str:
    """The part of a run's name that is common to one Spark application (`kadence_spark.source.clients`)."""
    return run.rpartition("-")[0]
