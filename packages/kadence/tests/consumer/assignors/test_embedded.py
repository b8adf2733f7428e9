"""The consumer protocol inside JoinGroup and SyncGroup."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.consumer.assignors import MemberSubscription
from kadence.consumer.assignors.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kadence.types import TopicPartition
from kadence.wire import WireError

partitions_ = st.lists(
    st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1)),
    unique=True,
    max_size=9,
).map(sorted)


@given(
    st.frozensets(st.text(min_size=1, max_size=9)),
    partitions_,
    st.integers(-1, 2**31 - 1),
    st.none() | st.binary(max_size=9),
    st.none() | st.text(max_size=9),
)
def test_subscription_round_trip(
    topics: frozenset[str], owned: list[TopicPartition], generation: int, data: bytes | None, rack: str | None
) -> None:
    value = MemberSubscription(topics, tuple(owned), generation, data, rack)
    assert decode_subscription(encode_subscription(value)) == value


@given(partitions_)
def test_assignment_round_trip(partitions: list[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(partitions)) == partitions


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == []


def test_a_newer_version_is_read_with_the_layout_we_know() -> None:
    value = MemberSubscription(frozenset({"t"}), (TopicPartition("t", 1),), 4, None, "r1")
    data = struct.pack(">h", 9) + encode_subscription(value)[2:] + b"what version 9 adds"
    assert decode_subscription(data) == value


def test_version_0_has_topics_and_user_data_only() -> None:
    data = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
    assert decode_subscription(data, "i1") == MemberSubscription(frozenset({"t"}), instance_id="i1")


@given(st.binary(max_size=40))
def test_hostile_bytes_raise_wire_error_only(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except WireError:
            pass


@pytest.mark.parametrize("data", [b"\xff\xff", b"\0", b"\0\1\0\0\0\5"])
def test_truncated_or_negative(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_subscription(data)
