"""Commits of members whose group goes on around them, in a simulation."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulated import Group, work

from kadence import AsyncConsumer, AsyncRebalanceListener, TopicPartition
from kadence.errors import CommitFailedError, KafkaError
from kadence.testing.simulation import Program
from kadence.types import OffsetAndMetadata

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
