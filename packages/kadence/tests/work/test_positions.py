"""Where `process` begins, and what of that is committed: resets, ranges, seeks, retention, and commits that fail."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
from base64 import b64encode
from itertools import pairwise
from typing import Any, Final

import pytest
from tests.work.worlds import GROUP, ONE, Simulated, become

from kadence import OffsetAndMetadata, Record, TopicPartition
from kadence.errors import IllegalStateError, WakeupError
from kadence.protocol import error_codes as ec
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.work.frontier import encode
from kadence_testing.simulation import Program

PROTOCOLS: Final = ("classic", "consumer")
LATEST: Final = {"auto_offset_reset": "latest", "auto_commit_interval_ms": 100}


def alter(world: Simulated, offset: int, metadata: str = "") -> None:
    """The group has committed this."""
    operator = world.member(None, enable_auto_commit=False)
    operator.do(lambda consumer: consumer.assign([ONE]))
    operator.do(lambda consumer: consumer.commit({ONE: OffsetAndMetadata(offset, None, metadata)}))
    operator.close()


@pytest.fixture
def unchecked() -> Any:
    """Groups that begin where they are told to have not handled what lies before."""
    with Simulated() as world:
        world.is_checked = False
        world.simulation.history.late_groups.add(GROUP)
        yield world


# ---------------------------------------------------------------- where it begins is committed (H8)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_what_comes_between_two_runs_on_a_quiet_topic_is_handled(
    unchecked: Simulated, protocol: str, transactional_id: str | None
) -> None:
    unchecked.write("one", 20)
    settings = {**LATEST, "group_protocol": protocol, "isolation_level": "read_committed"}
    first = unchecked.member("one", **settings)
    call = first.processes(lambda record: None, transactional_id=transactional_id)
    unchecked.until(lambda: unchecked.committed().get(0) == (20, ""))
    first.stop()
    call.result()
    first.close()
    unchecked.write("one", 5)
    offsets: list[int] = []
    unchecked.member("one", **settings).process(
        lambda record: offsets.append(record.offset),
        until=lambda: len(offsets) == 5,
        transactional_id=transactional_id,
    )
    assert offsets == list(range(20, 25))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_what_comes_while_a_quiet_partition_moves_is_handled(
    unchecked: Simulated, protocol: str, transactional_id: str | None
) -> None:
    """It is written when the old owner has given it up, and before the new one has looked where to begin."""
    settings = {**LATEST, "auto_commit_interval_ms": 3_600_000, "group_protocol": protocol}
    settings["isolation_level"] = "read_committed"
    handled: list[tuple[int, int]] = []

    def work(record: Record[Any, Any]) -> None:
        handled.append((record.partition, record.offset))

    first = unchecked.member("orders", **settings)
    calls = [first.processes(work, transactional_id=transactional_id and "first")]
    unchecked.until(lambda: len(first.consumer.assignment()) == 4)
    unchecked.simulation.run(5)
    second = unchecked.member("orders", **settings)
    calls.append(second.processes(work, transactional_id=transactional_id and "second"))
    unchecked.until(lambda: len(first.consumer.assignment()) == 2)
    for partition in range(4):
        unchecked.send("orders", [{"value": b"v", "partition": partition}])
    unchecked.until(lambda: len(handled) >= 4)
    first.stop()
    second.stop()
    for call in calls:
        call.result()
    assert sorted(handled) == [(partition, 0) for partition in range(4)]


@pytest.mark.parametrize("reset", ["latest", "earliest"])
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_where_retention_has_passed_the_committed_offset_the_commit_moves(
    unchecked: Simulated, reset: str, transactional_id: str | None
) -> None:
    unchecked.write("one", 20)
    alter(unchecked, 7, encode(7, [(9, 12)]))
    unchecked.simulation.broker.delete_records("one", 0, 20)
    settings = {**LATEST, "auto_offset_reset": reset, "isolation_level": "read_committed"}
    member = unchecked.member("one", **settings)
    totals = member.process(
        lambda record: None,
        until=lambda: unchecked.committed()[0] == (20, ""),
        transactional_id=transactional_id,
    )
    assert totals.done == 0


# ---------------------------------------------------------------- what the program chooses is meant


@pytest.mark.parametrize("how", ["range", "seek", "seek_to_beginning", "listener"])
def test_a_replay_is_done_whole_whatever_was_done_above_the_committed_offset(
    unchecked: Simulated, how: str
) -> None:
    unchecked.write("one", 50)
    alter(unchecked, 5, encode(5, [(6, 50)]))
    offsets: list[int] = []

    class Sought:
        def __init__(self) -> None:
            self.consumer: Any = None

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                await self.consumer.seek(partition, 0)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            del partitions

        on_partitions_lost = on_partitions_revoked

    async def replay(consumer: Any) -> None:
        if how == "range":
            await consumer.assign({ONE: (0, 50)})
        elif how == "listener":
            sought = Sought()
            sought.consumer = consumer
            await consumer.subscribe("one", listener=sought)
        else:
            await consumer.assign([ONE])
            await (consumer.seek(ONE, 0) if how == "seek" else consumer.seek_to_beginning([ONE]))

    member = unchecked.member(None, auto_commit_interval_ms=20)
    member.do(replay)
    totals = member.process(
        lambda record: offsets.append(record.offset),
        order="none",
        until=lambda: unchecked.committed()[0] == (50, ""),
    )
    assert sorted(offsets) == list(range(50))
    assert totals.already_done == 0


def test_what_is_done_above_the_committed_offset_is_skipped_where_that_is_the_position(
    unchecked: Simulated,
) -> None:
    unchecked.write("one", 50)
    alter(unchecked, 5, encode(5, [(6, 50)]))
    offsets: list[int] = []
    member = unchecked.member("one", auto_commit_interval_ms=20)
    totals = member.process(
        lambda record: offsets.append(record.offset), until=lambda: unchecked.committed()[0] == (50, "")
    )
    assert (offsets, totals.already_done) == ([5], 44)


def test_what_is_committed_of_records_behind_the_end_of_the_log_says_nothing(unchecked: Simulated) -> None:
    """The log lost its end, or somebody made it up: what is written there later was never handled."""
    unchecked.write("one", 10)
    alter(unchecked, 2, encode(2, [(3, 5), (8, 20)]))
    offsets: list[int] = []
    member = unchecked.member("one", auto_commit_interval_ms=20)

    def work(record: Record[Any, Any]) -> None:
        offsets.append(record.offset)

    call = member.processes(work)
    unchecked.until(lambda: unchecked.committed()[0] == (10, ""))
    unchecked.write("one", 20)
    unchecked.until(lambda: unchecked.committed()[0] == (30, ""))
    member.stop()
    assert call.result().already_done == 2
    assert sorted(offsets) == [2, *range(5, 30)]


def test_odd_metadata_ends_no_member(unchecked: Simulated) -> None:
    check = binascii.crc32(b"\x80", binascii.crc32(bytes(8)))
    unchecked.write("one", 3)
    alter(unchecked, 0, "kadence-work:1:" + b64encode(check.to_bytes(4, "big") + b"\x80").decode())
    offsets: list[int] = []
    unchecked.member("one", auto_commit_interval_ms=20).process(
        lambda record: offsets.append(record.offset), until=lambda: unchecked.committed()[0] == (3, "")
    )
    assert sorted(offsets) == [0, 1, 2]


@pytest.mark.parametrize("to", [0, 3, 8])
def test_a_seek_in_the_midst_skips_nothing_and_commits_nothing_that_is_not_done(
    unchecked: Simulated, to: int
) -> None:
    """Record 4 is in work meanwhile, and those behind it are done."""
    unchecked.write("one", 10)
    member = unchecked.member("one", auto_commit_interval_ms=20)
    offsets: list[int] = []
    may_end: list[bool] = []

    async def work(record: Record[Any, Any]) -> None:
        offsets.append(record.offset)
        if record.offset == 4 and offsets.count(4) == 1:
            await become(lambda: may_end)

    call = member.processes(work, order="none")
    unchecked.until(lambda: len(offsets) == 10 and unchecked.committed().get(0, (0, ""))[0] == 4)
    member.do(lambda consumer: consumer.seek(ONE, to))
    # What lies before the place that is sought, and is done, is not done again.
    again = [4, 8, 9] if to == 8 else list(range(min(to, 4), 10))
    unchecked.until(lambda: call.is_done or len(offsets) >= 10 + len(again))
    unchecked.simulation.run(1)
    assert sorted(offsets[10:]) == again
    assert unchecked.committed()[0] == (10, "")
    may_end.append(True)
    unchecked.write("one", 1)
    unchecked.until(lambda: unchecked.committed()[0] == (11, ""))
    member.stop()
    call.result()
    assert len(offsets) == 11 + len(again)


# ---------------------------------------------------------------- while the tail of a range is worked on


def test_a_range_is_committed_while_its_tail_is_worked_on(unchecked: Simulated) -> None:
    unchecked.write("one", 20)
    member = unchecked.member(None, auto_commit_interval_ms=100)
    member.do(lambda consumer: consumer.assign({ONE: (0, 20)}))
    may_end: list[bool] = []

    async def work(record: Record[Any, Any]) -> None:
        if record.offset >= 10:
            await asyncio.sleep(1)
        if record.offset == 19:
            await become(lambda: may_end)

    call = member.processes(work, order="partition")
    seen: list[int] = []

    def nine_commits() -> bool:
        at = unchecked.committed().get(0, (0, ""))[0]
        if at >= 10 and at not in seen:
            seen.append(at)
        return len(seen) == 9

    unchecked.until(nine_commits)
    assert seen == list(range(10, 19))
    unchecked.until(lambda: unchecked.committed()[0][0] == 19)
    assert not call.is_done
    may_end.append(True)
    call.result()
    assert unchecked.committed()[0] == (20, "")


def test_a_wakeup_ends_it_while_the_tail_of_a_range_is_worked_on(unchecked: Simulated) -> None:
    unchecked.write("one", 1)
    member = unchecked.member(None, auto_commit_interval_ms=100)
    member.do(lambda consumer: consumer.assign({ONE: (0, 1)}))
    has_begun: list[bool] = []

    async def work(record: Record[Any, Any]) -> None:
        has_begun.append(True)
        await asyncio.sleep(100)

    call = member.processes(work, drain=0.1)
    unchecked.until(lambda: has_begun)
    unchecked.simulation.run(2)
    before = unchecked.now
    member.consumer.wakeup()
    with pytest.raises(WakeupError):
        call.result()
    assert unchecked.now - before < 2


# ---------------------------------------------------------------- wakeups, and commits that fail


def test_a_wakeup_while_the_last_commit_is_made_is_raised_after_it(unchecked: Simulated) -> None:
    """The processing ends by itself, and its commit takes a while."""
    unchecked.write("one", 10)
    member = unchecked.member(None, auto_commit_interval_ms=3_600_000)
    member.do(lambda consumer: consumer.assign({ONE: (0, 10)}))
    held = unchecked.faults.delay(OffsetCommitRequest, 3)
    call = member.processes(lambda record: None)
    unchecked.until(lambda: held.hits)
    member.consumer.wakeup()
    with pytest.raises(WakeupError):
        call.result()
    assert unchecked.committed()[0] == (10, "")


@pytest.mark.parametrize(
    ("how", "protocol"),
    [
        ("refused", "consumer"),
        ("unanswered", "classic"),
        pytest.param("refused", "classic", marks=pytest.mark.heavy),
        pytest.param("unanswered", "consumer", marks=pytest.mark.heavy),
    ],
)
def test_commits_that_fail_while_partitions_go_hold_up_nothing_that_stays(
    unchecked: Simulated, protocol: str, how: str
) -> None:
    """What stays is handled on, and the new owner has what goes after one request timeout at the latest."""
    settings = {"group_protocol": protocol, "auto_commit_interval_ms": 3_600_000}
    handled: list[tuple[str, int, float]] = []

    def work_of(name: str) -> Any:
        def work(record: Record[Any, Any]) -> None:
            handled.append((name, record.partition, unchecked.now))

        return work

    async def main(program: Program) -> None:
        async with program.producer() as producer:
            while not program.stopping.is_set():
                for partition in range(4):
                    await producer.send("orders", b"v", b"k", partition=partition)
                await asyncio.sleep(0.1)

    writer = unchecked.simulation.start("steady writer", main)
    first = unchecked.member("orders", **settings)
    call = first.processes(work_of("first"))
    unchecked.until(lambda: {partition for _, partition, _ in handled} == set(range(4)))
    if how == "refused":
        unchecked.faults.error(OffsetCommitRequest, ec.COORDINATOR_LOAD_IN_PROGRESS)
    else:
        unchecked.faults.drop(OffsetCommitRequest)
    began = unchecked.now
    second = unchecked.member("orders", **settings)
    other = second.processes(work_of("second"))
    unchecked.until(lambda: any(name == "second" for name, _, _ in handled))
    assert unchecked.now - began < 45
    stays = first.consumer.assignment()
    assert len(stays) == 2
    for partition in stays:
        times = [at for _, number, at in handled if number == partition.partition and at >= began]
        assert max(b - a for a, b in pairwise(times)) < 5
    unchecked.faults.clear()
    writer.stop()
    first.stop()
    second.stop()
    call.result()
    other.result()


# ---------------------------------------------------------------- loops of one's own


def test_polls_that_are_tracked_in_another_order_or_twice_commit_nothing_that_is_not_done(
    unchecked: Simulated,
) -> None:
    unchecked.write("one", 6)
    member = unchecked.member("one", enable_auto_commit=False)
    first = member.do(lambda consumer: consumer.poll(60, max_records=3))
    second = member.do(lambda consumer: consumer.poll(60, max_records=3))
    works = [member.consumer.track(records) for records in (second, first, second)]
    done: list[int] = []
    for record in (*second, *first, *second):
        for work in works:
            with contextlib.suppress(IllegalStateError):
                work.done(record)
        done.append(record.offset)
        member.do(lambda consumer: consumer.commit(works[0]))
        lowest = next((offset for offset in range(6) if offset not in done), 6)
        assert unchecked.committed()[0][0] <= lowest
    assert unchecked.committed()[0] == (6, "")


def test_what_was_tracked_of_a_position_that_is_lost_is_not_committed(unchecked: Simulated) -> None:
    """The reset comes between the poll and `track`: the records are of the stretch before it."""
    unchecked.write("one", 6)
    member = unchecked.member("one", enable_auto_commit=False)
    records = member.do(lambda consumer: consumer.poll(60))
    assert len(records) == 6
    member.do(lambda consumer: consumer.seek_to_beginning([ONE]))
    work = member.consumer.track(records)
    for record in records:
        work.done(record)
    member.do(lambda consumer: consumer.commit(work))
    assert unchecked.committed().get(0, (0, ""))[0] == 0
