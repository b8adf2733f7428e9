"""Random calls of a queue, of which Ctrl-C ends many at any line: each offset has one outcome in the end (C7, Q4)."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.luck import seeds
from tests.share.test_interrupted_polls import EXPLICIT, OURS, offsets_of
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, RENEW, HandNetwork

from kadence import AcknowledgeType, ShareConsumer
from kadence.clock import FOREVER
from kadence.errors import WakeupError
from kadence.records import encode_batch
from kadence.share.acknowledgements import GAP

Made = tuple[ShareConsumer[Any, Any], HandNetwork]

ROUNDS = 40


class Program:
    """Calls a consumer by chance, and keeps account.

    Attributes:
        expected: of each acquired offset what is to be said of it at last. seen: what polls have returned. unsaid: of
            these, what nothing was said of. renewed: what is to be returned again.
    """

    def __init__(self, made: Made, chance: random.Random, *, decodes: bool) -> None:
        self.consumer, self.network = made
        self.network.gathers = True
        self.chance = chance
        self.explicit = self.consumer._config.is_explicit
        self.decodes = decodes
        self.expected: dict[int, int] = {}
        self.seen: set[int] = set()
        self.unsaid: list[int] = []
        self.renewed: set[int] = set()
        self.said: Counter[tuple[int, int]] = Counter()
        self.story: list[str] = []

    def step(self) -> None:
        consumer, network, chance = self.consumer, self.network, self.chance
        calls = (self.put, self.poll, self.poll, self.poll_rows, self.iterate, self.say_one, network.looks)
        call = chance.choice((*calls, lambda: network.clock.advance(chance.randint(1, 30)), None, None))
        if call is not None:
            call()
        else:
            self.interrupted(chance.choice((consumer.commit, consumer.commit_async)))
        self.take_said()

    def take_said(self) -> None:
        for _, first, last, kind in self.network.taken():
            self.said.update((at, kind) for at in range(first, last + 1) if kind != RENEW)

    def put(self) -> None:
        """A fetch with compacted offsets comes."""
        chance, first = self.chance, len(self.expected)
        data, end = b"", first
        for _ in range(chance.randint(1, 3)):
            count, holes = chance.randint(1, 6), chance.choice((0, 0, 1, 2))
            data += encode_batch([(1_000, None, b"v", [])] * count, base_offset=end)
            self.expected |= dict.fromkeys(range(end, end + count), ACCEPT)
            self.expected |= dict.fromkeys(range(end + count, end + count + holes), GAP)
            end += count + holes
        middle = chance.randint(first, end - 1)
        acquired = [(first, middle, 1), (middle + 1, end - 1, 2)][: 1 + (middle < end - 1)]
        # Time flies.
        self.network.put([], first=first, data=data, acquired=acquired).lock_ends = FOREVER

    def interrupted(self, call: Callable[[], Any]) -> Any:
        found = None
        interruption = Interruption(self.chance.randint(1, 700), OURS)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            found = call()
        self.story.append(interruption.where)
        return found

    def note(self, found: Any) -> None:
        for offset in offsets_of(found):
            assert offset not in self.seen or offset in self.renewed, self.story
            self.seen.add(offset)
            self.renewed.discard(offset)
            self.unsaid.append(offset)

    def say(self, offset: int, kind: AcknowledgeType) -> None:
        self.unsaid.remove(offset)
        if not self.explicit:
            return
        self.consumer.acknowledge("jobs", 0, offset, kind)
        if kind is AcknowledgeType.RENEW:
            self.renewed.add(offset)
        else:
            self.expected[offset] = kind

    def say_one(self) -> None:
        if self.unsaid:
            self.say(self.chance.choice(self.unsaid), AcknowledgeType(REJECT))

    def say_all(self) -> None:
        kinds = [ACCEPT, ACCEPT, RELEASE, *([] if self.decodes else [RENEW])]
        for offset in tuple(self.unsaid):
            self.say(offset, AcknowledgeType(self.chance.choice(kinds)))

    def poll(self) -> None:
        self.say_all()
        most = self.chance.randint(1, 9)
        self.note(self.interrupted(lambda: self.consumer.poll(max_records=most)))

    def poll_rows(self) -> None:
        if not self.decodes:
            self.say_all()
            most = self.chance.randint(1, 9)
            self.note(self.interrupted(lambda: self.consumer.poll_arrow(max_records=most)))

    def iterate(self) -> None:
        """As `poll`, by steps while there is something buffered; nothing ends the wait else."""

        def one() -> Any:
            for record in self.consumer:
                return [record]
            return None

        for _ in range(self.chance.randint(1, 5)):
            self.say_all()
            if self.renewed or self.consumer._core.buffer.is_empty:
                break
            self.network.meanwhile = [self.consumer.wakeup]
            with contextlib.suppress(WakeupError):
                self.note(self.interrupted(one))
            self.network.meanwhile = []
            self.consumer._core.exchange.woken = False

    def end(self) -> None:
        """Read all there is, and look at the account."""
        empty = 0
        while empty < 3:
            for offset in tuple(self.unsaid):
                self.say(offset, AcknowledgeType.ACCEPT)
            found = self.consumer.poll()
            self.note(found)
            # A poll without any time may have only sent what it would wait for.
            empty = 0 if found else empty + 1
        self.consumer.commit()
        self.take_said()
        assert self.seen == {at for at, kind in self.expected.items() if kind != GAP}, self.story
        assert self.said == Counter(self.expected.items()), self.story
        marks = self.consumer._core.holding.marks
        left = (marks.unsaid, marks.said, marks.renewing, marks.renewed, marks.count)
        assert (self.consumer._core.holding.in_hand()[0], *left) == (0,) * 6, self.story


@pytest.mark.parametrize("seed", seeds(4))
def test_whatever_ctrl_c_ends_each_offset_has_one_outcome(make: Callable[..., Made], seed: int) -> None:
    pytest.importorskip("pyarrow")
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        decodes = chance.random() < 0.3
        made = make(
            chance.choice([{}, EXPLICIT]), **({"value_deserializer": bytes.decode} if decodes else {})
        )
        program = Program(made, chance, decodes=decodes)
        for _ in range(chance.randint(5, 25)):
            program.step()
        program.end()
