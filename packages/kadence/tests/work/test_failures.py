"""What `process` promises while something fails."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.work import handlers
from tests.work.worlds import Real, Simulated, become

from kadence import Record
from kadence.protocol.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    NOT_ENOUGH_REPLICAS,
    TOPIC_AUTHORIZATION_FAILED,
)
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.produce import ProduceRequest
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.frontier import decode

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("topic", ["dead", "again"])
def test_a_record_is_not_done_before_its_letter_is_acknowledged(simulated: Simulated, topic: str) -> None:
    """The broker refuses the dead letter, or the record for the retry topic: it is sent again, until it is there."""
    simulated.write("one", 3)
    member = simulated.member("one", auto_commit_interval_ms=100)
    fault = simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic=topic)
    seen: list[bytes | None] = []

    def work(record: Record[Any, Any], context: Context) -> None:
        if record.value == b"1" and context.attempt == 1:
            raise ValueError("one")
        seen.append(record.value)

    retry = Retry(attempts=2, backoff=0.01, topic="again") if topic == "again" else None
    call = member.processes(work, retry=retry, dead_letter="dead")
    simulated.until(lambda: fault.hits > 2)
    assert simulated.offset() == 1
    assert simulated.read(topic) == []
    fault.remove()
    simulated.until(lambda: simulated.offset() == 3)
    member.stop()
    call.result()
    assert [record.value for record in simulated.read(topic)] == [b"1"]
    # The retry record may come before the record behind it, or after the stop.
    assert [value for value in seen if value != b"1"] == [b"0", b"2"]


def test_letters_that_are_refused_are_told_once(
    simulated: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    """Not each time that each of them is sent."""
    simulated.write("one", 5)
    member = simulated.member("one", auto_commit_interval_ms=100)
    refused = simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="dead", times=8)

    def work(record: Record[Any, Any]) -> None:
        raise ValueError("bad")

    member.process(work, until=lambda: simulated.offset() == 5, order="none", dead_letter="dead")
    assert refused.hits == 8
    assert sorted(simulated.values("dead")) == list(range(5))
    assert caplog.text.count("is not written to dead yet") == 1


@pytest.mark.parametrize("transactional_id", [None, "t"])
@pytest.mark.parametrize("topic", [None, "again"])
def test_a_letter_that_is_too_large_for_its_topic_is_written_without_its_value(
    simulated: Simulated,
    topic: str | None,
    transactional_id: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would be sent for ever otherwise. A record for the retry topic becomes a dead letter."""
    simulated.limit("dead", "again")
    simulated.write("one", [b"0", b"1" * 5_000, b"2"], headers=[("trace", b"t")])
    simulated.write("one", [b"3" * 5_000], headers=[("trace", b"t" * 5_000)])
    member = simulated.member("one", auto_commit_interval_ms=100, isolation_level="read_committed")
    seen: list[bytes] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append(record.value)
        if len(record.value) > 1:
            raise ValueError("bad")

    totals = member.process(
        work,
        until=lambda: simulated.offset() == 4,
        retry=Retry(attempts=2, backoff=0, topic=topic),
        dead_letter="dead",
        transactional_id=transactional_id,
        order="none",
    )
    assert (totals.retried, totals.dead_lettered) == (0, 2)
    assert len(seen) == (4 if topic else 6), "nothing is handled again for it"
    first, second = sorted(
        simulated.read("dead"), key=lambda letter: dict(letter.headers)["kadence.error.offset"] or b""
    )
    told = dict(first.headers)
    assert (first.value, first.key, told["trace"]) == (None, b"key", b"t")
    assert (told["kadence.error.value.bytes"], told["kadence.error.offset"]) == (b"5000", b"1")
    assert (told["kadence.error.class"], told["kadence.error.attempts"]) == (
        b"ValueError",
        b"1" if topic else b"2",
    )
    told = dict(second.headers)
    assert (second.value, second.key, told.get("trace")) == (None, b"key", None)
    assert (told["kadence.error.value.bytes"], told["kadence.error.headers.bytes"]) == (b"5000", b"5005")
    assert caplog.text.count("without its value (5000 bytes)") == 2
    assert simulated.read("again") == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_letter_whose_exception_says_too_much_is_written_with_the_beginning_of_its_message(
    simulated: Simulated, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be sent for ever otherwise. Its value is the most of it that is worth keeping."""
    simulated.limit("dead")
    simulated.write("one", [b"0" * 100, b"1" * 5_000], headers=[("trace", b"t")])
    member = simulated.member("one", auto_commit_interval_ms=100, isolation_level="read_committed")

    def work(record: Record[Any, Any]) -> None:
        raise ValueError("\N{EURO SIGN}" * 3_000)

    totals = member.process(
        work,
        until=lambda: simulated.offset() == 2,
        dead_letter="dead",
        transactional_id=transactional_id,
        order="none",
    )
    assert totals.dead_lettered == 2
    first, second = sorted(
        simulated.read("dead"), key=lambda letter: dict(letter.headers)["kadence.error.offset"] or b""
    )
    for letter in (first, second):
        told = dict(letter.headers)
        assert told["kadence.error.message"] == "\N{EURO SIGN}".encode() * 33
        assert told["kadence.error.message.bytes"] == b"5901"
        assert (letter.key, told["trace"]) == (b"key", b"t")
    assert (first.value, second.value) == (b"0" * 100, None)
    assert caplog.text.count("without the rest of its exception's message (5901 bytes)") == 2


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_record_that_is_too_large_for_the_retry_topic_ends_it_without_dead_letters(
    simulated: Simulated, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.limit("again")
    simulated.write("one", [b"0", b"1" * 5_000])

    def work(record: Record[Any, Any]) -> None:
        if len(record.value) > 1:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        simulated.member("one", isolation_level="read_committed").process(
            work, retry=Retry(attempts=3, backoff=0, topic="again"), transactional_id=transactional_id
        )
    assert simulated.offset() == 1
    assert caplog.text.count("cannot be written to again; it is not retried") == 1


def test_ctrl_c_that_a_coroutine_raises_is_a_failed_attempt_where_no_signal_comes(real: Real) -> None:
    """A `Consumer` runs coroutine functions on a thread of its own: the error must not end the loop of all others."""
    real.write("one", 20, keys=5)

    async def work(record: Record[Any, Any]) -> None:
        if record.value == b"3":
            raise KeyboardInterrupt

    member = real.member("one", auto_commit_interval_ms=20)
    totals = member.process(work, until=lambda: real.offset() == 20, dead_letter="dead")
    assert (totals.done, totals.dead_lettered) == (20, 1)
    assert real.values("dead") == [3]


def test_an_output_that_is_refused_is_a_failed_attempt_and_the_key_waits(simulated: Simulated) -> None:
    simulated.write("one", 6)
    attempts: list[tuple[int, int]] = []

    def work(record: Record[Any, Any], context: Context) -> ProducerRecord:
        attempts.append((int(record.value), context.attempt))
        return ProducerRecord("out", record.value)

    member = simulated.member("one", auto_commit_interval_ms=100)
    simulated.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="out", times=1)
    member.process(work, until=lambda: simulated.offset() == 6, retry=Retry(attempts=3, backoff=0.01))
    assert attempts == [(0, 1), (0, 2), *((n, 1) for n in range(1, 6))]
    assert simulated.values() == list(range(6))


def test_a_commit_that_is_refused_is_made_again(simulated: Simulated) -> None:
    simulated.write("orders", 50, keys=5)
    refused = simulated.faults.error(OffsetCommitRequest, GROUP_AUTHORIZATION_FAILED, times=1)
    seen: list[int] = []
    member = simulated.member(auto_commit_interval_ms=100)
    member.process(
        lambda record: seen.append(int(record.value)), until=lambda: simulated.offset("orders") == 50
    )
    assert refused.hits == 1
    assert sorted(seen) == list(range(50))


def test_metadata_that_is_too_long_for_the_broker_is_left_out() -> None:
    with Simulated({"offset.metadata.max.bytes": 20}) as simulated:
        simulated.write("one", 10)
        done: list[int] = []

        async def work(record: Record[Any, Any]) -> None:
            if record.offset == 3:
                await become(lambda: len(done) == 9)
                raise RuntimeError("stuck")
            done.append(record.offset)

        with pytest.raises(RuntimeError, match="stuck"):
            simulated.member("one").process(work, order="none")
        assert simulated.committed()[0] == (3, "")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_handler_that_outlasts_its_partition_learns_so_and_commits_nothing(
    simulated: Simulated, protocol: str
) -> None:
    """The second member joins while handlers of all partitions run at the first one, and these get no time to end."""
    simulated.write("orders", 40, keys=20)
    begun: set[int] = set()
    lost: set[bytes] = set()
    handled: dict[str, list[bytes]] = {"first": [], "second": []}

    async def held(record: Record[Any, Any], context: Context) -> None:
        begun.add(record.partition)
        await become(lambda: context.lost or (lost and lost <= set(handled["second"])))
        if context.lost:
            lost.add(record.value)
        else:
            handled["first"].append(record.value)

    first = simulated.member(group_protocol=protocol)
    # A worker for each key, so that no partition waits for one.
    of_first = first.processes(held, workers=20, drain=0)
    simulated.until(lambda: len(begun) == 4)
    second = simulated.member(group_protocol=protocol)
    of_second = second.processes(lambda record: handled["second"].append(record.value))
    simulated.until(lambda: len({*handled["first"], *handled["second"]}) == 40)
    first.stop()
    second.stop()
    of_first.result()
    of_second.result()
    assert lost
    assert lost <= set(handled["second"]), "what ended too late was done again"
    assert simulated.offset("orders") == 40


@pytest.mark.parametrize("drain", [0, PATIENCE])
def test_a_handler_in_a_process_learns_that_its_partition_is_gone(
    real: Real, tmp_path: Path, drain: float
) -> None:
    """What it does from then on counts for nothing, also where it ends in time."""
    real.send(
        "orders",
        [{"value": str(tmp_path / f"{each}").encode(), "partition": each} for each in range(4)],
    )
    first, second = real.member(), real.member()
    handled: list[int] = []

    def note(record: Record[Any, Any]) -> None:
        handled.append(record.partition)
        second.stop()

    of_first = first.processes(handlers.until_lost, executor="processes", workers=4, drain=drain)
    try:
        real.until(lambda: len(list(tmp_path.iterdir())) == 4)
        second.process(note, workers=1)
        real.until(lambda: len(list(tmp_path.glob("*.lost"))) == 2)
    finally:
        (tmp_path / "release").touch()
        first.stop()
    of_first.result()
    assert (tmp_path / f"{handled[0]}.lost").exists(), "it has what the first one was told to have lost"


def test_after_a_kill_no_record_is_skipped_and_keys_keep_their_order(real: Real) -> None:
    real.write("orders", 200, keys=7)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.work.killed", real.servers], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(60)]
        child.kill()
        # What it had told and we had not read.
        told += [int(line) for line in child.stdout.read().split()]
    # As a static member it has the partitions at once, and not when the session of the other one has ended.
    member = real.member(group_protocol="classic", group_instance_id="one")
    orders: dict[bytes | None, list[int]] = defaultdict(list)
    lock = threading.Lock()
    seen: set[int] = set(told)

    def work(record: Record[Any, Any]) -> None:
        with lock:
            orders[record.key].append(int(record.value))
            seen.add(int(record.value))

    member.process(work, until=lambda: len(seen) == 200)
    assert seen == set(range(200))
    assert 0 not in told
    for numbers in (*orders.values(), *by_key(told).values()):
        assert numbers == sorted(numbers)


def by_key(numbers: list[int]) -> dict[int, list[int]]:
    """As the seven keys were given to them."""
    found: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        found[number % 7].append(number)
    return found


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_what_a_thread_has_done_before_a_record_that_outlasts_drain_is_committed(
    real: Real, transactional_id: str | None
) -> None:
    """A thread whose handler is quick tells of several records at once. With the slow one it does not come to it."""
    real.write("one", 400, keys=400)
    member = real.member("one", isolation_level="read_committed")
    done: set[int] = set()
    may_end = threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if len(done) == 316:
            member.stop()
            may_end.wait(PATIENCE)
        done.add(record.offset)

    member.process(work, workers=1, drain=0.05, transactional_id=transactional_id)
    offset, metadata = real.committed()[0]
    above = {each for first, end in decode(offset, metadata) for each in range(first, end)}
    assert {*range(offset), *above} == done
    may_end.set()


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_no_record_begins_after_one_that_ended_the_processing(real: Real, error: type[BaseException]) -> None:
    """Not one of those either that a quick thread has taken together with it."""
    real.write("one", 400, keys=400)
    seen: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append(record.offset)
        if len(seen) == 317:
            raise error("bad")

    with pytest.raises(error, match="bad"):
        real.member("one").process(work, workers=1)
    assert len(seen) == 317


def test_outputs_that_no_broker_takes_do_not_keep_it_from_ending(
    simulated: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    """After `drain` their records come again. The producer would wait for `delivery.timeout.ms`, two minutes."""
    simulated.write("one", 3)
    member = simulated.member("one")
    fault = simulated.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS)

    def work(record: Record[Any, Any]) -> Any:
        if record.offset == 2:
            raise ValueError("bad")
        return ProducerRecord("out", record.value)

    call = member.processes(work, order="none", dead_letter="dead", drain=5)
    simulated.until(lambda: fault.hits)
    began = simulated.now
    member.stop()
    totals = call.result()
    assert 5 <= simulated.now - began < 10
    assert (totals.done, totals.dead_lettered) == (0, 0)
    assert simulated.offset() == 0
    caplog.clear()
    simulated.simulation.run(60)
    assert "sent again" not in caplog.text, "nothing is, once it has ended"


def test_after_stop_nothing_begins_and_what_runs_is_waited_for(simulated: Simulated) -> None:
    simulated.write("one", 10)
    member = simulated.member("one")
    begun: list[int] = []
    done: list[int] = []

    async def work(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        if record.offset == 2:
            member.stop()
            await asyncio.sleep(20)
        done.append(record.offset)

    member.process(work, workers=2, order="partition")
    assert begun == done == [0, 1, 2]
    assert simulated.offset() == 3


def test_coroutines_that_outlast_drain_clean_up(shells: Real, caplog: pytest.LogCaptureFixture) -> None:
    """They are cancelled. What they hold (a connection, say) is given back, though that takes an await, too."""
    shells.write("one", 2)
    member = shells.member("one")
    cleaned: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            cleaned.append("generator")

    async def work(record: Record[Any, Any]) -> None:
        try:
            async for _ in numbers():
                if record.offset == 1:
                    member.stop()
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cleaned.append("handler")

    member.process(work, workers=2, order="none", drain=0)
    member.close()
    gc.collect()
    assert sorted(cleaned) == ["generator", "generator", "handler", "handler"]
    # Those of the consumer are about a machine that is busy.
    told = [record.getMessage() for record in caplog.records if record.name != "kadence.consumer"]
    assert len(told) == 1, "2 records still run"


def test_a_coroutine_that_blocks_its_loop_does_not_keep_it_from_ending(
    real: Real, caplog: pytest.LogCaptureFixture
) -> None:
    real.write("one", 1)
    member = real.member("one")
    release, has_ended = threading.Event(), threading.Event()

    async def work(record: Record[Any, Any]) -> None:
        member.stop()
        release.wait(PATIENCE / 2)
        has_ended.set()

    totals = member.process(work, drain=0)
    assert not has_ended.is_set()
    release.set()
    assert totals.done == 0
    assert "blocks the event loop of handlers" in caplog.text
    until(has_ended.is_set)


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_dead_letter_topic_that_is_deleted_holds_up_no_other_key(transactional_id: str | None) -> None:
    """A producer waits long for a topic that is gone. Neither workers nor transactions may wait with it."""
    with Simulated({"auto.create.topics.enable": False}) as simulated:
        simulated.write("one", 6)
        member = simulated.member("one", auto_commit_interval_ms=100, isolation_level="read_committed")

        def work(record: Record[Any, Any]) -> None:
            if record.offset == 0:
                simulated.cluster.delete_topic("dead")
            if record.offset < 4:
                raise ValueError("bad")

        totals = member.process(
            work,
            until=lambda: decode(*simulated.committed().get(0, (0, ""))) == [(4, 6)],
            workers=2,
            order="none",
            dead_letter="dead",
            drain=0,
            transactional_id=transactional_id,
        )
        assert simulated.now < 60
        assert (totals.done, totals.dead_lettered) == (2, 0)
