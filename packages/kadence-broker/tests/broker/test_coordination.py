"""What the coordinator keeps in `__consumer_offsets`: when answers go out, what a move or a restart finds."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.wire import Wire, at, fetch
from tests.luck import examples
from tests.patience import until

from kadence.clock import FOREVER
from kadence.errors import ConfigError
from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.group_metadata_record import GroupMetadataKey
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kadence.records import FetchedRecords
from kadence_broker import Broker, state_topic
from kadence_broker.cluster import (
    OFFSETS_TOPIC,
    STATE_PARTITIONS,
    BrokerNode,
    Cluster,
    coordinator_partition,
)
from kadence_broker.coordination import Coordination
from kadence_broker.coordinator import CoordinatorConfig, Record, coordinator
from kadence_broker.coordinator.records import decode
from kadence_broker.handlers import HANDLERS
from kadence_broker.server.loop import Loop
from kadence_broker.state_topic import StateTopic
from kadence_broker.storage import BatchError, Partition
from kadence_testing.clock import FakeClock

SAME = [name for name in map(str, range(2_000)) if coordinator_partition(name) == coordinator_partition("g")]
"""Groups that are kept beside g."""
ELSEWHERE = "h"


def commit(offset: int, group: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


def offsets(group: str = "g") -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


def join(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


class FakeCall:
    """A request whose answer is kept."""

    def __init__(self, message: Any, version: int, now: int) -> None:
        self.message = message
        self.version = version
        self.now = now
        self.handler = HANDLERS[message.API_KEY]
        self.response: Any = None

    def caller(self) -> Any:
        from kadence_broker.coordinator import Caller

        return Caller(self, self.version, "c", "/h")

    def reply(self, response: Any) -> None:
        assert self.response is None
        self.response = response


class Stage:
    """A coordinator on a real log, without sockets."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock, lambda _now: FOREVER)
        self.cluster = Cluster("c")
        self.cluster.nodes = {each: BrokerNode(each, "h", each) for each in (1, 2)}
        self.cluster.create_topic("t", 1)
        self.coordination = self.again()

    def again(self) -> Coordination:
        """The coordinator of another broker on the same log."""
        ids = itertools.count(1)
        coordination = Coordination(
            CoordinatorConfig(), self.cluster, self.loop, new_id=lambda: f"m{next(ids)}"
        )
        coordination.start()
        return coordination

    def call(self, message: Any, version: int = 8) -> Any:
        """Ask, and let the timers that are due by now fire: the first join of a group waits for its initial delay."""
        call = FakeCall(message, version, self.clock.now_ms())
        self.coordination.serve(call)  # type: ignore[arg-type]
        self.coordination.poll(self.clock.now_ms())
        return call

    def commit(self, offset: int, group: str = "g") -> Any:
        call = self.call(commit(offset, group))
        return None if call.response is None else call.response.topics[0].partitions[0].error_code

    def committed(self, group: str = "g") -> int:
        found = self.call(offsets(group)).response.groups[0].topics[0].partitions[0]
        return int(found.committed_offset)

    def partition(self, group: str = "g") -> Partition:
        return self.coordination.topic.coordinator_of(group)

    def snapshot(self, coordination: Coordination | None = None) -> list[Record]:
        return list((coordination or self.coordination).coordinator.snapshot(lambda _: True))

    def stable(self) -> Any:
        joined = self.call(join(), 3).response
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")],
        )
        assert self.call(sync, 3).response.error_code == codes.NONE
        return joined


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()


