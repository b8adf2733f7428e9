"""A request with thousands of names is served in pieces, and other clients in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.broker.stage import BATCH, Nobody, Stage

from kadence.clock import FOREVER
from kadence.protocol import error_codes as codes
from kadence.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kadence.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from kadence.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.describe_log_dirs import DescribeLogDirsRequest
from kadence.protocol.describe_producers import DescribeProducersRequest, TopicRequest
from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from kadence.protocol.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.registry import decode_response, encode_request
from kadence_broker.handlers import k32_describe_configs

TOPIC = 2


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(1)
    made.loop._before_wait = lambda _now: FOREVER
    yield made
    made.loop.close()


def begin(stage: Stage, message: Any) -> Nobody:
    client = Nobody(1)
    stage.dispatcher.on_frame(client, encode_request(message, message.MAX_VERSION, 1, "c"))  # type: ignore[arg-type]
    return client


def answer(client: Nobody, message: Any) -> Any:
    (sent,) = client.sent
    return decode_response(type(message), message.MAX_VERSION, sent[4:])[1]


def names(count: int) -> list[str]:
    return [f"n-{number}" for number in range(count)]


REQUESTS: dict[str, tuple[Callable[[], Any], int]] = {
    "CreateTopics": (
        lambda: CreateTopicsRequest(topics=[CreatableTopic(each, 1, 1) for each in names(400)]),
        10,
    ),
    "CreateTopics refused": (
        lambda: CreateTopicsRequest(topics=[CreatableTopic(each, 2, 1) for each in names(5_001)]),
        5,
    ),
    "DeleteTopics": (
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(each) for each in names(2_000)]),
        10,
    ),
    "CreatePartitions": (
        lambda: CreatePartitionsRequest(topics=[CreatePartitionsTopic(each, 2) for each in names(2_000)]),
        10,
    ),
    "DescribeConfigs": (
        lambda: DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, "t", None)] * 500),
        10,
    ),
    "AlterConfigs": (
        lambda: AlterConfigsRequest(
            resources=[
                AlterConfigsResource(TOPIC, each, [AlterableConfig("retention.ms", "1")])
                for each in names(100)
            ]
        ),
        10,
    ),
    "IncrementalAlterConfigs": (
        lambda: IncrementalAlterConfigsRequest(
            resources=[IncrementalResource(TOPIC, each) for each in names(100)]
        ),
        10,
    ),
    "Metadata": (
        lambda: MetadataRequest(
            topics=[MetadataRequestTopic(name=each) for each in names(5_000)], allow_auto_topic_creation=False
        ),
        10,
    ),
    "ListOffsets": (
        lambda: ListOffsetsRequest(
            topics=[ListOffsetsTopic("t", [ListOffsetsPartition(each, -1, 5) for each in range(100)])]
        ),
        10,
    ),
    "OffsetForLeaderEpoch": (
        lambda: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)] * 20_000)]
        ),
        10,
    ),
    "DeleteRecords": (
        lambda: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(each, 0) for each in range(1_000)])]
        ),
        10,
    ),
    "DescribeProducers": (
        lambda: DescribeProducersRequest(topics=[TopicRequest("t", list(range(5_000)))]),
        10,
    ),
    "FindCoordinator": (lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=names(5_000)), 10),
    "Fetch": (
        lambda: FetchRequest(
            topics=[
                FetchTopic(
                    topic_id=b"?" * 16, partitions=[FetchPartition(partition=each) for each in range(4_000)]
                )
            ]
        ),
        10,
    ),
    "Produce": (
        lambda: ProduceRequest(
            acks=1,
            topic_data=[
                TopicProduceData(topic_id=b"?" * 16, partition_data=[PartitionProduceData(0, BATCH)] * 1_280)
            ],
        ),
        10,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_others_are_served_between_the_pieces_of_a_long_request(stage: Stage, name: str) -> None:
    make, pieces = REQUESTS[name]
    message = make()
    client = begin(stage, message)
    turns = 0
    while not client.sent:
        assert begin(stage, ApiVersionsRequest()).sent
        stage.loop.turn()
        turns += 1
    # The first piece was served at once. None is longer than 10 ms, as its steps count.
    assert pieces - 1 <= turns <= 2 * pieces
    assert answer(client, message)


@pytest.mark.parametrize("message", [MetadataRequest(topics=None), DescribeLogDirsRequest(topics=None)])
def test_all_topics_are_described_in_pieces(stage: Stage, message: Any) -> None:
    for name in names(500):
        stage.cluster.create_topic(name, 10)
    client = begin(stage, message)
    turns = 0
    while not client.sent:
        stage.loop.turn()
        turns += 1
    assert turns >= 2
    found = answer(client, message)
    topics = found.topics if isinstance(message, MetadataRequest) else found.results[0].topics
    assert len(topics) == 501


def test_however_many_ask_for_much_a_turn_has_one_piece(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the time in which nobody else is served would grow with the connections of whoever means harm."""
    message = DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, "t", None)] * 200)
    clients = [begin(stage, message) for _ in range(10)]
    served: list[int] = []
    while stage.loop._soon:
        stage.loop.turn()
        served.append(sum(bool(each.sent) for each in clients))
    # Each has four pieces, the first of them at once, and an end; they take turns.
    assert len(served) == 40
    assert served[-2:] == [9, 10]


def test_whose_client_has_gone_reads_no_further(stage: Stage) -> None:
    client = begin(
        stage, DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, "t", None)] * 1_000)
    )
    client.on_gone()
    stage.loop.turn()
    assert not stage.loop._soon
    assert not client.sent


def test_what_changes_something_is_done_to_the_end_though_its_client_has_gone(stage: Stage) -> None:
    """As in Kafka, where a request that has been taken is carried out whole."""
    client = begin(stage, CreateTopicsRequest(topics=[CreatableTopic(each, 1, 1) for each in names(400)]))
    assert len(stage.cluster.topics) < 401
    client.on_gone()
    while stage.loop._soon:
        stage.loop.turn()
    assert len(stage.cluster.topics) == 401
    assert not client.sent


def test_an_answer_of_describe_configs_is_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of a request ask for thousands of an answer."""
    assert k32_describe_configs._MOST_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(k32_describe_configs, "_MOST_BYTES", 100_000)
    message = DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, "t", None)] * 200)
    client = begin(stage, message)
    while not client.sent:
        stage.loop.turn()
    results = answer(client, message).results
    refused = [each for each in results if each.error_code == codes.POLICY_VIOLATION]
    assert len(results) == 200
    assert 0 < len(refused) < 190
    assert results[-1] is refused[-1]
    assert len(client.sent[0]) < 100_000 + len(refused) * 100 + 10_000


def test_what_one_topic_says_is_not_told_of_another(stage: Stage) -> None:
    """Topics without a configuration of their own share the entries of an answer."""
    stage.cluster.create_topic("own", 1, {"retention.ms": "5"})
    message = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(TOPIC, each, ["retention.ms"]) for each in ("t", "own", "t")]
    )
    client = begin(stage, message)
    values = [each.configs[0].value for each in answer(client, message).results]
    assert values == ["604800000", "5", "604800000"]
