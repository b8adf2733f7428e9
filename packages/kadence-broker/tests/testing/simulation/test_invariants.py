"""Each invariant of a simulation can fail: the coordinator, or the log, is broken on purpose, and the run ends."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kadence import AsyncConsumer, OffsetAndMetadata, Record, TopicPartition
from kadence.clock import FOREVER
from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kadence.protocol.consumer_group_member_metadata_record import ConsumerGroupMemberMetadataKey
from kadence.protocol.consumer_group_metadata_record import ConsumerGroupMetadataKey
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_assignment import TopicPartition as Given
from kadence.protocol.group_metadata_record import GroupMetadataKey
from kadence.protocol.offset_commit_record import OffsetCommitKey
from kadence.protocol.registry import encode_versioned
from kadence.protocol.sync_group import SyncGroupResponse
from kadence_broker.coordinator import GroupCoordinator
from kadence_broker.coordinator import Record as Stored
from kadence_broker.coordinator.timers import Timers
from kadence_testing.simulation import Program, Simulation, SimulationError, member, writer


async def quick(program: Program, record: Record) -> None:
    """Process a record in no time."""


def running(protocol: str, members: int = 2) -> Simulation:
    simulation = Simulation(seed=1, topics={"t": 4})
    for number in range(members):
        simulation.start(
            f"m{number}",
            member("g", ["t"], quick, {"group.protocol": protocol, "auto.commit.interval.ms": 100}),
        )
    simulation.run(10)
    return simulation


def coordinator_of(simulation: Simulation) -> Any:
    return simulation.broker.core.coordination.coordinator


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_outlives_its_session(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    with running(protocol) as simulation:
        simulation.programs["m0"].kill()
        monkeypatch.setattr(Timers, "pop_due", lambda self, now: None)
        monkeypatch.setattr(Timers, "next_deadline", lambda self: FOREVER)
        with pytest.raises(
            SimulationError, match=r"seed 1, at .*: member .* was last heard \d+ ms ago, and its session"
        ):
            simulation.run(100)


def test_a_partition_that_two_members_hold() -> None:
    with running("consumer") as simulation:
        group = coordinator_of(simulation).groups["g"]
        first, second = group.members.values()
        group.members[second.member_id] = second.evolved(assigned={**second.assigned, **first.assigned})
        with pytest.raises(SimulationError, match=r"is held by '.*' and by '.*' in <consumer group 'g'"):
            simulation.run(10)


def test_a_partition_that_a_generation_gives_to_two_members(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = encode_versioned(
        ConsumerProtocolAssignment(assigned_partitions=[Given("t", [0, 1, 2, 3])]), 1
    )
    write = SyncGroupResponse.__init__

    def generous(self: SyncGroupResponse, *args: Any, **more: Any) -> None:
        write(self, *args, **more)
        self.assignment = everything

    monkeypatch.setattr(SyncGroupResponse, "__init__", generous)
    with pytest.raises(SimulationError, match=r"was given to '.*' and to '.*' in generation \d of group 'g'"):
        running("classic").run(10)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_generation_that_goes_back(protocol: str) -> None:
    with running(protocol) as simulation:
        group = coordinator_of(simulation).groups["g"]
        if protocol == "classic":
            group.generation_id -= 1
        else:
            group.epoch -= 1
        with pytest.raises(SimulationError, match=r"went back from generation or epoch \d"):
            simulation.run(10)


def test_a_member_epoch_that_goes_back() -> None:
    with running("consumer") as simulation:
        group = coordinator_of(simulation).groups["g"]
        first = next(iter(group.members.values()))
        group.members[first.member_id] = first.evolved(epoch=first.epoch - 1)
        with pytest.raises(
            SimulationError, match=r"member '.*' of .* went back from epoch 3 to 2|went back from epoch"
        ):
            simulation.run(10)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_of_a_member_that_is_none(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    """The group forgets its members, and its coordinator takes their commits all the same."""
    with running(protocol) as simulation:
        group = coordinator_of(simulation).groups["g"]
        simulation.start("writer", writer(["t"], count=200, pause_s=0.02))
        simulation.run(1)
        monkeypatch.setattr(type(group), "commit_code", lambda *_args, **_more: 0)
        group.members.clear()
        with pytest.raises(SimulationError, match=r"a commit from the past was accepted: t-\d offset"):
            simulation.run(10)


def test_a_commit_that_skips_a_record() -> None:
    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            await consumer.assign({TopicPartition("t", 0): 0})
            for offset in (0, 1, 3):
                program.has_processed("g", TopicPartition("t", 0), offset)
            await consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(2)})
            await consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(4)})

    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("skips", main)
        with pytest.raises(
            SimulationError, match="committed t-0 up to 4, and did not process the record at 2"
        ):
            simulation.run(10)
        assert simulation.history.committed == {("g", TopicPartition("t", 0)): 4}


def test_a_record_that_is_lost() -> None:
    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("writer", writer(["t"], count=5, pause_s=0.01))
        simulation.run(10)
        simulation.check()
        simulation.broker.core.partition("t", 0).truncate(3, simulation.scheduler.wall_ms())
        with pytest.raises(
            SimulationError, match=r"t-0 offset 3 was acknowledged as .*, and the log has None"
        ):
            simulation.check()


def test_records_that_are_deleted_on_purpose_are_not_lost() -> None:
    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("writer", writer(["t"], count=5, pause_s=0.01))
        simulation.run(10)
        simulation.broker.delete_records("t", 0, 3)
        simulation.check()
        settings = {"auto.offset.reset": "earliest"}
        simulation.start("reader", member("g", ["t"], quick, settings))
        simulation.run(30)
        assert simulation.history.committed == {("g", TopicPartition("t", 0)): 5}
        simulation.broker.core.partition("t", 0).truncate(4, simulation.scheduler.wall_ms())
        with pytest.raises(SimulationError, match="t-0 offset 4 was acknowledged"):
            simulation.check()


def test_a_record_that_is_there_twice() -> None:
    async def main(program: Program) -> None:
        async with program.producer() as producer:
            for _ in range(2):
                await producer.send("t", b"x", partition=0)

    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("writer", main)
        simulation.run(10)
        simulation.check()
        # As if the program had sent it once, and a retry had written it again.
        simulation.history.sent["t", b"x"] = 1
        with pytest.raises(SimulationError, match="t-0 has b'x' more often than it was sent"):
            simulation.check()


def crash_and_restart(simulation: Simulation) -> None:
    simulation.broker.crash()
    simulation.run(0.5)
    simulation.broker.restart()


def has_committed_all(simulation: Simulation, count: int) -> bool:
    return sum(simulation.history.committed.values()) == count


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commits_and_epochs_outlive_a_crash(protocol: str) -> None:
    with running(protocol) as simulation:
        simulation.start("writer", writer(["t"], count=20, pause_s=0.02))
        simulation.run_until(lambda: has_committed_all(simulation, 20))
        crash_and_restart(simulation)
        simulation.run(1)


def loses(monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[Any], bool]) -> None:
    """The next broker does not load records whose key is lost."""
    replay = GroupCoordinator.replay

    def forgetful(self: GroupCoordinator, record: Any) -> None:
        if not is_lost(record.key):
            replay(self, record)

    monkeypatch.setattr(GroupCoordinator, "replay", forgetful)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_offsets_that_a_restart_loses(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    with running(protocol) as simulation:
        simulation.start("writer", writer(["t"], count=20, pause_s=0.02))
        simulation.run_until(lambda: has_committed_all(simulation, 20))
        loses(monkeypatch, lambda key: isinstance(key, OffsetCommitKey))
        crash_and_restart(simulation)
        with pytest.raises(
            SimulationError,
            match=r"group 'g' had t-\d committed up to \d+, acknowledged, and after the restart it is not committed",
        ):
            simulation.run(1)


def test_a_committed_offset_that_a_restart_takes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next broker has the first commit, and not the last one."""

    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            await consumer.assign({TopicPartition("t", 0): 0})
            for offset in (3, 7):
                await consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(offset)})

    with Simulation(topics={"t": 1}) as simulation:
        program = simulation.start("commits", main)
        simulation.run_until(lambda: program.is_done)
        crash_and_restart(simulation)
        simulation.run(1)
        replay = GroupCoordinator.replay

        def forgetful(self: GroupCoordinator, record: Any) -> None:
            if not (
                isinstance(record.key, OffsetCommitKey)
                and record.value is not None
                and record.value.offset == 7
            ):
                replay(self, record)

        monkeypatch.setattr(GroupCoordinator, "replay", forgetful)
        crash_and_restart(simulation)
        with pytest.raises(
            SimulationError, match="t-0 committed up to 7, acknowledged, and after the restart it is 3"
        ):
            simulation.run(1)


