"""What is measured of `process`, and what probes are told."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE, until
from tests.work.test_process import committed, member, produce

from kadence import ConsumerSettings, Health, Record, TopicPartition
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


def test_metrics_tell_where_records_are(cluster: Cluster, shell: Shell) -> None:
    """One runs, three wait for its key, one waits for its next attempt, one is a dead letter, and four are handled."""
    produce(cluster, 4, keys=1, topic="one")
    produce(cluster, 6, keys=100, topic="one", start=50)
    consumer = member(cluster, shell, "one")
    assert measured(consumer) == {}
    seen: list[dict[str, float]] = []
    of_partition: list[dict[str, float]] = []

    def work(record: Record[Any, Any], context: Context) -> None:
        if record.value == b"0":
            until(lambda: _is_settled(measured(consumer)), what=lambda: str(measured(consumer)))
            seen.append(measured(consumer))
            of_partition.append(measured(consumer, topic="one", partition="0"))
            consumer.stop()
        elif record.value == b"50":
            raise ValueError("dead")
        elif record.value == b"51" and context.attempt == 1:
            raise OSError("again")

    def _is_settled(now: dict[str, float]) -> bool:
        return (
            now["work-done-total"] == 5 and now["work-dead-letters-total"] == 1 and now["work-retrying"] == 1
        )

    retry = Retry(attempts=2, backoff=PATIENCE, on=(OSError,))
    shell.do(lambda: consumer.process(work, retry=retry, dead_letter="dead", drain=PATIENCE))
    [found] = seen
    assert found.pop("work-oldest-seconds") >= 0
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
        "work-skipped-total": 0,
    }
    [there] = of_partition
    assert there.pop("work-stuck-seconds") >= 0
    assert there == {"work-frontier-lag": 10, "work-stuck-offset": 0}
    after = measured(consumer)
    # Those of the same key may have begun before the loop saw the stop.
    assert 6 <= after["work-done-total"] <= 9
    assert (after["work-running"], after["work-waiting"], after["work-retrying"]) == (0, 0, 0)
    shell.do(consumer.close)


def test_totals_go_on_from_one_call_to_the_next_and_skips_are_counted(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 4, partitions=1)
    consumer = member(cluster, shell, "one")
    last = threading.Event()

    def fails(record: Record[Any, Any]) -> None:
        if record.offset == 0:
            assert last.wait(PATIENCE)
            raise ValueError("first")
        if record.offset == 3:
            last.set()

    with pytest.raises(ValueError, match="first"):
        shell.do(lambda: consumer.process(fails, order="none"))
    assert committed(cluster, "one")[0][0] == 0
    done = int(measured(consumer)["work-done-total"])
    assert done == 3

    def works(record: Record[Any, Any]) -> None:
        until(lambda: measured(consumer)["work-skipped-total"] == 3)
        consumer.stop()

    shell.do(lambda: consumer.process(works, order="none"))
    assert measured(consumer)["work-done-total"] == 4
    names = {name.name for name in consumer.metric_names() if name.name.startswith("work-")}
    assert names == {*measured(consumer), *measured(consumer, topic="one", partition="0")}
    shell.do(consumer.close)


# ---------------------------------------------------------------- health


def test_a_member_is_ready_once_it_is_in_its_group(cluster: Cluster, shell: Shell) -> None:
    produce(cluster, 4)
    fresh = shell.make(bootstrap_servers=cluster.bootstrap_servers, group_id="g")
    assert fresh.health() == Health(True, False, ("it has no subscription and no assignment",))
    shell.do(fresh.close)
    assert fresh.health() == Health(False, False, ("it is closed",))
    consumer = member(cluster, shell)
    assert consumer.health() == Health(True, False, ("it is not a member of group 'g'",))
    seen: list[Health] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append(consumer.health())
        consumer.stop()

    shell.do(lambda: consumer.process(work))
    assert seen[0] == Health(True, True, ())
    assert consumer.health() == Health(True, False, ("stop() was called",))
    shell.do(consumer.close)


def test_an_assignment_by_hand_is_ready_without_a_group(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 1, partitions=1)
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    shell.do(lambda: consumer.assign([TopicPartition("one", 0)]))
    assert shell.do(lambda: consumer.poll(PATIENCE))
    until(lambda: consumer.health() == Health(True, True, ()), what=consumer.health)
    shell.do(consumer.close)


def test_a_partition_that_cannot_be_read_is_told(cluster: Cluster, shell: Shell) -> None:
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: consumer.assign([TopicPartition("nothing", 0)]))
    until(
        lambda: shell.do(lambda: consumer.poll(0.05)) is not None and consumer.health().why,
        every=0,
        what=consumer.health,
    )
    found = consumer.health()
    assert (found.alive, found.ready) == (True, False)
    assert any(line.startswith("nothing") for line in found.why)
    shell.do(consumer.close)


def test_workers_that_all_hang_are_not_alive(cluster: Cluster) -> None:
    shell = Shell("threads")
    produce(cluster, 10)
    consumer = member(cluster, shell)
    release = threading.Event()
    seen: list[Health] = []

    def watch() -> None:
        until(lambda: not consumer.health().alive)
        seen.append(consumer.health())
        release.set()
        consumer.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()

    def hangs(record: Record[Any, Any]) -> None:
        release.wait(PATIENCE)

    consumer.process(hangs, workers=2, timeout=0.05)
    watcher.join(PATIENCE)
    assert not seen[0].ready
    assert seen[0].why[0].startswith("all 2 workers have been on a record for longer than timeout")
    consumer.close()


def test_a_consumer_that_left_its_group_for_not_polling_is_not_alive(cluster: Cluster) -> None:
    settings: ConsumerSettings = {"max_poll_interval_ms": 6000, "session_timeout_ms": 6000}
    consumer = member(cluster, Shell("threads"), "one", **settings)
    until(lambda: consumer.poll(0.05) is not None and consumer.assignment(), every=0)
    until(lambda: not consumer.health().alive, what=consumer.health)
    [line] = [line for line in consumer.health().why if line.startswith("nothing was polled since")]
    assert line.endswith("it has left its group")
    consumer.poll(0)
    until(lambda: consumer.poll(0.05) is not None and consumer.health().ready, every=0)
    consumer.close()


def test_a_hot_key_is_named_in_the_log_when_it_pauses_its_partition(
    cluster: Cluster, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    produce(cluster, 60, keys=1, topic="one")
    consumer = member(cluster, shell, "one")
    waiting: list[float] = []

    def work(record: Record[Any, Any]) -> None:
        if not waiting:
            until(lambda: "pauses their partition: one-0@0 (key b'key 0')" in caplog.text)
            waiting.append(measured(consumer)["work-key-waiting-max"])
            consumer.stop()

    shell.do(lambda: consumer.process(work, max_records=20, drain=PATIENCE))
    assert waiting[0] >= 10
    assert caplog.text.count("pauses their partition") == 1
    shell.do(consumer.close)


def test_a_record_for_which_none_waits_is_no_hot_key(
    cluster: Cluster, shell: Shell, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``max_records=1`` each record pauses its partition."""
    looks: list[int] = []
    look = Processing._look_for_hot_key

    def counted(processing: Processing, now: int) -> None:
        looks.append(now)
        look(processing, now)

    monkeypatch.setattr(Processing, "_look_for_hot_key", counted)
    produce(cluster, 1, keys=1, topic="one")
    consumer = member(cluster, shell, "one")

    def work(record: Record[Any, Any]) -> None:
        until(consumer.paused)
        before = len(looks)
        until(lambda: len(looks) > before + 1 or "pauses their partition" in caplog.text)
        consumer.stop()

    shell.do(lambda: consumer.process(work, max_records=1, drain=PATIENCE))
    assert "pauses their partition" not in caplog.text
    shell.do(consumer.close)


def test_health_names_a_record_that_holds_up_its_partition_for_long(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kadence.consumer.application.health._STUCK_MS", 0)
    produce(cluster, 1, keys=1, topic="one")
    consumer = member(cluster, shell, "one")
    found: list[Health] = []

    def work(record: Record[Any, Any]) -> None:
        found.append(consumer.health())
        consumer.stop()

    shell.do(lambda: consumer.process(work, drain=PATIENCE))
    [health] = found
    assert health.alive
    assert health.ready
    assert health.why == (
        "one-0@0 (key b'key 0') has been worked on for 0 s, and holds up the committed offset of its partition",
    )
    shell.do(consumer.close)
