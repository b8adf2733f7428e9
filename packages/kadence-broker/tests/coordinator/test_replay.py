"""Rule E0: records alone change what outlives the process, so whoever replays them knows the same.

The machine of `test_machine` checks it after every step of a classic group; here are the offsets, groups that are
deleted, and what a coordinator does with what it loaded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.luck import examples
from tests.worlds.coordinator import TOPICS, World

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.group_metadata_record import GroupMetadataKey
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence_broker.coordinator import GroupCoordinator, Record

TOPIC = st.sampled_from(TOPICS[:3])
GROUP = st.sampled_from(["g", "h"])
PRODUCER = st.integers(1, 2)


def everything(_: str) -> bool:
    return True


class OffsetMachine(RuleBasedStateMachine):
    """Commits of all sorts, deletions, expiry and transactions, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(offsets_retention_ms=10_000, offsets_retention_check_interval_ms=1_000)
        self.steps: list[Record | tuple[int, bool]] = []
        """What a log would hold: records, and the markers of transactions."""
        self.seen = 0

    def note(self) -> None:
        self.steps += self.world.log[self.seen :]
        self.seen = len(self.world.log)

    @rule(group=GROUP, topic=TOPIC, offset=st.integers(0, 9), retention=st.sampled_from([-1, 0, 3_000]))
    def commit(self, group: str, topic: str, offset: int, retention: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            retention_time_ms=retention,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        self.world.send(request, 9 if retention < 0 else 4)

    @rule(group=GROUP, topic=TOPIC, offset=st.integers(0, 9), producer=PRODUCER)
    def commit_in_a_transaction(self, group: str, topic: str, offset: int, producer: int) -> None:
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=self.world.now)
        record = Record(OffsetCommitKey(group, topic, 0), value, (producer, 0))
        self.world.coordinator.replay(record)
        self.world.log.append(record)

    @rule(producer=PRODUCER, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.note()
        self.steps.append((producer, committed))
        self.world.coordinator.end_transaction(self.world.now, producer, 0, committed, everything)

    @rule(group=GROUP, topic=TOPIC)
    def delete(self, group: str, topic: str) -> None:
        partition = OffsetDeleteRequestPartition(partition_index=0)
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
        self.world.send(OffsetDeleteRequest(group_id=group, topics=topics), 0)

    @rule(group=GROUP)
    def delete_group(self, group: str) -> None:
        self.world.send(DeleteGroupsRequest(groups_names=[group]), 2)

    @rule(topic=TOPIC)
    def delete_topic(self, topic: str) -> None:
        self.world.deliver(self.world.coordinator.topic_deleted(self.world.now, topic))

    @rule()
    def join_and_leave(self) -> None:
        joined = self.world.join(version=3)
        if joined.response is not None:
            self.world.leave(joined.response.member_id)

    @rule(ms=st.sampled_from([1, 1_000, 9_000, 11_000]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @invariant()
    def whoever_replays_the_log_knows_the_same(self) -> None:
        self.note()
        loaded = GroupCoordinator()
        for step in self.steps:
            if isinstance(step, Record):
                loaded.replay(step)
            else:
                loaded.end_transaction(0, step[0], 0, step[1], everything)
        assert list(loaded.snapshot(everything)) == self.world.snapshot()

    @invariant()
    def a_snapshot_stands_for_the_log(self) -> None:
        snapshot = self.world.snapshot()
        loaded = GroupCoordinator()
        for record in snapshot:
            loaded.replay(record)
        assert list(loaded.snapshot(everything)) == snapshot
        for producer in (1, 2):
            loaded.end_transaction(0, producer, 0, committed=True, owns=everything)
        assert [each.producer for each in loaded.snapshot(everything) if each.producer is not None] == []


TestOffsetMachine = OffsetMachine.TestCase
TestOffsetMachine.settings = examples(30, stateful_step_count=25)


def committed(world: World, *, require_stable: bool = False) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=require_stable
    )
    response: Any = world.send(request, 8).response
    found = response.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


def offset(number: int, producer: int | None = None) -> Record:
    value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=0)
    return Record(OffsetCommitKey("g", "t", 0), value, None if producer is None else (producer, 0))


def test_offsets_of_a_transaction_count_once_it_is_committed() -> None:
    world = World()
    coordinator = world.coordinator
    coordinator.replay(offset(1))
    coordinator.replay(offset(2, producer=7))
    assert committed(world) == (1, codes.NONE)
    assert committed(world, require_stable=True) == (-1, codes.UNSTABLE_OFFSET_COMMIT)
    coordinator.end_transaction(0, 8, 0, committed=True, owns=everything)
    coordinator.end_transaction(0, 7, 0, committed=True, owns=lambda group_id: group_id != "g")
    assert committed(world) == (1, codes.NONE)
    coordinator.end_transaction(0, 7, 0, committed=True, owns=everything)
    assert committed(world, require_stable=True) == (2, codes.NONE)


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    world = World()
    world.coordinator.replay(offset(2, producer=7))
    world.coordinator.end_transaction(0, 7, 0, committed=False, owns=everything)
    assert committed(world, require_stable=True) == (-1, codes.NONE)


def test_the_last_commit_wins_even_if_a_transaction_ends_after_it() -> None:
    world = World()
    world.coordinator.replay(offset(2, producer=7))
    world.coordinator.replay(offset(5))
    world.move(rewritten=True)
    world.coordinator.end_transaction(0, 7, 0, committed=True, owns=everything)
    assert committed(world) == (5, codes.NONE)


def test_an_offset_that_a_transaction_may_still_move_does_not_expire() -> None:
    world = World(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=100)
    world.coordinator.replay(offset(1))
    world.coordinator.replay(offset(2, producer=7))
    world.coordinator.loaded(0)
    world.advance(5_000)
    assert committed(world) == (1, codes.NONE)
    world.coordinator.end_transaction(0, 7, 0, committed=False, owns=everything)
    world.advance(1_000)
    assert world.coordinator.groups == {}


def test_a_new_coordinator_waits_a_session_for_the_members_that_it_found() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.move()
    assert (world.state, world.group.generation_id) == ("Stable", leader.generation_id)
    world.advance(9_000)
    assert world.heartbeat(leader.member_id) == codes.NONE
    world.advance(2_000)
    assert list(world.group.members) == [leader.member_id], "the other one has not been heard of"
    again = world.join(leader.member_id)
    assert again.response.generation_id == leader.generation_id + 1
    assert follower.member_id not in {each.member_id for each in again.response.members}


def test_a_group_that_is_too_large_for_a_new_coordinator_is_rebalanced() -> None:
    world = World()
    first, second = world.stable(2)
    world.coordinator._shard.config = replace(world.coordinator._shard.config, max_size=1)
    world.move()
    assert world.state == "PreparingRebalance"
    assert world.heartbeat(first.member_id) == codes.REBALANCE_IN_PROGRESS
    stays = world.join(first.member_id)
    assert world.join(second.member_id).code == codes.GROUP_MAX_SIZE_REACHED
    assert stays.code == codes.NONE
    assert list(world.group.members) == [first.member_id]


def test_a_member_gets_its_assignment_from_a_new_coordinator() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.move(rewritten=True)
    assert world.sync(leader).response.assignment == leader.member_id.encode()


def test_whoever_waits_at_a_coordinator_that_moves_is_told_to_look_for_it() -> None:
    world = World()
    leader, _ = world.stable(2)
    joining = world.join(leader.member_id)
    pending = world.new_id()
    world.move()
    assert joining.code == codes.NOT_COORDINATOR
    assert world.state == "Stable"
    assert world.join(pending).code == codes.UNKNOWN_MEMBER_ID, "an id that nobody used is not stored"

    joins = [world.join(each) for each in list(world.group.members)]
    follower = next(each.response for each in joins if each.response.leader != each.response.member_id)
    syncing = world.sync(follower)
    assert syncing.is_parked
    world.move()
    assert syncing.code == codes.NOT_COORDINATOR


def test_nothing_of_a_group_that_was_given_up_is_left() -> None:
    world = World()
    world.stable(1)
    world.new_id()
    world.coordinator.replay(offset(1))
    outcome = world.coordinator.unload(world.now, lambda group_id: group_id == "g")
    assert (outcome.records, outcome.answers) == ([], [])
    assert world.snapshot() == []
    assert repr(world.coordinator) == "<GroupCoordinator 0 groups, 1 timers>"


def test_other_groups_stay_with_the_coordinator() -> None:
    world = World()
    (member,) = world.stable(1)
    world.coordinator.unload(world.now, lambda group_id: group_id != "g")
    assert world.heartbeat(member.member_id) == codes.NONE


def test_records_and_the_answers_that_depend_on_them_go_out_together() -> None:
    world = World()
    joined = world.join(version=3).response
    before = len(world.log)
    synced = world.sync(joined, {joined.member_id: b"a"}, version=3)
    assert synced.code == codes.NONE
    (record,) = world.log[before:]
    assert record.key == GroupMetadataKey("g")
    assert record.value is not None
    assert [each.assignment for each in record.value.members] == [b"a"]


def test_a_record_with_the_time_of_day_and_not_of_the_loop() -> None:
    coordinator = GroupCoordinator(wall=lambda now: now + 1_000_000)
    world = World()
    world.coordinator = coordinator
    world.join()
    (record,) = world.log
    assert record.value is not None
    assert record.value.current_state_timestamp == world.now + 1_000_000


def test_a_deleted_group_leaves_a_tombstone_of_each_record() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(member.member_id)
    world.coordinator.replay(offset(1))
    before = len(world.log)
    world.send(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert world.log[before:] == [
        Record(OffsetCommitKey("g", "t", 0), None),
        Record(GroupMetadataKey("g"), None),
    ]


def test_a_static_member_that_came_back_is_stored_under_its_new_id() -> None:
    world = World()
    first = world.join(instance="i")
    world.settle([first])
    second = world.join(instance="i")
    assert second.code == codes.NONE
    world.move()
    assert list(world.group.members) == [second.response.member_id]
    assert world.heartbeat(first.response.member_id, instance="i") == codes.FENCED_INSTANCE_ID
