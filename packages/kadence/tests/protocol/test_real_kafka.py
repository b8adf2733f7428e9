"""Every API in every version against real Kafka.

For each request the broker must answer in the version asked, the answer must read to its last byte, and
writing what was read must give the broker's bytes again. That closes what kio cannot vouch for: that these
versions are what a broker speaks today, in both directions.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.patience import PATIENCE
from tests.protocol.real_requests import REQUEST_FOR, Ground, consumer_join, versions

from kadence.protocol import registry
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kadence.records import encode_batch
from kadence_testing.kafka import Kafka

"""Seconds that Kafka may take to settle (topic made, offsets topic made) before a test fails."""


@dataclass
class Wire:
    """A blocking connection to real Kafka, where a topic of ours lies."""

    link: socket.socket
    ground: Ground
    correlation_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ask(self, request: Any, version: int) -> Any:
        """The answer, after proving that it reads and writes to the same bytes."""
        correlation_id = next(self.correlation_ids)
        frame = registry.encode_request(request, version, correlation_id, "kadence")
        self.link.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self.exactly(4))
        answer = self.exactly(size)
        echoed, message = registry.decode_response(type(request), version, answer)
        assert echoed == correlation_id
        assert registry.encode_response(message, version, correlation_id) == answer
        return message

    def exactly(self, size: int) -> bytes:
        chunks = []
        while size:
            chunk = self.link.recv(size)
            assert chunk, "Kafka closed the connection: it could not read the request"
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def until(self, request: Any, version: int, is_settled: Callable[[Any], bool]) -> Any:
        """Asks again while Kafka settles."""
        give_up = time.monotonic() + PATIENCE
        while True:
            answer = self.ask(request, version)
            if is_settled(answer):
                return answer
            assert time.monotonic() < give_up, answer
            time.sleep(0.05)


@contextmanager
def connected(kafka: Kafka, ground: Ground) -> Iterator[Wire]:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Wire(link, ground)


@pytest.fixture(scope="module")
def ground(kafka: Kafka) -> Ground:
    """A topic with leaders, and coordinators for both kinds of groups."""
    ground = Ground(
        "protocol-room", bytes(16), "protocol-room", encode_batch([(1_700_000_000_000, b"k", b"v", [])])
    )
    with connected(kafka, ground) as wire:
        created = wire.ask(CreateTopicsRequest([CreatableTopic(ground.topic, 2, 1)], timeout_ms=30_000), 7)
        assert created.topics[0].error_code == 0
        metadata = MetadataRequest([MetadataRequestTopic(name=ground.topic)])
        wire.until(metadata, 12, lambda answer: all(p.leader_id >= 0 for p in answer.topics[0].partitions))
        # The first look-up makes the offsets topic.
        look_up = FindCoordinatorRequest(coordinator_keys=[ground.group])
        wire.until(look_up, 6, lambda answer: answer.coordinators[0].error_code == 0)
        wire.until(consumer_join(ground, "settle"), 1, lambda answer: answer.error_code == 0)
    return replace(ground, topic_id=created.topics[0].topic_id)


@pytest.fixture
def wire(kafka: Kafka, ground: Ground) -> Iterator[Wire]:
    with connected(kafka, ground) as wire:
        yield wire


VERSIONS = [(request, version) for request in registry.REQUESTS.values() for version in versions(request)]


@pytest.mark.parametrize(("request_cls", "version"), VERSIONS, ids=lambda p: getattr(p, "__name__", f"v{p}"))
def test_kafka_answers_in_our_words(wire: Wire, request_cls: Any, version: int) -> None:
    request = REQUEST_FOR[request_cls](version, wire.ground)
    assert type(request) is request_cls
    wire.ask(request, version)


def test_our_versions_are_what_kafka_has(wire: Wire) -> None:
    answer = wire.ask(ApiVersionsRequest("kadence", "0"), versions(ApiVersionsRequest)[-1])
    kafkas = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    # Kafka claims Produce from 0 for old librdkafka's sake, but serves it from 3 (KAFKA-18659).
    assert kafkas[0] == (0, ProduceRequest.MAX_VERSION)
    kafkas[0] = (3, ProduceRequest.MAX_VERSION)
    # Versions 4 and 5 are what brokers send each other.
    assert kafkas[24] == (0, 5)
    kafkas[24] = (0, 3)
    # Version 5 tells cordoned directories (KIP-1066), which the embedded broker does not have.
    assert kafkas[35] == (1, 5)
    kafkas[35] = (1, 4)
    ours = {key: versions(request) for key, request in registry.REQUESTS.items()}
    assert {key: (each[0], each[-1]) for key, each in ours.items()} == {key: kafkas[key] for key in ours}


def test_an_api_versions_request_of_the_future_is_understood(wire: Wire) -> None:
    correlation_id = next(wire.correlation_ids)
    frame = bytearray(registry.encode_request(ApiVersionsRequest(), 4, correlation_id, "kadence"))
    frame[2:4] = b"\x00\x63"
    wire.link.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", wire.exactly(4))
    _, answer = registry.decode_response(ApiVersionsRequest, 4, wire.exactly(size))
    assert answer.error_code == 35
    assert [(api.api_key, api.max_version) for api in answer.api_keys] == [
        (18, versions(ApiVersionsRequest)[-1])
    ]


def test_kafka_skips_tagged_fields_it_does_not_know(wire: Wire) -> None:
    tags = {200: b"\x00", 5000: b"of the future"}
    request = MetadataRequest(
        [MetadataRequestTopic(name=wire.ground.topic, unknown_tags=dict(tags))], unknown_tags=tags
    )
    assert wire.ask(request, 13).topics[0].error_code == 0


def test_records_come_back_as_they_were_sent(wire: Wire) -> None:
    produced = wire.ask(REQUEST_FOR[ProduceRequest](13, wire.ground), 13)
    offset = produced.responses[0].partition_responses[0].base_offset
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=5000, min_bytes=1, topics=[FetchTopic(wire.ground.topic_id, partitions=[partition])]
    )
    answer: FetchResponse = wire.ask(request, 18)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    # The broker sets base offset (8 bytes) and leader epoch (4 bytes at 12); the CRC covers neither.
    assert bytes(records[16:]) == wire.ground.batch[16:]


def test_a_whole_classic_membership(wire: Wire) -> None:
    group = "protocol-room-classic"
    subscription = registry.encode_versioned(
        ConsumerProtocolSubscription([wire.ground.topic], b"", [], -1, None), 3
    )
    join = JoinGroupRequest(
        group,
        10_000,
        10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription)],
    )
    refused = wire.ask(join, 9)
    assert refused.error_code == 79
    join.member_id = refused.member_id
    joined = wire.ask(join, 9)
    assert (joined.error_code, joined.protocol_name, joined.leader) == (0, "range", joined.member_id)
    assert joined.members[0].metadata == subscription

    assignment = registry.encode_versioned(
        ConsumerProtocolAssignment([AssignedPartitions(wire.ground.topic, [0, 1])]), 3
    )
    sync = SyncGroupRequest(
        group,
        joined.generation_id,
        joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(joined.member_id, assignment)],
    )
    for version in range(6):
        synced = wire.ask(sync, version)
        assert (synced.error_code, synced.assignment) == (0, assignment)
    for version in range(5):
        assert (
            wire.ask(HeartbeatRequest(group, joined.generation_id, joined.member_id), version).error_code == 0
        )
    for version in range(7):
        described: DescribeGroupsResponse = wire.ask(DescribeGroupsRequest([group]), version)
        (member,) = described.groups[0].members
        assert (member.member_id, member.member_assignment) == (joined.member_id, assignment)
    left = wire.ask(LeaveGroupRequest(group, members=[MemberIdentity(joined.member_id)]), 5)
    assert left.members[0].error_code == 0


def test_a_whole_consumer_membership(wire: Wire) -> None:
    request = consumer_join(wire.ground, "whole")
    first: ConsumerGroupHeartbeatResponse = wire.until(request, 1, lambda a: a.assignment is not None)
    assert first.assignment is not None
    (owned,) = first.assignment.topic_partitions
    assert (owned.topic_id, sorted(owned.partitions)) == (wire.ground.topic_id, [0, 1])
    leave = ConsumerGroupHeartbeatRequest(request.group_id, request.member_id, -1)
    assert wire.ask(leave, 1).error_code == 0
