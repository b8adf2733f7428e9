"""Regular expressions of KIP-848 groups: when they are matched, and what that changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.worlds.consumer_group import ConsumerWorld, topic

from kadence.protocol import error_codes as codes

NEW: dict[str, Any] = {
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def world() -> Iterator[ConsumerWorld]:
    world = ConsumerWorld()
    yield world
    world.check_replay()


def test_an_expression_is_matched_after_the_answer(world: ConsumerWorld) -> None:
    world = ConsumerWorld({"eu-1": 1, "eu-2": 2, "us": 4})
    member = world.member("a", None, subscribed_topic_regex="eu-.*")
    assert (member.epoch, member.owned) == (1, {})

    world.advance(1_000)
    member.beat()
    assert (member.epoch, member.owned) == (2, {"eu-1": frozenset({0}), "eu-2": frozenset({0, 1})})
    world.check_replay()


def test_new_topics_are_found_ten_seconds_after_the_last_look(world: ConsumerWorld) -> None:
    member = world.member("a", None, subscribed_topic_regex="eu-.*")
    world.topics.put(topic("eu-1", 1))
    world.advance(10_000)
    member.beat()
    assert member.owned == {}

    world.advance(1)
    member.beat()
    world.advance(1_000)
    member.beat()
    assert member.owned == {"eu-1": frozenset({0})}


def test_a_coordinator_that_loads_a_group_looks_at_the_topics_itself(world: ConsumerWorld) -> None:
    """Versions of topics begin anew in each process: the same number may stand for other topics."""
    member = world.member("a", None, subscribed_topic_regex="eu-.*")
    version = world.topics.version
    world.topics.put(topic("eu-1", 1))
    world.topics.version = version
    world.move()
    world.advance(10_001)
    member.beat()
    world.advance(1_000)
    member.beat()
    assert member.owned == {"eu-1": frozenset({0})}


def test_names_and_an_expression_go_together(world: ConsumerWorld) -> None:
    world.topics.put(topic("eu-1", 1))
    member = world.member("a", subscribed_topic_regex="eu-.*")
    world.advance(1_000)
    member.beat()
    assert member.owned.keys() == {"t", "eu-1"}

    member.beat(subscribed_topic_regex="")
    assert not world.consumer_group.resolved
    assert member.owned.keys() == {"t"}


def test_an_expression_that_re2_does_not_know_changes_nothing(world: ConsumerWorld) -> None:
    answer = world.raw(**NEW, subscribed_topic_regex="(?=t)").response
    assert answer.error_code == codes.INVALID_REGULAR_EXPRESSION
    assert not world.coordinator.groups

    member = world.member("a")
    assert member.beat(subscribed_topic_regex="[").error_code == codes.INVALID_REGULAR_EXPRESSION
    assert member.beat().error_code == 0


def is_matching(world: ConsumerWorld) -> bool:
    return world.consumer_group.matching is not None


def test_many_expressions_are_matched_over_many_steps_and_others_are_served_meanwhile() -> None:
    world = ConsumerWorld({f"topic-{number:0200d}": 1 for number in range(40)})
    members = [
        world.member(f"m{number}", None, subscribed_topic_regex=f"topic-.*{number:03d}(?:a?){{900}}")
        for number in range(20)
    ]
    group = world.consumer_group
    world.advance(100)
    assert len(group.resolved) == 1  # That of the first member; the others wait for the next look.

    world.advance(10_001)
    members[0].beat()
    steps = 0
    while is_matching(world):
        assert len(group.resolved) == 1  # All are matched together, so that they cause one rebalance.
        assert members[1].beat().error_code == 0
        members[2].beat(subscribed_topic_regex="")
        world.advance(1)
        steps += 1
    assert steps > 100

    assert len(group.resolved) == 19  # Not that of the member which has another now.
    assert all(len(found.topics) == 1 for found in group.resolved.values())
    world.check_replay()


def test_a_group_that_ends_while_its_expressions_are_matched_matches_no_more() -> None:
    world = ConsumerWorld({f"topic-{number:0200d}": 1 for number in range(40)})
    member = world.member("a", None, subscribed_topic_regex="topic-.*(?:a?){900}")
    assert is_matching(world)
    member.beat(member_epoch=-1)
    world.advance(1_000)
    assert not is_matching(world)
    assert not world.consumer_group.resolved
    world.check_replay()


def test_an_expression_goes_with_its_last_reader(world: ConsumerWorld) -> None:
    a = world.member("a", None, subscribed_topic_regex="t")
    b = world.member("b", None, subscribed_topic_regex="t")
    a.beat(member_epoch=-1)
    assert "t" in world.consumer_group.resolved
    b.beat(member_epoch=-1)
    assert not world.consumer_group.resolved
