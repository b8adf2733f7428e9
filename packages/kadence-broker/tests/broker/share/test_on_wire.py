"""Share fetches and acknowledgements over real sockets: faults, closed connections, and a process that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.wire import Wire

from kadence.protocol import error_codes as codes
from kadence.protocol.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kadence.protocol.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kadence_broker import Broker

ACCEPT, RELEASE = 1, 2


@pytest.fixture
def shares(broker: Broker) -> Broker:
    begin(broker)
    return broker


def begin(broker: Broker) -> None:
    """What the coordinator does for a group whose first member joins."""

    def initialise() -> None:
        cluster, leader = broker._core.cluster, broker._core.shares
        cluster.configure_group("g", {"share.auto.offset.reset": "earliest"})
        assert leader.initialise("g", cluster.topics["t"].topic_id, 0, -1, 1) == 0

    broker._on_loop(initialise)


class Member:
    """A member with a connection of its own."""

    def __init__(self, broker: Broker | str, name: str) -> None:
        self.wire = Wire(broker)
        self.name = name
        self.epoch = 0
        self.topic_id = self.wire.topic_id("t")

    def fetch(self, max_wait_ms: int = 10_000) -> list[tuple[int, int, int]]:
        """Fetch until records come or the wait is over; the first error that stands in the answer is raised."""
        answer = self.wire.call(self.request(max_wait_ms))
        assert answer.error_code == codes.NONE, codes.name(answer.error_code)
        self.epoch += 1
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in answer.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]

    def request(self, max_wait_ms: int) -> ShareFetchRequest:
        topics = [] if self.epoch else [FetchTopic(self.topic_id, [FetchPartition(0, [])])]
        return ShareFetchRequest(
            "g", self.name, self.epoch, max_wait_ms, 1, max_bytes=1 << 20, max_records=500, topics=topics
        )

    def acknowledge(self, *batches: tuple[int, int, list[int]]) -> int:
        partition = AcknowledgePartition(0, [AcknowledgementBatch(*each) for each in batches])
        request = ShareAcknowledgeRequest(
            "g", self.name, self.epoch, topics=[AcknowledgeTopic(self.topic_id, [partition])]
        )
        answer = self.wire.call(request)
        assert answer.error_code == codes.NONE, codes.name(answer.error_code)
        self.epoch += 1
        return int(answer.responses[0].partitions[0].error_code)


@pytest.fixture
def member(shares: Broker) -> Iterator[Member]:
    made = Member(shares, "m")
    yield made
    made.wire.sock.close()


def test_a_closed_socket_releases_what_its_member_has(shares: Broker, member: Member, wire: Wire) -> None:
    wire.produce("t", [b"a", b"b"])
    assert member.fetch() == [(0, 1, 1)]
    other = Member(shares, "b")
    with shares.faults.observe(ShareFetchRequest) as fetches:
        other.wire.send(other.request(10_000))
        fetches.wait()
        member.wire.sock.close()
        (topic,) = other.wire.receive().responses
    assert topic.partitions[0].acquired_records[0].delivery_count == 2
    other.wire.sock.close()


def test_an_injected_error_finds_the_topic_of_a_session(shares: Broker, member: Member, wire: Wire) -> None:
    wire.produce("t", [b"a"])
    assert member.fetch() == [(0, 0, 1)]
    shares.faults.error(ShareFetchRequest, codes.UNKNOWN_SERVER_ERROR, topic="t", group="g", times=1)
    with pytest.raises(AssertionError, match="UNKNOWN_SERVER_ERROR"):
        member.fetch()
    assert member.fetch(max_wait_ms=0) == []  # the request that was refused did not count
    shares.faults.error(ShareAcknowledgeRequest, codes.NOT_LEADER_OR_FOLLOWER, times=1)
    assert member.acknowledge((0, 0, [ACCEPT])) == codes.NOT_LEADER_OR_FOLLOWER
    member.epoch -= 1
    assert member.acknowledge((0, 0, [ACCEPT])) == codes.NONE


def test_a_dropped_answer_leaves_the_session_one_ahead(shares: Broker, member: Member, wire: Wire) -> None:
    wire.produce("t", [b"a"])
    assert member.fetch() == [(0, 0, 1)]
    shares.faults.disconnect(ShareAcknowledgeRequest, times=1)
    with pytest.raises(ConnectionError):
        member.acknowledge((0, 0, [ACCEPT]))
    again = Member(shares, "m")
    assert again.fetch() == [(0, 0, 2)]  # with its connection the member lost what it had
    again.wire.sock.close()


PROGRAM = """
import sys
from tests.broker.share.test_on_wire import begin
from kadence_broker import Broker
with Broker(topics={"t": 1}, data_dir=sys.argv[1]) as broker:
    if sys.argv[2] == "begin":
        begin(broker)
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def started(path: Path, what: str) -> tuple[subprocess.Popen[str], str]:
    running: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    return running, running.stdout.readline().strip()


def test_a_killed_process_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    first, servers = started(tmp_path, "begin")
    with Wire(servers) as wire:
        wire.produce("t", [b"%d" % number for number in range(10)])
        member = Member(servers, "m")
        assert member.fetch() == [(0, 9, 1)]
        assert member.acknowledge((0, 3, [ACCEPT]), (5, 6, [RELEASE])) == codes.NONE
        first.send_signal(signal.SIGKILL)
        first.communicate()
        member.wire.sock.close()
    second, servers = started(tmp_path, "go on")
    member = Member(servers, "m")
    assert member.fetch() == [(4, 4, 1), (5, 6, 2), (7, 9, 1)]
    member.wire.sock.close()
    second.communicate()
