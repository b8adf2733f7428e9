"""Answers that name other topics, groups or transactions than were asked for: an error of ours, whatever was asked."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.hostile.clients import ASKED
from tests.hostile.proxy import Answer, lying_proxy

from kadence.admin import Admin
from kadence.errors import KafkaError
from kadence.protocol.api_versions import ApiVersionsResponse
from kadence.protocol.describe_cluster import DescribeClusterResponse
from kadence.protocol.find_coordinator import FindCoordinatorResponse
from kadence.protocol.metadata import MetadataResponse
from kadence.wire import Structure
from kadence_broker import Broker

HONEST: Final = (ApiVersionsResponse, DescribeClusterResponse, FindCoordinatorResponse, MetadataResponse)


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
        Admin(bootstrap_servers=servers, retry_backoff_ms=1, default_api_timeout_ms=30_000) as admin,
        pytest.raises(KafkaError),
    ):
        raise_missing(ASKED[asked](admin))
    assert told


def raise_missing(found: object) -> None:
    """Where what was not told is nothing, nothing is right, too."""
    if not found:
        raise KafkaError
