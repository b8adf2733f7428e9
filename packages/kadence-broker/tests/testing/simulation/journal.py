"""What the handlers of `process` did in a simulation, and what holds of every record, whatever happens (part H).

* A commit covers a record, by its offset or in its metadata, only if the record has ended: its handler returned while
  the partition was its member's and what it returned is in the log, or its dead letter or retry record is.
* No record begins before all earlier ones of its key (``order``) have ended, once at least; and never beside one of
  them in the same life of a member, but in one batch with them. What goes through a retry topic gives that up.
* In one assignment a record ends once, and its attempts are counted from 1. It begins in none that its commit covers.
* In the end each record was either handled or is a dead letter, and what must fail is the latter.
* With transactions readers of committed records see each output, dead letter and retry record once. A record has ended
  when they see what it led to; the next one of its key may begin before.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.types import TopicPartition
from kadence.work.frontier import decode
from kadence.work.letters import attempts_of
from kadence_broker.storage import Isolation
from kadence_testing.simulation.scheduler import SimulationError
from kadence_testing.simulation.transactions import records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kadence.records import Record
    from kadence_broker.core import BrokerCore
    from kadence_testing.simulation.simulation import Program, Simulation

__all__ = ["OF_STOPPED", "Attempt", "Journal", "makes_output", "must_fail"]

OF_STOPPED: Final = b"half of what a handler does"
"""The value of what a handler returns that stops because its partition goes: nobody is to see it."""

_SLACK_MS: Final = 1_500
"""So long after its time a commit is acknowledged, while nothing is wrong."""

_SLACK_OF_TRANSACTIONS_MS: Final = 25_000
"""The same with transactions: that of a member that was killed may hold up the others for 10 s, and 10 s until brokers
look; and they take a while."""


class _Place(NamedTuple):
    partition: TopicPartition
    offset: int


@dataclass(slots=True, eq=False)
class Attempt:
    """A handler that runs, or ran. ``assignment``: in which of its member's assignments of the partition."""

    program: Program
    life: int
    assignment: int
    place: _Place
    lane: Any
    number: int


@dataclass(slots=True)
class _Known:
    """One record, in the topic or in that of retries.

    Attributes:
        tried: attempts before it was written there. ended: how often its handler returned in time. late: and when the
            partition had gone. leaving: of those in time, how often the member was about to give the partition up, so
            that a commit may have it or not. failed: the highest attempt that failed. by: of a member, in one of its
            lives, when its handler returned last (ms).
    """

    value: bytes
    lane: Any
    tried: int
    ended: int = 0
    late: int = 0
    leaving: int = 0
    failed: int = 0
    by: dict[tuple[str, int], int] = field(default_factory=dict)


class _Covered(NamedTuple):
    """What a commit says is done: all below ``offset``, and ``above`` it."""

    offset: int = 0
    metadata: str = ""
    above: frozenset[int] = frozenset()

    def has(self, offset: int) -> bool:
        return offset < self.offset or offset in self.above


_NOTHING: Final = _Covered()


def makes_output(value: bytes) -> bool:
    """Whether the handler of a record returns one. What a record does stands in its value."""
    return value.endswith(b" out")


def must_fail(value: bytes) -> bool:
    """Whether every attempt of a record fails."""
    return value.endswith(b" bad")


