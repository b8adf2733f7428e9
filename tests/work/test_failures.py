"""What `process` promises while something fails. docs/work.md has a table whose cells name these tests."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import FAST_GROUPS
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE, until
from tests.work import handlers
from tests.work.conftest import TOPICS
from tests.work.test_process import Seen, committed, member, produce, read

from kadence import Admin, Broker, ConfigResource, Producer, Record
from kadence.protocol.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    NOT_ENOUGH_REPLICAS,
    TOPIC_AUTHORIZATION_FAILED,
)
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.produce import ProduceRequest
from kadence.work import Context, ProducerRecord, Retry, desk
from kadence.work.frontier import decode
from kadence.work.processing import Processing, Steps

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("topic", ["dead", "again"])
def test_a_record_is_not_done_before_its_letter_is_acknowledged(
    cluster: Cluster, shell: Shell, topic: str
) -> None:
    """The broker refuses the dead letter, or the record for the retry topic: it is sent again, until it is there."""
    assert cluster.broker is not None
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20)
    fault = cluster.broker.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic=topic)
    seen: list[bytes | None] = []
    before: list[int] = []

    def work(record: Record[Any, Any], context: Context) -> None:
        if record.value == b"1" and context.attempt == 1:
            raise ValueError("one")
        seen.append(record.value)

    def watch() -> None:
        fault.wait(timeout=PATIENCE)
        until(lambda: committed(cluster, "one").get(0, (0, ""))[0] == 1)
        before.append(len(read(cluster, topic)))
        fault.remove()
        until(lambda: committed(cluster, "one")[0][0] == 3)
        consumer.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    retry = Retry(attempts=2, backoff=0.01, topic="again") if topic == "again" else None
    shell.do(lambda: consumer.process(work, retry=retry, dead_letter="dead"))
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert before == [0]
    assert [record.value for record in read(cluster, topic)] == [b"1"]
    # The retry record may come before the record behind it, or after the stop.
    assert [value for value in seen if value != b"1"] == [b"0", b"2"]


def test_letters_that_are_refused_are_told_once(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not each time that each of them is sent."""
    assert cluster.broker is not None
    monkeypatch.setattr(desk, "_RESEND_MS", 10)
    cluster.produce("one", 5, partitions=1)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20)
    refused = cluster.broker.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="dead", times=8)

    def work(record: Record[Any, Any]) -> None:
        raise ValueError("bad")

    def watch() -> None:
        refused.wait(8, timeout=PATIENCE)
        until(lambda: committed(cluster, "one").get(0, (0, ""))[0] == 5)
        consumer.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    shell.do(lambda: consumer.process(work, order="none", dead_letter="dead"))
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert sorted(record.value or b"" for record in read(cluster, "dead")) == [b"%d" % n for n in range(5)]
    assert caplog.text.count("is not in dead yet") == 1


