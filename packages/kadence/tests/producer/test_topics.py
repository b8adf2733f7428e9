"""When metadata is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.producer import TP, World

from kadence import Producer
from kadence._native.append import TopicInfo
from kadence.clock import FOREVER
from kadence.connection.request import Request
from kadence.errors import AuthenticationError, DisconnectedError, KafkaError, MalformedMessageError
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.types import Node, TopicPartition


def names_of(request: Request) -> list[str | None]:
    assert isinstance(request.message, MetadataRequest)
    return [topic.name for topic in request.message.topics or []]


def ask(world: World) -> Request | None:
    request, _ = world.poll_only(world.topics)
    return request


def test_nothing_is_asked_before_it_is_wanted() -> None:
    world = World()
    assert world.poll_only(world.topics) == (None, FOREVER)


def test_asked_once_and_again_when_old() -> None:
    world = World(metadata_max_age_ms=60_000)
    world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    assert ask(world) is None
    world.answer(request, world.metadata())
    assert world.topics.cluster.leader(TP) == 1
    assert world.poll_only(world.topics) == (None, world.now + 60_000)
    world.advance(60_000)
    assert ask(world) is not None


def test_kip1102_when_nobody_answers_for_long_the_bootstrap_addresses_are_asked_again() -> None:
    world = World(metadata_recovery_rebootstrap_trigger_ms=10_000, request_timeout_ms=4_000)
    begun: list[int] = []
    world.topics.on_rebootstrap = begun.append
    world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    world.answer(request, world.metadata())
    world.topics.request_update(world.now)
    start = world.now
    while world.now < start + 10_000:
        request, wake_at = world.poll_only(world.topics)
        if request is not None:
            world.advance(1_000)
            world.fail(request, DisconnectedError("gone"))
        else:
            assert wake_at <= start + 10_000
            world.advance(wake_at - world.now)
    world.poll_only(world.topics)
    assert [at // 1_000 for at in begun] == [(start + 10_000) // 1_000], "as soon as it is due"
    assert world.topics.cluster.leader(TP) is None
    assert world.topics.cluster.partition(TP) is not None, "the topic is not taken for deleted"


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_kip1102_a_broker_that_says_so_is_believed_at_once(strategy: str) -> None:
    world = World(metadata_recovery_strategy=strategy)
    begun: list[int] = []
    world.topics.on_rebootstrap = begun.append
    world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    world.answer(request, MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED))
    assert ask(world) is None, "not in a loop, whoever answers so"
    assert len(begun) == (strategy == "rebootstrap")
    assert (world.topics.failure is None) == (strategy == "rebootstrap")
    world.advance(150)
    assert ask(world) is not None


def test_failures_are_repeated_after_a_backoff() -> None:
    world = World()
    number = world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    world.fail(request, DisconnectedError("gone"))
    assert ask(world) is None
    assert not world.topics.failure
    assert str(world.topics.last_error) == "gone"
    world.advance(150)
    request = ask(world)
    assert request is not None
    world.fail(request, AuthenticationError("no"))
    assert world.topics.failure is not None
    assert not world.topics.awaits(number), "whoever waits is told"
    world.advance(1_000)
    assert ask(world) is not None, "what is used is asked for again all the same"


def test_a_topic_that_does_not_exist_yet_is_asked_for_slowly_and_only_while_wanted() -> None:
    world = World()
    world.topics.want("t", world.now)
    missing = world.metadata()
    missing.topics = [MetadataResponseTopic(name="t", error_code=ec.UNKNOWN_TOPIC_OR_PARTITION)]
    request = ask(world)
    assert request is not None
    world.answer(request, missing)
    world.advance(1_000)
    assert ask(world) is None
    world.topics.want("t", world.now)
    assert ask(world) is not None


def test_the_answer_to_an_earlier_question_is_not_the_one_that_is_awaited() -> None:
    world = World()
    world.topics.want("t", world.now)
    before = ask(world)
    assert before is not None
    number = world.topics.want("u", world.now)
    world.answer(before, world.metadata())
    assert world.topics.awaits(number)
    request = ask(world)
    assert request is not None
    assert names_of(request) == ["u"], "what is known is not asked for again"
    answer = world.metadata()
    answer.topics = [MetadataResponseTopic(name="u")]
    world.answer(request, answer)
    assert not world.topics.awaits(number)
    assert set(world.topics.cluster.topics) == {"t", "u"}


def test_only_what_is_waited_for_may_be_created() -> None:
    """Else each refresh would bring back a topic that somebody has deleted."""
    world = World(metadata_max_age_ms=60_000)
    world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    assert request.message.allow_auto_topic_creation
    world.answer(request, world.metadata())
    for later in (60_000, 0):
        world.advance(later)
        if not later:
            world.topics.request_update(world.now)
        request = ask(world)
        assert request is not None
        assert not request.message.allow_auto_topic_creation
        world.answer(request, world.metadata())


def test_a_topic_that_was_deleted_comes_back_for_the_records_that_wait_for_it() -> None:
    world = World()
    world.append()
    world.ready()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.UNKNOWN_TOPIC_OR_PARTITION)
    (metadata,) = world.turn()
    assert names_of(metadata) == ["t"]
    assert metadata.message.allow_auto_topic_creation


def test_topics_that_nobody_used_for_a_while_are_forgotten() -> None:
    world = World(metadata_max_age_ms=60_000, metadata_max_idle_ms=90_000)
    other = TopicPartition("u", 0)
    world.leaders = {TP: 1, other: 1}
    for tp in (TP, other):
        world.append(tp=tp)
    world.ready()
    for request in world.turn():
        world.acknowledge(request)
    world.advance(60_000)
    world.append()
    for request in world.turn():
        if isinstance(request.message, MetadataRequest):
            assert names_of(request) == ["t", "u"]
            world.answer(request, world.metadata())
        else:
            world.acknowledge(request)
    world.advance(60_000)
    (request,) = world.turn()
    assert names_of(request) == ["t"]
    assert set(world.topics.cluster.topics) == {"t"}
    world.leaders = {TP: 1}
    world.answer(request, world.metadata())
    world.advance(60_000)
    assert world.wake_at() == FOREVER, "nothing is left to ask for"
    world.leaders = {other: 2}
    world.append(tp=other)
    (request,) = world.turn()
    assert names_of(request) == ["u"]
    world.answer(request, world.metadata())
    (request,) = world.turn()
    assert request.node_id == 2


def test_what_waits_for_a_leader_is_in_use() -> None:
    world = World(metadata_max_age_ms=60_000, metadata_max_idle_ms=5_000, delivery_timeout_ms=600_000)
    world.leaders[TP] = -1
    world.append()
    world.ready()
    for _ in range(3):
        world.advance(60_000)
        request = world.only()
        assert names_of(request) == ["t"]
        world.answer(request, world.metadata())


@pytest.mark.parametrize("error", [DisconnectedError("gone"), AuthenticationError("no")])
def test_a_refresh_that_failed_is_repeated(error: KafkaError) -> None:
    world = World(metadata_max_age_ms=60_000)
    world.topics.want("t", world.now)
    world.ready()
    world.advance(60_000)
    request = ask(world)
    assert request is not None
    world.fail(request, error)
    world.advance(150)
    assert ask(world) is not None


def test_metadata_that_may_be_of_no_age_is_asked_for_after_a_pause_all_the_same() -> None:
    world = World(metadata_max_age_ms=0, retry_backoff_ms=100)
    world.topics.want("t", world.now)
    asked = 0

    def answered() -> int:
        nonlocal asked
        request, wake_at = world.poll_only(world.topics)
        while request is not None:
            asked += 1
            world.answer(request, world.metadata())
            request, wake_at = world.poll_only(world.topics)
        return wake_at

    world.go(2_000, answered, lambda: None)
    assert 15 <= asked <= 21


@pytest.mark.parametrize("numbers", [[-1], [5], [0, 2], [0, 0]])
def test_partitions_that_are_not_counted_from_0_are_a_malformed_answer(numbers: list[int]) -> None:
    """A broker that says so would have records put where no partition is."""
    world = World()
    world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    answer = world.metadata()
    answer.topics[0].partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=1) for number in numbers
    ]
    world.answer(request, answer)
    assert isinstance(world.topics.failure, MalformedMessageError)
    assert "topic 't'" in str(world.topics.failure)
    assert not world.topics.cluster.topics
    assert ask(world) is None, "it is asked for again after a backoff"


def test_a_topic_without_partitions_is_asked_for_with_a_backoff() -> None:
    world = World()
    asked = 0
    for _ in range(50):
        world.topics.want("t", world.now)
        request = ask(world)
        if request is not None:
            asked += 1
            answer = world.metadata()
            answer.topics = [MetadataResponseTopic(name="t")]
            world.answer(request, answer)
        world.advance(10)
    assert asked <= 4


def test_a_broker_that_knows_of_no_broker_yet_is_not_believed() -> None:
    """One that has just been started. What was known of the others stays, and the record waits."""
    world = World()
    future = world.append()
    world.ready()
    world.topics.request_update(world.now)
    request = ask(world)
    assert request is not None
    world.answer(request, MetadataResponse())
    assert world.topics.cluster.leader(TP) == 1
    assert world.topics.failure is None
    world.acknowledge(next(each for each in world.turn() if each.node_id == 1))
    assert future.exception(0) is None


def test_leader_epochs_that_stay_lower_than_before_are_believed_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cluster that was restored from a copy: whoever never gives in sends to a broker that does not lead."""
    world = World(delivery_timeout_ms=60_000)
    world.warm_up()
    world.leaders[TP] = 2
    future = world.append()
    began = world.now
    while not future.done() and world.now < began + 60_000:
        for request in world.turn():
            if isinstance(request.message, MetadataRequest):
                answer = world.metadata()
                answer.topics[0].partitions[0].leader_epoch = 0
                world.answer(request, answer)
            elif request.node_id == 1:
                world.acknowledge(request, code=ec.NOT_LEADER_OR_FOLLOWER)
            else:
                world.acknowledge(request)
        world.advance(100)
    assert future.exception(0) is None
    assert 10_000 <= world.now - began <= 13_000, "no broker is behind for so long"
    assert "the leader epochs of t-0 are lower than before" in caplog.text


