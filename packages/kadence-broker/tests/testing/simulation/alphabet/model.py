"""The reference model: what holds of each record, whatever a program and its cluster do.

A record is *owed* if the group had begun when it was written (with ``earliest``: always), it is as young as was asked
for, and the program did not seek past it. It *has ended* when a handler has ended well and its output is written, or
its dead letter or a retry record is.

* Each owed record that is there is handled in the end, or has a dead letter; one that must fail has a dead letter.
* In transactions each output is there once, and a record has an output or a dead letter, not both.
* A record begins only after those before it of its key have ended once.
* A commit covers, of the topic that has the name now, only what has ended; so does its metadata, above it.
* What has ended is committed in time, while all is well.
* What is written to the topics of retries and of dead letters stays, unless an operator deletes it.
* Of a paused partition no more begins than was read ahead.
* A start by time gives nothing older that was there then, but what lies behind a record as young as was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from tests.testing.simulation.alphabet.ledger import AGAIN, Fact, Ledger, Log, makes_output, must_fail

from kadence.types import TopicPartition
from kadence.work.frontier import decode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kadence.records import Record
    from kadence_testing.simulation import Simulation

__all__ = ["Model"]

_SLACK_MS: Final = 3_000
"""So long after its time a commit has come, while all is well."""


class Model:
    """The account of one group.

    Args:
        order: whether the order of keys holds. exactly: whether it works in transactions. sends: whether it writes
            outputs and letters. ahead: how many records it may have read ahead. commit_ms: how often it commits.
    """

    def __init__(
        self,
        simulation: Simulation,
        ledger: Ledger,
        *,
        order: bool,
        exactly: bool,
        sends: bool,
        ahead: int,
        commit_ms: int,
    ) -> None:
        self.ledger = ledger
        self.object_to = simulation.history.object_to
        self._clock = simulation.scheduler
        self._order, self._exactly, self._sends = order, exactly, sends
        self._ahead, self._commit_ms = ahead, commit_ms
        self._unseen: dict[Log, None] = {}
        self._paused: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self._begun_ms = 0
        simulation.history.observers.append(lambda core: self._turned())

    # ------------------------------------------------------------ by programs

    def begins(
        self,
        program: str,
        record: Record[Any, Any],
        beside: Collection[bytes] = (),
        *,
        in_order: bool = True,
    ) -> Fact | None:
        """A program begins with a record; ``beside`` are those that it works on in the same call.

        Not ``in_order``: it has polled it by itself while `process` is at work.
        """
        self.ledger.read()
        value = bytes(record.value or b"")
        partition = TopicPartition(record.topic, record.partition)
        if partition in (paused := self._paused[program]):
            paused[partition] -= 1
            if paused[partition] < 0:
                self.object_to(f"{program} paused {partition}, and {value!r} of it begins")
        fact = self.ledger.facts.get(value)
        if fact is None:
            self.object_to(f"{program} got {value!r}, which no reader may get")
            return None
        fact.begun += 1
        self._begun_ms = self._clock.now_ms()
        if self._order and in_order and partition.topic != AGAIN:
            for earlier in self.ledger.lanes[fact.log, fact.key]:
                if earlier is fact:
                    break
                if earlier.value not in beside and self._is_there(earlier) and not self._lets_go_on(earlier):
                    self.object_to(f"{value!r} begins before {earlier.value!r} of its key has ended")
        return fact

    def ends(self, fact: Fact | None, *, well: bool) -> None:
        """It is done with it, or has failed."""
        if fact is not None:
            fact.done += well
            fact.failed += not well
            if well:
                fact.ended_ms = self._clock.now_ms()

    def pauses(self, program: str, partitions: Collection[TopicPartition]) -> None:
        """`pause` has returned."""
        self._paused[program].update(dict.fromkeys(partitions, self._ahead))

    def resumes(self, program: str, partitions: Collection[TopicPartition]) -> None:
        """`resume` is called, or the program has the partitions no more."""
        for partition in partitions:
            self._paused[program].pop(partition, None)

    def paused(self, program: str) -> set[TopicPartition]:
        """What the program has paused, and has."""
        return set(self._paused[program])

    def passes(self, partition: TopicPartition, offset: int) -> None:
        """The program seeks past what lies below ``offset``."""
        self.ledger.read()
        self.waives(f.value for f in self._facts_of(self.ledger.log_of(partition)) if f.offset < offset)

    def waives(self, values: Iterable[bytes]) -> None:
        """The program says that it has done these, though it has not: who closes has done what polls returned."""
        for value in values:
            self.ledger.facts[value].is_owed = False

    def begins_by_time(self, record: Record[Any, Any], ends: dict[Log, int]) -> None:
        """A program begins with a record, after a start by time; ``ends``: of the logs, when it asked for it."""
        log = self.ledger.log_of(TopicPartition(record.topic, record.partition))
        if record.offset < min(ends.get(log, 0), self.ledger.first_young.get(log, 1 << 62)):
            self.object_to(
                f"{record.value!r} is older than was asked for, and lies before all that are younger"
            )

    def frontier(self, partition: TopicPartition) -> int:
        """Up to where all has ended."""
        facts = [fact for fact in self._facts_of(self.ledger.log_of(partition)) if self.is_there(fact)]
        ended = max((fact.offset + 1 for fact in facts if self._has_ended(fact)), default=0)
        return min((fact.offset for fact in facts if not self._has_ended(fact)), default=ended)

    # ------------------------------------------------------------ rules

    def is_there(self, fact: Fact) -> bool:
        """Whether a reader can still get it."""
        return self.ledger.holds(fact.log, fact.offset)

    def _is_there(self, fact: Fact) -> bool:
        return fact.is_owed and self.is_there(fact)

    def _facts_of(self, log: Log) -> list[Fact]:
        return [fact for fact in self.ledger.facts.values() if fact.log == log]

    def _is_done(self, fact: Fact) -> bool:
        """Whether it was handled or has a dead letter, and what that led to is there."""
        is_written = not (self._sends and makes_output(fact.value)) or self.ledger.outputs[fact.value]
        return bool((fact.done and is_written) or fact.value in self.ledger.letters)

    def _has_ended(self, fact: Fact) -> bool:
        return self._is_done(fact) or fact.value in self.ledger.copies

    def _lets_go_on(self, fact: Fact) -> bool:
        """Whether the next one of its key may begin. In transactions what it leads to is written later."""
        will_end = self._exactly and (fact.failed or must_fail(fact.value))
        return bool(fact.done or will_end or self._has_ended(fact))

    def _is_complete(self, fact: Fact) -> bool:
        """Whether nothing is to be done of it any more. Of what has a retry record that is the only copy."""
        copies = self.ledger.copies.get(fact.value)
        if self._is_done(fact):
            return True
        return copies[-1][1] < self.ledger.deleted[copies[-1][0]] if copies else not self._is_there(fact)

    def _turned(self) -> None:
        """The broker's loop has done a turn."""
        self.ledger.read()
        self._unseen.update(dict.fromkeys(self.ledger.commits()))
        if self._unseen and (not self._exactly or self.ledger.is_settled()):
            for log in self._unseen:
                self._look_at_commit(log, *self.ledger.committed[log])
            self._unseen.clear()

    def _look_at_commit(self, log: Log, offset: int, metadata: str) -> None:
        if (found := self.ledger.end_of(log)) is None:
            return
        name, end = found
        if offset > end:
            self.object_to(f"{name}-{log[1]} is committed up to {offset}, and ends at {end}")
        above = [range(*each) for each in decode(offset, metadata)]
        for fact in self._facts_of(log):
            is_covered = fact.offset < offset or any(fact.offset in each for each in above)
            if is_covered and self._is_there(fact) and not self._has_ended(fact):
                self.object_to(f"{fact} is committed as done (up to {offset}), and is not")
        for value, places in self.ledger.copies.items():
            last, at = places[-1]
            is_covered = last == log and at < offset and self.ledger.holds(last, at)
            if is_covered and not self._is_complete(self.ledger.facts[value]):
                self.object_to(f"the retry record of {value!r} is committed as done, and is not")

    # ------------------------------------------------------------ by the story

    def look_at_time(self) -> None:
        """All is well, and has been for long: what has ended is committed."""
        now, waiting = self._clock.now_ms(), set[Log]()
        for fact in self.ledger.facts.values():
            since = now - (fact.ended_ms or now)
            if fact.log in waiting or not self.is_there(fact):
                continue
            if not (fact.done or self._has_ended(fact)) or since < self._commit_ms + _SLACK_MS:
                waiting.add(fact.log)
            elif self.ledger.committed.get(fact.log, (0, ""))[0] <= fact.offset:
                self.object_to(f"{fact} ended {since} ms ago, and is not committed: {self.ledger.committed}")

    def is_at_rest(self, ms: int) -> bool:
        """Whether for so long no record has begun or ended. Programs that go back handle again what has ended."""
        since = self._clock.now_ms() - ms
        return self._begun_ms <= since and all(
            (each.ended_ms or 0) <= since for each in self.ledger.facts.values()
        )

    def unfinished(self) -> list[Fact]:
        """What is still to be handled."""
        self.ledger.read()
        return [fact for fact in self.ledger.facts.values() if not self._is_complete(fact)]

    def check(self) -> None:
        """At the end, when all is at rest."""
        for fact in self.unfinished():
            self.object_to(f"{fact} was never handled")
        for value, (log, offset) in self.ledger.letters.items():
            if not self.ledger.holds(log, offset) and offset >= self.ledger.deleted[log]:
                self.object_to(f"the dead letter of {value!r} is gone")
            if self._exactly and self.ledger.outputs[value]:
                self.object_to(f"{value!r} has a dead letter and an output")
        for value, count in self.ledger.outputs.items():
            if self._exactly and count > 1:
                self.object_to(f"the output of {value!r} is committed {count} times")