class Flusher:
    """Stands for a disk: what is appended is stored for good when `flush` says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[tuple[str, Callable[[int], None]]] = []

        def on_durable(partition: Partition, callback: Callable[[int], None]) -> None:
            self.waiting.append((partition.topic.name, callback))

        monkeypatch.setattr(Partition, "on_durable", on_durable)

    def flush(self, code: int = codes.NONE) -> None:
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback(code)


def test_the_topic_is_made_at_first_use_and_does_not_shift_the_leaders_of_others(stage: Stage) -> None:
    assert not stage.coordination.topic.exists
    assert stage.commit(5) == codes.NONE
    topic = stage.cluster.topics[OFFSETS_TOPIC]
    assert (topic.is_internal, len(topic.partitions)) == (True, STATE_PARTITIONS)
    assert [each.leader_id for each in topic.partitions[:4]] == [1, 2, 1, 2]
    assert stage.cluster.create_topic("later", 1).partitions[0].leader_id == 2


def test_a_broker_that_starts_on_the_log_knows_what_was_acknowledged(stage: Stage) -> None:
    member = stage.stable()
    assert stage.commit(5, ELSEWHERE) == codes.NONE
    again = stage.again()
    assert stage.snapshot(again) == stage.snapshot()
    stage.coordination = again
    assert stage.committed(ELSEWHERE) == 5
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert stage.call(beat, 3).response.error_code == codes.NONE


def test_answers_wait_until_what_they_tell_is_stored_for_good(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.commit(1) == codes.NONE
    disk = Flusher(monkeypatch)
    first = stage.call(commit(5))
    same = stage.call(HeartbeatRequest(group_id="g", member_id="x"), 3)
    asked = stage.call(offsets())
    listed = stage.call(ListGroupsRequest(), 4)
    other = stage.call(HeartbeatRequest(group_id=ELSEWHERE, member_id="x"), 3)
    assert other.response is not None, "its group is kept in another partition"
    beside = stage.call(offsets(SAME[0]))
    assert beside.response is not None, "nothing is stored of its group"
    assert [first.response, same.response, asked.response, listed.response] == [None] * 4
    disk.flush()
    assert first.response.topics[0].partitions[0].error_code == codes.NONE
    assert same.response.error_code == codes.UNKNOWN_MEMBER_ID
    assert asked.response.groups[0].topics[0].partitions[0].committed_offset == 5
    assert listed.response is not None
    assert stage.call(HeartbeatRequest(group_id="g", member_id="x"), 3).response is not None


def test_answers_that_wait_for_what_cannot_be_stored_are_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Flusher(monkeypatch)
    stage.call(commit(5))
    asked = stage.call(offsets())
    disk.flush(codes.KAFKA_STORAGE_ERROR)
    assert asked.response.groups[0].error_code == codes.NOT_COORDINATOR


def test_a_slow_disk_delays_no_heartbeat(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = stage.stable()
    modern = ConsumerGroupHeartbeatRequest(
        group_id=SAME[0],
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    epoch = stage.call(modern, 1).response.member_epoch
    disk = Flusher(monkeypatch)
    requests = [commit(5), commit(5, SAME[0])]
    requests[0].member_id, requests[0].generation_id_or_member_epoch = joined.member_id, 1
    requests[1].member_id, requests[1].generation_id_or_member_epoch = "m", epoch
    commits = [stage.call(each, 9) for each in requests]
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert stage.call(beat, 3).response.error_code == codes.NONE
    alive = ConsumerGroupHeartbeatRequest(
        group_id=SAME[0], member_id="m", member_epoch=epoch, rebalance_timeout_ms=-1
    )
    assert stage.call(alive, 1).response.member_epoch == epoch
    # Somebody else joins: the member hears of that at once, and of what was stored for it later.
    stage.call(join(), 3)
    assert stage.call(beat, 3).response.error_code == codes.REBALANCE_IN_PROGRESS
    modern.member_epoch = epoch
    again = stage.call(modern, 1)
    assert [each.response for each in (*commits, again)] == [None] * 3
    disk.flush()
    assert None not in [each.response for each in (*commits, again)]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), BatchError(codes.KAFKA_STORAGE_ERROR, "x")]
)
def test_what_cannot_be_appended_did_not_happen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert stage.commit(1) == codes.NONE
    before = stage.snapshot()

    def full(*_args: Any, **_options: Any) -> Any:
        raise error

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(Partition, "append", full)
        assert stage.commit(5) == codes.NOT_COORDINATOR
        assert stage.call(join(group=SAME[0]), 9).response.error_code == codes.NOT_COORDINATOR
    assert stage.snapshot() == before
    assert "could not be stored" in caplog.text
    assert stage.committed() == 1
    assert stage.commit(6) == codes.NONE
    assert stage.committed() == 6


def test_a_name_that_no_record_can_hold_is_its_owners_trouble_alone(stage: Stage) -> None:
    """The member's id is its instance id and more, which is longer than Kafka's strings may be."""
    assert stage.commit(1) == codes.NONE
    joining = join()
    joining.group_instance_id = "i" * 32_767
    call = stage.call(joining, 9)
    stage.clock.advance(3_000)
    stage.coordination.poll(stage.clock.now_ms())
    joined = call.response
    sync = SyncGroupRequest("g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert stage.call(sync, 3).response.error_code == codes.NOT_COORDINATOR
    assert stage.snapshot(stage.again()) == stage.snapshot()
    assert stage.committed() == 1


def test_a_disk_that_does_not_take_the_topic_refuses_groups(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_options: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "create_topic", full)
        assert stage.coordination.node_of("g") is None
        assert stage.commit(5, "") == codes.NOT_COORDINATOR
    assert stage.snapshot() == []
    assert stage.commit(5, "") == codes.NONE


def test_what_a_rule_had_begun_when_it_raised_did_not_happen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its records would go into the log with the next caller's."""
    member = stage.stable()
    before = stage.snapshot()

    def broken(shard: Any, _now: int, _caller: Any, _request: Any) -> None:
        shard.write(OffsetCommitKey("g", "t", 0), OffsetCommitValue(offset=9, metadata=""))
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setitem(coordinator._RULES, OffsetCommitRequest, broken)
        with pytest.raises(ZeroDivisionError):
            stage.commit(9)
    assert stage.snapshot() == before
    assert stage.commit(1, ELSEWHERE) == codes.NONE
    assert stage.committed() == -1
    assert stage.snapshot(stage.again()) == stage.snapshot()
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert stage.call(beat, 3).response.error_code == codes.NONE


