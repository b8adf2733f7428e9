"""Topics' configuration as tools ask for it and change it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import Wire

from kadence.protocol import error_codes as codes
from kadence.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.incremental_alter_configs import AlterableConfig as Edit
from kadence.protocol.incremental_alter_configs import AlterConfigsResource as Edited
from kadence.protocol.incremental_alter_configs import IncrementalAlterConfigsRequest
from kadence.protocol.list_config_resources import ListConfigResourcesRequest
from kadence_broker import Broker
from kadence_broker.topic_configs import TOPIC_KEYS


def create(wire: Wire, name: str = "new", config: dict[str, str | None] | None = None, **options: Any) -> Any:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    topic = CreatableTopic(
        name=name, configs=configs, **{"num_partitions": 1, "replication_factor": 1, **options}
    )
    return wire.call(CreateTopicsRequest(topics=[topic])).topics[0]


def described(wire: Wire, topic: str, *, synonyms: bool = False) -> dict[str, Any]:
    asked = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    answer = wire.call(DescribeConfigsRequest(resources=[asked], include_synonyms=synonyms))
    return {each.name: each for each in answer.results[0].configs}


def edit(wire: Wire, topic: str, *edits: Edit, resource_type: int = 2, validate_only: bool = False) -> Any:
    resource = Edited(resource_type=resource_type, resource_name=topic, configs=list(edits))
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return wire.call(request).responses[0]


def test_every_default_of_ours_is_a_value_that_may_be_set() -> None:
    assert [name for name, each in TOPIC_KEYS.items() if each.fault(each.default)] == []


def test_all_of_kafkas_configs_may_be_set_and_are_told_again(wire: Wire) -> None:
    config: dict[str, str | None] = {name: each.default for name, each in TOPIC_KEYS.items()}
    assert create(wire, config=config).error_code == codes.NONE
    told = described(wire, "new")
    assert {name: each.value for name, each in told.items()} == config
    assert {each.config_source for each in told.values()} == {1}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        # As Kafka 4.3.1 and 4.4.0 answered.
        ("cleanup.policy", " ", ""),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", "delete,delete", "delete"),
        # As Kafka 4.3.1 answered.
        ("cleanup.policy", " delete ", "delete"),
        ("follower.replication.throttled.replicas", " 0:1 , 0:1 ", "0:1,0:1"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "+5", "5"),
        ("preallocate", "True ", "true"),
        ("compression.type", " gzip", "gzip"),
    ],
)
def test_a_value_is_told_as_it_is_read(wire: Wire, name: str, value: str, told: str) -> None:
    assert create(wire, config={name: value}).error_code == codes.NONE
    assert described(wire, "new")[name].value == told
    assert create(wire, "changed").error_code == codes.NONE
    assert edit(wire, "changed", Edit(name=name, config_operation=0, value=value)).error_code == codes.NONE
    assert described(wire, "changed")[name].value == told


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("max.message.bytes", "-5", "at least 0"),
        ("max.message.bytes", "many", "Not a number of type INT"),
        ("max.message.bytes", "1_000", "Not a number of type INT"),
        ("max.message.bytes", "2147483648", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("preallocate", "perhaps", "either true or false"),
        ("message.timestamp.type", "Never", "String must be one of"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
        ("retention.mss", "1", "Unknown topic config name: retention.mss. Did you mean retention.ms?"),
    ],
)
def test_wrong_values_are_refused_as_kafka_does(
    wire: Wire, name: str, value: str | None, message: str
) -> None:
    result = create(wire, config={name: value})
    assert result.error_code == codes.INVALID_CONFIG
    assert message in result.error_message
    assert create(wire).error_code == codes.NONE, "nothing was made of the first"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"replication_factor": 0}, codes.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": -2}, codes.INVALID_REPLICATION_FACTOR),
        (
            {"assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]},
            codes.INVALID_REQUEST,
        ),
        (
            {
                "assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1])],
                "num_partitions": -1,
                "replication_factor": -1,
            },
            codes.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_replicas_that_cannot_be(wire: Wire, options: dict[str, Any], code: int) -> None:
    assert create(wire, **options).error_code == code


def test_a_topic_named_twice_is_told_once(wire: Wire) -> None:
    topics = [CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in ("a", "a", "b")]
    results = wire.call(CreateTopicsRequest(topics=topics)).topics
    assert [(each.name, each.error_code) for each in results] == [
        ("a", codes.INVALID_REQUEST),
        ("b", codes.NONE),
    ]


def test_types_and_synonyms_tell_where_a_value_is_from() -> None:
    with Broker(topics={"t": 1}, config={"message.max.bytes": 5_000}) as broker, Wire(broker) as wire:
        edit(wire, "t", Edit(name="retention.bytes", config_operation=0, value="77"))
        told = described(wire, "t", synonyms=True)
        assert [told[name].config_type for name in ("cleanup.policy", "preallocate", "retention.ms")] == [
            7,
            1,
            5,
        ]
        size = told["max.message.bytes"]
        assert (size.value, size.config_source) == ("5000", 4)
        assert [(each.name, each.value, each.source) for each in size.synonyms] == [
            ("message.max.bytes", "5000", 4),
            ("message.max.bytes", "1048588", 5),
        ]
        kept = told["retention.bytes"]
        assert [(each.value, each.source) for each in kept.synonyms] == [("77", 1), ("-1", 5)]
        assert not described(wire, "t")["retention.bytes"].synonyms


def test_single_entries_are_set_appended_and_deleted(wire: Wire) -> None:
    assert (
        edit(wire, "t", Edit(name="max.message.bytes", config_operation=0, value="100")).error_code
        == codes.NONE
    )
    assert wire.produce("t", [bytes(500)]).error_code == codes.MESSAGE_TOO_LARGE
    assert edit(wire, "t", Edit(name="max.message.bytes", config_operation=1)).error_code == codes.NONE
    assert wire.produce("t", [bytes(500)]).error_code == codes.NONE
    throttled = "leader.replication.throttled.replicas"
    for operation, value, expected in (
        (2, "0:1,1:2", "0:1,1:2"),
        (2, "0:1,2:3", "0:1,1:2,2:3"),
        (3, "1:2", "0:1,2:3"),
    ):
        assert edit(wire, "t", Edit(name=throttled, config_operation=operation, value=value)).error_code == 0
        assert described(wire, "t")[throttled].value == expected
    assert (
        edit(
            wire, "t", Edit(name="retention.ms", config_operation=0, value="5"), validate_only=True
        ).error_code
        == 0
    )
    assert described(wire, "t")["retention.ms"].config_source == 5


@pytest.mark.parametrize(
    ("topic", "edits", "code"),
    [
        (
            "none",
            [Edit(name="retention.ms", config_operation=0, value="1")],
            codes.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ("t", [Edit(name="retention.ms", config_operation=0, value="soon")], codes.INVALID_CONFIG),
        ("t", [Edit(name="retention.ms", config_operation=2, value="1")], codes.INVALID_CONFIG),
        ("t", [Edit(name="retention.ms", config_operation=0, value=None)], codes.INVALID_REQUEST),
        ("t", [Edit(name="retention.ms", config_operation=9, value="1")], codes.UNKNOWN_SERVER_ERROR),
        ("t", [Edit(name="nonsense", config_operation=9, value="1")], codes.UNKNOWN_SERVER_ERROR),
        ("none", [Edit(name="retention.ms", config_operation=0, value=None)], codes.INVALID_REQUEST),
        ("none", [Edit(name="retention.ms", config_operation=9, value="1")], codes.UNKNOWN_SERVER_ERROR),
        ("none", [Edit(name="retention.ms", config_operation=2, value="1")], codes.INVALID_CONFIG),
        ("t", [Edit(name="nonsense", config_operation=0, value="1")], codes.INVALID_CONFIG),
        ("t", [Edit(name="retention.ms", config_operation=0, value="1")] * 2, codes.INVALID_REQUEST),
    ],
)
def test_edits_that_cannot_be(wire: Wire, topic: str, edits: list[Edit], code: int) -> None:
    assert edit(wire, topic, *edits).error_code == code
    assert edit(wire, "1", *edits, resource_type=4).error_code == codes.INVALID_REQUEST


def test_alter_configs_replaces_the_whole(wire: Wire) -> None:
    def alter(**config: str) -> Any:
        entries = [
            AlterableConfig(name=name.replace("_", "."), value=value) for name, value in config.items()
        ]
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=entries)
        return wire.call(AlterConfigsRequest(resources=[resource])).responses[0].error_code

    assert alter(retention_ms="5", segment_ms="6") == codes.NONE
    assert alter(segment_ms="7") == codes.NONE
    told = described(wire, "t")
    assert (told["retention.ms"].config_source, told["segment.ms"].value) == (5, "7")
    assert alter(segment_ms="-7") == codes.INVALID_CONFIG


def test_what_has_configuration_is_listed(wire: Wire) -> None:
    def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
        answer = wire.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert listed() == [(2, "t"), (4, "1")]
    assert listed(4) == [(4, "1")]
    assert listed(version=0) == []
    assert wire.call(ListConfigResourcesRequest(resource_types=[3])).error_code == codes.UNSUPPORTED_VERSION


def test_a_groups_own_settings_reach_its_members_and_outlast_a_restart(tmp_path: Path) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    def interval(wire: Wire, group: str) -> int:
        joins = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=group,
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        return int(wire.call(joins).heartbeat_interval_ms)

    def listed(wire: Wire) -> list[str]:
        answer = wire.call(ListConfigResourcesRequest(resource_types=[32]))
        return [each.resource_name for each in answer.config_resources]

    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        for group in ("kept", "gone"):
            edits = [Edit(heartbeat, 0, "7000"), Edit(session, 0, "50000")]
            assert edit(wire, group, *edits, resource_type=32).error_code == codes.NONE
        assert edit(wire, "gone", Edit(heartbeat, 1), Edit(session, 1), resource_type=32).error_code == 0
        assert (interval(wire, "kept"), interval(wire, "gone")) == (7_000, 1_000)
        assert listed(wire) == ["kept"]
    # Twice, since the journal is written anew at each start; at last with bounds that have changed.
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert listed(wire) == ["kept"]
    bounds = {"group.consumer.max.heartbeat.interval.ms": 6_000}
    with Broker(data_dir=tmp_path, config=bounds) as broker, Wire(broker) as wire:
        assert interval(wire, "kept") == 6_000
