"""Random stories of `Consumer.process` on a real cluster, by seed, and an account of every record.

    make attack-work SEEDS=500 BROKER=kafka
    make attack-work SEEDS=1 BROKER=kafka ARGS='--first 5193'

A seed draws a group (protocol, auto.offset.reset, threads or asyncio, retries, dead letters, transactions), and then
what happens: records, members that start, stop, are woken up and closed, pauses, seeks, ranges, retention, and a topic
that is deleted and made anew. In the end all must be done, and the members end in time. What must hold of each record,
and the three exceptions from it, stand in tools/work_account.py.

A seed that fails is printed with what happened in it. Time is the machine's, so it need not fail again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from attack_members import STOP_S, Member
from kadence import Admin, Consumer, Producer, Record, TopicPartition
from kadence.errors import IllegalStateError, KafkaError
from killing import broker
from work_account import OLD_MS, Account, Draw, Log, WrongError

PATIENCE_S = 60
SEEN_S = 3
"""So long after a topic was made anew the story looks for offsets of the old one."""


class Story:
    """What happens to the group of a seed."""

    def __init__(self, servers: str, run: str, seed: int) -> None:
        self.servers, self.seed = servers, seed
        self.chance = random.Random(seed)
        self.draw = Draw.of(seed, self.chance)
        self.account = Account(self.draw)
        self.topic, self.group = f"t{run}-{seed}", f"g{run}-{seed}"
        self.members: dict[int, Member] = {}
        self.told: list[str] = []
        self.lives, self.slowest_s = 0, 0.0
        self._begun = time.monotonic()
        self._started_ms = time.time() * 1000

    def tell(self, text: str) -> None:
        self.told.append(f"{time.monotonic() - self._begun:6.2f} {text}")

    def run(self) -> None:
        """Let it happen.

        Raises:
            WrongError: something does not hold.
        """
        settings = {"bootstrap.servers": self.servers}
        with (
            Admin(settings) as self.admin,
            Producer(settings) as self.producer,
            Consumer(settings) as self.reader,
        ):
            others = [f"{self.topic}.{name}" for name in ("dead", "retry", "out")]
            self.admin.create_topics({self.topic: self.draw.partitions, **dict.fromkeys(others, 1)})
            self._wait(lambda: {self.topic, *others} <= {*self.admin.list_topics()}, "all topics are made")
            try:
                self._live()
            except WrongError:
                for member in self.members.values():
                    with contextlib.suppress(KafkaError):
                        member.consumer.stop()
                    member.thread.join(10)
                raise
            finally:
                with contextlib.suppress(KafkaError):
                    self.admin.delete_topics([self.topic, *others])

    def _live(self) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            self._produce(chance.randint(1, 60))
        self._start()
        if self.draw.reset == "latest":
            self._is_ready()
        steps: dict[Callable[[], None], float] = {
            lambda: self._produce(chance.randint(5, 80)): 5,
            self._starts: 3,
            self._ends: 4,
            self._all_end: 1,
            self._look_at_commits: 2,
            self._retention: 1.5,
            self._anew: 1.6,
            self._pauses: 1.5,
            self._seeks: 1.2,
            self._range: 1,
            self._settles: 1,
            lambda: time.sleep(chance.random() * 0.8): 2,
        }
        for _ in range(chance.randint(5, 12)):
            self._check()
            chance.choices([*steps], [*steps.values()])[0]()
        self._produce(10)
        if not self.members:
            self._start()
        self._settles()
        self._all_end()
        self._check()
        self._look_at_commits()
        letters = self._all_of(".dead")
        for letter in letters:
            if letter.timestamp < self._started_ms - 10_000:
                raise WrongError(f"the dead letter of {letter.value!r} has timestamp {letter.timestamp}")
        self.account.check_end(letters, self._all_of(".out"))

    # ------------------------------------------------------------ what the story looks at

    def _check(self) -> None:
        for member in self.members.values():
            if not member.thread.is_alive():
                member.check()
                raise WrongError(f"member {member.number} ended by itself")
        if self.account.wrong:
            raise WrongError("; ".join(self.account.wrong[:3]))

    def _committed(self, topic: str = "") -> dict[int, int]:
        found = self.admin.list_consumer_group_offsets(self.group)
        name = topic or self.topic
        return {
            each.partition: at.offset for each, at in found.items() if each.topic == name and at is not None
        }

    def _look_at_commits(self) -> None:
        committed = self._committed()
        self.account.check_commits(committed)

    def _has_begun(self) -> bool:
        committed = self._committed()
        account = self.account
        return all(
            committed.get(each, -1) >= account.low[account.log(each)] for each in range(self.draw.partitions)
        )

    def _is_ready(self) -> None:
        """Each partition has a committed place: what comes from now on is owed, under ``latest``, too."""
        if self.members:
            self._wait(self._has_begun, f"where `{self.draw.reset}` began is committed")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            self._check()
            if time.monotonic() > until:
                raise WrongError(f"after {PATIENCE_S} s it is not so that {what}: {self._state()}")
            time.sleep(0.05)

    def _state(self) -> str:
        left = self.account.left()
        return f"{len(left)} left {left[:5]}, committed {self._committed()}"

    def _all_of(self, name: str) -> list[Record]:
        partition = TopicPartition(self.topic + name, 0)
        with Consumer({"bootstrap.servers": self.servers, "isolation.level": "read_committed"}) as consumer:
            consumer.assign({partition: (0, consumer.end_offsets([partition])[partition])})
            return list(consumer)

    # ------------------------------------------------------------ what happens

    def _produce(self, count: int) -> None:
        account, draw = self.account, self.draw
        is_owed = draw.reset == "earliest" or self._has_begun()
        self.tell(f"{count} records" + ("" if is_owed else ", which are not owed"))
        futures = []
        for _ in range(count):
            partition = self.chance.randrange(draw.partitions)
            log: Log = account.log(partition)
            with account.lock:
                offset = account.end(partition)
                account.sent[log][offset] = is_owed
            value, key = b"%d:%d:%d" % (*log, offset), b"k%d" % self.chance.randrange(4)
            at = OLD_MS + offset if draw.are_old else None
            sent = self.producer.send(self.topic, value, key, partition=partition, timestamp=at)
            futures.append((offset, sent))
        self.producer.flush()
        for offset, sent in futures:
            assert sent.result(10).offset == offset

    def _start(self, seek: tuple[int, int] | None = None) -> None:
        number = min({0, 1} - set(self.members))
        self.tell(f"member {number} starts" + (f", and is to seek {seek}" if seek else ""))
        if seek:
            self.account.is_sought(*seek)
        self.members[number] = Member(self, number, seek=seek)
        self.lives += 1

    def _starts(self) -> None:
        if len(self.members) == 2:
            return
        self._start(self._place() if self.chance.random() < 0.15 else None)
        if self.draw.reset == "latest" and self.chance.random() < 0.7:
            self._is_ready()

    def _place(self) -> tuple[int, int] | None:
        """A partition with records, and one of its places."""
        partition, account = self.chance.randrange(self.draw.partitions), self.account
        low, end = account.low[account.log(partition)], account.end(partition)
        return (partition, self.chance.randint(low, end)) if end else None

    def _one(self) -> Member | None:
        return self.members[self.chance.choice(sorted(self.members))] if self.members else None

    def _ends(self) -> None:
        if (member := self._one()) is not None:
            how = self.chance.choice(("stop", "stop", "wakeup", "close"))
            self.tell(f"{how} of member {member.number}")
            del self.members[member.number]
            member.end(how)
            self._look_at_commits()

    def _all_end(self) -> None:
        self.tell("all stop")
        for number in list(self.members):
            self.members.pop(number).end("stop")
        self._look_at_commits()

    def _retention(self) -> None:
        if (place := self._place()) is not None and place[1] > self.account.low[self.account.log(place[0])]:
            partition, to = place
            committed = self._committed().get(partition)
            self.tell(f"retention of {partition} to {to}, committed {committed}")
            self.account.retention(partition, to, committed, is_read=bool(self.members))
            self.admin.delete_records({TopicPartition(self.topic, partition): to})

    def _anew(self) -> None:
        account, draw, chance = self.account, self.draw, self.chance
        self.tell("the topic is deleted")
        before = sum(map(account.end, range(draw.partitions)))
        with account.lock:
            account.anew += 1
        self.admin.delete_topics(self.topic)
        self._wait(lambda: self.topic not in self.admin.list_topics(), "the topic is deleted")
        if draw.is_transactional:
            threading.Thread(target=self._look_for_left_overs, args=(account.anew,), daemon=True).start()
        if chance.random() < 0.5:
            time.sleep(chance.random() * 2)

        def is_made() -> bool:
            # Kafka takes a while to forget the old one.
            with contextlib.suppress(KafkaError):
                self.admin.create_topics({self.topic: draw.partitions})
            return self.topic in self.admin.list_topics()

        self._wait(is_made, "the topic is made anew")
        self.tell("the topic is made anew")
        when = chance.choice(("at once", "later", "never"))
        if when == "later" and draw.reset == "latest":
            self._is_ready()
        elif when == "later":
            time.sleep(0.5)
        if when != "never":
            count = max(1, before)
            self._produce(min(150, chance.choice((count, max(1, count // 2), count + 30))))

    def _look_for_left_overs(self, anew: int) -> None:
        """Offsets of the old topic, committed by name for the new one: on a thread of its own."""
        until = time.monotonic() + SEEN_S
        with Admin({"bootstrap.servers": self.servers}) as admin:
            while self.account.anew == anew and time.monotonic() < until:
                with contextlib.suppress(KafkaError):
                    if self.topic not in admin.list_topics():
                        until = time.monotonic() + SEEN_S
                        continue
                    found = admin.list_consumer_group_offsets(self.group)
                    mine = {
                        p.partition: v.offset
                        for p, v in found.items()
                        if p.topic == self.topic and v is not None
                    }
                    if self.account.anew == anew:
                        self.account.look_for_left_overs(mine)
                time.sleep(0.01)

    def _pauses(self) -> None:
        if (member := self._one()) is None:
            return
        account, partition = self.account, self.chance.randrange(self.draw.partitions)
        paused = TopicPartition(self.topic, partition)
        with contextlib.suppress(IllegalStateError):  # it is another member's
            member.consumer.pause([paused])
            self.tell(f"pause of {partition} by member {member.number}")
            is_alone = len(self.members) == 1 and len(member.consumer.assignment()) >= self.draw.partitions
            time.sleep(0.3)
            first = account.end(partition)
            self._produce(20)
            time.sleep(0.5)
            late = [
                at
                for at in range(first, account.end(partition))
                if (*account.log(partition), at) in account.begun
            ]
            if is_alone and late and paused in member.consumer.paused():
                raise WrongError(f"{partition} is paused, and {late[:5]} are handled")
            member.consumer.resume([paused])

    def _seeks(self) -> None:
        member, place = self._one(), self._place()
        if member is None or member.loop is None or place is None:
            return
        self.tell(f"seek of {place[0]} to {place[1]} by member {member.number}")
        self.account.is_sought(*place)
        seeking = member.consumer.seek(TopicPartition(self.topic, place[0]), place[1])
        with contextlib.suppress(IllegalStateError):  # it is another member's
            asyncio.run_coroutine_threadsafe(seeking, member.loop).result(10)

    def _range(self) -> None:
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for partition in range(self.draw.partitions):
            low, end = self.account.low[self.account.log(partition)], self.account.end(partition)
            if end > low:
                first = self.chance.randint(low, end)
                ranges[TopicPartition(self.topic, partition)] = first, self.chance.randint(first, end)
        if not ranges or self.draw.is_transactional:
            return
        self.tell(f"ranges {[(each.partition, places) for each, places in ranges.items()]}")
        member = Member(self, 9, ranges=ranges)
        self.lives += 1
        member.thread.join(STOP_S)
        if member.thread.is_alive():
            raise WrongError(f"ranges {ranges} do not end")
        member.check()
        wanted = {(each.partition, at) for each, places in ranges.items() for at in range(*places)}
        if missing := sorted(wanted - member.handled):
            raise WrongError(f"of ranges {missing[:5]} are not handled")

    def _settles(self) -> None:
        """All is done, and committed."""
        if not self.members:
            return
        if self.draw.reset == "latest":
            self._is_ready()
        self.tell("all is to be done")
        self._wait(lambda: not self.account.left() and self._is_committed(), "all is done and committed")
        if self.draw.retries == "topic":
            again = TopicPartition(self.topic + ".retry", 0)
            self._wait(
                lambda: self._committed(again.topic).get(0, 0) >= self.reader.end_offsets([again])[again],
                "all of the retry topic is committed",
            )
        self._look_at_commits()

    def _is_committed(self) -> bool:
        committed, ends = self._committed(), map(self.account.end, range(self.draw.partitions))
        return all(committed.get(partition) == end for partition, end in enumerate(ends) if end)


class Outcome(NamedTuple):
    """Of one seed."""

    seed: int
    wrong: str
    lives: int
    records: int
    left_over: int
    passed: int
    slowest_s: float


class _Lines(logging.Handler):
    """Keeps what Kadence logs beside what happens."""

    def __init__(self, story: Story) -> None:
        super().__init__(logging.WARNING)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        self._story.tell(f"    {record.levelname} {record.getMessage()[:200]}")


def one(seed: int, servers: str, run: str) -> Outcome:
    """Run the story of a seed."""
    story = Story(servers, run, seed)
    log = logging.getLogger("kadence")
    log.handlers, log.propagate = [_Lines(story)], False
    wrong = ""
    try:
        story.run()
    except Exception as error:  # noqa: BLE001 - the story is told with it
        said = (
            str(error) if isinstance(error, WrongError) else "".join(traceback.format_exception(error)[-12:])
        )
        wrong = f"seed {seed}: {said}\n  {story.draw}\n  " + "\n  ".join(story.told[-200:])
    account = story.account
    return Outcome(
        seed,
        wrong,
        story.lives,
        len(account.well),
        len(account.left_over),
        len(account.passed),
        story.slowest_s,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--workers", type=int, default=2, help="processes that share them")
    parser.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--servers", help="of a cluster that runs, in place of a broker of its own")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    slowest_s = 0.0
    with contextlib.ExitStack() as stack:
        servers = given.servers or stack.enter_context(broker(given.broker))
        # Stories leave threads behind that end later.
        context = multiprocessing.get_context("spawn")
        pool = stack.enter_context(context.Pool(given.workers, maxtasksperchild=20))
        seeds = range(given.first, given.first + given.seeds)
        for done, outcome in enumerate(
            pool.imap_unordered(partial(one, servers=servers, run=str(os.getpid())), seeds), 1
        ):
            total.update(
                wrong=bool(outcome.wrong),
                lives=outcome.lives,
                records=outcome.records,
                left_over=outcome.left_over,
                passed=outcome.passed,
            )
            slowest_s = max(slowest_s, outcome.slowest_s)
            if outcome.wrong:
                print(outcome.wrong, flush=True)
            if done % 10 == 0 or done == given.seeds:
                print(
                    f"{done} seeds, {total['wrong']} failed: {total['lives']:,} lives, {total['records']:,} records; "
                    f"{total['left_over']} partitions had offsets of a deleted topic, {total['passed']} records may "
                    f"come again after retention; the slowest end took {slowest_s:.1f} s",
                    flush=True,
                )
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