def test_what_the_disk_refuses_later_did_not_happen_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.commit(1) == codes.NONE
    with monkeypatch.context() as patched:
        disk = Flusher(patched)
        call = stage.call(commit(5))
        stage.partition().truncate(1, 0)
        disk.flush(codes.KAFKA_STORAGE_ERROR)
    assert call.response.topics[0].partitions[0].error_code == codes.NOT_COORDINATOR
    assert stage.committed() == 1


def test_a_log_that_has_grown_is_written_anew(stage: Stage) -> None:
    stage.coordination.topic = StateTopic(
        stage.cluster, stage.loop.wall_ms, OFFSETS_TOPIC, decode, rewrite_bytes=20_000
    )
    for offset in range(2_000):
        assert stage.commit(offset) == codes.NONE
    log = stage.partition().log
    assert log.start_offset > 1_000
    assert log.size_bytes < 160_000, "a segment, and what it may grow by"
    assert stage.snapshot(stage.again()) == stage.snapshot()
    assert stage.committed() == 1_999


def test_a_large_snapshot_is_not_written_again_and_again(stage: Stage) -> None:
    topic = stage.coordination.topic = StateTopic(
        stage.cluster, stage.loop.wall_ms, OFFSETS_TOPIC, decode, rewrite_bytes=2_000
    )
    groups = SAME[:30]
    for round_ in range(100):
        for group in groups:
            stage.commit(round_, group)
    assert stage.partition().log.end_offset < 3 * 100 * len(groups)
    assert topic.partition(coordinator_partition("g")).log.start_offset > 0
    assert stage.snapshot(stage.again()) == stage.snapshot()


def test_offsets_of_transactions_are_kept_with_their_producer(stage: Stage) -> None:
    value = OffsetCommitValue(offset=9, metadata="")
    index, topic = coordinator_partition("g"), stage.coordination.topic
    for producer, group in ((7, "g"), (8, SAME[0])):
        topic.append(index, [Record(OffsetCommitKey(group, "t", 0), value, (producer, 0))])
    stage.coordination = stage.again()
    assert stage.committed() == -1
    topic.rewrite(index, stage.coordination.coordinator.snapshot(lambda _: True))
    stage.partition().append_marker(0, 7, 0, 0, committed=True)
    stage.partition().append_marker(0, 8, 0, 0, committed=False)
    stage.coordination = stage.again()
    assert stage.committed() == 9
    assert stage.committed(SAME[0]) == -1


@pytest.mark.parametrize("overtaken", [True, False])
def test_a_snapshot_that_a_crash_has_torn_changes_no_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, overtaken: bool
) -> None:
    """The offset of the later record counts, whichever transaction is committed first."""
    monkeypatch.setattr(state_topic, "_BATCH_RECORDS", 1)
    monkeypatch.setattr(Partition, "on_flushed", lambda *_: None)
    index, topic = coordinator_partition("g"), stage.coordination.topic
    for number in (1, 2):
        value = OffsetCommitValue(offset=number, metadata="")
        topic.append(index, [Record(OffsetCommitKey("g", "t", 0), value, (number, 0))])
    if overtaken:
        assert stage.commit(3) == codes.NONE
    stage.commit(9, SAME[0])
    stage.coordination = stage.again()
    begin = stage.partition().end_offset
    topic.rewrite(index, stage.snapshot())
    for end in range(stage.partition().end_offset, begin - 1, -1):
        stage.partition().truncate(end, 0)
        stage.coordination = stage.again()
        for producer_id in (2, 1):
            stage.coordination.coordinator.end_transaction(0, producer_id, 0, True, lambda _: True)
        assert stage.committed() == (3 if overtaken else 2), f"{end - begin} records of the snapshot"
        assert stage.committed(SAME[0]) == 9


