"""The client against brokers: our own, librdkafka's mock cluster and real Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from tests.net.conftest import Connect
from tests.patience import PATIENCE

from kadence.connection.request import ConnectionPurpose
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.records import FetchedRecords
from kadence.types import Node


@pytest.fixture(params=["broker", "mock_cluster", "kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    running: Any = request.getfixturevalue(request.param)
    return str(running.bootstrap_servers)


def test_metadata_then_fetch_from_the_leader(connect: Connect, servers: str) -> None:
    topic = "net-fetch"
    producer = Producer({"bootstrap.servers": servers})
    for number in range(100):
        producer.produce(topic, value=bytes(10_000), key=str(number), partition=0)
    assert producer.flush(PATIENCE) == 0

    bootstrap = [address.rpartition(":") for address in servers.split(",")]
    driver = connect(*((host, int(port)) for host, _, port in bootstrap))
    metadata = driver.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).response
    driver.client.set_nodes(Node(node.node_id, node.host, node.port) for node in metadata.brokers)
    [described] = metadata.topics
    leader = described.partitions[0].leader_id

    fetch = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=described.topic_id,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)],
            )
        ],
    )
    done = driver.ask(fetch, node_id=leader, purpose=ConnectionPurpose.FETCH)
    assert done.error is None
    assert done.loan is not None
    [answered] = done.response.responses[0].partitions
    records = FetchedRecords(answered.records, topic, 0, 0).take(100)
    done.loan.release()
    assert records[0].key == b"0"
    assert driver.client.arenas.in_use == 0

    offered = driver.client.api_range(leader, ApiVersionsRequest.API_KEY)
    assert offered is not None
    assert offered[0] == 0
