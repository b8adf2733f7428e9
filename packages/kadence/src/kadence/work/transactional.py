"""The desk and the loop of `process` with transactions: records are done when their transaction is committed (H7).

`desk` and `processing` are the same without transactions; `rounds` chooses the records of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from kadence.client.aside import Caller
from kadence.client.repeating import Again, Repeating
from kadence.clock import FOREVER, add_ms
from kadence.errors import BrokerError, KafkaError, UnknownTopicOrPartitionError
from kadence.lazy_dataclasses import replace
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.types import GroupMetadata, OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.desk import RESEND_MS, Desk
from kadence.work.following import Following, TransactionalFollowing
from kadence.work.letters import Letter, ProducerRecord
from kadence.work.positions import counted
from kadence.work.processing import Processing
from kadence.work.rounds import Finished, Round, Rounds
from kadence.work.scheduler import Scheduler, Task
from kadence.work.steps import Committed, Idle, Steps
from kadence.work.transactions import TransactionalProducer, Transactions

__all__ = ["TransactionalDesk", "TransactionalProcessing"]

log = logger("kadence.work")

_AGAIN_MS: Final = 100
"""The first wait before a failed transaction is repeated, if none of its records caused the failure."""

_GONE_MS: Final = 30_000
"""The wait before writing to a missing dead letter or retry topic again: each try takes a transaction some seconds."""

_UNKNOWN_MS: Final = 2_000
"""How long partitions are left out whose topic a coordinator does not know. The metadata is updated meanwhile."""

_LAST_MS: Final = 10_000
"""The least time for the last transaction before partitions go."""

_OF_GENERATIONS: Final = frozenset({ec.ILLEGAL_GENERATION, ec.STALE_MEMBER_EPOCH, ec.GROUP_ID_NOT_FOUND})
"""The group has a newer generation, or will have one: it was deleted (KIP-1319).