def test_what_follows_a_torn_snapshot_is_loaded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_topic, "_BATCH_RECORDS", 1)
    monkeypatch.setattr(Partition, "on_flushed", lambda *_: None)
    for group in SAME[:3]:
        stage.commit(1, group)
    for _ in range(2):
        stage.coordination.topic.rewrite(coordinator_partition("g"), stage.snapshot())
        stage.partition().truncate(stage.partition().end_offset - 1, 0)
        stage.coordination = stage.again()
        assert stage.commit(5, SAME[2]) == codes.NONE
    stage.coordination = stage.again()
    assert [stage.committed(group) for group in SAME[:3]] == [1, 1, 5]


@pytest.mark.chance
@examples(15)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["commit", "pend", "end", "abort", "rewrite"]), st.integers(0, 5)),
        max_size=25,
    )
)
def test_whatever_a_crash_leaves_is_the_state_of_that_moment(steps: list[tuple[str, int]]) -> None:
    stage = Stage()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state_topic, "_BATCH_RECORDS", 2)
        patched.setattr(Partition, "on_flushed", lambda *_: None)
        partition = stage.partition()
        states = {0: stage.snapshot()}
        for number, (step, which) in enumerate(steps):
            group, producer = SAME[which % 2], which % 3
            if step == "commit":
                stage.commit(number, group)
            elif step == "pend":
                value = OffsetCommitValue(offset=number, metadata="")
                record = Record(OffsetCommitKey(group, "t", 0), value, (producer, 0))
                stage.coordination.topic.append(partition.index, [record])
                stage.coordination.coordinator.replay(record)
            elif step == "rewrite":
                stage.coordination.topic.rewrite(partition.index, stage.snapshot())
            else:
                stage.coordination.end_transaction(partition, producer, 0, 0, committed=step == "end")
            states[partition.end_offset] = stage.snapshot()
        while partition.end_offset:
            assert (
                stage.snapshot(stage.again())
                == states[max(at for at in states if at <= partition.end_offset)]
            )
            partition.truncate(partition.end_offset - 1, 0)
    stage.loop.close()


def test_a_record_that_cannot_be_read_is_left_out(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    from kadence.records import encode_batch
    from kadence_broker.storage import Origin

    stage.commit(5)
    strange = [(0, b"\0\1garbage", b"v", ()), (0, b"\0\x63", b"v", ()), (0, None, b"v", ())]
    stage.partition().append(0, memoryview(encode_batch(strange)), origin=Origin.COORDINATOR)
    with caplog.at_level(logging.WARNING):
        stage.coordination = stage.again()
    assert stage.committed() == 5
    assert caplog.text.count("cannot be read") == 2
    assert "type 99" in caplog.text


def test_groups_are_gone_with_the_topic_that_kept_them(stage: Stage) -> None:
    stage.commit(5)
    topic = stage.cluster.topics[OFFSETS_TOPIC]
    stage.cluster.delete_topic(topic)
    stage.coordination.topic_deleted(OFFSETS_TOPIC)
    assert stage.snapshot() == []
    assert stage.commit(6) == codes.NONE


# Over the wire


def test_the_topic_is_there_to_read() -> None:
    with Broker(topics={"t": 1}) as broker, Wire(broker) as wire:
        assert wire.call(commit(5), 8).topics[0].partitions[0].error_code == codes.NONE
        (found,) = wire.call(MetadataRequest(topics=None)).topics[1:]
        assert (found.name, found.is_internal, len(found.partitions)) == (
            OFFSETS_TOPIC,
            True,
            STATE_PARTITIONS,
        )
        asked = fetch(OFFSETS_TOPIC, at(0, coordinator_partition("g")))
        data = wire.call(asked, 12).responses[0].partitions[0].records
        (record,) = FetchedRecords(data, OFFSETS_TOPIC, 0, 0).take()
        assert record.key is not None
        stored = decode(record.key, record.value)
        assert stored is not None
        assert stored.key == OffsetCommitKey("g", "t", 0)
        assert stored.value is not None
        assert stored.value.offset == 5


def test_a_client_may_have_made_the_topic_with_fewer_partitions() -> None:
    with Broker(topics={"t": 1}) as broker, Wire(broker) as wire:
        topic = CreatableTopic(name=OFFSETS_TOPIC, num_partitions=1, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code == codes.NONE
        assert wire.call(commit(5), 8).topics[0].partitions[0].error_code == codes.NONE
        assert len(broker.offsets(OFFSETS_TOPIC)) == STATE_PARTITIONS


def beat(wire: Wire, member: Any) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=member.generation_id, member_id=member.member_id)
    return int(wire.call(request, 3).error_code)


def find(wire: Wire) -> tuple[int, int]:
    (found,) = wire.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
    return found.node_id, found.error_code


def test_a_coordinator_moves_to_another_node_with_what_was_stored() -> None:
    with Broker(topics={"t": 1}, nodes=2) as broker:
        old, new = (1, 2) if broker.coordinator_of("g") == 1 else (2, 1)
        with Wire(broker, old) as there, Wire(broker, new) as here:
            joined = there.call(join(), 3)
            sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=[])
            assert there.call(sync, 3).error_code == codes.NONE
            newcomer = there.call(join(), 9)
            there.send(join(newcomer.member_id), 9)
            until(lambda: "PreparingRebalance" in broker.describe_groups()["g"])
            broker.move_coordinator("g", new)
            assert there.receive().error_code == codes.NOT_COORDINATOR
            assert beat(there, joined) == codes.NOT_COORDINATOR
            assert find(there) == (new, codes.NONE)
            assert beat(here, joined) == codes.NONE
            assert [each.group_id for each in here.call(ListGroupsRequest()).groups] == ["g"]
            assert there.call(ListGroupsRequest()).groups == []