def test_whoever_waits_in_vain_gets_an_error_of_its_own() -> None:
    """An exception that many calls raise keeps the frames of all of them."""
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        producer._topics.failure = failure = AuthenticationError("no")
        with pytest.raises(AuthenticationError, match="no") as raised:
            producer._send_checks._raise_if_hopeless("t")
        assert raised.value is not failure
        assert failure.__traceback__ is None


def test_a_call_waits_for_its_own_answer_whoever_else_asks() -> None:
    """As the sender does in each turn, for a batch whose partition has no leader any more."""
    world = World()
    number = world.topics.want("t", world.now)
    request = ask(world)
    assert request is not None
    world.topics.want("t", world.now)
    world.answer(request, world.metadata())
    assert not world.topics.awaits(number)
    later = world.topics.want("t", world.now)
    for error in (DisconnectedError("gone"), None):
        assert world.topics.awaits(later)
        world.advance(1_000)
        request = ask(world)
        assert request is not None
        world.fail(request, error) if error else world.answer(request, world.metadata())
    assert not world.topics.awaits(later)


def test_an_answer_about_one_topic_leaves_what_was_derived_of_the_others() -> None:
    """Each record to a new topic brings an answer; all other topics would have to be made out anew."""
    world = World()
    other = TopicPartition("u", 0)
    world.leaders = {TP: 1, other: 1}
    world.warm_up(TP, other)
    cluster = world.topics.cluster
    places = world.topics._places
    for tp in (TP, other):
        infos = cluster.partitions_for(tp.topic)
        places[tp.topic] = TopicInfo(infos, (tp,), (0,), world.topics.sticky(tp.topic))
    world.topics.request_update(world.now)
    world.advance(150)
    request = ask(world)
    assert request is not None
    world.answer(request, world.metadata())
    assert world.topics.cluster.topics is cluster.topics
    assert set(places) == {"t", "u"}, "nothing is new"
    assert world.topics.moved(world.now, TP, 2, 5, {2: Node(2, "b2", 9092)})
    assert set(places) == {"u"}
    world.topics.want("v", world.now)
    world.leaders = {TopicPartition("v", 0): 1}
    world.advance(150)
    request = ask(world)
    assert request is not None
    world.answer(request, world.metadata())
    assert world.topics.cluster.leader(TopicPartition("v", 0)) == 1
    assert set(places) == {"u"}


# ------------------------------------------------------------ racks, KIP-1123


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ({"partitioner_rack_aware": True, "client_rack": "a"}, (0, 3)),
        ({"partitioner_rack_aware": True, "client_rack": "b"}, (1,)),
        ({"partitioner_rack_aware": True, "client_rack": "nowhere"}, ()),
        ({"partitioner_rack_aware": True}, ()),
        ({"client_rack": "a"}, ()),
    ],
)
def test_kip1123_near_are_the_partitions_that_a_broker_of_our_rack_leads(
    settings: dict[str, Any], near: tuple[int, ...]
) -> None:
    """Node 3 has no rack, and partition 4 no leader."""
    world = World(**settings)
    world.racks = {1: "a", 2: "b"}
    world.leaders = {TopicPartition("t", number): node for number, node in enumerate((1, 2, 3, 1, -1))}
    with world.gate:
        world.topics.want("t", 0)
    world.ready()
    assert world.topics.near(world.topics.cluster.partitions_for("t")) == near
