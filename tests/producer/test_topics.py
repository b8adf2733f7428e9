"""When metadata is asked for."""

from __future__ import annotations

from tests.worlds.producer import TP, World

from kadence.clock import FOREVER
from kadence.connection.request import Completed, Request
from kadence.errors import AuthenticationError, DisconnectedError
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse, MetadataResponseTopic


def ask(world: World) -> Request | None:
    request, _ = world.topics.poll(world.now)
    return request


def test_nothing_is_asked_before_it_is_wanted() -> None:
    world = World()
    assert world.topics.poll(world.now) == (None, FOREVER)


def test_asked_once_and_again_when_old() -> None:
    world = World(metadata_max_age_ms=60_000)
    world.topics.want("t")
    request = ask(world)
    assert request is not None
    assert ask(world) is None
    world.answer(request, world.metadata())
    assert world.topics.cluster.leader(TP) == 1
    assert world.topics.poll(world.now) == (None, world.now + 60_000)
    world.advance(60_000)
    assert ask(world) is not None


def test_failures_are_repeated_after_a_backoff() -> None:
    world = World()
    world.topics.want("t")
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
    assert world.topics.answers == 1


def test_a_topic_that_does_not_exist_yet_is_asked_for_slowly_and_only_while_wanted() -> None:
    world = World()
    world.topics.want("t")
    missing = MetadataResponse(
        topics=[MetadataResponseTopic(name="t", error_code=ec.UNKNOWN_TOPIC_OR_PARTITION)]
    )
    request = ask(world)
    assert request is not None
    world.sender.on_response(world.now, Completed(request, missing, None, 13, world.now))
    world.advance(1_000)
    assert ask(world) is None
    world.topics.want("t")
    assert ask(world) is not None
