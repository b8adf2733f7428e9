"""What the application holds of a queue, beside a dictionary of offsets: whatever polls give and the program says."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.luck import seeds

from kadence.errors import IllegalStateError, InvalidRecordStateError
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, Acquired, TopicIdPartition
from kadence.share.application._marks import Chunk
from kadence.share.application.holding import Holding
from kadence.share.events import Ended
from kadence.share.share_state import AcquiredFetch
from kadence.types import TopicPartition

TIP: Final = TopicIdPartition(b"\1" * 16, "jobs", 0)
RENEW: Final = 4
OFFSETS: Final = 30
STEPS: Final = 300


class Model:
    """One partition: of each held offset its fetch, its chunk, and a type, or what became of its renewal."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[Chunk, int | str]] = {}
        self.bad: set[int] = set()

    def offsets(self, *states: int | str) -> list[int]:
        return [offset for offset, (_, state) in self.held.items() if state in states]

    def set(self, offset: int, state: int | str) -> None:
        self.held[offset] = (self.held[offset][0], state)


class Run:
    """Does the same to both."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.holding = Holding(is_explicit=True)
        self.model = Model()
        self.given: list[Record[Any, Any]] = []
        self.sent: list[tuple[AcquiredFetch, list[int]]] = []

    def step(self) -> None:
        steps = (
            self.give,
            self.say,
            self.say,
            self.say_of,
            self.say_of,
            self.say_neighbours,
            self.say_of_all,
            self.send,
            self.renewed,
        )
        self.chance.choice((*steps, self.take_renewed, self.hold_bad))()
        self.check()

    def fetch(self, offsets: list[int]) -> AcquiredFetch:
        acquired = tuple(Acquired(offset, offset, 1) for offset in offsets)
        return AcquiredFetch(TIP, 1, acquired, b"", None, 30_000)

    def give(self) -> None:
        chance = self.chance
        first = chance.randrange(OFFSETS)
        run = range(first, min(first + chance.randrange(1, 9), OFFSETS))
        offsets = (
            list(run) if chance.random() < 0.7 else sorted(chance.sample(run, chance.randint(1, len(run))))
        )
        records: list[Record[Any, Any]] = [Record("jobs", 0, offset) for offset in offsets]
        chunk = Chunk(self.fetch(offsets), TopicPartition("jobs", 0), records)
        before = dict(self.model.held)
        self.holding.give([chunk])
        self.model.bad.difference_update(offsets)
        self.model.held |= dict.fromkeys(offsets, (chunk, "unsaid"))
        if chance.random() < 0.1:
            self.holding.take_back([chunk])
            # What these replaced does not come back: its locks have ended.
            self.model.held = {offset: each for offset, each in before.items() if offset not in offsets}
            return
        self.given += records

    def say(self) -> None:
        offset, kind = self.chance.randrange(OFFSETS), self.chance.randint(1, 4)
        self.expect(offset, kind, lambda: self.holding.say("jobs", 0, offset, kind))

    def say_of(self) -> None:
        if self.given:
            self.say_record(self.chance.choice(self.given), self.chance.randint(1, 4))

    def say_neighbours(self) -> None:
        if self.given:
            start = self.chance.randrange(len(self.given))
            for record in self.given[start : start + 6]:
                self.say_record(record, self.chance.choice((1, 1, 2, 3)))

    def say_record(self, record: Record[Any, Any], kind: int) -> None:
        def say() -> None:
            """As `ShareConsumer.acknowledge`."""
            if not self.holding.marks.say(record, (AcknowledgeType(kind),), None):
                self.holding.marks.close()
                self.holding.say(record.topic, record.partition, record.offset, kind)
                self.holding.marks.open()

        self.expect(record.offset, kind, say)

    def say_of_all(self) -> None:
        """Of neighbours, or of any, of all or of none."""
        chance, held = self.chance, self.model.held
        start, kind = chance.randrange(len(self.given) + 1), chance.randint(1, 4)
        records = self.given[start : start + 9]
        if chance.random() < 0.3:
            records = chance.sample(self.given, min(len(self.given), 3))
        if chance.random() < 0.7:
            records = [each for each in records if each.offset in held]
        if any(
            each.offset not in held or (kind == RENEW and each.offset in self.model.bad) for each in records
        ):
            with pytest.raises(IllegalStateError, match=r"is (not held|bad)"):
                self.holding.say_of_all(records, kind)
            return
        self.holding.say_of_all(records, kind)
        for each in records:
            self.model.set(each.offset, kind)

    def expect(self, offset: int, kind: int, say: Callable[[], None]) -> None:
        if offset not in self.model.held or (kind == RENEW and offset in self.model.bad):
            with pytest.raises(IllegalStateError, match=r"is (not held|bad)"):
                say()
            return
        say()
        self.model.set(offset, kind)

    def hold_bad(self) -> None:
        offset = self.chance.randrange(OFFSETS)
        chunk = Chunk(self.fetch([offset]), TopicPartition("jobs", 0), [])
        self.holding.make_room(chunk, offset)
        self.holding.marks.turn_bad(chunk, offset, 2)
        self.model.held[offset] = (chunk, 2)
        self.model.bad.add(offset)

    def send(self) -> None:
        expected = {
            (chunk.fetch, offset, state)
            for offset, (chunk, state) in self.model.held.items()
            if isinstance(state, int)
        }
        queue: deque[Any] = deque()
        self.holding.hand_over(queue)
        [sent] = queue
        for ranges in sent.values():
            assert list(ranges) == sorted(ranges)
        assert {
            (fetch, offset, kind)
            for fetch, ranges in sent.items()
            for first, last, kind in ranges
            for offset in range(first, last + 1)
        } == expected
        for fetch, offset, kind in expected:
            if kind == RENEW:
                self.model.set(offset, "renewing")
                self.sent.append((fetch, [offset]))
            else:
                del self.model.held[offset]
                self.model.bad.discard(offset)

    def renewed(self) -> None:
        """A renewal has ended, perhaps one of a delivery that is over."""
        if not self.sent:
            return
        fetch, offsets = self.sent.pop(self.chance.randrange(len(self.sent)))
        error = InvalidRecordStateError("gone") if self.chance.random() < 0.3 else None
        self.holding.ended(
            Ended(TIP, fetch, tuple(Acknowledged(each, each, RENEW) for each in offsets), error)
        )
        for offset in offsets:
            chunk, state = self.model.held.get(offset, (None, None))
            if chunk is None or chunk.fetch is not fetch or state != "renewing":
                continue
            if error is None:
                self.model.set(offset, "renewed")
            else:
                del self.model.held[offset]

    def take_renewed(self) -> None:
        limit = self.chance.randint(1, 5)
        offsets = sorted(self.model.offsets("renewed"))[:limit]
        chunks: list[Chunk] = []
        self.holding.take_renewed(0, limit, chunks, decoded=False)
        assert [record.offset for chunk in chunks for record in chunk.records] == offsets
        if self.chance.random() < 0.3:
            self.holding.put_renewed_back(chunks)
            return
        for offset in offsets:
            self.model.set(offset, "unsaid")

    def check(self) -> None:
        holding, model = self.holding, self.model
        unsaid = model.offsets("unsaid")
        if unsaid:
            with pytest.raises(IllegalStateError, match=f"for {len(unsaid)} of the records"):
                holding.check_said()
        else:
            holding.check_said()
        said = model.offsets(1, 2, 3, RENEW)
        assert holding.said_count() == len(said)
        assert holding.has_said == bool(said)
        waiting = model.offsets("renewing", "renewed")
        assert holding.renews or not (waiting or model.offsets(RENEW))
        count, spans = holding.in_hand()
        open_ = [*unsaid, *waiting]
        assert count == len(open_)
        assert spans == ({TopicPartition("jobs", 0): range(min(open_), max(open_) + 1)} if open_ else {})


@pytest.mark.parametrize("seed", seeds(10))
def test_what_is_held_is_what_was_given_and_not_sent(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