In a cooperative rebalance this member joins it, and keeps its partitions."""


class TransactionalDesk(Desk):
    """A desk whose handled records wait for their transaction."""

    new_scheduler: ClassVar[type[Scheduler]] = Rounds
    scheduler: Rounds
    _has_told = False

    def begin(self, now: int, limit: int, without: Collection[TopicPartition]) -> Round | None:
        """The next round, if there is any; see `Rounds.begin`."""
        with self.lock:
            self._has_told = False
            return self.scheduler.begin(now, limit, without)

    def finish(self, tasks: Sequence[Task]) -> None:
        """As `Desk.finish`: these have no outputs, and do not depend on each other."""
        now = self.finished_at = self.clock.now_ms()
        for task in tasks:
            self.scheduler.finish((task,), (), now)
        self._tell()

    def sends(self, tasks: Sequence[Task], outputs: Iterable[ProducerRecord]) -> None:
        """As `Desk.sends`, but the outputs are collected first: a transaction has all of them or none."""
        try:
            with self.here:
                given = list(outputs)
        except BaseException as error:  # noqa: BLE001 - a failed attempt, whatever it was
            self.fails(tasks, error)
            return
        self._keep(tasks, given, None)

    def _passes_over(self, task: Task) -> None:
        self._keep([task], (), None)

    def _letter(self, task: Task, letter: Letter) -> None:
        self._keep([task], [letter], letter.counter)

    def _keep(self, tasks: Sequence[Task], outputs: Sequence[ProducerRecord], counter: str | None) -> None:
        with self.lock:
            self.scheduler.finish(tasks, outputs, self.clock.now_ms(), counter)
            self._tell()
            has_ready = self.scheduler.has_ready
        if has_ready:
            self.wake()

    def _tell(self) -> None:
        if self.is_waited_for or (not self._has_told and self.scheduler.is_pressing):
            self._has_told = True
            self._changed()

    def ended(self, this: Round, error: Exception | None, refused: Mapping[Finished, Exception]) -> None:
        """A round ended; see `transactions.Ended`.

        A refused output fails an attempt of its record. A refused dead letter or retry record is replaced or
        sent again.
        """
        now = self.clock.now_ms()
        failed = {each: problem for each, problem in refused.items() if each.counter is None}
        letters = [each for each in refused if each not in failed]
        # Not under the lock: it logs.
        instead = {each: self._instead(each.tasks[0], _letter_of(each), refused[each]) for each in letters}
        again: dict[Finished, Again] = {}
        with self.lock:
            if error is None:
                self.scheduler.committed(this)
                for each in this.finished:
                    self.done += len(each.tasks)
                    if each.counter is not None:
                        setattr(self, each.counter, getattr(self, each.counter) + 1)
            else:
                for each, other in instead.items():
                    if other is None:
                        again[each] = self._send_again(each, refused[each], now)
                    else:
                        self._replace(each, other)
                self.scheduler.aborted(this, failed.keys(), now)
        for each, (_, level) in again.items():
            self._say_unsent(level, each.tasks[0], _letter_of(each).topic, refused[each])
        for each, problem in failed.items():
            # Records of partitions that are gone are left to the next owner.
            if tasks := [task for task in each.tasks if task.is_running]:
                # A dead letter record belongs to the handler's trace.
                each.context.run(self.fails, tasks, problem)
        self.wake()

    def _send_again(self, each: Finished, error: Exception, now: int) -> Again:
        """Send a refused dead letter or retry record again later; the other records do not wait for it."""
        each.repeating = each.repeating or Repeating(RESEND_MS, self._told_unsent)
        again = each.repeating.failed(now, _letter_of(each).topic)
        is_gone = isinstance(error, UnknownTopicOrPartitionError)
        each.not_before = max(again.at, add_ms(now, _GONE_MS)) if is_gone else again.at
        return again

    def _replace(self, each: Finished, instead: Letter | BaseException) -> None:
        """Replace a dead letter or retry record that its topic can never take, or end the processing."""
        if isinstance(instead, Letter):
            each.outputs, each.counter = [instead], instead.counter
            return
        # Its record is not done, so no later round may have it.
        each.not_before = FOREVER
        self.failure = self.failure or instead
        self.is_ended = True


class TransactionalProcessing(Processing):
    """The loop: it commits by transactions, one after the other.

    Args:
        make: makes the producer. changed: as of the desk. caller: makes the calls of transactions.
        renew: updates the consumer's group metadata, as a poll does. False: it has lost its partitions.
        waits_end: the time (ms) until which calls may wait for brokers (H10).
        refresh: requests a metadata update. Others: as of `Processing`.
    """

    _desk: TransactionalDesk
    _following: TransactionalFollowing

    def __init__(
        self,
        *arguments: Any,
        make: Callable[[], TransactionalProducer],
        changed: Callable[[], None],
        caller: Caller,
        renew: Callable[[], bool],
        waits_end: Callable[[], int],
        refresh: Callable[[], None],
    ) -> None:
        super().__init__(*arguments)
        self._renew = renew
        self._waits_end = waits_end
        self._refresh = refresh
        self.transactions = Transactions(
            make, self._round_ended, self._failed, self._counted, changed, caller, self._clock
        )
        self._not_before = 0
        self._repeating = Repeating(_AGAIN_MS)
        self._gone: dict[TopicPartition, tuple[int, int]] = {}
        """Partitions that brokers do not know, with their fetch epoch and the time until they are left out (ms)."""
        self._is_stale = False
        self._last_error: Exception | None = None
        self._sent_as: GroupMetadata | None = None

    def run(self) -> Steps:
        """As `Processing.run`, after earlier transactions of the same transactional id have ended.

        Raises:
            Also the fatal error of the transactional producer: it is fenced, or brokers refuse it.
        """
        transactions = self.transactions
        transactions.start()
        while not (transactions.is_ready or transactions.failure or self._subject.stopping):
            yield Idle(add_ms(self._clock.now_ms(), _AGAIN_MS))
        if transactions.failure is not None:
            raise transactions.failure
        yield from super().run()

    def _failed(self, error: Exception) -> None:
        """There can be no more transactions. Called on the thread that makes their calls."""
        with self._desk.lock:
            self._desk.failure = self._desk.failure or error
            self._desk.is_ended = True

    def assigned(self, partitions: tuple[TopicPartition, ...]) -> Steps:
        """These partitions are assigned. Records that the group has committed are not handled again.

        Raises:
            KafkaError: the committed offsets cannot be looked up.
        """
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if partitions:
            found = yield Committed(partitions)
        yield from self._retries_from_start(found)
        following = self._following
        for partition in partitions:
            following.found.pop(partition, None)
            if (at := found.get(partition)) is not None:
                following.found[partition] = at
        yield from following.assign(partitions)

    def _new_following(self) -> Following:
        return TransactionalFollowing(self._desk, self._reading)

    def _counted(
        self, read: Mapping[TopicPartition, ReadOffset]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets of this for a transaction; raises PositionLostError if one is outdated. Any thread."""
        return counted(read, self._reading.fetch_epochs_of_known())

    def put_back(self, *, is_interrupted: bool = False) -> Steps:
        """As `Processing.put_back`. While a transaction is undecided, the consumer must not auto-commit."""
        # Before the frontiers are read: a later commit of these must not undo a transaction that ends in between.
        is_decided = not self.transactions.is_busy
        yield from super().put_back(is_interrupted=is_interrupted)
        self.is_put_back = self.is_put_back and is_decided

    # ------------------------------------------------------------ rounds

    def _is_to_commit(self, now: int) -> bool:
        if now < self._not_before:
            return False
        with self._desk.lock:
            return now >= self._commit_at or self._desk.scheduler.is_pressing

    def _is_finished(self) -> bool:
        if self.transactions.is_busy or self._clock.now_ms() < self._not_before:
            return False
        if super()._is_finished():
            return True
        with self._desk.lock:
            is_all_finished = self._desk.scheduler.total == self._desk.scheduler.finished
        if is_all_finished and self._ranges_are_read():
            # No more records come: commit now.
            self._commit_at = 0
        return False

    def _commit(self, now: int) -> None:
        self._commit_at = add_ms(now, self._commit_ms)
        if not self.transactions.is_busy:
            self._begin(now)

    def _begin(self, now: int) -> bool:
        """Begin the next round. Returns whether there is anything to commit."""
        if self._is_stale:
            self._is_stale = False
            self._refresh()
        if self._gone:
            # A recreated topic has another fetch epoch, and is not left out.
            epochs = self._reading.fetch_epochs()
            self._gone = {
                p: each for p, each in self._gone.items() if epochs.get(p) == each[0] and now < each[1]
            }
        without = self._following.standing_still() | self._gone.keys()
        this = self._desk.begin(now, self._metadata_bytes, without)
        if this is None:
            return False
        this.offsets = {p: read for p, read in this.offsets.items() if self.committed.get(p) != read}
        if not (this.finished or this.offsets):
            return False
        # The identity under which the records of this round were read: no poll has reported a loss since. Its topic ids
        # are of the records that polls have returned; where `latest` began in a new topic, none may have come.
        group = self._subject.group_metadata()
        self._sent_as = replace(group, topic_ids=self._reading.topic_ids(this.offsets))
        self.transactions.commit(this, self._sent_as)
        return True

    def _round_ended(
        self, this: Round, error: Exception | None, refused: Mapping[Finished, Exception]
    ) -> None:
        """Called on the thread that makes the calls of transactions."""
        self._last_error = None if refused else error
        if error is None:
            self._repeating.succeeded()
            # A transaction during a revocation does not wait, and its success ends the backoff of failed ones.
            self._commit_at = min(self._commit_at, add_ms(self._clock.now_ms(), self._commit_ms))
            self.committed.update(this.offsets)
        elif not refused and self._is_shortened(error, {p: each.at for p, each in this.offsets.items()}):
            self._last_error = None
        elif not refused:
            now = self._clock.now_ms()
            if isinstance(error, UnknownTopicOrPartitionError):
                # Leave out these partitions, so that transactions of the others do not wait for their topic.
                until = add_ms(now, _UNKNOWN_MS)
                left_out = error.partitions & this.offsets.keys()
                self._gone.update({p: (this.offsets[p].fetch_epoch, until) for p in left_out})
                self._is_stale = True
            again = self._repeating.failed(now)
            log.log(again.level, "the transaction was aborted and will be repeated: %s", error)
            self._not_before = self._commit_at = again.at
        self._desk.ended(this, error, refused)

    def _commit_meanwhile(self) -> Steps:
        # No poll updates the identity here, as below.
        self._renew()
        yield from super()._commit_meanwhile()

    def _commit_at_last(self, partitions: tuple[TopicPartition, ...] | None) -> Steps:
        """Commit all finished records. Wait for the present round, too: it may have records of these partitions."""
        transactions, clock, desk = self.transactions, self._clock, self._desk
        until = min(add_ms(clock.now_ms(), max(self._settings.drain_ms, _LAST_MS)), self._waits_end())
        self._last_error = None
        self._not_before = 0
        try:
            while transactions.failure is None:
                now = clock.now_ms()
                if transactions.is_busy:
                    if now >= until:
                        log.warning("gave up waiting for the end of the last transaction")
                        break
                    yield from self._a_while(now, until)
                elif self._is_given_up(now, until):
                    log.warning("commit failed; some records will be redelivered: %s", self._last_error)
                    break
                elif now < self._not_before:
                    yield from self._a_while(now, self._not_before)
                elif self._is_between_generations():
                    yield from self._a_while(now, add_ms(now, _AGAIN_MS))
                elif not self._begin(now):
                    break
        finally:
            if partitions is not None:
                with desk.lock:
                    desk.scheduler.forget(partitions)

    def _is_given_up(self, now: int, until: int) -> bool:
        """Whether the last round failed with an error that would recur, or the time is over."""
        # No poll updates the identity here: this is the end, or a callback, which may take as long as `drain`.
        is_member = self._renew()
        error = self._last_error
        if error is None:
            return False
        if _is_of_generation(error):
            return not is_member or now >= until
        is_final = isinstance(error, BrokerError) and not error.retriable
        return is_final or not isinstance(error, KafkaError) or now >= until

    def _is_between_generations(self) -> bool:
        """Whether the group has a newer generation that this member has not learned yet."""
        return _is_of_generation(self._last_error) and self._subject.group_metadata() == self._sent_as


def _is_of_generation(error: Exception | None) -> bool:
    return isinstance(error, BrokerError) and error.code in _OF_GENERATIONS


def _letter_of(each: Finished) -> Letter:
    (letter,) = each.outputs
    assert isinstance(letter, Letter)
    return letter