def test_committed_offsets_that_were_deleted_are_not_missed() -> None:
    with Simulation(topics={"t": 1, "u": 1}) as simulation:

        async def main(program: Program) -> None:
            async with AsyncConsumer(bootstrap_servers=program.bootstrap_servers, group_id="g") as consumer:
                parts = TopicPartition("t", 0), TopicPartition("u", 0)
                await consumer.assign(dict.fromkeys(parts, 0))
                await consumer.commit(dict.fromkeys(parts, OffsetAndMetadata(4)))

        program = simulation.start("commits", main)
        simulation.run_until(lambda: program.is_done)
        core = simulation.broker.core
        core.cluster.delete_topic(core.cluster.topics["t"])
        core.coordination.topic_deleted("t")
        core.create_topic("t", 1)
        crash_and_restart(simulation)
        simulation.run(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_generation_or_epoch_that_a_restart_takes_back(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    kind, epoch = {
        "classic": (GroupMetadataKey, "generation"),
        "consumer": (ConsumerGroupMetadataKey, "epoch"),
    }[protocol]
    replay = GroupCoordinator.replay

    def lower(self: GroupCoordinator, record: Any) -> None:
        value = copy.copy(record.value)
        if isinstance(record.key, kind) and value is not None:
            setattr(value, epoch, getattr(value, epoch) - 1)
        replay(self, Stored(record.key, value, record.producer))

    with running(protocol) as simulation:
        monkeypatch.setattr(GroupCoordinator, "replay", lower)
        crash_and_restart(simulation)
        with pytest.raises(SimulationError, match=r"the restart took .* back from generation or epoch \d"):
            simulation.run(1)


def test_a_group_that_a_restart_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its committed offsets are there, and make another group of them."""
    with running("consumer") as simulation:
        loses(monkeypatch, lambda key: not isinstance(key, OffsetCommitKey))
        crash_and_restart(simulation)
        with pytest.raises(
            SimulationError, match=r"group 'g' had members in .*, and after the restart there is <group"
        ):
            simulation.run(1)


def test_a_member_that_a_restart_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("consumer") as simulation:
        of_members = ConsumerGroupMemberMetadataKey, ConsumerGroupCurrentMemberAssignmentKey
        loses(monkeypatch, lambda key: isinstance(key, of_members))
        crash_and_restart(simulation)
        with pytest.raises(SimulationError, match=r"the restart took member '.*' from <consumer group 'g'"):
            simulation.run(1)
