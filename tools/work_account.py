"""The account of `make attack-work`: what must hold of each record, whatever programs and their cluster do.

A record is known by what its value says: which topic of the name it was written to (0 is the first one), its partition
and its offset. It is *owed* if the group had begun when it was written, and no seek has passed over it.

* Each owed record that retention leaves is handled in the end, or has a dead letter.
* A record begins only after those before it of its key (with order="partition": of its partition) are done, and once.
* A commit covers only what is done, of the topic that has the name now.
* Without transactions nothing is handled well twice; with them each output and each dead letter is there once.

Three exceptions, which the docs name:

1. `seeks`: a program that seeks back has what it seeks to handled again, and in transactions written again
   (docs/work.md, "Transactions": "A `seek` during `process` … is read completely"). Of a record there are as many
   outputs and letters more as there were seeks to it or before it; without transactions as there were seeks in its
   partition, for what was running or not committed yet is handled again, too.
2. `left_over`: TxnOffsetCommit names topics by their names, so an offset of a deleted topic may get into the one that
   is made anew in that moment, and stays if the member stops or loses the partition then (docs/transactions.md). It is
   granted only where such an offset has been seen.
3. `passed`: without transactions what was done above a committed offset that retention has passed while nobody read is
   handled again (docs/work.md, "Guarantees").
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Literal

from kadence import Record
from kadence.work import Context

__all__ = ["OLD_MS", "Account", "Draw", "Ident", "Log", "WrongError"]

Log = tuple[int, int]
"""Which topic of the name, and the partition."""

Ident = tuple[int, int, int]
"""A record: its log, and its offset."""

OLD_MS = 1_000_000_000_000
"""The time of old records, in ms since 1970."""


class WrongError(Exception):
    """Something does not hold."""


@dataclass(frozen=True)
class Draw:
    """What a seed decides of a group, and what its records look like.

    Attributes:
        kind: of the program: handlers on threads, coroutines on a thread of ours, or an AsyncConsumer.
        retries: none, in place, or through a topic. has_letters: whether records that fail for good have dead letters.
        has_outputs: whether handlers return records. are_old: whether records have timestamps of 2001.
    """

    seed: int
    kind: Literal["threads", "loop", "async"]
    protocol: str
    reset: str
    partitions: int
    is_transactional: bool
    batch: tuple[int, float] | None
    order: Literal["key", "partition"]
    retries: Literal["none", "memory", "topic"]
    has_letters: bool
    has_outputs: bool
    are_old: bool
    workers: int
    poll_records: int

    @classmethod
    def of(cls, seed: int, chance: random.Random) -> Draw:
        """Draw one."""
        is_transactional = chance.random() < 0.35
        batch = (chance.randint(2, 20), 0.05) if chance.random() < 0.15 else None
        retries: Literal["none", "memory", "topic"] = (
            "none" if batch else chance.choice(("none", "memory", "topic", "topic"))
        )
        return cls(
            seed,
            chance.choice(("threads", "loop", "async")),
            chance.choice(("classic", "consumer")),
            chance.choice(("latest", "earliest")),
            chance.randint(1, 3),
            is_transactional,
            batch,
            chance.choice(("key", "key", "partition")),
            retries,
            not batch and chance.random() < (0.3 if retries == "none" else 0.7),
            is_transactional or chance.random() < 0.3,
            chance.random() < 0.4,
            chance.choice((1, 4, 16)),
            chance.choice((5, 500)),
        )

    def nature(self, ident: Ident) -> str:
        """Whether a record is handled ``well``, or fails ``once`` or ``always``."""
        drawn = random.Random(f"{self.seed}-{ident}").random()
        if drawn < 0.1 and self.retries != "none":
            return "once"
        return "always" if 0.1 <= drawn < 0.2 and self.has_letters else "well"


class Account:
    """What was sent, and what has become of it. Any thread.

    Attributes:
        anew: how often the topic was made anew. sent: whether each record is owed, by log and offset. low: where logs
            begin. seeks: to where. left_over, passed: of the exceptions (see above). wrong: what does not hold.
        done: records that are not to be tried again. well: how often a record was handled well. failed: those that have
            failed for good. begun: all that a handler has begun with.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.lock = threading.RLock()
        self.anew = 0
        self.sent: dict[Log, dict[int, bool]] = defaultdict(dict)
        self.low: Counter[Log] = Counter()
        self.begun: set[Ident] = set()
        self.done: set[Ident] = set()
        self.well: Counter[Ident] = Counter()
        self.failed: set[Ident] = set()
        self.seeks: list[Ident] = []
        self.left_over: dict[Log, int] = {}
        self.passed: set[Ident] = set()
        self.wrong: list[str] = []
        self.too_late = 0
        self._running: dict[tuple[Log, bytes | None], set[Ident]] = defaultdict(set)
        self._last: dict[tuple[Log, bytes | None], int] = {}

    # ------------------------------------------------------------ by handlers

    def begins(self, record: Record, *, is_first: bool) -> Ident:
        """A handler begins with a record; ``is_first``: it comes from its own topic, not from that of retries."""
        ident = self._ident(record)
        with self.lock:
            self.begun.add(ident)
            if self.draw.are_old and abs(record.timestamp - OLD_MS) > 10_000_000:
                self.wrong.append(f"{ident} has timestamp {record.timestamp}")
            if is_first:
                self._begins(ident, record)
        return ident

    def _begins(self, ident: Ident, record: Record) -> None:
        log, offset = ident[:2], ident[2]
        if (record.partition, record.offset) != ident[1:]:
            self.wrong.append(f"{ident} came as {record.partition}@{record.offset}")
        lane = self._lane(ident, record)
        last, running = self._last.get(lane), self._running[lane]
        if not (self._was_sought(log) or log in self.left_over or ident in self.passed):
            if running and not self.draw.batch:
                self.wrong.append(f"{ident} begins while {running} of its key run")
            if last is not None and offset < last:
                self.wrong.append(f"{ident} begins after {last} of its key")
            if last is not None and offset > last and self._holds_up((*log, last)):
                self.wrong.append(f"{ident} begins before {last} of its key is done")
        self._last[lane] = max(last or 0, offset)
        running.add(ident)

    def _holds_up(self, earlier: Ident) -> bool:
        """Whether it is to be done before the next one of its key."""
        log = earlier[:2]
        is_there = log[0] == self.anew and earlier[2] >= self.low[log]
        return is_there and earlier not in self.done and not self.draw.batch

    def is_given_up(self, record: Record) -> None:
        """Its handler was cancelled."""
        with self.lock:
            ident = self._ident(record)
            self._running[self._lane(ident, record)].discard(ident)

    def ends(self, record: Record, context: Context, *, is_first: bool) -> None:
        """A handler ends.

        Raises:
            ValueError: the record is one that fails.
        """
        ident, draw = self._ident(record), self.draw
        with self.lock:
            if is_first:
                self._running[self._lane(ident, record)].discard(ident)
            nature = draw.nature(ident)
            if nature == "always" or (nature == "once" and context.attempt == 1):
                if is_first and draw.retries == "topic":
                    self.done.add(ident)
                if context.attempt >= (1 if draw.retries == "none" else 3):
                    self.done.add(ident)
                    self.failed.add(ident)
                raise ValueError(f"{nature} {ident}")
            self.done.add(ident)
            if context.lost:
                self.too_late += 1
            else:
                self.well[ident] += 1

    def _lane(self, ident: Ident, record: Record) -> tuple[Log, bytes | None]:
        return ident[:2], record.key if self.draw.order == "key" else None

    def _ident(self, record: Record) -> Ident:
        anew, partition, offset = map(int, (record.value or b"").split(b":"))
        return anew, partition, offset

    # ------------------------------------------------------------ by the story

    def log(self, partition: int) -> Log:
        """The partition of the topic that has the name now."""
        return self.anew, partition

    def end(self, partition: int) -> int:
        return len(self.sent[self.log(partition)])

    def is_sought(self, partition: int, to: int) -> None:
        """A program is about to seek: what lies before that is not owed any more."""
        with self.lock:
            log = self.log(partition)
            self.seeks.append((*log, to))
            # Below the log's beginning there is nothing, and auto.offset.reset says where it goes on.
            self.waive(log, self.end(partition) if to < self.low[log] and self.draw.reset == "latest" else to)

    def waive(self, log: Log, below: int | None = None) -> None:
        """Records of a log, those below an offset or all, are not owed."""
        for offset in self.sent[log]:
            if below is None or offset < below:
                self.sent[log][offset] = False

    def retention(self, partition: int, to: int, committed: int | None, *, is_read: bool) -> None:
        """Retention is about to take what lies below an offset."""
        with self.lock:
            log = self.log(partition)
            self.low[log] = to
            is_passed = committed is None or committed < to
            if self.draw.reset == "latest" and (is_passed or self.seeks):
                self.waive(log)
            if is_passed and not is_read and not self.draw.is_transactional:
                self.passed |= {each for each in self.done if each[:2] == log and each[2] >= to}

    def look_for_left_overs(self, committed: dict[int, int]) -> None:
        """In transactions, when a topic was made anew: what is committed of it, and may be the old one's."""
        with self.lock:
            for partition, offset in committed.items():
                log = self.log(partition)
                is_old = log[0] > 0 and offset <= len(self.sent[log[0] - 1, partition])
                if is_old and (offset > self.end(partition) or self._undone(log, offset)):
                    self.left_over[log] = max(offset, self.left_over.get(log, 0))
                    self.waive(log, offset)

    def _was_sought(self, log: Log) -> bool:
        return any(each[:2] == log for each in self.seeks)

    def _undone(self, log: Log, below: int) -> list[int]:
        owed = self.sent[log]
        return [at for at in range(self.low[log], below) if owed.get(at) and (*log, at) not in self.done]

    def check_commits(self, committed: dict[int, int]) -> None:
        """Look at what is committed.

        Raises:
            WrongError: it is not done.
        """
        with self.lock:
            for partition, offset in committed.items():
                log = self.log(partition)
                if log in self.left_over:
                    continue
                if offset > self.end(partition):
                    raise WrongError(
                        f"committed {offset} of {partition}, which ends at {self.end(partition)}"
                    )
                undone = self._undone(log, offset)
                if undone and not self._was_sought(log):
                    raise WrongError(
                        f"committed {offset} of {partition}, but {len(undone)} are not done: {undone[:5]}"
                    )

    def left(self) -> list[Ident]:
        """What is still to be handled."""
        with self.lock:
            return [
                (*log, offset)
                for log in map(self.log, range(self.draw.partitions))
                for offset, is_owed in self.sent[log].items()
                if is_owed and offset >= self.low[log]
                if (*log, offset) not in self.well and (*log, offset) not in self.failed
            ]

    def check_end(self, letters: list[Record], outputs: list[Record]) -> None:
        """Look at all that there is in the end.

        Raises:
            WrongError: something is missing, or is there too often.
        """
        again = self._more_than_once(self.well)
        if again and not self.draw.is_transactional:
            raise WrongError(f"{len(again)} handled twice: {again[:8]}")
        written = Counter(map(self._ident, letters))
        if missing := [
            each for each in self.failed if self._is_missing(each, written) and each not in self.well
        ]:
            raise WrongError(f"no dead letter of {missing[:5]}")
        if twice := self._more_than_once(written):
            raise WrongError(f"dead letters twice: {twice[:5]}")
        if not self.draw.has_outputs:
            return
        written = Counter(map(self._ident, outputs))
        if missing := [each for each in self.well if self._is_missing(each, written) and self._is_owed(each)]:
            raise WrongError(f"outputs lost: {missing[:5]}")
        if self.draw.is_transactional and (twice := self._more_than_once(written)):
            raise WrongError(f"{len(twice)} outputs twice: {twice[:5]}")

    def _is_owed(self, ident: Ident) -> bool:
        return self.sent[ident[:2]].get(ident[2], False)

    def _is_missing(self, ident: Ident, written: Counter[Ident]) -> bool:
        log = ident[:2]
        return ident not in written and log[0] == self.anew and ident[2] >= self.low[log]

    def _more_than_once(self, counts: Counter[Ident]) -> list[Ident]:
        """What is there more often than once, and once more for each seek that may repeat it."""
        return [
            ident
            for ident, count in counts.items()
            if count > 1 + sum(self._repeats(each, ident) for each in self.seeks) and ident not in self.passed
        ]

    def _repeats(self, seek: Ident, ident: Ident) -> bool:
        """Whether a seek may have a record done again: without transactions also what was not committed then."""
        return seek[:2] == ident[:2] and (seek[2] <= ident[2] or not self.draw.is_transactional)
