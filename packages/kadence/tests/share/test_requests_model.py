"""A share consumer's requests against a model of a broker, by seed: faults, slow work, all kinds of acknowledgements.

The model follows reference §4 to §6: sessions with epochs, locks, all or nothing for each partition of a request.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.luck import seeds
from tests.worlds.cluster import id_of
from tests.worlds.share import ACCEPT, LOCK_MS, REJECT, RELEASE, RENEW, Requests

from kadence.connection.request import Request
from kadence.errors import InvalidRecordStateError
from kadence.protocol import error_codes as ec
from kadence.protocol.share_acknowledge import PartitionData as AcknowledgedPartition
from kadence.protocol.share_acknowledge import ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse
from kadence.protocol.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kadence.share.acknowledgements import Acknowledged
from kadence.share.events import Sending
from kadence.share.share_state import AcquiredFetch

PARTITIONS = 3
RECORDS = 60
BATCH = 7

_STATES: dict[int, str] = {ACCEPT: "accepted", RELEASE: "available", REJECT: "rejected"}


@dataclass
class Offset:
    """One record at the broker."""

    state: str = "available"
    locked_until: int = 0
    deliveries: int = 0


@dataclass
class Broker:
    """The leader of all partitions, as one member sees it."""

    lock_ms: int = LOCK_MS
    logs: list[list[Offset]] = field(
        default_factory=lambda: [[Offset() for _ in range(RECORDS)] for _ in range(PARTITIONS)]
    )
    epoch: int | None = None
    members: set[int] = field(default_factory=set)
    refused: int = 0

    def expire(self, now: int) -> None:
        for log in self.logs:
            for each in log:
                if each.state == "acquired" and now >= each.locked_until:
                    each.state = "available"

    def disconnect(self) -> None:
        self.epoch, self.members = None, set()
        for log in self.logs:
            for each in log:
                if each.state == "acquired":
                    each.state = "available"

    def _open(self, message: Any) -> int:
        """The session's part. Returns an error code."""
        epoch = message.share_session_epoch
        if isinstance(message, ShareFetchRequest) and epoch == 0:
            assert not any(p.acknowledgement_batches for t in message.topics for p in t.partitions)
            self.epoch, self.members = 1, set()
            return 0
        assert epoch != 0, "an acknowledge request cannot open a session"
        if self.epoch is None:
            return ec.SHARE_SESSION_NOT_FOUND
        if epoch == -1:
            return 0
        if epoch != self.epoch:
            return ec.INVALID_SHARE_SESSION_EPOCH
        self.epoch += 1
        return 0

    def _acknowledge(self, now: int, number: int, batches: Any, *, renews: bool, flaky: bool) -> int:
        log, last = self.logs[number], -1
        said: list[tuple[Offset, int]] = []
        for batch in batches:
            types = batch.acknowledge_types
            assert batch.first_offset > last, "ascending, without overlaps"
            assert batch.last_offset >= batch.first_offset
            assert len(types) in (1, batch.last_offset - batch.first_offset + 1)
            last = batch.last_offset
            for place, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                said.append((log[offset], types[place if len(types) > 1 else 0]))
        if flaky:
            return ec.COORDINATOR_NOT_AVAILABLE
        assert renews or all(kind != RENEW for _, kind in said)
        if any(each.state != "acquired" for each, _ in said):
            self.refused += 1
            return ec.INVALID_RECORD_STATE
        for each, kind in said:
            if kind == RENEW:
                each.locked_until = now + self.lock_ms
            else:
                each.state = _STATES[kind]
        return 0

    def serve(self, now: int, message: Any, flaky: bool) -> Any:
        self.expire(now)
        is_fetch = isinstance(message, ShareFetchRequest)
        code = self._open(message)
        if code:
            kind: Any = ShareFetchResponse if is_fetch else ShareAcknowledgeResponse
            return kind(error_code=code)
        results = {
            part.partition_index: self._acknowledge(
                now,
                part.partition_index,
                part.acknowledgement_batches,
                renews=message.is_renew_ack,
                flaky=flaky,
            )
            for topic in message.topics
            for part in topic.partitions
            if part.acknowledgement_batches
        }
        if message.share_session_epoch == -1:
            self.disconnect()
        if not is_fetch:
            parts = [AcknowledgedPartition(partition_index=p, error_code=code) for p, code in results.items()]
            return ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=self.lock_ms,
                responses=[ShareAcknowledgeTopicResponse(topic_id=id_of("t"), partitions=parts)],
            )
        self.members |= {part.partition_index for topic in message.topics for part in topic.partitions}
        self.members -= {number for topic in message.forgotten_topics_data for number in topic.partitions}
        brought = self._acquire(now, message.max_records)
        fetched = [
            PartitionData(
                partition_index=number,
                acknowledge_error_code=results.get(number, 0),
                records=b"",
                acquired_records=brought.get(number, []),
            )
            for number in sorted({*results, *brought})
        ]
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_ms,
            responses=[ShareFetchableTopicResponse(topic_id=id_of("t"), partitions=fetched)],
        )

    def _acquire(self, now: int, limit: int) -> dict[int, list[AcquiredRecords]]:
        brought: dict[int, list[AcquiredRecords]] = {}
        for number in sorted(self.members):
            for offset, each in enumerate(self.logs[number]):
                if limit <= 0:
                    return brought
                if each.state != "available":
                    continue
                each.state, each.locked_until = "acquired", now + self.lock_ms
                each.deliveries += 1
                limit -= 1
                ranges = brought.setdefault(number, [])
                if ranges and ranges[-1].last_offset == offset - 1 and offset % BATCH:
                    ranges[-1].last_offset = offset
                else:
                    ranges.append(
                        AcquiredRecords(
                            first_offset=offset, last_offset=offset, delivery_count=each.deliveries
                        )
                    )
        return brought


