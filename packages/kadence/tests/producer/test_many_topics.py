"""What a turn of the sender looks at while thousands of topics are known: only what has something to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.worlds.producer import TP, World

from kadence.producer.accumulator import Batch
from kadence.producer.partitioner import Shares
from kadence.producer.sender import Sender
from kadence.types import TopicPartition


def shares(world: World) -> Shares | None:
    """What the partitioner for records without a key was told."""
    return world.topics.sticky("t").shares


class Looked(dict[str, Any]):
    """What chooses partitions, by topic, and the topics that somebody looked at."""

    def __init__(self, stickies: dict[str, Any]) -> None:
        super().__init__(stickies)
        self.at: list[str] = []

    def get(self, topic: str, default: Any = None) -> Any:
        self.at.append(topic)
        return super().get(topic, default)

    def __iter__(self) -> Iterator[str]:
        for topic in super().__iter__():
            self.at.append(topic)
            yield topic

    def items(self) -> Any:
        self.at += super().__iter__()
        return super().items()

    def since(self) -> set[str]:
        """Those looked at since the last call."""
        looked, self.at = set(self.at), []
        return looked


def many_topics(world: World, count: int = 300) -> Looked:
    """The producer uses many topics, and "t" with two brokers."""
    world.leaders = {TP: 1, TopicPartition("t", 1): 2}
    world.warm_up(TP, TopicPartition("t", 1))
    for topic in ["t", *(f"{number}" for number in range(count))]:
        world.topics.sticky(topic)
    world.topics.stickies = looked = Looked(world.topics.stickies)
    world.turn()
    looked.since()
    return looked


def test_a_turn_looks_at_no_topic_that_has_nothing_to_do() -> None:
    world = World(batch_size=60)
    looked = many_topics(world)
    world.append()
    (one,) = world.turn()
    world.acknowledge(one)
    world.turn()
    assert looked.since() == set(), "its brokers keep up"
    for n in range(9):
        world.append(b"%d" % n * 60)
    sent = [request for _ in range(9) for request in world.turn()]
    assert shares(world) == ([0, 1], [1, 5])
    for request in sent:
        world.acknowledge(request)
    for _ in range(9):
        for request in world.turn():
            world.acknowledge(request)
    assert shares(world) is None
    assert looked.since() == {"t"}, "it was behind, or was at the turn before"


def test_all_topics_are_looked_at_once_when_a_broker_begins_to_take_nothing() -> None:
    world = World(partitioner_availability_timeout_ms=500)
    looked = many_topics(world)
    world.reachable = lambda node: node == 2
    world.append()
    world.turn()
    world.turn(later=501)
    assert shares(world) == ([1], [1])
    assert len(looked.since()) == 301
    for _ in range(3):
        world.turn(later=1)
    assert looked.since() == set()
    world.topics.stickies.pop("t")
    assert shares(world) is None
    world.turn(later=1)
    assert shares(world) == ([1], [1]), "one that is new is told"
    assert looked.since() == {"t"}
    world.reachable = lambda node: True
    world.turn()
    assert shares(world) is None


def test_a_topic_whose_leader_moves_while_a_broker_takes_nothing_is_looked_at() -> None:
    world = World(partitioner_availability_timeout_ms=500)
    looked = many_topics(world)
    world.reachable = lambda node: node == 2
    world.append()
    world.turn()
    world.turn(later=501)
    assert shares(world) == ([1], [1])
    looked.since()
    assert world.topics.moved(world.now, TopicPartition("t", 1), 1, 99, {})
    world.turn(later=1)
    assert looked.since() == {"t"}
    assert shares(world) is None, "both are led by it: nothing is better than the other"


def test_batches_are_looked_through_for_late_ones_only_when_one_may_be() -> None:
    world = World(linger_ms=90_000, delivery_timeout_ms=120_000)
    world.warm_up()
    world.turn()
    looks: list[int] = []
    expired = world.accumulator.expired

    def counted(now: int) -> list[Batch]:
        looks.append(now)
        return expired(now)

    world.accumulator.expired = counted  # type: ignore[method-assign]
    begun = world.now
    world.reachable = lambda node: False
    future = world.append()
    while not future.done():
        assert world.now - begun <= 120_000, "late"
        world.turn(later=1_000)
    assert world.now - begun == 120_000
    assert len(looks) <= 3


def test_a_turn_looks_at_no_partition_that_lingers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch that is begun wakes the network thread: it would look at thousands for each of thousands."""
    world = World(linger_ms=1_000, batch_size=500)
    partitions = [TopicPartition("t", number) for number in range(300)]
    world.leaders = dict.fromkeys(partitions, 1)
    world.ready()
    world.append()
    world.ready()
    looked: list[TopicPartition] = []
    candidate = Sender._candidate

    def counted(sender: Sender, tp: TopicPartition) -> object:
        looked.append(tp)
        return candidate(sender, tp)

    monkeypatch.setattr(Sender, "_candidate", counted)
    for tp in partitions:
        world.append(tp=tp)
        assert world.turn() == []
    assert looked == []

    world.append(b"v" * 600, tp=partitions[7])
    (one,) = world.turn()
    assert set(looked) == {partitions[7]}, "it is full"
    world.acknowledge(one)
    looked.clear()
    (rest,) = world.turn(later=1_000)
    assert sum(len(each.partition_data) for each in rest.message.topic_data) == 300
    assert len(looked) == 300
