"""Random stories of a share-partition, by seed, with what must hold after every step whatever happened.

A record is acquired by one member at a time; none is lost (it is done, or acquired, or will be given out); the start
moves over what is done only; counts rise by one with each delivery; what is stored is what is there.
"""

from __future__ import annotations

import random

import pytest
from tests.broker.share.pure import Queue

from kadence.clock import FOREVER
from kadence_broker.share.acquiring import LogBatch
from kadence_broker.share.changes import StateBatch
from kadence_broker.share.delivery import DONE, RecordState
from kadence_broker.share.stored import StoredState

MEMBERS = ["a", "b", "c"]
LIMIT = 4


class Story:
    """One share-partition, and what a reader of the rules knows of it.

    Attributes:
        held: who has each offset. counts: how often it was delivered. done: what the group never sees again.
        copy: what a store made of the changes.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.queue = Queue(
            delivery_count_limit=LIMIT,
            max_record_locks=20,
            dead_letter_topic=dice.choice(["", "dlq.t"]),
        )
        self.end = 0
        self.held: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.done: set[int] = set()
        self.copy = StoredState(0, done_count=0)
        self.seen = 0

    def produce(self) -> None:
        for _ in range(self.dice.randint(1, 3)):
            size = self.dice.randint(1, 6)
            self.queue.log.append(LogBatch(self.end, self.end + size - 1))
            self.end += size

    def fetch(self) -> None:
        member, most = self.dice.choice(MEMBERS), self.dice.randint(1, 12)
        limit = self.dice.random() < 0.5
        before = self.queue.state.start_offset
        got = self.queue.take(member, most, limit=limit, batch_size=self.dice.randint(1, 8))
        total = 0
        for first, last, deliveries in got:
            total += last - first + 1
            for offset in range(first, last + 1):
                assert offset not in self.held
                assert offset not in self.done
                assert offset >= before
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert deliveries == self.counts[offset] <= LIMIT
                self.held[offset] = member
        if limit:
            assert total <= most
        if any(deliveries == LIMIT for *_, deliveries in got):
            assert total == 1  # a last attempt comes alone

    def acknowledge(self) -> None:
        """A member says something of neighbours that it has."""
        member = self.dice.choice(MEMBERS)
        own = {offset for offset, each in self.held.items() if each == member}
        if not own:
            return
        first = last = self.dice.choice(sorted(own))
        while last + 1 in own and self.dice.random() < 0.8:
            last += 1
        kinds = [1, 1, 2] if self.dice.random() < 0.7 else [0, 1, 2, 3, 4]
        types = [self.dice.choice(kinds) for _ in range(first, last + 1)]
        if self.dice.random() < 0.3:
            types = types[:1]
        assert self.queue.say((first, last, types), member=member) == 0
        for offset in range(first, last + 1):
            self._said(offset, types[offset - first if len(types) > 1 else 0])

    def _said(self, offset: int, kind: int) -> None:
        if kind == 4:
            return
        del self.held[offset]
        if kind != 2 or self.counts[offset] >= LIMIT:
            self.done.add(offset)

    def acknowledge_anything(self) -> None:
        """Refused as a whole; or everything from the start offset on was the member's."""
        member, kind = self.dice.choice(MEMBERS), self.dice.randint(0, 3)
        start = self.queue.state.start_offset
        first = max(start + self.dice.randint(-5, 20), 0)
        middle, last = first + self.dice.randint(0, 2), first + self.dice.randint(3, 6)
        before = self.states
        code = self.queue.say((first, middle, kind), (middle + 1, last, kind), member=member)
        if code:
            assert self.states == before
            return
        for offset in range(max(first, start), last + 1):
            assert self.held[offset] == member
            self._said(offset, kind)

    @property
    def states(self) -> dict[int, tuple[str, int]]:
        return {
            offset: (state, deliveries)
            for first, last, state, deliveries in self.queue.states
            for offset in range(first, last + 1)
        }

    def wait(self) -> None:
        before = {offset: batch for offset, batch in self._locks().items() if offset in self.held}
        self.queue.wait(self.dice.choice([10_000, 30_000]))
        assert all(ends > self.queue.now for ends in self._locks().values())
        for offset, ends in before.items():
            if ends <= self.queue.now:
                self._said(offset, 2)

    def _locks(self) -> dict[int, int]:
        return {
            offset: delivery.lock_ends
            for batch in self.queue.state.in_flight
            for first, last, delivery in batch.parts()
            if delivery.state is RecordState.ACQUIRED
            for offset in range(first, last + 1)
        }

    def leave(self) -> None:
        member = self.dice.choice(MEMBERS)
        self.queue.leave(member)
        for offset in [offset for offset, each in self.held.items() if each == member]:
            self._said(offset, 2)

    def write_letters(self) -> None:
        state = self.queue.state
        for letter in state.letters_owed(self.queue.settings):
            self.queue.stored += state.letter_written(letter).stored
        state.advance()

    def restart(self) -> None:
        """Load what is stored: the same records are done, counts are what the last write said, nobody has anything."""
        before, queue = self.states, self.queue
        stored = [tuple(each) for each in self.copy.batches]
        again = Queue(start=self.copy.start_offset, stored=stored)  # type: ignore[arg-type]
        again.log, again.settings, again.now = queue.log, queue.settings, queue.now
        self.queue, self.seen = again, 0
        assert _done(before) <= _done(self.states) | set(range(again.state.start_offset)) <= self.done
        self.held.clear()
        counts = {offset: deliveries for offset, (_, deliveries) in self.states.items()}
        self.counts = {offset: counts.get(offset, 0) for offset in range(again.state.start_offset, self.end)}

    def check(self) -> None:
        queue, state = self.queue, self.queue.state
        new, self.seen = queue.stored[self.seen :], len(queue.stored)
        self.copy.apply(self.copy.start_offset, 0, new)
        states = self.states
        archiving = {offset for offset, (name, _) in states.items() if name == "ARCHIVING"}
        assert {offset for offset, (name, _) in states.items() if name == "ACQUIRED"} == set(self.held)
        below = set(range(state.start_offset))
        assert below <= self.done
        assert self.done - below == (_done(states) | archiving) - below
        assert state.done_count == len(_done(states) - below)
        assert state.next_lock_end() <= min(self._locks().values(), default=FOREVER)
        # Nothing is lost: what is neither done nor held is read from the next offset on.
        for offset in range(state.start_offset, self.end):
            if offset not in self.done and offset not in self.held:
                assert states.get(offset, ("AVAILABLE", 0))[0] == "AVAILABLE"
                assert state.next_offset <= offset

    def drain(self) -> None:
        """In the end a member that accepts everything gets all that is left."""
        self.queue.wait(60_000)
        for offset in list(self.held):
            self._said(offset, 2)
        while got := self.queue.take("last"):
            for first, last, _ in got:
                assert self.queue.say((first, last, 1), member="last") == 0
                self.done.update(range(first, last + 1))
            self.write_letters()
        self.write_letters()
        assert self.done == set(range(self.end))
        assert self.queue.state.start_offset == self.end


