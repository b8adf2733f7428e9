"""Share groups over the wire: the coordinator and the leaders of one embedded broker, by raw requests (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import FAST_GROUPS
from tests.broker.wire import Wire
from tests.patience import PATIENCE

from kadence.errors import ConfigError
from kadence.protocol import alter_share_group_offsets as alter_api
from kadence.protocol import delete_share_group_offsets as delete_api
from kadence.protocol import describe_share_group_offsets as describe_api
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kadence.protocol.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kadence.protocol.share_group_describe import ShareGroupDescribeRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence_broker import Broker

CONFIG = {**FAST_GROUPS, "group.share.assignment.interval.ms": 0}
EARLIEST = {"share.auto.offset.reset": "earliest"}


class Member:
    """A member by raw requests, on one connection."""

    def __init__(self, wire: Wire, member_id: str = "m", group: str = "g") -> None:
        self.wire = wire
        self.member_id = member_id
        self.group = group
        self.epoch = 0
        self.session = 0
        self.reads: dict[bytes, list[int]] = {}

    def beat(self, *topics: str, epoch: int | None = None) -> Any:
        answer = self.wire.call(
            ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                subscribed_topic_names=list(topics) or None,
            )
        )
        if answer.error_code == codes.NONE:
            self.epoch = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.reads = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def join(self, *topics: str) -> None:
        """Heartbeats until there is an assignment: the first is empty, and the disk may take its time."""
        deadline = time.monotonic() + PATIENCE
        self.beat(*topics)
        while not self.reads:
            assert self.beat().error_code == codes.NONE
            assert time.monotonic() < deadline

    def fetch(self, **changes: Any) -> dict[int, list[tuple[int, int, int]]]:
        """What was acquired, by partition: first, last, delivery count."""
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=100,
            batch_size=100,
            topics=[
                FetchTopic(
                    topic_id=topic, partitions=[FetchPartition(partition_index=each) for each in numbers]
                )
                for topic, numbers in self.reads.items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = self.wire.call(request)
        assert answer.error_code == codes.NONE
        self.session += 1
        return {
            each.partition_index: [
                (run.first_offset, run.last_offset, run.delivery_count) for run in each.acquired_records
            ]
            for topic in answer.responses
            for each in topic.partitions
        }

    def accept(self, first: int, last: int, partition: int = 0) -> int:
        (topic,) = self.reads
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
        answer = self.wire.call(
            ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.member_id,
                share_session_epoch=self.session,
                topics=[
                    AcknowledgeTopic(
                        topic_id=topic,
                        partitions=[
                            AcknowledgePartition(partition_index=partition, acknowledgement_batches=[batch])
                        ],
                    )
                ],
            )
        )
        assert answer.error_code == codes.NONE
        self.session += 1
        return int(answer.responses[0].partitions[0].error_code)


def configure(wire: Wire, config: Mapping[str, str | None], group: str = "g") -> tuple[int, str | None]:
    edits = [
        AlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)
        for name, value in config.items()
    ]
    resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=edits)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return answer.error_code, answer.error_message


def offsets(wire: Wire, group: str = "g") -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) -> start offset and lag."""
    asked = describe_api.DescribeShareGroupOffsetsRequestGroup(group, None)
    (answer,) = wire.call(describe_api.DescribeShareGroupOffsetsRequest([asked])).groups
    assert answer.error_code == codes.NONE
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in answer.topics
        for each in topic.partitions
    }


def alter(wire: Wire, offset: int) -> Any:
    partition = alter_api.AlterShareGroupOffsetsRequestPartition(0, offset)
    topic = alter_api.AlterShareGroupOffsetsRequestTopic("t", [partition])
    return wire.call(alter_api.AlterShareGroupOffsetsRequest("g", [topic]))


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Broker(topics={"t": 1}, config=CONFIG) as broker, Wire(broker) as wire:
        yield wire


def test_a_members_life(wire: Wire) -> None:
    """From the first heartbeat to the last: what is acknowledged counts, and the lag tells it."""
    configure(wire, EARLIEST)
    wire.produce("t", [b"a", b"b", b"c"])
    member = Member(wire)
    assert member.beat("t").assignment.topic_partitions == []
    member.beat()
    assert list(member.reads.values()) == [[0]]
    assert offsets(wire) == {("t", 0): (-1, -1)}

    assert member.fetch() == {0: [(0, 2, 1)]}
    assert offsets(wire) == {("t", 0): (-1, -1)}, "nothing is written while records are only held"
    assert member.accept(0, 1) == codes.NONE
    assert offsets(wire)["t", 0][1] == 1
    assert member.accept(2, 2) == codes.NONE
    assert offsets(wire)["t", 0][1] == 0

    (group,) = wire.call(
        ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    ).groups
    assert (group.group_state, [each.member_id for each in group.members]) == ("Stable", ["m"])
    assert group.authorized_operations > 0
    listed = wire.call(ListGroupsRequest(types_filter=["share"])).groups
    assert [(each.group_id, each.group_state) for each in listed] == [("g", "Stable")]
    assert member.beat(epoch=-1).member_epoch == -1
    listed = wire.call(ListGroupsRequest(states_filter=["Empty"])).groups
    assert [each.group_type for each in listed] == ["share"]


