"""A member looks whether brokers would write its group's dead letters, in virtual time and on brokers (KIP-1191)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.share.test_stories import Queue
from tests.worlds.cluster import FakeMetadata
from tests.worlds.hand import Hand, Managers
from tests.worlds.share import config

from kadence import Admin, AsyncShareConsumer, NewTopic
from kadence.admin import ConfigResource
from kadence.client.dead_letter_topics import COPIES, TOPIC
from kadence.connection.cluster import Cluster
from kadence.connection.request import ANY_NODE, ConnectionPurpose, Request
from kadence.errors import DisconnectedError, UnsupportedVersionError
from kadence.protocol import error_codes as ec
from kadence.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kadence.share.network.dead_letters import DeadLetterLook
from kadence.types import Node

ENABLED = "errors.deadletterqueue.group.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
CREATES = "errors.deadletterqueue.auto.create.topics.enable"
DLQ = "dlq.jobs"


class Look:
    """One member's look, and brokers that are answered by hand.

    Attributes:
        topics, broker: the settings of topics that exist, and of the broker. group: those of the group.
    """

    def __init__(self, group: Mapping[str, str]) -> None:
        metadata = FakeMetadata()
        metadata.cluster = Cluster(nodes={each: Node(each, f"b{each}", 9092) for each in (4, 3)})
        self.look = DeadLetterLook(config(), metadata)
        self.hand = Hand(Managers(self.look), version=4)
        self.group = dict(group)
        self.broker = {PREFIX: "dlq.", CREATES: "false"}
        self.topics: dict[str, dict[str, str]] = {DLQ: {ENABLED: "true", "cleanup.policy": "delete"}}
        self.codes: dict[int, int] = {}

    def begin(self, *read: str) -> None:
        self.look.begin(self.hand.now, frozenset(read or ("t",)))

    def sent(self) -> Request:
        (request,) = self.hand.turn()
        assert isinstance(request.message, DescribeConfigsRequest)
        return request

    def answer(self, request: Request) -> None:
        results = []
        for asked in request.message.resources:
            kind, name = asked.resource_type, asked.resource_name
            own = {2: self.topics.get(name), 4: self.broker, 32: self.group}[kind]
            code = self.codes.get(kind, ec.UNKNOWN_TOPIC_OR_PARTITION if own is None else 0)
            configs = [
                DescribeConfigsResourceResult(name=key, value=value)
                for key, value in (own or {}).items()
                if key in asked.configuration_keys
            ]
            results.append(
                DescribeConfigsResult(
                    error_code=code, resource_type=kind, resource_name=name, configs=[] if code else configs
                )
            )
        self.hand.answer(request, DescribeConfigsResponse(results=results))

    def whole(self, *read: str) -> None:
        """The look with all its answers."""
        self.begin(*read)
        for _ in range(4):
            for request in self.hand.turn():
                self.answer(request)


@pytest.fixture(autouse=True)
def warns(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, "kadence.share"):
        yield


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "dead letters" in each]


def test_a_group_without_a_dead_letter_topic_costs_one_short_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    look = Look({TOPIC: ""})
    assert look.hand.turn() == []
    look.begin()
    request = look.sent()
    (asked,) = request.message.resources
    assert (asked.resource_type, asked.resource_name, asked.configuration_keys) == (32, "q", [TOPIC, COPIES])
    assert (request.node_id, request.purpose) == (ANY_NODE, ConnectionPurpose.MAIN)
    look.answer(request)
    assert look.hand.turn() == []
    look.begin()
    assert look.hand.turn() == [], "once for a subscription"
    assert said(caplog) == []


def test_a_topic_that_brokers_write_to_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    look = Look({TOPIC: DLQ})
    look.begin()
    look.answer(look.sent())
    request = look.sent()
    assert request.node_id == 3, "a broker knows its own settings only"
    assert [(each.resource_type, each.resource_name) for each in request.message.resources] == [
        (4, "3"),
        (2, DLQ),
    ]
    look.answer(request)
    assert look.hand.turn() == []
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("group", "topic", "fault"),
    [
        ({TOPIC: DLQ}, {}, f"it takes no dead letters: set its {ENABLED}=true"),
        (
            {TOPIC: DLQ},
            {ENABLED: "true", "cleanup.policy": "compact"},
            "it is compacted, so it refuses dead letters, which have no key",
        ),
        (
            {TOPIC: DLQ, COPIES: "true"},
            {ENABLED: "true", "cleanup.policy": "compact"},
            "it is compacted, so it refuses records without a key",
        ),
    ],
)
def test_a_topic_that_brokers_would_not_write_to_is_warned_of_once(
    group: dict[str, str], topic: dict[str, str], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    look = Look(group)
    look.topics[DLQ] = topic
    look.whole()
    line = f"group q: brokers would not write dead letters to {DLQ}, and rejected records are lost: {fault}"
    assert said(caplog) == [line]
    look.whole("t", "u")
    assert said(caplog) == [line], "of a new subscription the same is no news"


def test_a_topic_that_the_group_reads_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    look = Look({TOPIC: DLQ})
    look.whole("t")
    assert said(caplog) == []
    look.whole("t", DLQ)
    again = f"the group reads its own dead letter topic {DLQ}: what fails there is written there again, without end"
    assert caplog.messages == [f"group q: {again}"], "brokers write to it, and nothing is lost"
    caplog.clear()
    look.topics[DLQ] = {}
    look.whole("u", DLQ)
    (line,) = said(caplog)
    assert "brokers would not write dead letters" in line
    assert line.endswith(f"set its {ENABLED}=true. Also, {again}")


def test_a_missing_topic_is_warned_of_when_it_is_still_missing_a_second_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    look = Look({TOPIC: DLQ})
    there = look.topics.pop(DLQ)
    look.whole()
    assert said(caplog) == []
    look.hand.advance(1_000)
    look.topics[DLQ] = there
    look.whole()
    assert said(caplog) == [], "it took a moment to spread"

    look = Look({TOPIC: DLQ})
    del look.topics[DLQ]
    for _ in range(3):
        look.whole()
        look.hand.advance(1_000)
    (line,) = said(caplog)
    assert f"it does not exist, and the brokers do not create it ({CREATES}=false)" in line


def test_a_missing_topic_that_brokers_create_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    look = Look({TOPIC: "dlq.new"})
    look.broker[CREATES] = "true"
    look.whole()
    assert said(caplog) == []
    assert look.hand.turn(5_000) == []


def test_a_name_that_no_topic_can_have_is_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    look = Look({TOPIC: "dlq.a\x1b b"})
    look.begin()
    look.answer(look.sent())
    assert [each.resource_type for each in look.sent().message.resources] == [4]
    look = Look({TOPIC: "dlq.a\x1b b"})
    look.whole()
    look.hand.advance(1_000)
    look.whole()
    (line,) = said(caplog)
    assert r"dead letters to dlq.a\x1b b, " in line
    assert line.endswith("no topic can have this name")


@pytest.mark.parametrize("kind", [2, 4, 32])
def test_a_member_that_may_not_see_the_settings_says_nothing(
    kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    look = Look({TOPIC: DLQ})
    look.topics[DLQ] = {}
    look.codes[kind] = ec.GROUP_AUTHORIZATION_FAILED
    look.whole()
    assert look.hand.turn(5_000) == []
    assert caplog.messages == []


def test_a_broker_that_is_gone_is_asked_once_more(caplog: pytest.LogCaptureFixture) -> None:
    look = Look({TOPIC: DLQ})
    look.topics[DLQ] = {}
    look.begin()
    look.hand.fail(look.sent(), DisconnectedError("gone"))
    assert look.hand.turn() == []
    (request,) = look.hand.turn(1_000)
    look.hand.fail(request, DisconnectedError("gone"))
    assert look.hand.turn(5_000) == []
    look.begin("t", "u")
    look.hand.fail(look.sent(), UnsupportedVersionError("no DescribeConfigs"))
    assert look.hand.turn(5_000) == []
    assert caplog.messages == []


def test_an_answer_without_what_was_asked_for_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    look = Look({TOPIC: DLQ})
    look.begin()
    look.hand.answer(look.sent(), DescribeConfigsResponse(results=[]))
    assert look.hand.turn(5_000) == []
    assert caplog.messages == []


def test_an_answer_about_an_earlier_subscription_counts_no_more() -> None:
    look = Look({TOPIC: DLQ})
    look.begin()
    before = look.sent()
    look.begin("u")
    look.answer(before)
    (asked,) = look.sent().message.resources
    assert asked.resource_type == 32


@pytest.fixture(params=["broker", "kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    """A broker of each kind."""
    made: Any = request.getfixturevalue(request.param)
    return str(made.bootstrap_servers)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_member_warns_before_a_record_is_rejected(
    servers: str, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue(servers)
    letters = f"dlq.{queue.topic}"
    group = ConfigResource("group", queue.group)
    with Admin(bootstrap_servers=servers) as admin:
        if TOPIC not in admin.describe_configs(group)[group]:
            pytest.skip("Kafka before 4.4 has no dead letter topics")
        admin.create_topics([NewTopic(letters, 1)])
        admin.incremental_alter_configs({group: {TOPIC: letters}})
    if is_async:
        asyncio.run(joined(queue, lambda: bool(said(caplog))))
    else:
        with queue.member() as consumer:
            until(lambda: bool(consumer.poll(0.05)) or bool(said(caplog)), every=0)
    (line,) = said(caplog)
    assert line.startswith(
        f"group {queue.group}: brokers would not write dead letters to {letters}, and rejec"
    )
    assert line.endswith(f"set its {ENABLED}=true")

    caplog.clear()
    with Admin(bootstrap_servers=servers) as admin:
        admin.incremental_alter_configs({ConfigResource("topic", letters): {ENABLED: True}})
    queue.write(b"one")
    with queue.member() as consumer:
        until(lambda: bool(consumer.poll(0.05)), every=0)
        consumer.commit()
    assert said(caplog) == []


async def joined(queue: Queue, done: Callable[[], bool]) -> None:
    """A member of asyncio polls until then."""
    async with AsyncShareConsumer(queue.settings()) as consumer:
        await consumer.subscribe(queue.topic)
        async with asyncio.timeout(PATIENCE):
            while not done():
                await consumer.poll(0.05)
