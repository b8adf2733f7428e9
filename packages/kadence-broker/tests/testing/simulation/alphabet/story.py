"""One story: some rows of the alphabet happen to one kind of program, and the reference model looks on."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Self

from tests.testing.simulation.alphabet.cluster import Cluster, request
from tests.testing.simulation.alphabet.ledger import AGAIN, DEAD, GROUP, OTHER, OUT, TOPIC, Ledger, Log
from tests.testing.simulation.alphabet.life import MAX_RECORDS, Life, Style
from tests.testing.simulation.alphabet.model import Model
from tests.testing.simulation.alphabet.table import PLACES, ROWS, Row

from kadence.protocol import error_codes as codes
from kadence.records import encode_batch
from kadence.types import TopicPartition
from kadence.work import Retry
from kadence_testing.simulation import Program, Simulation, SimulationError

__all__ = ["Story", "hand"]

_HAND: Final = 5
_HANDS: Final = 100
_COMMIT_MS: Final = 500
_HOUR_MS: Final = 3_600_000
_SETTLED_S: Final = 12.0
"""So long after something broke all is well again."""

_REST_S: Final = 150.0
_BROKER: Final = {
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 2_000,
    "log.retention.check.interval.ms": 2_000,
    "offsets.retention.check.interval.ms": 5_000,
}
_MORE: Final = {"partitions added", "topic made anew with more partitions"}
_CHANGES: Final = ("assign", "assign_topics", "incremental_unassign", "subscribe", "unsubscribe", "process")
"""After these calls a program reads something else, until it is started again."""


def hand(seed: int) -> tuple[str, list[Row]]:
    """Kind and rows of a story: all rows are dealt out, as hands of rows that one kind can have, and then again."""
    round_, number = divmod(seed, _HANDS)
    return _hands(round_)[number]


@functools.cache
def _hands(round_: int) -> list[tuple[str, list[Row]]]:
    rng = random.Random(f"round {round_}")
    deck, hands = list(ROWS), list[tuple[str, list[Row]]]()
    rng.shuffle(deck)
    while len(hands) < _HANDS:
        kind = rng.choice(deck[0].kinds if deck else "wxwxrbt")
        fit = [row for row in deck or ROWS if kind in row.kinds]
        rows = fit[:_HAND] if deck else rng.sample(fit, _HAND)
        deck = [row for row in deck if row not in rows]
        hands.append((kind, rng.sample(rows, len(rows))))
    assert not deck
    return hands


class _Limits:
    """How long something of a program may last: so long while all is well, and so long in any case."""

    def __init__(self, story: Story, life: Life, what: str, calm_s: float, most_s: float) -> None:
        self._story, self._life, self._what = story, life, what
        self._since, self._process = story.now, life.program.process
        self._is_over = False
        self.unless: Callable[[], bool] = lambda: False
        story.simulation.later(calm_s, lambda: self._look(is_calm=True))
        story.simulation.later(most_s, lambda: self._look(is_calm=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True

    def _look(self, *, is_calm: bool) -> None:
        program = self._life.program
        if self._is_over or self.unless() or not self._process.is_alive or program.was_frozen:
            return
        if not is_calm or self._story.is_well_since(self._since):
            self._story.model.object_to(
                f"{self._life.name}: {self._what} has taken {self._story.now - self._since:.1f} s"
            )


class Story:
    """A group of one kind of program; the seed decides everything.

    Attributes:
        happened: how often each row has happened. ends: how often a program's life was ended by an error.
        is_untouched: whether no log of the topic that is read was changed but by writing.
        has_gone_back: whether a program has called seek() or seek_to_beginning().
    """

    def __init__(self, seed: int, rows: tuple[str, list[Row]] | None = None) -> None:
        self.seed = seed
        kind, self._rows = rows or hand(seed)
        rng = self.rng = random.Random(f"alphabet {seed}")
        self.names = [row.what for row in self._rows]
        self.style = self._style(kind)
        self.is_latest = self.style.config["auto.offset.reset"] == "latest"
        topics = {TOPIC: rng.randint(1, 3), OTHER: 1, AGAIN: 1, DEAD: 1, OUT: 1, "many": 5}
        days = {"offsets.retention.minutes": 1} if "quiet for days" in self.names else {}
        self.simulation = Simulation(seed, topics=topics, config={**_BROKER, **days})
        self._keep(TOPIC)
        self._keep(OTHER)
        self.ledger = Ledger(
            self.simulation,
            reads_committed=self.style.config["isolation.level"] == "read_committed",
            since_ms=self.simulation.scheduler.wall_ms() - _HOUR_MS if kind == "t" else 0,
            skips=self.style.config.get("deserialization.errors") == "skip",
        )
        self.ledger.is_begun = not self.is_latest
        self.model = Model(
            self.simulation,
            self.ledger,
            order=kind != "t"
            and self.style.process.get("order", "key") == "key"
            and not self.style.retry.topic,
            exactly=kind in "bx",
            sends=kind in "bwxr",
            ahead=MAX_RECORDS,
            commit_ms=_COMMIT_MS,
        )
        self.happened: Counter[Row] = Counter()
        self.told: list[str] = []
        self.ends = 0
        self.numbers = 0
        self.is_untouched = True
        self.has_gone_back = False
        self.lives: list[Life] = []
        self._ill_until = -_SETTLED_S
        self._faults: list[Any] = []
        self._must_restart = False
        self._is_ending = False
        self._is_silent = self.is_latest and rng.random() < 0.5
        self._cluster = Cluster(self)

    # ------------------------------------------------------------ what is drawn

    def _style(self, kind: str) -> Style:
        rng = self.rng
        is_quiet = "quiet for days" in self.names
        speaks = "consumer" if is_quiet else rng.choice(["classic", "consumer"])
        commits = rng.choice(
            ["records", "all", "track"] if is_quiet else ["auto", "auto", "records", "all", "track", "async"]
        )
        if any(row.place == "committed" for row in self._rows):
            commits = "async"
        if kind != "p":
            commits = "async" if commits == "async" and kind == "t" else "auto"
        config: dict[str, Any] = {
            "group.id": GROUP,
            "group.protocol": speaks,
            "auto.offset.reset": "latest"
            if is_quiet or (kind in "pibwx" and rng.random() < 0.3)
            else "earliest",
            "enable.auto.commit": commits == "auto" and kind in "pit",
            "auto.commit.interval.ms": _COMMIT_MS,
            "max.poll.interval.ms": 30_000,
            "max.poll.records": 5,
            "default.api.timeout.ms": 10_000,
            "request.timeout.ms": 5_000,
            "fetch.max.wait.ms": 2_000,
            # New partitions are found so soon, by a leader that reads none of the topic, too; what was deleted has to
            # be noticed without.
            "metadata.max.age.ms": 20_000 if _MORE & {*self.names} else 300_000,
            "isolation.level": "read_committed" if kind in "bx" or rng.random() < 0.2 else "read_uncommitted",
        }
        if speaks == "classic":
            config |= {
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 2_000,
                "partition.assignment.strategy": rng.choice(["cooperative-sticky", "range"]),
            }
        has_letters = self._draw_junk(kind, config)
        retry = Retry(
            rng.randint(2, 3),
            backoff=rng.choice([0.1, 1.0]),
            topic=AGAIN if kind in "wx" and rng.random() < 0.4 else None,
        )
        process: dict[str, Any] = {
            "workers": rng.choice([1, 4]),
            "order": rng.choice(["key", "key", "partition", "none"]),
        }
        if {"retention takes retry records", "offsets are not told while retry records wait"} & {*self.names}:
            retry = Retry(3, backoff=5.0, topic=AGAIN)
            config["auto.offset.reset"] = rng.choice(["latest", "earliest"])
        if kind in "wx" and rng.random() < 0.2:
            process |= {"batch": (rng.choice([2, 5]), 0.1), "halve": rng.random() < 0.5}
        style = Style(kind, config, commits, process, retry, rng.choice([0.0, 0.05, 0.4]))
        style.reads_again = rng.random() < 0.5
        style.has_letters = has_letters
        if kind == "t":
            config["auto.offset.reset"] = "by_duration:PT1H"
            style.by_time = rng.choice([None, 1_767_225_600_000 - 3_600_000])
            if any("start by time" in name for name in self.names):
                style.by_time = 1_767_225_600_000 - 3_600_000
        return style

    def _draw_junk(self, kind: str, config: dict[str, Any]) -> bool:
        """What becomes of records that a deserialiser refuses. Returns whether `process` has letters of its own."""
        rng = self.rng
        is_large = "a deserialiser refuses a large record" in self.names
        is_told = is_large or "a deserialiser refuses records" in self.names
        self.has_junk = is_told or (kind in "wx" and rng.random() < 0.25)
        if not self.has_junk:
            return True
        config |= {"value.deserializer": _deserialize}
        if not is_told and rng.random() < 0.5:
            return True
        if is_large or rng.random() < 0.5:
            config |= {"deserialization.errors": "dead-letter", "dead.letter.topic": DEAD}
        else:
            config |= {"deserialization.errors": "skip"}
        return rng.random() < 0.5

    # ------------------------------------------------------------ the story

    def run(self) -> None:
        """Run it to its end.

        Raises:
            SimulationError: the model objects, a program raised, or not all is handled in the end.
        """
        with self.simulation as simulation:
            try:
                self._begin()
                for row in self._rows:
                    simulation.run(self.rng.choice([0.1, 0.5, 1.5]))
                    self.write(0 if self._is_silent else self.rng.randint(0, 4))
                    self.tell(str(row))
                    self._do(row)
                simulation.run(self.rng.choice([0.5, 2.0]))
                self._end()
            except SimulationError as error:
                told = "\n  ".join([str(error), repr(self), *self.told[:60]])
                raise SimulationError(told) from error

    def __repr__(self) -> str:
        return f"<story {self.seed}: {self.style}>"

    def _begin(self) -> None:
        self.write(
            0 if self._is_silent else self.rng.randint(0, 8),
            age_ms=2 * _HOUR_MS if self.style.kind == "t" else 0,
        )
        if self.style.kind == "t":
            self.simulation.network.delay_ms = (50, 150)
        self._cluster.before_start()
        self._start("first")
        if self.style.kind in "pibwx" and self.rng.random() < 0.4:
            self._start("second")
        if self.style.kind == "t":
            # At any moment of the start.
            self.simulation.run(self.rng.uniform(0.1, 1.5))
            self.write(3)
            self.simulation.run(1)
            self.simulation.network.delay_ms = (0, 2)
        if self.is_latest:
            self.rests(4 if self.is_well_since(self.now) else self._ill_until + _SETTLED_S - self.now)
            self.ledger.is_begun = True

    def _do(self, row: Row) -> None:
        if not row.place:
            self.happened[row] += 1
            self._cluster.does(row.what)
            return
        life, place = self.rng.choice(self.lives), row.place
        if place == "anywhere":
            place = self.rng.choice([each for each, (_, kinds) in PLACES.items() if self.style.kind in kinds])
        life.plans[place].append(row.what)
        self._must_restart |= row.what in _CHANGES
        if place in ("assigned", "revoked"):
            self.another()
        elif place == "lost":
            kind, code = (
                ("Heartbeat", codes.UNKNOWN_MEMBER_ID)
                if self.style.config["group.protocol"] == "classic"
                else ("ConsumerGroupHeartbeat", codes.FENCED_MEMBER_EPOCH)
            )
            self.injects(
                lambda faults: faults.error(request(kind), code, times=1, client_id=f"{life.name}-1"), 5
            )
        elif place == "asked":
            kind = self.rng.choice(["OffsetCommit", "OffsetFetch"])
            is_its = lambda call: call.client_id.startswith(life.name)  # noqa: E731
            life.asked = self.injects(
                lambda faults: faults.delay(request(kind), 0.8, times=1, where=is_its), 15
            )
            if kind == "OffsetFetch":
                self.ends_all(0)
                self.starts_all()
            else:
                self.another()
        else:
            self.write(2)
        for _ in range(16):
            self.simulation.run(0.5)
            if not life.plans[place]:
                break

    def _end(self) -> None:
        """All is well from now on: what is owed is handled, what is done is committed, and every program ends."""
        simulation = self.simulation
        simulation.network.heal()
        simulation.network.delay_ms = (0, 2)
        simulation.broker.process.thaw()
        if not simulation.broker.is_up:
            simulation.broker.restart()
        for fault in self._faults:
            fault.remove()
        for life in self.lives:
            life.plans.clear()
            life.program.thaw()
        if not self.has(TOPIC):
            self.create(TOPIC, 1)
        if self._must_restart or self.rng.random() < 0.5:
            self.ends_all(0)
            self.starts_all()
        for life in self.lives:
            life.resumes_all()
            if not life.program.is_running:
                life.program.restart()
        if not self.ledger.is_begun:
            self.rests(15)
            if self.style.kind == "b":
                self._rests_until_committed()
            self.ledger.is_begun = True
        self.write(4)
        simulation.run(0.5)
        # Others may not have begun to write, because brokers were away. What lies behind an open transaction of theirs
        # comes when brokers have ended that.
        mine = [life.program for life in self.lives]
        others = [each for each in simulation.programs.values() if each not in mine]
        simulation.run_until(
            lambda: all(each.is_done for each in others) and self.ledger.is_settled((TOPIC, OTHER)), 60
        )
        until = self.now + _REST_S
        while left := self.model.unfinished():
            if self.now > until:
                raise SimulationError(f"not handled within {_REST_S:g} s: {left[:3]}")
            simulation.run(0.5)
        if self.style.kind != "t":
            simulation.run_until(lambda: self.model.is_at_rest(_COMMIT_MS + 4_000), _REST_S)
            self.model.look_at_time()
        self.ends_all(0)
        self.model.check()
        simulation.run(0.1)
        if self.is_untouched:
            simulation.check()

    # ------------------------------------------------------------ what rows do

    @property
    def now(self) -> float:
        return self.simulation.now

    def tell(self, what: str) -> None:
        self.told.append(f"{self.now:9.3f} s  {what}")

    def happens(self, call: str, place: str) -> None:
        """A call is made."""
        self.tell(f"{call} ({place})")
        for row in self._rows:
            if row.what == call and row.place in (place, "anywhere"):
                self.happened[row] += 1

    def limits(self, life: Life, what: str, calm_s: float, most_s: float) -> _Limits:
        """How long something of a program may last."""
        return _Limits(self, life, what, calm_s, most_s)

    def is_ill(self, seconds: float) -> None:
        """Something breaks, for so long."""
        self._ill_until = max(self._ill_until, self.now + seconds)

    def is_well_since(self, when: float) -> bool:
        """Whether nothing was broken since then, nor shortly before."""
        return self._ill_until + _SETTLED_S <= when

    def is_touched(self) -> None:
        """The topic that is read has changed."""
        self.is_untouched = False
        if self.is_latest:
            self.ledger.is_begun = False

    def _rests_until_committed(self) -> None:
        """A transaction that is not answered keeps its member for long, and then takes the start along that it has."""
        topics = [self.simulation.broker.core.cluster.topics.get(name) for name in (TOPIC, OTHER)]
        logs = {(topic.topic_id, each.index) for topic in topics if topic for each in topic.partitions}
        for _ in range(20):
            if logs <= self.ledger.committed.keys():
                break
            self.rests(5)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        self.simulation.later(seconds, lambda: (action(), None)[1])

    def rests(self, seconds: float) -> None:
        self.simulation.run(seconds)

    def injects(self, inject: Callable[[Any], Any], seconds: float) -> Any:
        """Put a fault in force, for so long."""
        fault = inject(self.simulation.broker.core.faults)
        self._faults.append(fault)
        self.later(seconds, fault.remove)
        return fault

    def ends_of(self, topic: str) -> dict[Log, int]:
        """Where its logs end now."""
        found = self.simulation.broker.core.cluster.topics[topic]
        return {(found.topic_id, each.index): each.end_offset for each in found.partitions}

    def has(self, topic: str) -> bool:
        return topic in self.simulation.broker.core.cluster.topics

    def create(self, topic: str, partitions: int) -> None:
        if not self.simulation.broker.is_up:
            self.later(1.0, lambda: self.create(topic, partitions))
        elif not self.has(topic):
            self.simulation.broker.core.create_topic(topic, partitions)
            self._keep(topic)

    def _keep(self, topic: str) -> None:
        """Its records are kept, whatever dates they have."""
        cluster = self.simulation.broker.core.cluster
        config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(1 << 50)}
        cluster.configure(cluster.topics[topic], config)

    def delete_topic(self, topic: str) -> int:
        """Returns how many partitions it had."""
        core = self.simulation.broker.core
        gone = core.cluster.topics[topic]
        core.cluster.delete_topic(gone)
        core.coordination.topic_deleted(topic)
        core.transactions.topic_deleted(topic)
        for partition in gone.partitions:
            partition.wake()
        self.simulation.broker.stir()
        return len(gone.partitions)

    def delete_before(self, log: Log, offset: int) -> None:
        topic = self.simulation.broker.core.cluster.topic_by_id(log[0])
        if topic is None or log[1] >= len(topic.partitions):
            return
        if (
            self.is_latest
            and topic.name in (TOPIC, OTHER)
            and (self.has_gone_back or self.ledger.committed.get(log, (0, ""))[0] < offset)
        ):
            # Who comes to it from there begins at the end that it has then. Who has gone back may still commit below.
            self.ledger.is_begun = False
        partition = topic.partitions[log[1]]
        if partition.start_offset < offset <= partition.high_watermark:
            partition.delete_before(offset)
            self.ledger.deleted[log] = offset
            self.simulation.history.has_deleted(TopicPartition(topic.name, log[1]), offset)
            self.is_untouched = False
            self.simulation.broker.stir()

    def new_record(self, fate: bytes | None = None, size: int = 0) -> tuple[bytes | None, bytes]:
        """Key and value of a record that is written next; the value says what becomes of it."""
        fates = [b"ok", b"ok", b"ok", b"out", b"out"]
        if self.style.kind in "wxr":
            fates += [b"fails", b"slow", b"bad"]
        elif fate not in (None, b"junk"):
            fate = b"ok"
        if self.has_junk:
            fates.append(b"junk")
        fate = fate or self.rng.choice(fates)
        if fate == b"bad" and not self.style.has_letters:
            # It would end the processing, and only what a deserialiser refuses has a letter.
            fate = b"junk"
        self.numbers += 1
        return self.rng.choice([b"k0", b"k1", b"k2"]), b"%d %s " % (self.numbers - 1, fate) + b"." * size

    def write(
        self, count: int, *, fate: bytes | None = None, age_ms: int = 0, size: int = 0, topic: str = TOPIC
    ) -> None:
        """Write records to a topic that is read; nothing if it is not there."""
        core = self.simulation.broker.core
        if not self.simulation.broker.is_up or not self.has(topic):
            return
        partitions = core.cluster.topics[topic].partitions
        wall = self.simulation.scheduler.wall_ms()
        for _ in range(count):
            key, value = self.new_record(fate, size)
            self._append(partitions[(key or b"?")[-1] % len(partitions)], (wall - age_ms, key, value, ()))

    def write_again(self, first: int, headers: list[tuple[str, bytes]]) -> None:
        """Write retry records of those that were written from the ``first`` on."""
        (partition,) = self.simulation.broker.core.cluster.topics[AGAIN].partitions
        wall = self.simulation.scheduler.wall_ms()
        for number in range(first, self.numbers):
            self._append(partition, (wall, b"k0", b"%d fails " % number, headers))

    def _append(self, partition: Any, record: tuple[int, bytes | None, bytes, Any]) -> None:
        partition.append(self.simulation.scheduler.wall_ms(), memoryview(encode_batch([record])))
        partition.on_durable(lambda code: None)
        self.simulation.broker.stir()

    def _start(self, name: str) -> Life:
        self.lives.append(Life(self, name, self.style))
        return self.lives[-1]

    def another(self) -> Life:
        """Another member comes, or one that had ended, so that partitions move."""
        for life in self.lives:
            if not life.program.is_running and life.program.process.is_alive:
                life.program.restart()
                return life
        if len(self.lives) < 3:
            return self._start(f"more{len(self.lives)}")
        last = self.lives[-1]
        last.program.stop()
        return last

    def revive(self, program: Program) -> None:
        """Start it again, unless all are told to end: who tells them starts them again."""
        if not (program.is_running or self._is_ending):
            program.restart()

    def ends_all(self, after: float) -> None:
        """All programs are told to end, and do."""
        self._is_ending = True
        for life in self.lives:
            life.program.thaw()
            life.program.stop()
        programs = [life.program for life in self.lives]
        self.simulation.run_until(lambda: all(not each.is_running for each in programs), 100)
        self._is_ending = False
        self.simulation.run(after)

    def starts_all(self) -> None:
        for life in self.lives:
            self.revive(life.program)


def _deserialize(data: bytes) -> bytes:
    if data and b" junk" in data:
        raise ValueError("junk")
    return data