def test_altered_offsets(wire: Wire) -> None:
    wire.produce("t", [b"a", b"b", b"c"])
    assert alter(wire, 1).responses[0].partitions[0].error_code == codes.NONE
    assert offsets(wire) == {("t", 0): (1, 2)}
    member = Member(wire)
    member.beat("t")
    assert list(member.reads.values()) == [[0]], "it was initialised before"
    assert member.fetch() == {0: [(1, 2, 1)]}
    assert alter(wire, 0).error_code == codes.NON_EMPTY_GROUP


def test_deleted_offsets_and_a_deleted_group(wire: Wire) -> None:
    configure(wire, EARLIEST)
    wire.produce("t", [b"a", b"b"])
    member = Member(wire)
    member.join("t")
    member.fetch()
    member.accept(0, 1)
    assert offsets(wire)["t", 0][1] == 0
    member.beat(epoch=-1)

    topics = [delete_api.DeleteShareGroupOffsetsRequestTopic("t")]
    answer = wire.call(delete_api.DeleteShareGroupOffsetsRequest("g", topics))
    assert [each.error_code for each in answer.responses] == [codes.NONE]
    assert offsets(wire) == {}

    second = Member(wire, "n")
    second.join("t")
    assert second.fetch() == {0: [(0, 1, 1)]}, "the group begins anew"
    second.accept(0, 0)
    second.beat(epoch=-1)
    (deleted,) = wire.call(DeleteGroupsRequest(groups_names=["g"])).results
    assert deleted.error_code == codes.NONE
    assert wire.call(ListGroupsRequest()).groups == []

    third = Member(wire, "o")
    third.join("t")
    assert third.fetch() == {0: [(0, 1, 1)]}, "its configuration outlives the group, and nothing else"


def test_a_deleted_topic_leaves_nothing(wire: Wire) -> None:
    configure(wire, EARLIEST)
    wire.produce("t", [b"a"])
    member = Member(wire)
    member.join("t")
    member.fetch()
    member.accept(0, 0)
    wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert offsets(wire) == {}
    member.beat()
    assert member.reads == {}


def test_a_restart_keeps_groups_members_and_what_is_done(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, config=CONFIG, data_dir=tmp_path) as broker, Wire(broker) as wire:
        configure(wire, {**EARLIEST, "share.session.timeout.ms": "60000"})
        wire.produce("t", [b"a", b"b", b"c"])
        member = Member(wire)
        member.join("t")
        member.fetch()
        member.accept(0, 0)
        before = broker.describe_groups()["g"]
    with Broker(config=CONFIG, data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert broker.describe_groups()["g"] == before
        assert offsets(wire)["t", 0][1] == 2
        again = Member(wire)
        again.epoch = member.epoch
        assert again.beat("t").error_code == codes.NONE, "its session goes on"
        assert again.fetch() == {0: [(1, 2, 2)]}, "the locks are gone, and the delivery counts"


def test_another_node_is_not_the_coordinator() -> None:
    with Broker(nodes=2, topics={"t": 1}, config=CONFIG) as broker, Wire(broker, 1) as first:
        found = first.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])).coordinators[0]
        with Wire(broker, 3 - found.node_id) as elsewhere:
            assert Member(elsewhere).beat("t").error_code == codes.NOT_COORDINATOR
            assert alter(elsewhere, 0).error_code == codes.NOT_COORDINATOR
            (group,) = elsewhere.call(ShareGroupDescribeRequest(group_ids=["g"])).groups
            assert group.error_code == codes.NOT_COORDINATOR
            asked = describe_api.DescribeShareGroupOffsetsRequestGroup("g", None)
            (told,) = elsewhere.call(describe_api.DescribeShareGroupOffsetsRequest([asked])).groups
            assert told.error_code == codes.NOT_COORDINATOR
            topics = [delete_api.DeleteShareGroupOffsetsRequestTopic("t")]
            answer = elsewhere.call(delete_api.DeleteShareGroupOffsetsRequest("g", topics))
            assert answer.error_code == codes.NOT_COORDINATOR
        with Wire(broker, found.node_id) as there:
            member = Member(there)
            member.join("t")
            member.beat(epoch=-1)
            # The answer to several groups comes after the state is deleted; it has those of the other node, too.
            names = ["g", *(f"g{number}" for number in range(20))]
            answers = there.call(DeleteGroupsRequest(groups_names=names)).results
            assert {each.error_code for each in answers} == {
                codes.NONE,
                codes.GROUP_ID_NOT_FOUND,
                codes.NOT_COORDINATOR,
            }


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_level_of_the_feature(level: int) -> None:
    with Broker(topics={"t": 1}, config={**CONFIG, "share.version": level}) as broker, Wire(broker) as wire:
        told = wire.call(ApiVersionsRequest(client_software_name="k", client_software_version="1"))
        finalized = {each.name: each.max_version_level for each in told.finalized_features}
        assert finalized.get("share.version", 0) == level
        code = Member(wire).beat("t").error_code
        assert code == (codes.NONE if level else codes.UNSUPPORTED_VERSION)


