"""What is measured of `process`, and what probes are told."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.patience import PATIENCE
from tests.work.worlds import ONE, Real, Simulated, become

from kadence import Health, Record, TopicPartition
from kadence.work import Context, Retry
from kadence.work.processing import Processing

KADENCE = "kadence-consumer-metrics"


def measured(consumer: Any, **tags: str) -> dict[str, float]:
    """The metrics of `process`."""
    return {
        name.name: value
        for name, value in consumer.metrics().items()
        if name.group == KADENCE
        and name.name.startswith("work-")
        and {tag: each for tag, each in name.tags.items() if tag != "client-id"} == tags
    }


def test_metrics_tell_where_records_are(simulated: Simulated) -> None:
    """One runs, three wait for its key, one waits for its next attempt, one is a dead letter, and four are handled."""
    simulated.write("one", 4)
    simulated.write("one", [b"%d" % n for n in range(50, 56)], keys=6)
    member = simulated.member("one", auto_commit_interval_ms=3_600_000)
    assert measured(member.consumer) == {}
    released: list[bool] = []

    async def work(record: Record[Any, Any], context: Context) -> None:
        if record.value == b"0":
            await become(lambda: released)
        elif record.value == b"50":
            raise ValueError("dead")
        elif record.value == b"51" and context.attempt == 1:
            raise OSError("again")

    retry = Retry(attempts=2, backoff=PATIENCE, on=(OSError,))
    call = member.processes(work, retry=retry, dead_letter="dead", drain=PATIENCE)
    simulated.simulation.run(1)
    found = measured(member.consumer)
    there = measured(member.consumer, topic="one", partition="0")
    assert found.pop("work-oldest-seconds") == pytest.approx(1, abs=0.5)
    assert found == {
        "work-running": 1,
        "work-waiting": 3,
        "work-retrying": 1,
        "work-overdue": 0,
        "work-paused": 0,
        "work-frontier-lag-max": 10,
        "work-key-waiting-max": 3,
        "work-done-total": 5,
        "work-attempts-failed-total": 2,
        "work-retried-total": 0,
        "work-dead-letters-total": 1,
        "work-already-done-total": 0,
    }
    assert there.pop("work-stuck-seconds") == pytest.approx(1, abs=0.5)
    assert there == {"work-frontier-lag": 10, "work-stuck-offset": 0}
    member.stop()
    released.append(True)
    call.result()
    after = measured(member.consumer)
    assert after["work-done-total"] == 6
    assert (after["work-running"], after["work-waiting"], after["work-retrying"]) == (0, 0, 0)


def test_totals_go_on_from_one_call_to_the_next_and_skips_are_counted(simulated: Simulated) -> None:
    simulated.write("one", 4)
    member = simulated.member("one")
    done: list[int] = []

    async def fails(record: Record[Any, Any]) -> None:
        if record.offset == 0:
            await become(lambda: len(done) == 3)
            raise ValueError("first")
        done.append(record.offset)

    with pytest.raises(ValueError, match="first"):
        member.process(fails, order="none")
    assert simulated.offset() == 0
    assert measured(member.consumer)["work-done-total"] == 3

    async def works(record: Record[Any, Any]) -> None:
        await become(lambda: measured(member.consumer)["work-already-done-total"] == 3)

    member.process(works, until=lambda: simulated.offset() == 4, order="none")
    found = measured(member.consumer)
    assert found["work-done-total"] == 4
    names = {name.name for name in member.consumer.metric_names() if name.name.startswith("work-")}
    assert names == {*found, *measured(member.consumer, topic="one", partition="0")}


# ---------------------------------------------------------------- health


def test_a_member_is_ready_once_it_is_in_its_group(simulated: Simulated) -> None:
    simulated.write("orders", 4)
    fresh = simulated.member(None)
    assert fresh.consumer.health() == Health(True, False, ("it has no subscription and no assignment",))
    fresh.close()
    assert fresh.consumer.health() == Health(False, False, ("it is closed",))
    member = simulated.member(None)

    async def subscribed(consumer: Any) -> Health:
        await consumer.subscribe("orders")
        found = consumer.health()
        assert isinstance(found, Health)
        return found

    assert member.do(subscribed) == Health(True, False, ("it is not a member of group 'g'",))
    seen: list[Health] = []
    member.process(lambda record: seen.append(member.consumer.health()), until=lambda: len(seen) == 4)
    assert set(seen) == {Health(True, True, ())}
    assert member.consumer.health() == Health(True, False, ("stop() was called",))


def test_an_assignment_by_hand_is_ready_without_a_group(simulated: Simulated) -> None:
    simulated.write("one", 1)
    member = simulated.member(None, group_id=None)
    member.do(lambda consumer: consumer.assign([ONE]))
    assert member.do(lambda consumer: consumer.poll(PATIENCE))
    assert member.consumer.health() == Health(True, True, ())


def test_a_partition_that_cannot_be_read_is_told(simulated: Simulated) -> None:
    member = simulated.member(None, group_id=None)
    member.do(lambda consumer: consumer.assign([TopicPartition("nothing", 0)]))
    simulated.until(lambda: member.consumer.health().why)
    found = member.consumer.health()
    assert (found.alive, found.ready) == (True, False)
    assert any(line.startswith("nothing") for line in found.why)


def test_workers_that_all_hang_are_not_alive(real: Real) -> None:
    real.write("orders", 10, keys=5)
    member = real.member()
    release = threading.Event()

    def hangs(record: Record[Any, Any]) -> None:
        release.wait(PATIENCE)

    call = member.processes(hangs, workers=2, timeout=0.05)
    real.until(lambda: not member.consumer.health().alive)
    found = member.consumer.health()
    release.set()
    member.stop()
    call.result()
    assert not found.ready
    assert found.why[0].startswith("all 2 workers have been on a record for longer than timeout")


def test_a_consumer_that_left_its_group_for_not_polling_is_not_alive(simulated: Simulated) -> None:
    member = simulated.member("one", max_poll_interval_ms=60_000)
    member.do(lambda consumer: consumer.poll(5))
    assert member.consumer.health().ready
    simulated.simulation.run(120)
    found = member.consumer.health()
    assert not found.alive
    [line] = [line for line in found.why if line.startswith("nothing was polled since")]
    assert line.endswith("it has left its group")
    member.do(lambda consumer: consumer.poll(10))
    assert member.consumer.health().ready


def test_a_hot_key_is_named_in_the_log_when_it_pauses_its_partition(
    simulated: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    simulated.write("one", 60, keys=1)
    member = simulated.member("one")
    waiting: list[float] = []

    async def work(record: Record[Any, Any]) -> None:
        if not waiting:
            await become(
                lambda: "queued behind the record of the same key: one-0@0 (key of 5 bytes)" in caplog.text
            )
            waiting.append(measured(member.consumer)["work-key-waiting-max"])
            member.stop()

    member.process(work, max_records=20, drain=PATIENCE)
    assert waiting[0] >= 10
    assert caplog.text.count("partition paused: ") == 1


def test_a_record_for_which_none_waits_is_no_hot_key(
    simulated: Simulated, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``max_records=1`` each record pauses its partition."""
    looks: list[int] = []
    look = Processing._look_for_hot_key

    def counted(processing: Processing, now: int) -> None:
        looks.append(now)
        look(processing, now)

    monkeypatch.setattr(Processing, "_look_for_hot_key", counted)
    simulated.write("one", 1)
    member = simulated.member("one")

    async def work(record: Record[Any, Any]) -> None:
        await become(member.consumer.not_fetched)
        before = len(looks)
        await become(lambda: len(looks) > before + 1)
        member.stop()

    member.process(work, max_records=1, drain=PATIENCE)
    assert "partition paused: " not in caplog.text


def test_health_names_a_record_that_holds_up_its_partition_for_long(simulated: Simulated) -> None:
    simulated.write("one", 1)
    member = simulated.member("one")
    found: list[Health] = []

    async def work(record: Record[Any, Any]) -> None:
        for _ in range(2):
            found.append(member.consumer.health())
            await asyncio.sleep(61)
        found.append(member.consumer.health())
        member.stop()

    member.process(work, drain=PATIENCE)
    assert [(each.alive, each.ready) for each in found] == [(True, True)] * 3
    assert found[0].why == ()
    assert found[1].why == (
        "one-0@0 (key of 3 bytes) has been worked on for 61 s, and holds up the committed offset of its partition",
    )
