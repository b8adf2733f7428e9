"""Fetch sessions over a long run (KIP-227): a broker that keeps its sessions, and an application of some speed.

What buffered or paused partitions must not cost: full fetches, or being named and forgotten again and again
(KAFKA-17182). The broker believes only what a request says, so a partition that the client's copy of the session
got wrong would stand still, and the run would not come to its end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.worlds.cluster import TOPIC_ID, answer, knowing
from tests.worlds.fetching import Arena, World
from tests.worlds.hand import BackgroundEvents

from kadence.connection.request import Request
from kadence.consumer.shared_state import CompletedFetch
from kadence.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kadence.records import encode_batch
from kadence.types import TopicPartition

RECORDS, SIZE = 10, 100
BATCH = len(encode_batch([(0, None, bytes(SIZE), ())] * RECORDS))


@dataclass
class Broker:
    """Serves partitions with ``ends``; one session."""

    ends: dict[int, int]
    session: dict[int, int] = field(default_factory=dict)
    epoch: int = 0
    full: int = 0
    incremental: int = 0
    named: Counter[int] = field(default_factory=Counter)
    forgotten: Counter[int] = field(default_factory=Counter)

    def serve(self, request: Request) -> FetchResponse:
        message = request.message
        told = {p.partition: p.fetch_offset for topic in message.topics for p in topic.partitions}
        if message.session_epoch == -1:
            return self._answer(told, 0, message.max_bytes)
        if message.session_epoch == 0:
            self.full += 1
            self.session, self.epoch = dict(told), 1
        else:
            self.incremental += 1
            assert message.session_epoch == self.epoch, "the broker would refuse it"
            self.epoch += 1
            for topic in message.forgotten_topics_data:
                for number in topic.partitions:
                    del self.session[number]
                    self.forgotten[number] += 1
            self.named.update(told.keys())
            self.session.update(told)
        assert self.session, "an empty session is closed by the broker"
        return self._answer(self.session, 7, message.max_bytes)

    def _answer(self, offsets: dict[int, int], session_id: int, room: int) -> FetchResponse:
        found = []
        for number, offset in list(offsets.items()):
            if offset < self.ends[number] and room > 0:
                raw = encode_batch([(0, None, bytes(SIZE), ())] * RECORDS, base_offset=offset)
                room -= len(raw)
                found.append(
                    PartitionData(
                        partition_index=number,
                        high_watermark=self.ends[number],
                        last_stable_offset=self.ends[number],
                        log_start_offset=0,
                        records=memoryview(raw),
                    )
                )
                if session_id:
                    self.session[number] = self.session.pop(number)
        return FetchResponse(
            session_id=session_id, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found)]
        )


class Run:
    """Brokers that answer after 5 ms (or at the end of the long poll), and an application that drains."""

    def __init__(self, count: int, ends: Callable[[int], int], **settings: object) -> None:
        partitions = [TopicPartition("t", number) for number in range(count)]
        background_events = BackgroundEvents()
        metadata = knowing({p: 1 + p.partition % 2 for p in partitions}, background_events)
        self.world = World(*partitions, metadata=metadata, **settings)
        self.brokers = {
            node: Broker({p.partition: ends(p.partition) for p in partitions if 1 + p.partition % 2 == node})
            for node in (1, 2)
        }
        self.buffer: deque[CompletedFetch] = deque()
        self.flying: list[tuple[int, Request]] = []
        self.read: Counter[int] = Counter()
        self.now = 0
        self.wakes_at = 0

    def turn(self, drains: int) -> None:
        """5 ms: requests leave, answers come, and the application is done with ``drains`` fetches.

        The manager is asked only when something woke the network thread, as in life.
        """
        world = self.world
        if self.now >= self.wakes_at:
            poll = world.manager.poll(self.now)
            self.wakes_at = poll.wake_at
            for request in poll.requests:
                self.flying.append((self.now + 5, request))
        self.now += 5
        for due in [item for item in self.flying if item[0] <= self.now]:
            self.flying.remove(due)
            request = due[1]
            ends_at = request.tag.ends_at
            broker = self.brokers[request.node_id]
            epoch, session = broker.epoch, dict(broker.session)
            counts = broker.full, broker.incremental, broker.named.copy(), broker.forgotten.copy()
            response = broker.serve(request)
            if not response.responses[0].partitions and self.now < ends_at:
                # A long poll: ask again later, as if it had just come.
                broker.epoch, broker.session = epoch, session
                broker.full, broker.incremental, broker.named, broker.forgotten = counts
                self.flying.append((min(self.now + 50, ends_at), request))
                continue
            arena = Arena()
            self.wakes_at = self.now
            world.manager.on_response(self.now, answer(request, response, self.now, loan=arena, version=17))
        self.buffer.extend(world.shared_state.completed_fetches)
        world.shared_state.completed_fetches.clear()
        for _ in range(min(drains, len(self.buffer))):
            for _ in range(len(self.buffer)):
                fetched = self.buffer.popleft()
                if not fetched.shared_partition.paused:
                    break
                self.buffer.append(fetched)
            else:
                return
            number = fetched.shared_partition.partition.partition
            assert fetched.offset == self.read[number]
            self.read[number] += RECORDS
            if world.drain(fetched):
                self.wakes_at = self.now

    def check_places(self) -> None:
        """Whatever stands still stands where a look at all partitions would put it."""
        places = self.world.manager._places
        places.look(self.now)
        for state in self.world.subscription.partitions.values():
            if state not in self.world.subscription.changed and state.place is not None:
                assert places._place_for(self.now, state) is state.place, state

    def pause(self, number: int, paused: bool) -> None:
        partition = TopicPartition("t", number)
        if self.world.state(partition).shared_partition.paused is not paused:
            self.world.pause(partition, paused)
            if not paused:
                self.wakes_at = self.now


def test_a3_a_thousand_partitions_with_a_slow_application_keep_their_sessions() -> None:
    """2 % of the partitions have nearly all the data; the application is the bottleneck for 1,000 turns."""
    run = Run(1_000, lambda n: 40 * RECORDS if n < 20 else RECORDS, max_partition_fetch_bytes=BATCH)
    turns = 0
    while sum(run.read.values()) < (20 * 40 + 980) * RECORDS:
        run.turn(drains=3)
        turns += 1
        if turns % 50 == 0:
            run.check_places()
        assert turns < 2_000, "a partition stands still"
    assert run.read == {n: (40 if n < 20 else 1) * RECORDS for n in range(1_000)}
    for broker in run.brokers.values():
        assert broker.full == 1
        idle = [number for number in broker.ends if number >= 20]
        busy = [number for number in broker.ends if number < 20]
        # One batch each: named with the first full fetch and when it had come; never forgotten for good measure.
        assert max(broker.named[number] for number in idle) <= 2
        assert max(broker.forgotten[number] for number in idle) <= 1
        # A busy one is named for each batch that came, since its offset is another, and forgotten no more often.
        assert max(broker.named[number] for number in busy) <= 41
        assert max(broker.forgotten[number] for number in busy) <= 40


def test_a3_partitions_that_nothing_happens_to_are_never_named_again() -> None:
    run = Run(100, lambda n: 100 * RECORDS if n == 0 else 0)
    for _ in range(1_000):
        run.turn(drains=1)
    assert run.read == {0: 100 * RECORDS}
    for broker in run.brokers.values():
        assert broker.full == 1
        assert set(broker.named) <= {0}
        assert not broker.forgotten


def test_a3_a_pause_is_one_word_to_the_broker_and_a_resume_another() -> None:
    run = Run(10, lambda n: 0)
    for turn in range(1_000):
        if turn % 200 == 100:
            run.pause(4, True)
        if turn % 200 == 0:
            run.pause(4, False)
        run.turn(drains=1)
    broker = run.brokers[1]
    assert broker.full == 1
    assert broker.forgotten == {4: 5}
    assert broker.named == {4: 4}


def test_a3_a_pause_for_every_record_costs_no_session() -> None:
    """What some processing loops do: pause all but the partition in hand, resume, over and over."""
    run = Run(10, lambda n: 20 * RECORDS, max_partition_fetch_bytes=BATCH)
    turns = 0
    while sum(run.read.values()) < 10 * 20 * RECORDS:
        for number in range(10):
            run.pause(number, number != turn_of(turns))
        run.turn(drains=1)
        run.check_places()
        turns += 1
        assert turns < 5_000, "a partition stands still"
    assert [broker.full for broker in run.brokers.values()] == [1, 1]


def turn_of(turns: int) -> int:
    return turns // 7 % 10


def test_a3_a_busy_partition_does_not_wait_for_the_long_poll_of_its_idle_neighbour() -> None:
    """The application drains as fast as data comes; each turn is 5 ms, a long poll a hundred of them."""
    run = Run(4, lambda n: 50 * RECORDS if n == 0 else 0, max_partition_fetch_bytes=BATCH)
    turns = 0
    while run.read[0] < 50 * RECORDS:
        run.turn(drains=5 if turns % 4 == 3 else 0)
        turns += 1
    assert turns <= 4 * 50