class Story:
    """One run: an application that works at its own pace, and a network that fails at times."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.luck = random.Random(seed)
        self.world = Requests(dict.fromkeys(range(PARTITIONS), 1), max_poll_records=10, **settings)
        self.world.state.wants_results = True
        self.broker = Broker()
        self.faults = True
        self.under_way: list[tuple[int, Request]] = []
        self.in_hand: list[tuple[AcquiredFetch, int]] = []
        self.said: dict[tuple[AcquiredFetch, int], int] = {}
        self.works_ms = self.luck.choice([1, 50, 5_000, 40_000])
        self.busy_until = 0

    # -- the network

    def network(self) -> None:
        world, luck = self.world, self.luck
        for request in world.sent():
            assert not self.under_way, "one request at a time"
            self.under_way.append((world.now + luck.choice([0, 1, 20, 400]), request))
        for at, request in tuple(self.under_way):
            if at > world.now:
                continue
            self.under_way.remove((at, request))
            if self.faults and luck.random() < 0.03:
                if luck.random() < 0.5:
                    self.broker.serve(world.now, request.message, flaky=False)
                self.broker.disconnect()
                world.hand.lose(request)
                continue
            if self.faults and luck.random() < 0.03 and self.broker.epoch is not None:
                self.broker.epoch += 1
            flaky = self.faults and luck.random() < 0.05
            response = self.broker.serve(world.now, request.message, flaky)
            world.hand.answer(request, response)

    # -- the application

    def application(self) -> None:
        world, luck = self.world, self.luck
        self.hear()
        if world.now < self.busy_until:
            return
        self.acknowledge()
        world.waits(10)
        if not world.state.acquired_fetches:
            return
        fetch = world.state.acquired_fetches.popleft()
        if not fetch.is_locked(world.now):
            world.state.took(fetch, world.now, fetch.left)
            return
        world.state.took(fetch, world.now, fetch.left)
        world.state.unwant(world.now, found=True)
        self.in_hand += [
            (fetch, offset) for each in fetch.acquired for offset in range(each.first, each.last + 1)
        ]
        self.busy_until = world.now + luck.randrange(self.works_ms)

    def acknowledge(self) -> None:
        luck = self.luck
        by_fetch: dict[AcquiredFetch, list[Acknowledged]] = {}
        kept: list[tuple[AcquiredFetch, int]] = []
        for fetch, offset in self.in_hand:
            kind = luck.choices([ACCEPT, RELEASE, RENEW, None], [90, 4, 3, 3])[0] if self.faults else ACCEPT
            if kind is None:
                kept.append((fetch, offset))
                continue
            by_fetch.setdefault(fetch, []).append(Acknowledged(offset, offset, kind))
            if kind == RENEW:
                kept.append((fetch, offset))
            else:
                self.said[fetch, offset] = kind
        self.in_hand = kept
        if by_fetch:
            sending = luck.choice(list(Sending))
            self.world.say({fetch: tuple(said) for fetch, said in by_fetch.items()}, sending=sending)

    def hear(self) -> None:
        """What has ended: success is the truth, and no lock that holds is refused."""
        for ended in self.world.ended():
            log = self.broker.logs[ended.partition.partition]
            for first, last, kind in ended.acknowledged:
                for offset in range(first, last + 1):
                    if kind != RENEW:
                        assert self.said.pop((ended.fetch, offset)) == kind, "each is told once"
                    if ended.error is None and kind == ACCEPT:
                        assert log[offset].state == "accepted"
                    if isinstance(ended.error, InvalidRecordStateError) and kind == RENEW:
                        self.in_hand = [each for each in self.in_hand if each != (ended.fetch, offset)]
        self.in_hand = [each for each in self.in_hand if each[0].void is None]

    def run(self, duration_ms: int) -> None:
        end = self.world.now + duration_ms
        while self.world.now < end:
            self.network()
            self.application()
            self.world.hand.advance(self.luck.choice([0, 1, 7, 50, 300]))

    @property
    def done(self) -> bool:
        return all(each.state in ("accepted", "rejected") for log in self.broker.logs for each in log)


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("renews", [True, False])
def test_whatever_happens_all_is_accepted_in_the_end(seed: int, renews: bool) -> None:
    story = Story(seed, share_lock_renewal=renews)
    story.run(60_000)
    story.faults, story.works_ms = False, 10
    for _ in range(20):
        story.run(10_000)
        if story.done:
            break
    assert story.done
    assert story.world.state.measures.held() == 0
    story.world.assign()
    story.world.manager.leave()
    for _ in range(5):
        story.network()
        story.world.hand.advance(500)
    story.hear()
    assert not story.world.manager.pending
    assert not story.said, "every acknowledgement has ended"


@pytest.mark.parametrize("seed", seeds(4))
def test_q2_without_faults_every_record_is_delivered_once_however_long_work_takes(seed: int) -> None:
    story = Story(seed)
    story.faults, story.works_ms = False, 70_000
    while not story.done:
        story.run(60_000)
    assert {each.deliveries for log in story.broker.logs for each in log} == {1}
    assert story.broker.refused == 0