def test_faults_know_the_requests() -> None:
    with Broker(topics={"t": 1}, config=CONFIG) as broker, Wire(broker) as wire:
        broker.faults.error(ShareGroupHeartbeatRequest, codes.COORDINATOR_LOAD_IN_PROGRESS, times=1)
        assert Member(wire).beat("t").error_code == codes.COORDINATOR_LOAD_IN_PROGRESS
        for request in (
            ShareGroupDescribeRequest(group_ids=["g"]),
            describe_api.DescribeShareGroupOffsetsRequest(
                [describe_api.DescribeShareGroupOffsetsRequestGroup("g", None)]
            ),
        ):
            broker.faults.error(type(request), codes.COORDINATOR_NOT_AVAILABLE, times=1, group="g")
            assert wire.call(request).groups[0].error_code == codes.COORDINATOR_NOT_AVAILABLE
        broker.faults.error(
            alter_api.AlterShareGroupOffsetsRequest, codes.COORDINATOR_NOT_AVAILABLE, topic="t"
        )
        assert alter(wire, 0).error_code == codes.COORDINATOR_NOT_AVAILABLE


# ------------------------------------------------------------ configuration


def test_group_configuration(wire: Wire) -> None:
    chosen = {
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.delivery.count.limit": "7",
        "errors.deadletterqueue.topic.name": "dlq.t",
    }
    assert configure(wire, chosen) == (codes.NONE, None)
    asked = DescribeConfigsResource(resource_type=32, resource_name="g")
    (told,) = wire.call(DescribeConfigsRequest(resources=[asked], include_synonyms=True)).results
    values = {each.name: each.value for each in told.configs}
    assert {name: values[name] for name in chosen} == chosen
    assert values["share.record.lock.duration.ms"] == "30000"
    sources = {each.name: each.config_source for each in told.configs}
    assert (sources["share.delivery.count.limit"], sources["share.record.lock.duration.ms"]) == (8, 5)
    assert configure(wire, dict.fromkeys(chosen)) == (codes.NONE, None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"share.delivery.count.limit": "11"}, "must be in the range 2 to 10 inclusive."),
        ({"share.record.lock.duration.ms": "60001"}, "must be in the range 1000 to 60000 inclusive."),
        ({"share.partition.max.record.locks": "99"}, "Value must be at least 100"),
        ({"share.auto.offset.reset": "none"}, "must be either 'earliest', 'latest' or of the format"),
        ({"share.auto.offset.reset": "by_duration"}, "must be either"),
        ({"share.auto.offset.reset": "by_duration:1h"}, "must be either"),
        ({"share.isolation.level": "dirty"}, "String must be one of: read_committed, read_uncommitted"),
        ({"share.renew.acknowledge.enable": "yes"}, "either true or false"),
        ({"share.session.timeout.ms": "500", "share.heartbeat.interval.ms": "500"}, "must be greater than"),
        ({"errors.deadletterqueue.topic.name": "__t"}, "must not start with '__'"),
    ],
)
def test_group_configuration_that_is_refused(wire: Wire, config: dict[str, str | None], words: str) -> None:
    code, message = configure(wire, config)
    assert code == codes.INVALID_CONFIG
    assert words in (message or "")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"share.version": 3}, "0 (no share groups), 1 or 2"),
        ({"group.share.max.share.sessions": 100}, "at least group.share.max.size"),
        ({"group.share.max.size": 1_001}, "between 1 and 1000"),
        ({"group.share.assignors": "mine"}, "knows only simple"),
        ({"group.share.delivery.count.limit": 11}, "must be between 2 and 10"),
        (
            {"group.share.heartbeat.interval.ms": 10_000, "group.share.session.timeout.ms": 5_000},
            "must be between",
        ),
    ],
)
def test_a_broker_that_contradicts_itself(config: dict[str, int | str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Broker(config=config)
    assert words in str(caught.value)


def test_narrowed_bounds_count_for_what_was_set_before(tmp_path: Path) -> None:
    with Broker(config=CONFIG, data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert configure(wire, {"share.heartbeat.interval.ms": "12000"})[0] == codes.NONE
    narrowed = {**CONFIG, "group.share.max.heartbeat.interval.ms": 7_000}
    with Broker(topics={"t": 1}, config=narrowed, data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert Member(wire).beat("t").heartbeat_interval_ms == 7_000
