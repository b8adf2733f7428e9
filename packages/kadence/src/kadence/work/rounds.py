"""Chooses the records of each transaction, and undoes transactions that failed (H7). Pure.

With transactions a record is done when its transaction has been committed. Until then it is *finished*: its handler has
returned, its outputs are kept here, and the next record of its key may begin. A *round* is the content of one
transaction: finished records in the order in which they ended, all their outputs, and the frontiers in which these
records are done. If the transaction fails, its records are finished as before, and part of the next round.

Only a record whose output was refused is handled again, together with the records of its key that were finished after
it, because they were handled as if it were done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Final

from kadence.client.repeating import Repeating
from kadence.types import ReadOffset, TopicPartition
from kadence.work.frontier import METADATA_BYTES
from kadence.work.letters import ProducerRecord
from kadence.work.scheduler import Lane, PartitionWork, Scheduler, Task, read_offset

__all__ = ["Finished", "Round", "Rounds"]

_MOST_OUTPUTS: Final = 10_000
"""The most outputs of a round, unless one call of a handler has more; more could outlast ``transaction.timeout.ms``."""

_HALF: Final = 2
"""A round begins early when 1/`_HALF` of the limit waits for it; the rest keeps the workers busy."""


class Finished:
    """The records and outputs of one call of a handler, which are committed together or not at all.

    Attributes:
        number: in the order in which calls ended. counter: the desk's counter, for a dead letter or retry record.
        not_before: when its outputs may be sent (ms). repeating: the waits of a refused dead letter or retry record.
        context: of the handler; records that are sent in it belong to its trace.
    """

    __slots__ = ("context", "counter", "not_before", "number", "outputs", "repeating", "tasks")

    def __init__(
        self, number: int, tasks: Sequence[Task], outputs: Sequence[ProducerRecord], counter: str | None
    ) -> None:
        self.number = number
        self.tasks = tasks
        self.outputs = outputs
        self.counter = counter
        self.not_before = 0
        self.repeating: Repeating | None = None
        self.context = copy_context()


class Round:
    """The content of one transaction. ``offsets``: the frontiers in which its records are done."""

    __slots__ = ("finished", "offsets")

    def __init__(self, finished: Sequence[Finished], offsets: Mapping[TopicPartition, ReadOffset]) -> None:
        self.finished = finished
        self.offsets = offsets


class Rounds(Scheduler):
    """A scheduler whose records are done when their transaction is committed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._finished: list[Finished] = []
        self._finished_bytes = 0
        # Sums over `_finished`, without rounds that have begun.
        self._waiting = self._waiting_bytes = self._outputs = 0
        self._numbers = 0

    # ------------------------------------------------------------ handlers end

    def finish(
        self, tasks: Sequence[Task], outputs: Sequence[ProducerRecord], now: int, counter: str | None = None
    ) -> None:
        """Their handler has returned: a later round commits these, and the next records of their lanes may begin.

        But the call does not count if a partition of them is gone, or the handler has read `Context.lost` as True, or
        an earlier record of a key is to be handled again. Then the records of remaining partitions are put back.
        """
        if tasks[0].told_lost or not (all(map(self._is_ours, tasks)) and _are_first(tasks)):
            for task in tasks:
                self.put_back(task, now)
            return
        self._numbers += 1
        finished = Finished(self._numbers, tasks, outputs, counter)
        self._finished.append(finished)
        self._count_waiting(finished, 1)
        for task in tasks:
            self._tried += not task.attempts
            self._end(task)
            task.lane.tasks.popleft()
            self._count_finished(task, 1)
        for lane in {task.lane: None for task in tasks}:
            if lane.tasks:
                self._line_up(lane, now)
            elif lane.home is not None and lane.home.get(lane.key) is lane:
                del lane.home[lane.key]

    def _is_ours(self, task: Task) -> bool:
        """Whether its partition may still be committed; it may while the partition is being revoked."""
        return self.partitions.get(task.work.partition) is task.work

    def _count_finished(self, task: Task, sign: int) -> None:
        task.work.finished += sign
        self.finished += sign
        self._finished_bytes += sign * task.nbytes

    def _count_waiting(self, finished: Finished, sign: int) -> None:
        self._outputs += sign * len(finished.outputs)
        self._waiting += sign * len(finished.tasks)
        self._waiting_bytes += sign * sum(task.nbytes for task in finished.tasks)

    @property
    def is_pressing(self) -> bool:
        """Whether a round is to begin early: without its commit, too few new records could be read."""
        if not self._finished:
            return False
        limits = self._limits
        if (
            max(self._waiting, self._outputs) >= self._bound // _HALF
            or self._waiting_bytes >= limits.nbytes // _HALF
        ):
            return True
        if self.has_ready:
            return False
        if self.room() == 0:
            return (
                self.total - self.finished < self._high
                and self.nbytes - self._finished_bytes < limits.nbytes * 3 // 4
            )
        return any(
            work.is_paused and work.finished and work.outstanding - work.finished <= work.resume_at
            for work in self.partitions.values()
        )

    # ------------------------------------------------------------ rounds

    def begin(
        self, now: int, limit: int = METADATA_BYTES, without: Collection[TopicPartition] = ()
    ) -> Round | None:
        """The next round: finished records, and the frontiers after them. None if the frontiers do not fit.

        ``without``: partitions whose offsets cannot be committed now. The round has no records of them: outputs are
        committed with their record's offset, or not at all.

        All done offsets above a frontier must be in its metadata: records left out would be handled and sent twice. If
        they do not fit (``limit``: characters), the round is shortened, down to none, until the frontier can advance.
        """
        chosen = _first_outputs(
            [
                each
                for each in self._finished
                if each.not_before <= now
                and not (without and any(task.work.partition in without for task in each.tasks))
            ]
        )
        while (offsets := self._after(chosen, limit, without)) is None:
            if not chosen:
                return None
            chosen = chosen[: len(chosen) // 2]
        taken = set(chosen)
        self._finished = [each for each in self._finished if each not in taken]
        for each in chosen:
            self._count_waiting(each, -1)
        return Round(chosen, offsets)

    def _after(
        self, finished: Iterable[Finished], limit: int, without: Collection[TopicPartition]
    ) -> dict[TopicPartition, ReadOffset] | None:
        done: dict[PartitionWork, list[int]] = {}
        for each in finished:
            for task in each.tasks:
                done.setdefault(task.work, []).append(task.record.offset)
        found = {}
        for partition, work in self.partitions.items():
            if partition in without:
                continue
            frontier = work.frontier.after(done[work]) if work in done else work.frontier
            metadata = frontier.metadata(limit)
            if not frontier.holds_all(metadata):
                return None
            if (at := read_offset(work, frontier, metadata)) is not None:
                found[partition] = at
        return found

    def committed(self, this: Round) -> None:
        """The round's transaction was committed: its records are done."""
        for each in this.finished:
            for task in each.tasks:
                task.work.frontier.done(task.record.offset)
                self._count_finished(task, -1)
            self._count_out(each.tasks)

    def aborted(self, this: Round, refused: Collection[Finished], now: int) -> None:
        """The round's transaction was aborted: its records are finished as before.

        The records of ``refused`` count as running until the caller ends them (`again`, `drop`, ...). Records of their
        lanes that were finished after them are to be handled again.
        """
        for each in this.finished:
            self._count_waiting(each, 1)
        self._finished = sorted([*this.finished, *self._finished], key=lambda each: each.number)
        gone = [each for each in self._finished if not all(map(self._is_ours, each.tasks))]
        self._handle_again({*gone, *refused}, frozenset(refused), now)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are gone, and so are their finished records."""
        super().forget(partitions)
        gone = {each for each in self._finished if not all(map(self._is_ours, each.tasks))}
        self._handle_again(gone, frozenset(), 0)

    def _handle_again(self, these: set[Finished], running: Collection[Finished], now: int) -> None:
        """Put these back to the front of their lanes, with the records finished after them there."""
        if not these:
            return
        again: list[Finished] = []
        kept: list[Finished] = []
        lanes: set[Any] = set()
        for each in self._finished:
            names = [_name_of(task) for task in each.tasks]
            if each in these or not lanes.isdisjoint(names):
                lanes.update(names)
                again.append(each)
            else:
                kept.append(each)
        self._finished = kept
        touched: dict[Lane, None] = {}
        for each in reversed(again):
            self._count_waiting(each, -1)
            for task in reversed(each.tasks):
                self._count_finished(task, -1)
                if task.work.is_gone:
                    self._count_out((task,))
                    continue
                lane = task.lane
                if lane.home is not None:
                    lane = task.lane = lane.home.setdefault(lane.key, lane)
                lane.tasks.appendleft(task)
                touched[lane] = None
                if each in running:
                    task.is_running = True
                    lane.running += 1
                    self.running[task] = None
        for lane in touched:
            self._line_up(lane, now)


def _first_outputs(finished: list[Finished]) -> list[Finished]:
    """The first of these, with `_MOST_OUTPUTS` outputs together at most; at least one."""
    total = 0
    for place, each in enumerate(finished):
        total += len(each.outputs)
        if total > _MOST_OUTPUTS and place:
            return finished[:place]
    return finished


def _are_first(tasks: Sequence[Task]) -> bool:
    """Whether these are the first of their lanes, in their order."""
    places: dict[Lane, int] = {}
    for task in tasks:
        place = places.get(task.lane, 0)
        if task.lane.tasks[place] is not task:
            return False
        places[task.lane] = place + 1
    return True


def _name_of(task: Task) -> Any:
    """The identity of a task's lane. Lanes of one key are the same, although an empty lane is dropped and recreated."""
    lane = task.lane
    return lane if lane.home is None else (task.work, lane.key)
