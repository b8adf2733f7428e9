"""KIP-320 against a model of a partition that is elected cleanly and not: in the end nothing of its log was missed.

Two brokers of whom one leads, answers in any order or not at all, metadata that may be old, an application that
takes what it gets. When the faults end, the application must have been given every record of the log as it then is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.luck import seeds
from tests.worlds.cluster import told
from tests.worlds.positions import P0, World

from kadence.connection.request import Request
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.protocol import error_codes as ec
from kadence.records import assign_offsets, encode_batch


@dataclass
class Partition:
    """The truth: who leads since when, and in each broker's log the epoch and the number of the record at an offset."""

    leader: int = 1
    epoch: int = 0
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {1: [], 2: []})
    written: int = 0

    @property
    def log(self) -> list[tuple[int, int]]:
        return self.logs[self.leader]

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append((self.epoch, self.written))
            self.written += 1

    def copy(self, upto: int) -> None:
        """The follower has the leader's log up to an offset, and nothing of its own beyond."""
        self.logs[3 - self.leader] = self.log[:upto]

    def elect(self, *, cleanly: bool) -> None:
        """The other broker leads; uncleanly with whatever it has, which may be of an epoch that nobody else knows."""
        if cleanly:
            self.copy(len(self.log))
        self.leader, self.epoch = 3 - self.leader, self.epoch + 1

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if epoch == self.epoch:
            return epoch, len(self.log)
        known = [each for each, _ in self.log if each <= epoch]
        if epoch > self.epoch or not known:
            return -1, -1
        return known[-1], len(known)

    def batches(self, offset: int, most: int) -> bytes:
        """Records from ``offset`` on, a batch for each epoch."""
        raw = b""
        at = offset
        while at < min(len(self.log), offset + most):
            epoch = self.log[at][0]
            values = []
            while at < min(len(self.log), offset + most) and self.log[at][0] == epoch:
                values.append((0, None, b"%d" % self.log[at][1], ()))
                at += 1
            batch = bytearray(encode_batch(values, base_offset=at - len(values)))
            assign_offsets(batch, at - len(values), epoch)
            raw += bytes(batch)
        return raw


class Play:
    """One consumer, one partition, one seed."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random = random.Random(seed)
        self.truth = Partition()
        self.stale = (1, 0)
        self.world = World(P0, epoch=0, auto_offset_reset=policy)
        self.world.subscription.position(P0, 0, None)
        self.collector = FetchCollector(self.world.shared_state, check_crcs=True, max_batch_bytes=1 << 20)
        self.pending: list[Request] = []
        self.seen: set[int] = set()

    def step(self, *, faults: bool) -> None:
        self.pending += self.world.turn(self.random.choice((0, 1, 50, 300)))
        if self.pending:
            request = self.pending.pop(self.random.randrange(len(self.pending)) if faults else 0)
            if faults and self.random.random() < 0.15:
                self.world.lose(request)
            else:
                getattr(self, f"_{request.name.lower()}")(request, faults)
        if self.random.random() < 0.6:
            self.take()
        if not faults:
            return
        event = self.random.random()
        if event < 0.25:
            self.truth.append(self.random.randint(1, 5))
        elif event < 0.32:
            self.truth.elect(cleanly=True)
        elif event < 0.40:
            self.truth.elect(cleanly=False)
        elif event < 0.50:
            self.truth.copy(self.random.randint(0, len(self.truth.log)))

    def take(self) -> None:
        self.collector.mark_processed()
        for _, records in self.collector.take_records(self.random.choice((1, 3, 500))):
            self.seen.update(int(record.value or b"-1") for record in records)

    # -- the brokers

    def _metadata(self, request: Request, faults: bool) -> None:
        if not faults or self.random.random() < 0.7:
            self.stale = (self.truth.leader, self.truth.epoch)
        leader, epoch = self.stale
        self.world.answer(request, told({P0: leader}, epoch=epoch))

    def _refusal(self, request: Request, epoch: int) -> int:
        if request.node_id != self.truth.leader:
            return ec.NOT_LEADER_OR_FOLLOWER
        if epoch > self.truth.epoch:
            return ec.UNKNOWN_LEADER_EPOCH
        return ec.FENCED_LEADER_EPOCH if 0 <= epoch < self.truth.epoch else ec.NONE

    def _fetch(self, request: Request, faults: bool) -> None:
        (part,) = request.message.topics[0].partitions
        hint: dict[str, Any] = {}
        if code := self._refusal(request, part.current_leader_epoch):
            if self.random.random() < 0.5:
                hint = {"leader": (self.truth.leader, self.truth.epoch)}
            self.world.fetched(request, code=code, **hint)
            return
        offset, epoch = part.fetch_offset, part.last_fetched_epoch
        if epoch >= 0:
            known, end = self.truth.epoch_end(epoch)
            if known < 0:
                self.world.fetched(request, code=ec.OFFSET_OUT_OF_RANGE)
                return
            if known < epoch or end < offset:
                self.world.fetched(request, diverging=(known, end))
                return
        if offset > len(self.truth.log):
            self.world.fetched(request, code=ec.OFFSET_OUT_OF_RANGE)
            return
        self.world.fetched(request, self.truth.batches(offset, self.random.randint(1, 9)))

    def _offsetforleaderepoch(self, request: Request, faults: bool) -> None:
        (part,) = request.message.topics[0].partitions
        if code := self._refusal(request, part.current_leader_epoch):
            self.world.epoch_ends(request, -1, -1, code)
        else:
            self.world.epoch_ends(request, *self.truth.epoch_end(part.leader_epoch))

    def _listoffsets(self, request: Request, faults: bool) -> None:
        (part,) = request.message.topics[0].partitions
        if code := self._refusal(request, part.current_leader_epoch):
            self.world.listed(request, -1, code)
        else:
            self.world.listed(request, 0 if part.timestamp == -2 else len(self.truth.log))


@pytest.mark.parametrize("seed", seeds(20))
def test_kip320_in_the_end_every_record_of_the_log_was_given(seed: int) -> None:
    play = Play(seed, "earliest")
    for _ in range(300):
        play.step(faults=True)
    play.truth.append(3)
    for _ in range(400):
        play.step(faults=False)
        play.take()
        if play.world.state().offset == len(play.truth.log) and not play.world.shared_state.completed_fetches:
            break
    for _ in range(20):
        play.step(faults=False)
        play.take()
    missed = [
        (offset, number) for offset, (_, number) in enumerate(play.truth.log) if number not in play.seen
    ]
    assert not missed, f"{len(missed)} of {len(play.truth.log)}: {play.world.state()}"
