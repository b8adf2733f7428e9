"""The loop of `process`, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

from kadence import Record, TopicPartition
from kadence.types import OffsetAndMetadata
from kadence.work import Retry
from kadence.work.desk import Desk
from kadence.work.frontier import Stretch
from kadence.work.processing import Processing
from kadence.work.scheduler import Task
from kadence.work.settings import settings_of
from kadence.work.steps import Poll
from kadence_testing import FakeClock

GOES, STAYS = TopicPartition("goes", 0), TopicPartition("stays", 0)

DRAIN_MS: Final = 20_000
COMMIT_MS: Final = 5_000


class Loop:
    """The loop, whose steps are carried out by hand. The test is its only worker.

    Attributes:
        committed: the offsets of each commit that is not waited for.
    """

    stopping = False

    def __init__(self, *, in_group: bool = True, **more: Any) -> None:
        given: dict[str, Any] = {
            "workers": 4,
            "order": "none",
            "executor": None,
            "retry": Retry(attempts=2, backoff=3, jitter=0),
            "dead_letter": None,
            "timeout": None,
            "batch": None,
            "halve": False,
            "batch_format": "records",
            "max_records": 100,
            "max_bytes": 1 << 20,
            "drain": DRAIN_MS / 1000,
            "transactional_id": None,
        }
        settings = settings_of(lambda record: None, **{**given, **more})
        self.clock = FakeClock()
        self.committed: list[dict[TopicPartition, int]] = []
        nothing: Any = None
        around: Any = self
        self.desk = Desk(
            settings, self.clock, self.clock.now_ms, "g", nothing, lambda: None, nothing, nothing
        )
        self.processing = Processing(
            settings, self.desk, around, around, around, self.clock, self.wake, self.look, in_group, COMMIT_MS
        )
        self.steps = self.processing.run()
        self.step: Any = next(self.steps)

    # -- the consumer

    is_manual = False

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset((GOES, STAYS))

    def finished(self) -> frozenset[TopicPartition]:
        return frozenset()

    def has_moved(self) -> bool:
        return False

    def stretches(self, *, from_here: bool = False) -> dict[TopicPartition, Stretch]:
        return {partition: Stretch(1, 0) for partition in self.assignment()}

    def returned_under(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 1)

    def fetch_epochs(self) -> dict[TopicPartition, int]:
        return dict.fromkeys(self.assignment(), 1)

    def commit_async(self, read: Any, callback: Any, *, is_parting: bool = False) -> None:
        self.committed.append({partition: each.at.offset for partition, each in read.items()})

    def wake(self) -> None:
        pass

    def look(self, now: int, *, at_once: bool = False) -> bool:
        return False

    # -- the test

    def give(self, *partitions: TopicPartition, ms: int = 0) -> list[Task]:
        """The poll brings a record of each of these, after so long. Returns those that a worker takes then."""
        assert isinstance(self.step, Poll)
        brought: dict[TopicPartition, list[Record[Any, Any]]] = {}
        for partition in partitions:
            several = brought.setdefault(partition, [])
            several.append(Record(partition.topic, 0, len(several), value=b"x"))
        passed = {partition: OffsetAndMetadata(len(several)) for partition, several in brought.items()}
        self.clock.advance(ms)
        self.step = self.steps.send(
            SimpleNamespace(by_partition=lambda: brought, next_offsets=lambda: passed)
        )
        return self.taken()

    def taken(self) -> list[Task]:
        with self.desk.lock:
            return self.desk.take(10)


def test_without_a_group_the_loop_waits_after_the_commit_interval_too() -> None:
    loop = Loop(in_group=False)
    loop.give(GOES, ms=COMMIT_MS + 1)
    assert loop.step.ms > 0
    assert loop.committed == []
