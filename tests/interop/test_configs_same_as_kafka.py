"""Configuration of topics: every field of the answers that tell and change it, beside real Apache Kafka's."""

from __future__ import annotations

import pytest
from tests.interop.fields import Scenario, Talk, assert_same

from kadence.protocol import alter_configs, incremental_alter_configs
from kadence.protocol.alter_configs import AlterConfigsRequest
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.incremental_alter_configs import IncrementalAlterConfigsRequest
from kadence.protocol.list_config_resources import ListConfigResourcesRequest
from kadence_testing.kafka import Kafka

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(
    talk: Talk,
    *resources: tuple[int, str],
    keys: list[str] | None = None,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
    without: tuple[str, ...] = (),
) -> None:
    asked = [DescribeConfigsResource(kind, name, keys) for kind, name in resources]
    talk.ask(DescribeConfigsRequest(asked, synonyms, documentation), version, without=without)


def describing_a_topic(talk: Talk) -> None:
    topic = talk.topic(retention_ms="5000", cleanup_policy="delete", max_message_bytes="7")
    for version in range(1, 5):
        for synonyms in (False, True):
            describe(talk, (TOPIC, topic), version=version, synonyms=synonyms)
            describe(talk, (TOPIC, talk.topic(kind="plain")), version=version, synonyms=synonyms)
    for keys in (
        [], ["retention.ms"], ["retention.ms", "retention.ms"], ["nonsense"], ["nonsense", "segment.ms"], [""],
        ["log.retention.ms"],
    ):  # fmt: skip
        describe(talk, (TOPIC, topic), keys=keys)
    describe(talk, (TOPIC, topic), (TOPIC, topic), keys=["retention.ms"])


def describing_what_is_not_there(talk: Talk) -> None:
    for name in ("no-such-topic", "", "a/b", "x" * 250):
        describe(talk, (TOPIC, name))
    for name in ("2", "-1", "one", "1 "):
        describe(talk, (BROKER, name), keys=["log.dirs"])
    for kind in (0, 1, 3, 5, 64, -1, 127):
        describe(talk, (kind, "x"))
    describe(talk)
    describe(talk, (TOPIC, "no-such-topic"), (BROKER, "9"), (TOPIC, "no-such-topic"))


def altering(talk: Talk) -> None:
    topic = talk.topic(retention_ms="5000")

    def alter(
        *configs: tuple[str, str | None],
        kind: int = TOPIC,
        name: str = topic,
        validate_only: bool = True,
        version: int = 2,
    ) -> None:
        entries = [alter_configs.AlterableConfig(*each) for each in configs]
        asked = alter_configs.AlterConfigsResource(kind, name, entries)
        talk.ask(AlterConfigsRequest([asked], validate_only), version)

    for version in range(3):
        alter(("retention.ms", "7"), version=version)
    for configs in (
        [("retention.ms", "long")], [("retention.ms", None)], [("retention.ms", "")], [("nonsense", "1")],
        [("", "1")], [("retention.ms", "7"), ("retention.ms", "8")], [("retention.ms", "7"), ("nonsense", "1")],
        [("cleanup.policy", "shred")], [("cleanup.policy", "")], [("min.insync.replicas", "0")],
        [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "3")], [("remote.storage.enable", "true")],
        [("compression.type", "none")], [("segment.bytes", "1")], [("log.retention.ms", "1")],
        [("follower.replication.throttled.replicas", "x")], [("follower.replication.throttled.replicas", "*")],
        [("follower.replication.throttled.replicas", "0:1,1:1")], [("message.format.version", "3.0")],
    ):  # fmt: skip
        alter(*configs)
    for name in ("no-such-topic", "", "a/b"):
        alter(("retention.ms", "7"), name=name)
        alter(("retention.ms", None), ("nonsense", None), name=name)
        alter(name=name)
    for kind in (0, 1, 3, 64, -1):
        alter(("retention.ms", "7"), kind=kind)
    alter()
    talk.ask(AlterConfigsRequest([], validate_only=True))
    talk.ask(AlterConfigsRequest([]))
    alter(("retention.ms", "9000"), ("segment.ms", "7"), validate_only=False)
    settle(talk, topic, "retention.ms", "9000")
    describe(talk, (TOPIC, topic), keys=["retention.ms", "segment.ms"])
    alter(("segment.ms", "8"), validate_only=False)
    settle(talk, topic, "segment.ms", "8")
    describe(talk, (TOPIC, topic), keys=["retention.ms", "segment.ms"])
    alter(("segment.ms", "8"), ("nonsense", "8"), validate_only=False)
    alter(validate_only=False)
    settle(talk, topic, "segment.ms", "604800000")
    describe(talk, (TOPIC, topic), keys=["retention.ms", "segment.ms"])


def settle(talk: Talk, topic: str, key: str, value: str) -> None:
    """Real Kafka answers a change before it has taken it in."""
    asked = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, [key])])
    talk.until(
        lambda: [each.value for each in talk.wire.call(asked).results[0].configs] == [value],
        f"{key} is not {value}",
    )


