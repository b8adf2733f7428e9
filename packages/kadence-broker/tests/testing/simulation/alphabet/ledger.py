"""What the brokers of a story have: the records that are to be handled, what they led to, and what is committed.

A record is known by its value, which no other has; what becomes of it stands there, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kadence.types import TopicPartition
from kadence_broker.storage import Isolation
from kadence_testing.simulation.transactions import records_of

if TYPE_CHECKING:
    from kadence.records import Record
    from kadence_broker.core import BrokerCore
    from kadence_testing.simulation import Simulation

__all__ = [
    "AGAIN",
    "DEAD",
    "GROUP",
    "OTHER",
    "OUT",
    "TOPIC",
    "Fact",
    "Ledger",
    "Log",
    "is_junk",
    "makes_output",
    "must_fail",
]

GROUP: Final = "g"
TOPIC: Final = "t"
OTHER: Final = "u"
AGAIN: Final = "again"
DEAD: Final = "dead"
OUT: Final = "out"

Log = tuple[bytes, int]
"""A partition of a topic by its id."""


def makes_output(value: bytes) -> bool:
    """Whether a handler returns an output for a record."""
    return value.split()[1] == b"out"


def must_fail(value: bytes) -> bool:
    """Whether no attempt of a record succeeds, or its value cannot be read at all."""
    return is_junk(value) or value.split()[1] == b"bad"


def is_junk(value: bytes) -> bool:
    """Whether the deserialiser refuses a record."""
    return value.split()[1] == b"junk"


@dataclass(slots=True)
class Fact:
    """One record of a topic that is read.

    Attributes:
        is_owed: whether it is to be handled. begun, done, failed: how often a handler began, and how that ended.
        ended_ms: when it ended.
    """

    value: bytes
    key: bytes | None
    log: Log
    offset: int
    is_owed: bool
    begun: int = 0
    done: int = 0
    failed: int = 0
    ended_ms: int | None = None


class Ledger:
    """Follows the logs and the commits of the group.

    Args:
        reads_committed: the isolation level of the group. since_ms: older records are not owed. skips: nor are those
            that a deserialiser refuses.

    Attributes:
        facts: the records, by value. lanes: those of a key in a log. letters, copies: where the dead letter and the
            retry records of a value lie. outputs: how often its output is there. deleted: what operators deleted, up to
            which offset. committed: offset and metadata. is_begun: whether what is written now is owed. first_young: of
            each log the first record that is as young as was asked for.
    """

    def __init__(self, simulation: Simulation, *, reads_committed: bool, since_ms: int, skips: bool) -> None:
        self.facts: dict[bytes, Fact] = {}
        self.lanes: dict[tuple[Log, bytes | None], list[Fact]] = defaultdict(list)
        self.letters: dict[bytes, tuple[Log, int]] = {}
        self.copies: dict[bytes, list[tuple[Log, int]]] = defaultdict(list)
        self.outputs: Counter[bytes] = Counter()
        self.deleted: dict[Log, int] = defaultdict(int)
        self.committed: dict[Log, tuple[int, str]] = {}
        self.is_begun = True
        self.first_young: dict[Log, int] = {}
        self._simulation = simulation
        self._isolation = Isolation.COMMITTED if reads_committed else Isolation.UNCOMMITTED
        self._since_ms = since_ms
        self._skips = skips
        self._read_to: dict[Log, int] = defaultdict(int)

    @property
    def _core(self) -> BrokerCore:
        return self._simulation.broker.core

    def log_of(self, partition: TopicPartition) -> Log:
        """The partition of the topic that has the name now."""
        topic = self._core.cluster.topics.get(partition.topic)
        return (b"" if topic is None else topic.topic_id, partition.partition)

    def end_of(self, log: Log) -> tuple[str, int] | None:
        """The topic's name, and where the log ends; None if it is deleted."""
        topic = self._core.cluster.topic_by_id(log[0])
        if topic is None or log[1] >= len(topic.partitions):
            return None
        return topic.name, topic.partitions[log[1]].end_offset

    def holds(self, log: Log, offset: int) -> bool:
        """Whether a reader can still get it."""
        topic = self._core.cluster.topic_by_id(log[0])
        return topic is not None and topic.partitions[log[1]].start_offset <= offset

    def is_settled(self, names: tuple[str, ...] = (OUT, DEAD, AGAIN)) -> bool:
        """Whether no transaction is open in topics, else those written to: its offsets may count before its records."""
        topics = [self._core.cluster.topics[name] for name in names if name in self._core.cluster.topics]
        return all(
            each.last_stable_offset == each.end_offset for topic in topics for each in topic.partitions
        )

    def commits(self) -> list[Log]:
        """Where something was committed since the last look."""
        changed = []
        for (name, index), at in self._core.coordination.coordinator.offsets.of_group(GROUP).items():
            log = self.log_of(TopicPartition(name, index))
            if log[0] and self.committed.get(log) != (at.offset, at.metadata):
                self.committed[log] = at.offset, at.metadata
                changed.append(log)
        return changed

    def read(self) -> None:
        """What was written since the last look."""
        for name in (TOPIC, OTHER, AGAIN, DEAD, OUT):
            if (topic := self._core.cluster.topics.get(name)) is None:
                continue
            for partition in topic.partitions:
                log, limit = (topic.topic_id, partition.index), partition.limit(self._isolation)
                if limit > self._read_to[log]:
                    for record in records_of(partition, self._read_to[log], self._isolation):
                        self._note(name, log, record)
                    self._read_to[log] = limit

    def _note(self, name: str, log: Log, record: Record[Any, Any]) -> None:
        value, place = bytes(record.value or b""), (log, record.offset)
        if name in (TOPIC, OTHER):
            is_young = record.timestamp >= self._since_ms
            if is_young:
                self.first_young.setdefault(log, record.offset)
            is_owed = self.is_begun and is_young and not (self._skips and is_junk(value))
            key = None if record.key is None else bytes(record.key)
            fact = self.facts[value] = Fact(value, key, log, record.offset, is_owed)
            self.lanes[log, key].append(fact)
            return
        if name == AGAIN:
            self.copies[value].append(place)
        elif name == DEAD:
            value = value or self._origin(record)
            self.letters[value] = place
        else:
            self.outputs[value] += 1
        if value in self.facts:
            self.facts[value].ended_ms = self._simulation.scheduler.now_ms()

    def _origin(self, record: Record[Any, Any]) -> bytes:
        """Of which record a letter is that was written without its value."""
        headers = {name: value or b"" for name, value in record.headers}
        at = [int(headers[f"kadence.error.{each}"]) for each in ("partition", "offset")]
        found = (
            f.value for f in self.facts.values() if [f.log[1], f.offset] == at and self.holds(f.log, f.offset)
        )
        return next(found, b"")
