"""What is unchanged in a fetch session costs nothing, and nobody can tell by the answers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.stage import Nobody, Stage
from tests.broker.wire import at, fetch
from tests.luck import seeds

from kadence.protocol.fetch import FetchRequest
from kadence.protocol.registry import decode_response, encode_request
from kadence.records import encode_batch
from kadence_broker.cluster import Topic
from kadence_broker.fetching import ParkedFetch, ReadablePartitions
from kadence_broker.sessions import WantedPartition
from kadence_broker.storage import BatchError, Partition

MANY = 200


class Reader:
    """A client with one session."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.session_id = 0
        self.epoch = 0
        self.clients: list[Nobody] = []

    def fetch(self, *partitions: Any, node: int = 1, version: int = 12, **fields: Any) -> Nobody:
        request = fetch("t", *partitions, session_id=self.session_id, session_epoch=self.epoch, **fields)
        client = Nobody(node)
        self.stage.dispatcher.on_frame(client, encode_request(request, version, 1, "c"))  # type: ignore[arg-type]
        self.epoch += 1
        self.clients.append(client)
        return client

    def answer(self, client: Nobody) -> Any:
        (sent,) = client.sent
        answer = decode_response(FetchRequest, 12, sent[4:])[1]
        self.session_id = answer.session_id or self.session_id
        return answer


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = still(Stage(1))
    made.cluster.create_topic("many", 1)
    made.cluster.add_partitions(made.cluster.topics["t"], MANY)
    yield made
    made.loop.close()


def still(stage: Stage) -> Stage:
    """One node leads all, and readers are woken as in a broker."""
    stage.loop._before_wait = lambda now: now
    stage.cluster.on_readable = ReadablePartitions(stage.loop).add
    stage.cluster.nodes.pop(2)
    for each in stage.cluster.topics["t"].partitions:
        each.on_readable = stage.cluster.on_readable
        each.lead(1)
    return stage


def append(stage: Stage, index: int) -> None:
    stage.cluster.topics["t"].partitions[index].append(1, memoryview(encode_batch([(1, None, b"v", ())])))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    check = ParkedFetch._check

    def counted(self: ParkedFetch, wanted: WantedPartition) -> Any:
        seen.append(wanted.index)
        return check(self, wanted)

    monkeypatch.setattr(ParkedFetch, "_check", counted)
    return seen


def test_a_fetch_looks_at_what_changed_alone(stage: Stage, looks: list[int]) -> None:
    reader = Reader(stage)
    whole = reader.answer(reader.fetch(*(at(0, each) for each in range(MANY)), max_wait_ms=0))
    assert len(whole.responses[0].partitions) == MANY
    looks.clear()
    assert reader.answer(reader.fetch(max_wait_ms=0)).responses == []
    assert looks == []

    append(stage, 7)
    told = reader.answer(reader.fetch(max_wait_ms=0)).responses[0].partitions
    assert [each.partition_index for each in told] == [7]
    assert looks == [7]

    looks.clear()
    assert reader.answer(reader.fetch(at(1, 7), max_wait_ms=0)).responses == []
    assert looks == [7]
    looks.clear()
    assert reader.answer(reader.fetch(max_wait_ms=0)).responses == []
    assert looks == []


def test_a_fetch_that_waits_is_woken_by_what_rested(stage: Stage, looks: list[int]) -> None:
    reader = Reader(stage)
    reader.answer(reader.fetch(*(at(0, each) for each in range(MANY)), max_wait_ms=0))
    looks.clear()
    waits = reader.fetch(max_wait_ms=1_000)
    assert looks == []
    assert not waits.sent
    append(stage, 150)
    stage.loop.turn()
    assert [each.partition_index for each in reader.answer(waits).responses[0].partitions] == [150]
    assert set(looks) == {150}
    assert not any(each.waiting for each in stage.cluster.topics["t"].partitions)


