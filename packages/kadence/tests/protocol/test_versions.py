"""What a version cannot carry: refused when it matters, dropped when the schema says it does not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.values import decode, encode

from kadence.protocol.fetch import FetchRequest, FetchResponse, NodeEndpoint, ReplicaState
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.wire import VersionError, WireError


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (JoinGroupRequest(group_instance_id="a"), 4, "JoinGroupRequest.group_instance_id"),
        (MetadataRequest(allow_auto_topic_creation=False), 3, "MetadataRequest.allow_auto_topic_creation"),
        (FindCoordinatorRequest(coordinator_keys=["a"]), 3, "FindCoordinatorRequest.coordinator_keys"),
        (FindCoordinatorRequest(key="a"), 4, "FindCoordinatorRequest.key"),
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 11, "FetchRequest.replica_state"),
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 14, "FetchRequest.replica_state"),
        (FetchResponse(session_id=1), 6, "FetchResponse.session_id"),
        (FetchResponse(node_endpoints=[NodeEndpoint()]), 15, "FetchResponse.node_endpoints"),
        (JoinGroupResponse(skip_assignment=True), 8, "JoinGroupResponse.skip_assignment"),
    ],
)
def test_a_set_field_that_the_version_lacks_is_refused(message: Any, version: int, field: str) -> None:
    with pytest.raises(VersionError, match=f"{field} cannot be sent in version {version}"):
        encode(message, version)


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (MetadataRequest(topics=None), 0, "MetadataRequest.topics"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, "MetadataRequestTopic.name"),
        (OffsetFetchRequest(topics=None), 1, "OffsetFetchRequest.topics"),
        (JoinGroupResponse(protocol_name=None), 6, "JoinGroupResponse.protocol_name"),
    ],
)
def test_null_is_refused_where_the_version_has_none(message: Any, version: int, field: str) -> None:
    with pytest.raises(VersionError, match=f"{field} cannot be null in version {version}"):
        encode(message, version)


def test_an_ignorable_field_is_left_out_silently() -> None:
    request = JoinGroupRequest(group_id="g", rebalance_timeout_ms=60_000, reason="because")
    assert decode(JoinGroupRequest, 0, encode(request, 0)) == JoinGroupRequest(group_id="g")
    assert decode(JoinGroupRequest, 8, encode(request, 8)) == request


def test_unknown_tags_are_left_out_of_versions_without_tagged_fields() -> None:
    request = JoinGroupRequest(unknown_tags={7: b"x"})
    assert decode(JoinGroupRequest, 5, encode(request, 5)) == JoinGroupRequest()
    assert decode(JoinGroupRequest, 6, encode(request, 6)) == request


def test_a_tagged_field_of_a_later_version_survives_as_unknown() -> None:
    # high_watermark is tag 1 of a fetch partition from version 18 on.
    from kadence.protocol.fetch import FetchPartition

    old = decode(FetchPartition, 17, encode(FetchPartition(unknown_tags={1: bytes(8)}), 17))
    assert old.unknown_tags == {1: bytes(8)}
    assert old.high_watermark == FetchPartition().high_watermark
    assert decode(FetchPartition, 18, encode(old, 17)).high_watermark == 0


def test_a_tagged_field_must_be_as_long_as_it_says() -> None:
    from kadence.protocol.fetch import FetchPartition

    written = encode(FetchPartition(unknown_tags={1: bytes(9)}), 17)
    with pytest.raises(WireError, match="said it ends at byte"):
        decode(FetchPartition, 18, written)