class Journal:
    """The account of one group's records, which are all different.

    Args:
        order: as `process` has it. attempts: of each record. topic: that is read. again, dead, out: the topics of
            retries (None: in place), of dead letters and of what handlers return. commit_ms: how often members commit.
        halves: an attempt of a batch may be several calls, of smaller and smaller lists.
        transactional: outputs and offsets are committed in transactions. in_batches: handlers get batches.

    Attributes:
        begun, ended: attempts, and handlers that returned. repeats: the latter, of records whose handler had returned
            before. late: of those whose partition had gone, or was about to. kills: of members. undone: what the
            handlers of these had done, and no commit said.
    """

    def __init__(
        self,
        simulation: Simulation,
        group_id: str,
        *,
        order: str,
        attempts: int,
        topic: str,
        again: str | None,
        dead: str,
        out: str,
        commit_ms: int,
        halves: bool = False,
        transactional: bool = False,
        in_batches: bool = False,
    ) -> None:
        self._simulation = simulation
        self._group_id = group_id
        self._order = order
        self._attempts = attempts
        self._topic = topic
        self._again = again
        self._dead = dead
        self._out = out
        self._commit_ms = commit_ms
        self._object = simulation.history.object_to
        self._known: dict[_Place, _Known] = {}
        self._written: dict[str, dict[bytes, int]] = {each: {} for each in (dead, out, again or dead)}
        """Of these topics each value, and after how many attempts it was written last."""
        self._read_to: dict[TopicPartition, int] = defaultdict(int)
        self._lanes: dict[tuple[TopicPartition, Any], list[int]] = defaultdict(list)
        self._ready: dict[tuple[TopicPartition, Any], int] = defaultdict(int)
        self._running: dict[tuple[str, int, TopicPartition, Any], dict[Attempt, None]] = defaultdict(dict)
        self._last: dict[tuple[str, int, int, _Place], int] = {}
        self._returned: set[tuple[str, int, int, _Place]] = set()
        # In a transaction a batch is committed as a whole, or handled again: if a partition of it went, say.
        self._is_again = transactional and in_batches
        self._halves = halves or self._is_again
        self._transactional = transactional
        self._isolation = Isolation.COMMITTED if transactional else Isolation.UNCOMMITTED
        self._slack_ms = _SLACK_OF_TRANSACTIONS_MS if transactional else _SLACK_MS
        self._copies: Counter[tuple[str, bytes, int]] = Counter()
        self._unseen: set[_Place] = set()
        self._covered: dict[TopicPartition, _Covered] = {}
        self._covered_since: defaultdict[TopicPartition, list[tuple[int, _Covered]]] = defaultdict(list)
        self.begun = self.ended = self.late = self.repeats = self.kills = self.undone = 0
        simulation.history.observers.append(self._turned)

    @property
    def records(self) -> int:
        """How many were written, to the topic and to that of retries."""
        return len(self._known)

    def __repr__(self) -> str:
        return (
            f"<journal of {len(self._known)} records: {self.begun} attempts, {self.ended} returned, {self.repeats} "
            f"again, {self.late} late, {self.kills} kills, {self.undone} undone>"
        )

    # ------------------------------------------------------------ by handlers

    def begins(
        self, program: Program, record: Record[Any, Any], number: int, batch: Sequence[Attempt] = ()
    ) -> Attempt:
        """A handler is called with a record; ``number`` is that of the attempt, ``batch`` what it got before it."""
        self._read()
        place = _Place(TopicPartition(record.topic, record.partition), record.offset)
        if place not in self._known:
            # The broker is down, and a member read further than we have.
            self._note(place.partition, record)
        lane = self._known[place].lane
        attempt = Attempt(program, program.lives, _assignments(program, place.partition), place, lane, number)
        self.begun += 1
        self._look_at_attempt(attempt)
        if place.partition.topic == self._topic and self._order != "none":
            self._look_at_order(attempt, batch)
        self._running[_name(attempt)][attempt] = None
        return attempt

    def fails(self, attempt: Attempt) -> None:
        """The handler raised, or was cancelled because it took too long."""
        self._running[_name(attempt)].pop(attempt)
        known = self._known[attempt.place]
        known.failed = max(known.failed, attempt.number)

    def stops(self, attempt: Attempt) -> None:
        """The handler was told that its partition goes, and is about to return or to raise: it has done nothing."""
        self._running[_name(attempt)].pop(attempt)
        self._last[attempt.program.name, attempt.life, attempt.assignment, attempt.place] = attempt.number - 1

    def returns(self, attempt: Attempt, *, is_last: bool, is_lost: bool) -> None:
        """The handler is about to return.

        Args:
            is_last: it returns no record, which might be refused. is_lost: its partition goes, which it was not told.
        """
        self._running[_name(attempt)].pop(attempt)
        known = self._known[attempt.place]
        program, partition = attempt.program, attempt.place.partition
        self.ended += 1
        self.repeats += bool(known.ended or known.late)
        if partition in program.held and attempt.assignment == _assignments(program, partition):
            known.ended += 1
            if is_lost or program.stopping.is_set():
                known.leaving += 1
                self.late += 1
            known.by[program.name, attempt.life] = self._simulation.scheduler.now_ms()
            if is_last and not self._is_again:
                self._returned.add((program.name, attempt.life, attempt.assignment, attempt.place))
        else:
            known.late += 1
            self.late += 1

    def _look_at_attempt(self, attempt: Attempt) -> None:
        program, place = attempt.program, attempt.place
        known = self._known[place]
        name = program.name, attempt.life, attempt.assignment, place
        before = self._last.get(name, known.tried)
        self._last[name] = attempt.number
        if attempt.number != before + 1 and not (self._halves and attempt.number == before):
            self._object(
                f"{place} began with attempt {attempt.number} after {before} attempts in an assignment"
            )
        if name in self._returned:
            self._object(f"{place} began again in the assignment in which it was done")
        covered = self._covered_at(place.partition, _assigned_ms(program, place.partition))
        # Who is frozen between the look at what is committed and its first record has an older view: that is no fault.
        if covered.has(place.offset) and not program.was_frozen:
            self._object(f"{place} began, and was committed as done before {program.name} had the partition")

    def _look_at_order(self, attempt: Attempt, batch: Sequence[Attempt]) -> None:
        place = attempt.place
        if beside := [each for each in self._running[_name(attempt)] if each not in batch]:
            self._object(f"{place} began beside {beside[0].place} of its key")
        name = place.partition, attempt.lane
        offsets = self._lanes[name]
        while offsets[self._ready[name]] < place.offset:
            earlier = _Place(place.partition, offsets[self._ready[name]])
            if not self._lets_go_on(earlier):
                break
            self._ready[name] += 1
        together = {each.place.offset for each in batch if each.place.partition == place.partition}
        for offset in offsets[self._ready[name] :]:
            if offset >= place.offset:
                break
            earlier = _Place(place.partition, offset)
            if offset not in together and not self._lets_go_on(earlier):
                self._object(f"{place} began before {earlier} of its key had ended")
                return

    def _covered_at(self, partition: TopicPartition, elapsed_ms: int) -> _Covered:
        """What was committed of a partition at that time."""
        # A member that was cut off may begin what another one did meanwhile, until it learns that it is out.
        for since, covered in reversed(self._covered_since[partition]):
            if since <= elapsed_ms:
                return covered
        return _NOTHING

    # ------------------------------------------------------------ by the broker

    def _turned(self, core: BrokerCore) -> None:
        """The broker has done a turn: look at what is written and committed now."""
        # At once: what is acknowledged lets the next record of its key go on, also after a crash of the broker.
        self._read()
        found = core.coordination.coordinator.offsets.of_group(self._group_id)
        for (topic, number), at in found.items():
            partition = TopicPartition(topic, number)
            before = self._covered.get(partition, _NOTHING)
            if before[:2] == (at.offset, at.metadata):
                continue
            above = frozenset(
                offset for start, end in decode(at.offset, at.metadata) for offset in range(start, end)
            )
            covered = self._covered[partition] = _Covered(at.offset, at.metadata, above)
            self._covered_since[partition].append((self._simulation.scheduler.elapsed_ms, covered))
            places = (_Place(partition, offset) for offset in (*range(before.offset, at.offset), *above))
            self._unseen.update(place for place in places if place in self._known)
        if self._unseen and self._is_settled(core):
            for place in sorted(self._unseen):
                if not self._has_ended(place):
                    self._object(f"{place} is committed as done, and is not: {self._known[place]}")
            self._unseen.clear()

    def _is_settled(self, core: BrokerCore) -> bool:
        """Whether no transaction is open in the topics written to. Its offsets may count before its records do."""
        if not self._transactional:
            return True
        self._read()
        logs = (
            core.partition(topic, each.index)
            for topic in self._written
            for each in core.cluster.topics[topic].partitions
        )
        return all(log.last_stable_offset == log.end_offset for log in logs)

    def _lets_go_on(self, place: _Place) -> bool:
        """Whether the next record of its key may begin."""
        known = self._known[place]
        if self._transactional and (
            known.ended or known.late or known.failed >= (1 if self._again else self._attempts)
        ):
            return True
        return self._has_ended(place, in_time=False)

    def _has_ended(self, place: _Place, *, in_time: bool = True) -> bool:
        """Whether a record was handled, or is a dead letter, or is to be tried again through the topic.

        Args:
            in_time: it counts only if its partition was still its member's.
        """
        known = self._known[place]
        value = known.value
        if (known.ended or (known.late and not in_time)) and (
            not makes_output(value) or value in self._written[self._out]
        ):
            return True
        if value in self._written[self._dead]:
            return True
        return self._again is not None and self._written[self._again].get(value, 0) > known.tried

    def _read(self) -> None:
        """What was written since the last look."""
        broker = self._simulation.broker
        if not broker.is_up:
            return
        for topic in dict.fromkeys((self._topic, self._again, self._dead, self._out)):
            if topic is not None:
                for each in broker.core.cluster.topics[topic].partitions:
                    self._follow(broker.core, TopicPartition(topic, each.index))

    def _follow(self, core: BrokerCore, partition: TopicPartition) -> None:
        log = core.partition(*partition)
        if log.end_offset > self._read_to[partition]:
            for record in records_of(log, self._read_to[partition], self._isolation):
                self._note(partition, record)
                self._read_to[partition] = record.offset + 1

    def _note(self, partition: TopicPartition, record: Record[Any, Any]) -> None:
        """A record of one of the topics."""
        topic, value, tried = partition.topic, bytes(record.value or b""), attempts_of(record)
        place = _Place(partition, record.offset)
        if topic in (self._topic, self._again) and place not in self._known:
            key = None if record.key is None else bytes(record.key)
            lane = {"key": key, "partition": None, "none": record.offset}[self._order]
            self._known[place] = _Known(value, lane, tried)
            insort(self._lanes[partition, lane], record.offset)
        if topic in self._written:
            self._copies[topic, value, tried] += 1
            if self._transactional and self._copies[topic, value, tried] > 1:
                self._object(f"{value!r} is committed twice in {topic}, the second time at {place}")
            self._written[topic][value] = max(tried, self._written[topic].get(value, 0))

    # ------------------------------------------------------------ by the story

    def is_killed(self, program: Program, *, calm: bool) -> None:
        """A member is about to be killed. ``calm``: nothing else has happened that keeps a commit from its time."""
        if not program.is_running:
            return
        self.kills += 1
        now = self._simulation.scheduler.now_ms()
        for place, known in self._known.items():
            at = known.by.get((program.name, program.lives))
            if at is None or self._covered.get(place.partition, _NOTHING).has(place.offset):
                continue
            self.undone += 1
            is_due = now - at > self._commit_ms + self._slack_ms
            if calm and is_due and place.partition in program.held and not program.stopping.is_set():
                self._object(f"{place} was done at {program.name} {now - at} ms ago, and is not committed")

    def is_complete(self) -> bool:
        """Whether all is done, and committed."""
        self._read()
        ends = {
            partition: end for partition, end in self._read_to.items() if partition.topic in self._read_topics
        }
        # The end of a transaction takes an offset, too.
        return not self._unseen and all(
            self._covered.get(partition, _NOTHING).offset >= end for partition, end in ends.items()
        )

    @property
    def _read_topics(self) -> tuple[str | None, ...]:
        return self._topic, self._again

    def check(self, *, exactly: bool, calm: bool) -> None:
        """Each record has ended in one way.

        Args:
            exactly: and only once, for nobody was killed. calm: kills are all that broke.

        Raises:
            SimulationError: one has not.
        """
        ways: dict[bytes, list[_Known]] = defaultdict(list)
        for known in self._known.values():
            ways[known.value].append(known)
        letters = self._written[self._dead]
        if OF_STOPPED in self._written[self._out]:
            raise SimulationError("what a handler returned that was told that its partition goes is written")
        for value, places in ways.items():
            returned = sum(known.ended for known in places)
            surely = returned - sum(known.leaving for known in places)
            is_letter = value in letters
            failed = max(known.failed for known in places)
            if must_fail(value):
                right = is_letter and not returned
            elif is_letter:
                right = failed >= self._attempts or makes_output(value)
            else:
                right = returned > 0
            if exactly:
                right = right and surely + is_letter <= 1
            if self._transactional and (makes_output(value) or must_fail(value)):
                right = right and (value in self._written[self._out]) != is_letter
            if not right:
                raise SimulationError(f"{value!r} ended as {places}, {'' if is_letter else 'no '}dead letter")
        if calm and self.repeats > self.undone + self.late:
            raise SimulationError(f"more was repeated than was under way at the kills: {self!r}")


def _assignments(program: Program, partition: TopicPartition) -> int:
    """How often the program got the partition, in all its lives."""
    return sum(told.kind == "assigned" and partition in told.partitions for told in program.told)


def _assigned_ms(program: Program, partition: TopicPartition) -> int:
    """When the program got the partition last."""
    return max(
        (told.at_ms for told in program.told if told.kind == "assigned" and partition in told.partitions),
        default=0,
    )


def _name(attempt: Attempt) -> tuple[str, int, TopicPartition, Any]:
    return attempt.program.name, attempt.life, attempt.place.partition, attempt.lane
