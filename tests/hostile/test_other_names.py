"""Answers that name other topics, groups or transactions than were asked for: an error of ours, whatever was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.hostile.proxy import Answer, lying_proxy

from kadence import OffsetAndMetadata, TopicPartition
from kadence.admin import Admin, ConfigChange, ConfigResource
from kadence.broker import Broker
from kadence.errors import KafkaError
from kadence.protocol.api_versions import ApiVersionsResponse
from kadence.protocol.describe_cluster import DescribeClusterResponse
from kadence.protocol.find_coordinator import FindCoordinatorResponse
from kadence.protocol.metadata import MetadataResponse
from kadence.wire import Structure

ONE: Final = TopicPartition("t", 0)
TOPIC: Final = ConfigResource("topic", "t")
HONEST: Final = (ApiVersionsResponse, DescribeClusterResponse, FindCoordinatorResponse, MetadataResponse)

ASKED: Final[dict[str, Callable[[Admin], object]]] = {
    "create topics": lambda admin: admin.create_topics({"new": 1}),
    "create partitions": lambda admin: admin.create_partitions({"t": 3}),
    "delete topics": lambda admin: admin.delete_topics("t"),
    "describe configs": lambda admin: admin.describe_configs(TOPIC),
    "alter configs": lambda admin: admin.incremental_alter_configs(
        {TOPIC: {"retention.ms": ConfigChange("set", "1000")}}
    ),
    "list offsets": lambda admin: admin.list_offsets({ONE: "latest"}),
    "delete records": lambda admin: admin.delete_records({ONE: 0}),
    "describe groups": lambda admin: admin.describe_consumer_groups("g"),
    "delete groups": lambda admin: admin.delete_consumer_groups("g"),
    "group offsets": lambda admin: admin.list_offsets_of_groups(["g"]),
    "commit": lambda admin: admin.alter_consumer_group_offsets("g", {ONE: OffsetAndMetadata(0)}),
    "delete offsets": lambda admin: admin.delete_consumer_group_offsets("g", ONE),
    "transactions": lambda admin: admin.describe_transactions("x"),
    "producers": lambda admin: admin.describe_producers(ONE),
}


def renamed(found: Any) -> None:
    """Give all texts and numbers of partitions in an answer other values."""
    for name in found.__slots__:
        value = getattr(found, name)
        if isinstance(value, str):
            setattr(found, name, value + "m")
        elif name in ("partition_index", "partition"):
            setattr(found, name, 7)
        elif isinstance(value, Structure):
            renamed(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Structure):
                    renamed(each)


@pytest.mark.parametrize("asked", ASKED)
def test_an_answer_about_something_else(asked: str) -> None:
    told = []

    def lie(answer: Answer) -> bytes:
        if not isinstance(answer.response, HONEST):
            renamed(answer.response)
            told.append(answer.response)
        return answer.encoded()

    with (
        Broker(topics={"t": 1}) as broker,
        lying_proxy(broker, lie) as servers,
        Admin(bootstrap_servers=servers, retry_backoff_ms=1, default_api_timeout_ms=2_000) as admin,
        pytest.raises(KafkaError),
    ):
        raise_missing(ASKED[asked](admin))
    assert told


def raise_missing(found: object) -> None:
    """Where what was not told is nothing, nothing is right, too."""
    if not found:
        raise KafkaError