def test_a_group_without_a_coordinator_gets_it_back() -> None:
    with Broker(topics={"t": 1}) as broker, Wire(broker) as wire:
        wire.call(commit(5), 8)
        broker.move_leader(OFFSETS_TOPIC, coordinator_partition("g"), -1)
        assert find(wire) == (-1, codes.COORDINATOR_NOT_AVAILABLE)
        assert broker.coordinator_of("g") == -1
        assert broker.describe_groups() == {}
        assert wire.call(commit(6), 8).topics[0].partitions[0].error_code == codes.NOT_COORDINATOR
        broker.move_coordinator("g", 1)
        found = wire.call(offsets(), 8).groups[0].topics[0].partitions[0]
        assert found.committed_offset == 5
        with pytest.raises(ConfigError, match="no node 7"):
            broker.move_coordinator("g", 7)


def test_an_unclean_election_loses_what_the_new_leader_did_not_have() -> None:
    with Broker(topics={"t": 1}) as broker, Wire(broker) as wire:
        wire.call(commit(5), 8)
        wire.call(commit(6), 8)
        broker.elect_uncleanly(OFFSETS_TOPIC, coordinator_partition("g"), 1)
        found = wire.call(offsets(), 8).groups[0].topics[0].partitions[0]
        assert found.committed_offset == 5


def test_a_stored_group_is_read_back_as_its_key_says(stage: Stage) -> None:
    stage.stable()
    found = list(stage.coordination.topic.read(coordinator_partition("g")))
    assert [each.key for each in found if isinstance(each, Record)] == [GroupMetadataKey("g")] * 2


def test_groups_and_offsets_are_there_after_the_broker_was_started_again(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        joined = wire.call(join(), 3)
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=[])
        assert wire.call(sync, 3).error_code == codes.NONE
        assert wire.call(commit(5, ELSEWHERE), 8).topics[0].partitions[0].error_code == codes.NONE
    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert beat(wire, joined) == codes.NONE
        assert wire.call(offsets(ELSEWHERE), 8).groups[0].topics[0].partitions[0].committed_offset == 5


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from kadence_broker import Broker\n"
        "broker = Broker(topics={'t': 1}, data_dir=sys.argv[1])\n"
        "print(broker.bootstrap_servers, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with Wire(process.stdout.readline().strip()) as wire:
                for number in range(20):
                    answer = wire.call(commit(number), 8)
                    assert answer.topics[0].partitions[0].error_code == codes.NONE
        finally:
            process.kill()
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire:
        assert wire.call(offsets(), 8).groups[0].topics[0].partitions[0].committed_offset == 19
