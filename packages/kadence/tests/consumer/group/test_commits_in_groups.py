"""Commits of members whose group goes on around them, in a simulation."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.simulated import Group, work

from kadence import AsyncConsumer, AsyncRebalanceListener, TopicPartition
from kadence.errors import CommitFailedError, FencedInstanceIdError, KafkaError
from kadence.protocol import error_codes
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.types import OffsetAndMetadata
from kadence_testing.simulation import Program

T0 = TopicPartition("t", 0)


def committed(group: Group) -> dict[TopicPartition, int]:
    """What the broker has accepted."""
    return {partition: offset for (_, partition), offset in group.history.committed.items()}


def commit(group: Group, program: Program, offsets: Mapping[TopicPartition, int]) -> KafkaError | None:
    """Have the program commit; how that ended."""
    ends: list[KafkaError | None] = []

    async def act(consumer: AsyncConsumer) -> None:
        try:
            await consumer.commit({each: OffsetAndMetadata(offset) for each, offset in offsets.items()})
        except KafkaError as error:
            ends.append(error)
        else:
            ends.append(None)

    program.order(act)
    group.run_until(lambda: bool(ends), 30)
    return ends[0]


def test_a_commit_leaves_out_the_partitions_that_moved_and_commits_the_others() -> None:
    """Two members share four partitions: what this one gave up is named, what stayed is committed."""
    with Group({"t": 4}) as group:
        one = group.member("one")
        group.settle()
        other = group.member("other")
        group.settle()
        stays, moved = min(one.owned), min(other.owned)
        error = commit(group, one, {stays: 3, moved: 7})
        assert isinstance(error, CommitFailedError)
        assert error.partitions == {moved}
        assert str(moved) in str(error)
        assert "The other partitions of the commit are committed." in str(error)
        ends: list[KafkaError | None] = []

        async def commit_async(consumer: AsyncConsumer) -> None:
            offsets = {moved: OffsetAndMetadata(8), stays: OffsetAndMetadata(4)}
            consumer.commit_async(offsets, lambda _, error: ends.append(error))  # type: ignore[arg-type]

        one.order(commit_async)
        group.run_until(lambda: bool(ends), 10)
        (late,) = ends
        assert isinstance(late, CommitFailedError)
        assert late.partitions == {moved}
        assert (committed(group)[stays], committed(group).get(moved, 0)) == (4, 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_is_fenced_again_is_told_again(protocol: str) -> None:
    """The same error in the same words, in one life of a consumer."""
    polls: list[str] = []

    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            enable_auto_commit=False,
        ) as consumer:
            for _ in range(3):
                await consumer.subscribe("t", listener=program.attach(consumer))
                while not consumer.assignment():
                    await consumer.poll(1)
                consumer.commit_async({T0: OffsetAndMetadata(1)})
                try:
                    await consumer.poll(5)
                    polls.append("nothing")
                except FencedInstanceIdError:
                    polls.append("fenced")

    with Group({"t": 1}) as group:
        group.broker.core.faults.error(OffsetCommitRequest, error_codes.FENCED_INSTANCE_ID)
        program = group.start("a", main)
        group.until(lambda: program.is_done, 120)
        assert polls == ["fenced"] * 3


def test_manual_commit_into_a_live_group_says_what_is_wrong() -> None:
    async def main(program: Program) -> str:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            await consumer.assign([T0])
            try:
                await consumer.commit({T0: OffsetAndMetadata(5)})
            except CommitFailedError as error:
                return str(error)
        return ""

    with Group({"t": 2}) as group:
        group.member("a")
        group.settle()
        other = group.start("other", main)
        group.until(lambda: other.is_done, 60)
        assert "assign()" in other.result()
        assert committed(group) == {}


def test_eager_commit_while_the_group_waits_and_inside_the_revocation_callback() -> None:
    """The partitions are still this member's, so a commit works."""
    done: list[str] = []

    class Commits(AsyncRebalanceListener):
        def __init__(self, consumer: AsyncConsumer) -> None:
            self._consumer = consumer

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await self._consumer.commit({each: OffsetAndMetadata(8) for each in partitions})
            done.append("revoked")

    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers,
            group_id="g",
            group_protocol="classic",
            partition_assignment_strategy="range",
            enable_auto_commit=False,
        ) as consumer:
            program.attach(consumer)
            await consumer.subscribe("t", listener=Commits(consumer))
            while True:
                await consumer.poll(1)
                await program.obey()

    with Group({"t": 2}) as group:
        a = group.start("a", main)
        group.until(lambda: len(a.owned) == 2, 10)
        work(group, a, 10)
        group.member("b", partition_assignment_strategy="range")
        group.run(5)
        assert group.coordinated.state_name == "PreparingRebalance"
        assert done == []
        assert commit(group, a, {T0: 4}) is None
        group.until(lambda: len(a.owned) == 1)
        assert done[0] == "revoked"
        assert committed(group) == {T0: 8, TopicPartition("t", 1): 8}


@pytest.mark.parametrize("later_ms", [None, 0, 25, 50, 75, 100, 125])
@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_who_leaves_in_the_middle_of_a_rebalance_commits_in_its_callback(
    how: str, later_ms: int | None
) -> None:
    """Another member's leaving begins the rebalance, of which this one may have heard when it is to leave, too.

    Args:
        later_ms: how long after its JoinGroup reached the broker; None: before it was sent. Each way takes 50 ms, so
            either request, or the answer to it, is on its way in one of the cases.
    """
    told: list[str] = []
    took: list[float] = []

    class Commits(AsyncRebalanceListener):
        def __init__(self, consumer: AsyncConsumer) -> None:
            self._consumer = consumer

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            told.append("revoked")
            await self._consumer.commit({each: OffsetAndMetadata(8) for each in partitions})
            told.append("committed")

        async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            told.append("lost")

    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers,
            group_id="g",
            group_protocol="classic",
            heartbeat_interval_ms=500,
            enable_auto_commit=False,
        ) as consumer:
            program.attach(consumer)
            await consumer.subscribe("t", listener=Commits(consumer))
            while not program.stopping.is_set():
                await consumer.poll(0.01)
            began = group.now
            await (consumer.close if how == "close" else consumer.unsubscribe)(timeout=10)
            took.append(group.now - began)

    with Group({"t": 4}) as group:
        one, two = group.start("one", main), group.member("two", heartbeat_interval_ms=500)
        group.until(lambda: len(one.owned) == len(two.owned) == 2)
        group.run(2)
        assert group.coordinated.state_name == "Stable"
        owned = one.owned
        told.clear()
        group.network.delay_ms = (50, 50)
        joins = group.observe(JoinGroupRequest, one)
        two.stop()
        if later_ms is None:
            group.until(lambda: group.coordinated.state_name == "PreparingRebalance", 5)
        else:
            group.until(lambda: len(joins) > 0, 5)
            group.run(later_ms / 1000)
        assert one.owned == owned
        one.stop()
        group.until(lambda: one.is_done, 30)
        assert told == ["revoked", "committed"]
        assert committed(group).keys() >= owned
        assert {committed(group)[each] for each in owned} == {8}
        assert took[0] < 2