def altering_single_entries(talk: Talk) -> None:
    topic = talk.topic(retention_ms="5000")

    def alter(
        *configs: tuple[str, int, str | None],
        kind: int = TOPIC,
        name: str = topic,
        validate_only: bool = True,
        version: int = 1,
        times: int = 1,
    ) -> None:
        entries = [incremental_alter_configs.AlterableConfig(*each) for each in configs]
        asked = incremental_alter_configs.AlterConfigsResource(kind, name, entries)
        talk.ask(IncrementalAlterConfigsRequest([asked] * times, validate_only), version)

    for version in range(2):
        alter(("retention.ms", SET, "7"), version=version)
    for configs in (
        [("retention.ms", SET, "long")], [("retention.ms", SET, None)], [("nonsense", SET, "1")],
        [("nonsense", DELETE, None)], [("", SET, "1")], [("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, "5")], [("segment.ms", DELETE, None)], [("retention.ms", APPEND, "5")],
        [("retention.ms", SUBTRACT, "5")], [("retention.ms", SET, "7"), ("retention.ms", SET, "8")],
        [("retention.ms", SET, "7"), ("retention.ms", DELETE, None)],
        [("cleanup.policy", APPEND, "delete")], [("cleanup.policy", APPEND, "shred")],
        [("cleanup.policy", SUBTRACT, "compact")], [("cleanup.policy", SUBTRACT, "shred")],
        [("cleanup.policy", APPEND, None)], [("cleanup.policy", SUBTRACT, None)], [("cleanup.policy", APPEND, "")],
        [("follower.replication.throttled.replicas", APPEND, "0:1")],
        [("follower.replication.throttled.replicas", APPEND, "x")],
        [("follower.replication.throttled.replicas", SUBTRACT, "0:1")],
        [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "3")],
        [("remote.storage.enable", SET, "true")], [("nonsense", APPEND, "x")], [("nonsense", SUBTRACT, "x")],
        [("retention.ms", 9, "7")], [("retention.ms", -1, "7")], [("retention.ms", 9, None)], [("nonsense", 9, "1")],
        [("nonsense", SET, "1"), ("retention.ms", 9, "7")], [("segment.ms", APPEND, "x"), ("retention.ms", 9, "7")],
        [("segment.ms", SET, "x"), ("retention.ms", SET, None)], [("nonsense", SET, None)],
        [("retention.ms", APPEND, None)],
    ):  # fmt: skip
        alter(*configs)
    for name in ("no-such-topic", "", "a/b"):
        alter(("retention.ms", SET, "7"), name=name)
        alter(("retention.ms", SET, None), name=name)
        alter(("retention.ms", 9, "7"), name=name)
        alter(("retention.ms", APPEND, "7"), name=name)
        alter(name=name)
    for operation in (9, APPEND):
        alter(("consumer.session.timeout.ms", operation, "7"), kind=32, name="")
    for kind in (0, 1, 3, 64, -1):
        alter(("retention.ms", SET, "7"), kind=kind)
    alter(("retention.ms", SET, "7"), times=2)
    alter()
    talk.ask(IncrementalAlterConfigsRequest([]))
    key = "follower.replication.throttled.replicas"
    alter((key, APPEND, "0:1"), ("retention.ms", SET, "77"), validate_only=False)
    settle(talk, topic, key, "0:1")
    describe(talk, (TOPIC, topic), keys=[key, "retention.ms"], synonyms=True)
    alter((key, APPEND, "0:1,1:1"), ("retention.ms", DELETE, None), validate_only=False)
    settle(talk, topic, key, "0:1,1:1")
    describe(talk, (TOPIC, topic), keys=[key, "retention.ms"], synonyms=True)
    alter((key, SUBTRACT, "0:1"), ("segment.ms", SET, "x"), validate_only=False)
    alter((key, SUBTRACT, "0:1"), validate_only=False)
    settle(talk, topic, key, "1:1")
    alter((key, SUBTRACT, "1:1"), validate_only=False)
    settle(talk, topic, key, "")
    describe(talk, (TOPIC, topic), keys=[key, "retention.ms"], synonyms=True)


def other_resources(talk: Talk) -> None:
    """What of brokers, loggers, client metrics and groups both have: who is not there, and what cannot be."""
    group = talk.group()
    for kind, name in (
        (BROKER, "9"), (BROKER, "x"), (LOGGER, "9"), (LOGGER, "x"), (LOGGER, ""), (METRICS, ""), (GROUP, ""),
        (GROUP, group), (TOPIC, "__consumer_offsets"),
    ):  # fmt: skip
        describe(talk, (kind, name), keys=["nonsense"])
    for kind, name in (
        (BROKER, "9"),
        (BROKER, "x"),
        (LOGGER, "9"),
        (LOGGER, "x"),
        (METRICS, ""),
        (GROUP, ""),
    ):
        replaced = alter_configs.AlterConfigsResource(
            kind, name, [alter_configs.AlterableConfig("nonsense", "1")]
        )
        talk.ask(AlterConfigsRequest([replaced], validate_only=True))
        entry = incremental_alter_configs.AlterableConfig("nonsense", SET, "1")
        changed = incremental_alter_configs.AlterConfigsResource(kind, name, [entry])
        talk.ask(IncrementalAlterConfigsRequest([changed], validate_only=True))
    entry = incremental_alter_configs.AlterableConfig("retention.ms", SET, "1")
    internal = incremental_alter_configs.AlterConfigsResource(TOPIC, "__consumer_offsets", [entry])
    talk.ask(IncrementalAlterConfigsRequest([internal], validate_only=True))


def listing_resources(talk: Talk) -> None:
    talk.topic()
    talk.ask(ListConfigResourcesRequest(), 0)
    talk.ask(ListConfigResourcesRequest(), 1, mine=True)
    for kinds in ([TOPIC], [LOGGER], [METRICS], [TOPIC, TOPIC], [0], [1], [3], [-1], [TOPIC, 64]):
        talk.ask(ListConfigResourcesRequest(kinds), 1, mine=True)
    talk.ask(ListConfigResourcesRequest([BROKER]), 1)


SCENARIOS: list[Scenario] = [
    describing_a_topic, describing_what_is_not_there, altering, altering_single_entries, other_resources,
    listing_resources,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_field_is_as_kafkas(kafka: Kafka, scenario: Scenario) -> None:
    assert_same(kafka, scenario)
