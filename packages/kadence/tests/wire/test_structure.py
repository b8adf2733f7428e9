"""Equality and printed form of message structs."""

from __future__ import annotations

import pytest

from kadence.protocol.fetch import FetchPartition, FetchTopic
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest


def test_equality_is_by_type_and_value() -> None:
    assert FetchTopic(topic="a") == FetchTopic(topic="a")
    assert FetchTopic(topic="a") != FetchTopic(topic="b")
    assert FetchTopic(partitions=[FetchPartition(1)]) != FetchTopic(partitions=[FetchPartition(2)])
    assert FetchTopic() != FetchPartition()
    assert FetchTopic() != "FetchTopic()"
    assert FetchTopic(unknown_tags={1: b""}) != FetchTopic()


def test_mutable_so_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(HeartbeatRequest())


def test_each_object_has_its_own_defaults() -> None:
    first, second = FetchTopic(), FetchTopic()
    first.partitions.append(FetchPartition())
    first.unknown_tags[1] = b""
    assert second == FetchTopic()


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(AttributeError):
        HeartbeatRequest().group = "typo"  # type: ignore[attr-defined]


def test_repr_shows_fields_but_no_payload_and_no_secret() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    assert (
        repr(request)
        == "HeartbeatRequest(group_id='g', generation_id=4, member_id='m', group_instance_id=None)"
    )
    assert (
        repr(SaslAuthenticateRequest(b"\0user\0secret")) == "SaslAuthenticateRequest(auth_bytes=<12 bytes>)"
    )
    assert "topic_id=000102030405060708090a0b0c0d0e0f" in repr(FetchTopic(topic_id=bytes(range(16))))