def limit(cluster: Cluster, *topics: str) -> None:
    """From now on these topics take 1,000 bytes at once."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        changed = admin.incremental_alter_configs(
            {ConfigResource("topic", topic): {"max.message.bytes": "1000"} for topic in topics}
        )
    assert set(changed.values()) == {None}


@pytest.mark.parametrize("transactional_id", [None, "t"])
@pytest.mark.parametrize("topic", [None, "again"])
def test_a_letter_that_is_too_large_for_its_topic_is_written_without_its_value(
    cluster: Cluster,
    shell: Shell,
    topic: str | None,
    transactional_id: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would be sent for ever otherwise. A record for the retry topic becomes a dead letter."""
    limit(cluster, "dead", "again")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"0", b"1" * 5_000, b"2"):
            producer.send("one", value, b"key", headers=[("trace", b"t")])
        producer.send("one", b"3" * 5_000, b"key", headers=[("trace", b"t" * 5_000)])
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20, isolation_level="read_committed")
    seen: list[bytes] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append(record.value)
        if len(record.value) > 1:
            raise ValueError("bad")

    watcher = threading.Thread(target=lambda: stop_at(cluster, consumer, 4))
    watcher.start()
    retry = Retry(attempts=2, backoff=0, topic=topic)
    totals = shell.do(
        lambda: consumer.process(
            work, retry=retry, dead_letter="dead", transactional_id=transactional_id, order="none"
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert (totals.retried, totals.dead_lettered) == (0, 2)
    assert len(seen) == (4 if topic else 6), "nothing is handled again for it"
    first, second = sorted(
        read(cluster, "dead"), key=lambda letter: dict(letter.headers)["kadence.error.offset"] or b""
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
    assert read(cluster, "again") == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_letter_whose_exception_says_too_much_is_written_with_the_beginning_of_its_message(
    cluster: Cluster, shell: Shell, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be sent for ever otherwise. Its value is the most of it that is worth keeping."""
    limit(cluster, "dead")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"0" * 100, b"1" * 5_000):
            producer.send("one", value, b"key", headers=[("trace", b"t")])
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20, isolation_level="read_committed")

    def work(record: Record[Any, Any]) -> None:
        raise ValueError("\N{EURO SIGN}" * 3_000)

    watcher = threading.Thread(target=lambda: stop_at(cluster, consumer, 2))
    watcher.start()
    totals = shell.do(
        lambda: consumer.process(
            work, dead_letter="dead", transactional_id=transactional_id, order="none", drain=0
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert totals.dead_lettered == 2
    first, second = sorted(
        read(cluster, "dead"), key=lambda letter: dict(letter.headers)["kadence.error.offset"] or b""
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
    cluster: Cluster, shell: Shell, transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    limit(cluster, "again")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"0", b"1" * 5_000):
            producer.send("one", value)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20, isolation_level="read_committed")

    def work(record: Record[Any, Any]) -> None:
        if len(record.value) > 1:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        shell.do(
            lambda: consumer.process(
                work,
                retry=Retry(attempts=3, backoff=0, topic="again"),
                transactional_id=transactional_id,
                drain=0,
            )
        )
    shell.do(consumer.close)
    assert committed(cluster, "one")[0][0] == 1
    assert caplog.text.count("is too large for again, and is not tried again") == 1


def stop_at(cluster: Cluster, consumer: Any, offset: int) -> None:
    """Stop the consumer when so much of topic ``one`` is committed."""
    until(lambda: committed(cluster, "one").get(0, (0, ""))[0] == offset)
    consumer.stop()


def test_ctrl_c_that_a_coroutine_raises_is_a_failed_attempt_where_no_signal_comes(cluster: Cluster) -> None:
    """A `Consumer` runs coroutine functions on a thread of its own: the error must not end the loop of all others."""
    shell = Shell("threads")
    produce(cluster, 20, topic="one")
    consumer = member(cluster, shell, "one")
    seen = Seen(consumer, 19)

    async def work(record: Record[Any, Any]) -> None:
        if record.value == b"3":
            raise KeyboardInterrupt
        seen(record)

    totals = consumer.process(work, dead_letter="dead")
    consumer.close()
    assert (totals.done, totals.dead_lettered) == (20, 1)
    assert [record.value for record in read(cluster, "dead")] == [b"3"]


def test_an_output_that_is_refused_is_a_failed_attempt_and_the_key_waits(
    cluster: Cluster, shell: Shell
) -> None:
    assert cluster.broker is not None
    produce(cluster, 6, keys=1, topic="one")
    consumer = member(cluster, shell, "one")
    attempts: list[tuple[bytes | None, int]] = []

    def work(record: Record[Any, Any], context: Context) -> ProducerRecord:
        attempts.append((record.value, context.attempt))
        if record.value == b"5":
            consumer.stop()
        return ProducerRecord("out", record.value)

    with cluster.broker.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="out", times=1):
        shell.do(lambda: consumer.process(work, retry=Retry(attempts=3, backoff=0.01)))
    shell.do(consumer.close)
    assert attempts == [(b"0", 1), (b"0", 2), *((b"%d" % n, 1) for n in range(1, 6))]
    assert [record.value for record in read(cluster, "out")] == [b"%d" % n for n in range(6)]
    assert committed(cluster, "one")[0][0] == 6


def test_a_commit_that_is_refused_is_made_again(cluster: Cluster, shell: Shell) -> None:
    assert cluster.broker is not None
    produce(cluster, 50)
    consumer = member(cluster, shell, auto_commit_interval_ms=20)
    refused = cluster.broker.faults.error(OffsetCommitRequest, GROUP_AUTHORIZATION_FAILED, times=1)
    seen = Seen(consumer, 50)

    def work(record: Record[Any, Any]) -> None:
        if record.value == b"49":
            refused.wait(timeout=PATIENCE)
        seen(record)

    shell.do(lambda: consumer.process(work))
    shell.do(consumer.close)
    assert set(seen.values.values()) == {1}
    assert sum(offset for offset, _ in committed(cluster).values()) == 50


def test_metadata_that_is_too_long_for_the_broker_is_left_out(shell: Shell) -> None:
    config = {**FAST_GROUPS, "offset.metadata.max.bytes": 20}
    with Broker(topics=TOPICS, config=config) as broker:
        cluster = Cluster("embedded", broker.bootstrap_servers, broker=broker)
        cluster.produce("one", 10, partitions=1)
        consumer = member(cluster, shell, "one")
        others_are_done = threading.Event()
        done: list[int] = []

        def work(record: Record[Any, Any]) -> None:
            if record.offset == 3:
                assert others_are_done.wait(PATIENCE)
                raise RuntimeError("stuck")
            done.append(record.offset)
            if len(done) == 9:
                others_are_done.set()

        with pytest.raises(RuntimeError, match="stuck"):
            shell.do(lambda: consumer.process(work, order="none"))
        assert committed(cluster, "one")[0] == (3, "")
        shell.do(consumer.close)


def test_a_handler_that_outlasts_its_partition_learns_so_and_commits_nothing(cluster: Cluster) -> None:
    """The second member joins while handlers of all partitions run at the first one, and these get no time to end."""
    produce(cluster, 40, keys=20)
    shell = Shell("threads")
    first, second = member(cluster, shell), member(cluster, shell)
    lock = threading.Lock()
    begun: set[int] = set()
    lost: set[bytes] = set()
    handled: dict[str, list[bytes]] = {"first": [], "second": []}
    have_begun, is_shared = threading.Event(), threading.Event()

    def note(name: str, value: bytes) -> None:
        with lock:
            handled[name].append(value)
            if lost and lost <= set(handled["second"]):
                is_shared.set()
            if len({*handled["first"], *handled["second"]}) == 40:
                first.stop()
                second.stop()

    def held(record: Record[Any, Any], context: Context) -> None:
        with lock:
            begun.add(record.partition)
            if len(begun) == 4:
                have_begun.set()
        until(lambda: context.lost or is_shared.is_set())
        if context.lost:
            with lock:
                lost.add(record.value)
        else:
            note("first", record.value)

    def work_on_first() -> None:
        try:
            # A worker for each key, so that no partition waits for one.
            first.process(held, workers=20, drain=0)
        finally:
            second.stop()

    running = threading.Thread(target=work_on_first)
    running.start()
    assert have_begun.wait(PATIENCE)
    second.process(lambda record: note("second", record.value))
    running.join(PATIENCE)
    first.close()
    second.close()
    assert lost
    assert lost <= set(handled["second"]), "what ended too late was done again"
    assert sum(offset for offset, _ in committed(cluster).values()) == 40


@pytest.mark.parametrize("drain", [0, PATIENCE])
def test_a_handler_in_a_process_learns_that_its_partition_is_gone(
    cluster: Cluster, tmp_path: Path, drain: float
) -> None:
    """What it does from then on counts for nothing, also where it ends in time."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in range(4):
            producer.send("orders", str(tmp_path / f"{partition}").encode(), partition=partition)
    shell = Shell("threads")
    first, second = member(cluster, shell), member(cluster, shell)
    handled: list[int] = []

    def note(record: Record[Any, Any]) -> None:
        handled.append(record.partition)
        second.stop()

    running = threading.Thread(
        target=lambda: first.process(handlers.until_lost, executor="processes", workers=4, drain=drain)
    )
    running.start()
    try:
        until(lambda: len(list(tmp_path.iterdir())) == 4)
        second.process(note, workers=1)
        until(lambda: len(list(tmp_path.glob("*.lost"))) == 2)
    finally:
        (tmp_path / "release").touch()
        first.stop()
    running.join(PATIENCE)
    first.close()
    second.close()
    assert (tmp_path / f"{handled[0]}.lost").exists(), "it has what the first one was told to have lost"


def test_after_a_kill_no_record_is_skipped_and_keys_keep_their_order(cluster: Cluster) -> None:
    produce(cluster, 200, keys=7)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.work.killed", cluster.bootstrap_servers],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(60)]
        child.kill()
        # What it had told and we had not read.
        told += [int(line) for line in child.stdout.read().split()]
    shell = Shell("threads")
    consumer = member(cluster, shell)
    orders: dict[bytes | None, list[int]] = defaultdict(list)
    lock = threading.Lock()
    seen: set[int] = set(told)

    def work(record: Record[Any, Any]) -> None:
        with lock:
            orders[record.key].append(int(record.value))
            seen.add(int(record.value))
            if len(seen) == 200 and 0 in orders[b"key 0"]:
                consumer.stop()

    consumer.process(work)
    consumer.close()
    assert seen == set(range(200))
    assert 0 not in told
    for numbers in (*orders.values(), *by_key(told).values()):
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_what_a_thread_has_done_before_a_record_that_outlasts_drain_is_committed(
    cluster: Cluster, transactional_id: str | None
) -> None:
    """A thread whose handler is quick tells of several records at once. With the slow one it does not come to it."""
    produce(cluster, 400, keys=400, topic="one")
    shell = Shell("threads")
    consumer = member(cluster, shell, "one", isolation_level="read_committed")
    done: set[int] = set()
    may_end = threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if len(done) == 316:
            consumer.stop()
            may_end.wait(PATIENCE)
        done.add(record.offset)

    consumer.process(work, workers=1, drain=0.05, transactional_id=transactional_id)
    consumer.close()
    offset, metadata = committed(cluster, "one")[0]
    above = {each for first, end in decode(offset, metadata) for each in range(first, end)}
    assert {*range(offset), *above} == done
    may_end.set()


def test_no_record_begins_after_one_that_ended_the_processing(cluster: Cluster) -> None:
    """Not one of those either that a quick thread has taken together with it."""
    produce(cluster, 400, keys=400, topic="one")
    consumer = member(cluster, Shell("threads"), "one")
    seen: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        seen.append(record.offset)
        if len(seen) == 317:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        consumer.process(work, workers=1)
    consumer.close()
    assert len(seen) == 317


def test_outputs_that_no_broker_takes_do_not_keep_it_from_ending(
    cluster: Cluster, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    """After `drain` their records come again. The producer would wait for `delivery.timeout.ms`, two minutes."""
    assert cluster.broker is not None
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")
    fault = cluster.broker.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS)

    def work(record: Record[Any, Any]) -> Any:
        if record.offset == 2:
            raise ValueError("bad")
        return ProducerRecord("out", record.value)

    def stop() -> None:
        fault.wait(timeout=PATIENCE)
        consumer.stop()

    watcher = threading.Thread(target=stop)
    watcher.start()
    began = time.monotonic()
    totals = shell.do(lambda: consumer.process(work, order="none", dead_letter="dead", drain=0.1))
    assert time.monotonic() - began < PATIENCE
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert (totals.done, totals.dead_lettered) == (0, 0)
    assert committed(cluster, "one").get(0, (0, ""))[0] == 0
    assert "sent again" not in caplog.text, "nothing is, once it has ended"


def by_key(numbers: list[int]) -> dict[int, list[int]]:
    """As `produce` gave them keys."""
    found: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        found[number % 7].append(number)
    return found


def test_after_stop_nothing_begins_and_what_runs_is_waited_for(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.produce("one", 10, partitions=1)
    consumer = member(cluster, shell, "one")
    done: list[int] = []
    waits = threading.Event()

    def work(record: Record[Any, Any]) -> None:
        consumer.stop()
        assert waits.wait(PATIENCE)
        done.append(record.offset)

    end = Processing._end

    def ending(self: Processing) -> Steps:
        """The loop has seen the stop: from here on it waits for what runs."""
        waits.set()
        return end(self)

    monkeypatch.setattr(Processing, "_end", ending)
    shell.do(lambda: consumer.process(work, workers=2, order="partition"))
    shell.do(consumer.close)
    assert done == list(range(len(done)))
    assert committed(cluster, "one")[0][0] == len(done) < 10


def test_coroutines_that_outlast_drain_clean_up(
    cluster: Cluster, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    """They are cancelled. What they hold (a connection, say) is given back, though that takes an await, too."""
    cluster.produce("one", 2, partitions=1)
    consumer = member(cluster, shell, "one")
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
                    consumer.stop()
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cleaned.append("handler")

    shell.do(lambda: consumer.process(work, workers=2, order="none", drain=0))
    shell.do(consumer.close)
    gc.collect()
    assert sorted(cleaned) == ["generator", "generator", "handler", "handler"]
    # Those of the consumer are about a machine that is busy.
    told = [record.getMessage() for record in caplog.records if record.name != "kadence.consumer"]
    assert len(told) == 1, "2 records still run"


def test_a_coroutine_that_blocks_its_loop_does_not_keep_it_from_ending(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.produce("one", 1, partitions=1)
    consumer = member(cluster, Shell("threads"), "one")
    release = threading.Event()

    async def work(record: Record[Any, Any]) -> None:
        consumer.stop()
        release.wait(PATIENCE * 2)

    ended = threading.Timer(PATIENCE, release.set)
    ended.start()
    totals = consumer.process(work, drain=0)
    has_waited = release.is_set()
    release.set()
    ended.cancel()
    consumer.close()
    assert not has_waited
    assert totals.done == 0
    assert "blocks the event loop of handlers" in caplog.text


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_dead_letter_topic_that_is_deleted_holds_up_no_other_key(transactional_id: str | None) -> None:
    """A producer waits long for a topic that is gone. Neither workers nor transactions may wait with it."""
    config = {**FAST_GROUPS, "auto.create.topics.enable": False}
    with Broker(topics=TOPICS, config=config) as broker:
        cluster = Cluster("embedded", broker.bootstrap_servers, broker=broker)
        cluster.produce("one", 6, partitions=1)
        settings = {"auto_commit_interval_ms": 20, "isolation_level": "read_committed"}
        shell = Shell("threads")
        consumer = member(cluster, shell, "one", **settings)
        is_deleted = threading.Event()

        def work(record: Record[Any, Any]) -> None:
            if record.offset == 0:
                with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                    admin.delete_topics(["dead"])
                is_deleted.set()
            assert is_deleted.wait(PATIENCE)
            if record.offset < 4:
                raise ValueError("bad")

        def stop() -> None:
            try:
                until(lambda: decode(*committed(cluster, "one").get(0, (0, ""))) == [(4, 6)])
            finally:
                consumer.stop()

        watcher = threading.Thread(target=stop)
        watcher.start()
        totals = shell.do(
            lambda: consumer.process(
                work,
                workers=2,
                order="none",
                dead_letter="dead",
                drain=0,
                transactional_id=transactional_id,
            )
        )
        watcher.join(PATIENCE)
        shell.do(consumer.close)
        assert (totals.done, totals.dead_lettered) == (2, 0)