def _done(states: dict[int, tuple[str, int]]) -> set[int]:
    return {offset for offset, (name, _) in states.items() if RecordState[name] in DONE}


STEPS = {
    Story.produce: 4,
    Story.fetch: 8,
    Story.acknowledge: 7,
    Story.acknowledge_anything: 2,
    Story.wait: 2,
    Story.leave: 2,
    Story.write_letters: 1,
    Story.restart: 1,
}


@pytest.mark.parametrize("seed", range(0, 200, 50))
def test_stories(seed: int) -> None:
    for each in range(seed, seed + 50):
        story = Story(random.Random(each))
        for step in story.dice.choices(list(STEPS), list(STEPS.values()), k=80):
            step(story)
            story.check()
        story.drain()


@pytest.mark.parametrize(
    ("puts", "left"),
    [
        ([(0, 9, 0, 1), (3, 4, 2, 1)], [(0, 2, 0, 1), (3, 4, 2, 1), (5, 9, 0, 1)]),
        ([(0, 4, 2, 1), (5, 9, 2, 1)], [(0, 9, 2, 1)]),
        ([(0, 4, 2, 1), (6, 9, 2, 1), (5, 5, 2, 1)], [(0, 9, 2, 1)]),
        ([(0, 4, 0, 1), (5, 9, 0, 2), (3, 6, 0, 3)], [(0, 2, 0, 1), (3, 6, 0, 3), (7, 9, 0, 2)]),
        ([(0, 4, 0, 1), (0, 4, 0, 2)], [(0, 4, 0, 2)]),
    ],
)
def test_newer_batches_take_the_place_of_older_ones(
    puts: list[tuple[int, int, int, int]], left: list[tuple[int, int, int, int]]
) -> None:
    state = StoredState(0)
    for first, last, kind, deliveries in puts:
        state.apply(-1, 0, [StateBatch(first, last, RecordState(kind), deliveries)])
    assert [tuple(each) for each in state.batches] == left
    state.apply(4, 0, [])
    assert state.batches[0].first == 4