def test_a_session_that_ends_leaves_nothing_behind(stage: Stage) -> None:
    reader = Reader(stage)
    partitions = stage.cluster.topics["t"].partitions
    reader.answer(reader.fetch(*(at(0, each) for each in range(MANY)), max_wait_ms=0))
    assert sum(len(each.resting) for each in partitions) == MANY
    reader.epoch = -1
    reader.answer(reader.fetch(at(0), max_wait_ms=0))
    assert not any(each.resting for each in partitions)


@pytest.mark.parametrize("seed", seeds(10))
def test_no_answer_is_another_because_partitions_rest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for rests in (True, False):
        if not rests:
            monkeypatch.setattr(WantedPartition, "rest", lambda _self, _partition: None)
        answers.append(World(seed).answers())
    assert answers[0] == answers[1]
    assert len(answers[0]) > 20


class World:
    """Two readers with sessions, and everything that may change what they are answered."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        random.seed(seed)  # ids of sessions
        self.stage = still(Stage(seed))
        self.stage.cluster.add_partitions(self.stage.cluster.topics["t"], 6)
        self.readers = [Reader(self.stage), Reader(self.stage)]

    def change(self, partition: Partition) -> None:
        chance = self.chance
        kind = chance.choice(["append", "append", "append", "mark", "delete", "lead", "truncate"])
        if kind == "append":
            self._append(partition)
        elif kind == "mark":
            partition.append_marker(1, 9, 0, 0, committed=chance.choice([True, False]))
        elif kind == "delete":
            partition.delete_before(chance.randint(partition.start_offset, partition.high_watermark))
        elif kind == "lead":
            self.stage.cluster.lead({partition: chance.choice([1, 1, 1, -1, 2])})
        else:
            partition.truncate(chance.randint(partition.start_offset, partition.end_offset), 1)

    def _append(self, partition: Partition) -> None:
        records = [(1, None, b"v" * self.chance.randrange(50), ())]
        sequence = self.chance.choice([0, 1, 2])
        if self.chance.random() < 0.3:
            batch = encode_batch(
                records, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True
            )
        else:
            batch = encode_batch(records)
        with contextlib.suppress(BatchError):  # a sequence number of another batch
            partition.append(1, memoryview(batch), transactional_id="x")

    def make_or_delete(self, topic: Topic | None) -> None:
        if topic is None:
            self.stage.cluster.create_topic("t", 4)
            return
        self.stage.cluster.delete_topic(topic)
        for each in topic.partitions:
            each.removed()

    def fetch(self, reader: Reader) -> None:
        chance = self.chance
        named = [
            at(chance.choice([0, 0, 1, 2, 3]), index, current_leader_epoch=chance.choice([-1, -1, 1, 2]))
            for index in chance.sample(range(7), chance.choice([0, 0, 1, 2, 7]))
        ]
        if chance.random() < 0.05:
            reader.session_id = reader.epoch = 0
        reader.fetch(
            *named,
            node=chance.choice([1, 1, 1, 2]),
            max_wait_ms=chance.choice([0, 0, 100]),
            min_bytes=chance.choice([0, 1, 1, 200]),
            max_bytes=chance.choice([50, 10_000]),
            isolation_level=chance.choice([0, 0, 0, 1]),
        )

    def step(self) -> None:
        topic = self.stage.cluster.topics.get("t")
        drawn = self.chance.random()
        if drawn < 0.02:
            self.make_or_delete(topic)
        elif drawn < 0.1:
            self.stage.clock.advance(50)
            self.stage.loop.turn()
        elif drawn < 0.5 and topic is not None:
            self.change(self.chance.choice(topic.partitions))
        else:
            reader = self.chance.choice(self.readers)
            if not (reader.clients and not reader.clients[-1].sent):
                self.fetch(reader)
        while self.stage.loop._soon:
            self.stage.loop.turn()

    def answers(self) -> list[tuple[int, int, bytes]]:
        """What the readers are told, and at which step."""
        seen = []
        for step in range(150):
            self.step()
            for number, reader in enumerate(self.readers):
                told = [each for each in reader.clients if each.sent]
                reader.clients = [each for each in reader.clients if not each.sent]
                for client in told:
                    reader.answer(client)
                    seen.append((step, number, client.sent[0]))
        self.stage.loop.close()
        return seen
