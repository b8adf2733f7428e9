"""What `process` promises on a queue while something fails: a test for each row of the table in docs/work.md."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.share.test_on_brokers import FAST, LOCK_MS, SHORT_LOCKS, from_the_start, polled, settings_of
from tests.work import failing, handlers
from tests.work.test_endings import CHOSEN, expected

from kadence import (
    Admin,
    AsyncShareConsumer,
    Broker,
    Consumer,
    Producer,
    ProducerRecord,
    Record,
    Retry,
    ShareConsumer,
)
from kadence.admin import ConfigResource
from kadence.errors import (
    RecordDeserializationError,
    SchemaRegistryError,
    TopicAlreadyExistsError,
    WorkerStartError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence.work import desk
from kadence_testing.kafka import free_ports


class World:
    """A broker with a topic t, read by the group q.

    Attributes:
        seen: the values that a handler made by `notes` has returned for.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.seen: list[bytes] = []

    def write(self, *values: bytes) -> None:
        with Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
            for value in values:
                producer.send("t", value)

    def read(self, topic: str) -> list[Record[Any, Any]]:
        with Consumer(bootstrap_servers=self.broker.bootstrap_servers) as consumer:
            consumer.assign_topics(topic, start="earliest", end="latest")
            return list(consumer)

    def lag(self) -> int | None:
        """How many records have no outcome yet; None: the group has done nothing."""
        with Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            lags = [each.lag for each in admin.list_share_group_offsets("q").values()]
        return None if not lags or None in lags else sum(each or 0 for each in lags)

    def member(self, **settings: Any) -> ShareConsumer[Any, Any]:
        consumer: ShareConsumer[Any, Any] = ShareConsumer(**settings_of(self.broker, **settings))
        consumer.subscribe("t")
        return consumer

    def process(
        self, handler: Callable[..., Any], *, done: Callable[[], bool] | None = None, **given: Any
    ) -> Any:
        """`process` of a new member, until this is so; else until each record has an outcome."""
        settings = {key: given.pop(key) for key in list(given) if key.endswith("deserializer")}
        with self.member(**settings) as consumer:
            ended = threading.Event()

            def stops() -> None:
                until(lambda: ended.is_set() or (done or (lambda: self.lag() == 0))())
                consumer.stop()

            watcher = threading.Thread(target=stops)
            watcher.start()
            try:
                return consumer.process(handler, **given)
            finally:
                ended.set()
                watcher.join()

    def notes(self, record: Record[Any, Any]) -> None:
        """A handler that returns."""
        self.seen.append(record.value)

    def rest(self, count: int) -> dict[bytes, int | None]:
        """So many records that come to another member: their values, and how often they were delivered."""
        with self.member() as other:
            found = polled(other, count)
            other.commit()
        return {record.value: record.delivery_count for record in found}


@contextlib.contextmanager
def serving(config: dict[str, int]) -> Iterator[World]:
    with Broker(topics={"t": 1, "out": 1, "dead": 1}, config=config) as broker:
        from_the_start(broker)
        yield World(broker)


@pytest.fixture
def world() -> Iterator[World]:
    with serving(FAST) as world:
        yield world


@pytest.fixture
def locking_briefly() -> Iterator[World]:
    with serving(SHORT_LOCKS) as world:
        yield world


# ---------------------------------------------------------------- a handler, or its worker, ends


@pytest.mark.parametrize(("kind", "executor"), CHOSEN)
def test_a_handler_may_end_in_any_way(world: World, kind: str, executor: Any) -> None:
    letters = expected(executor)
    names = [name.encode() for name in ("returns", *letters, "returns nothing")]
    world.write(*names)
    handler = handlers.awaited_ending if executor == "loop" else handlers.ending
    given = {"executor": executor, "workers": 2, "retry": Retry(attempts=2, backoff=0), "dead_letter": "dead"}
    if kind == "threads":
        totals = world.process(handler, **given)
    else:
        with ThreadPoolExecutor(1) as aside:
            # On the main thread a KeyboardInterrupt would be Ctrl-C.
            totals = aside.submit(asyncio.run, awaited(world, handler, given)).result()
    found = [dict(record.headers) for record in world.read("dead")]
    repeated = [each for each in found if each["kadence.error.attempts"] == b"2"]
    assert Counter(each["kadence.error.class"] for each in found) == Counter(letters.values())
    assert (totals.done, totals.dead_lettered, totals.rejected) == (len(names), len(letters), 0)
    assert totals.failed == len(letters) + len(repeated), "nothing was handled again"


async def awaited(world: World, handler: Callable[..., Any], given: dict[str, Any]) -> Any:
    async with AsyncShareConsumer(**settings_of(world.broker)) as consumer:
        await consumer.subscribe("t")
        task = asyncio.create_task(consumer.process(handler, **given))
        await asyncio.to_thread(until, lambda: world.lag() == 0)
        consumer.stop()
        return await task


def test_after_a_handler_that_exceeds_its_timeout_done_records_are_not_repeated(world: World) -> None:
    world.write(b"1", b"slow", b"2")
    release = threading.Event()
    seen: list[bytes] = []

    def work(record: Record[Any, Any], context: Any) -> None:
        if record.value == b"slow" and context.delivery_count == 1:
            release.wait(PATIENCE)
        seen.append(record.value)

    # A busy machine may pause the handlers of the others, too: theirs may take longer than a shorter timeout.
    world.process(work, workers=2, timeout=3, drain=0)
    release.set()
    assert sorted(seen)[:2] == [b"1", b"2"]
    assert Counter(seen)[b"1"] == Counter(seen)[b"2"] == 1


def test_what_is_done_while_the_end_waits_for_a_handler_is_acknowledged(world: World) -> None:
    world.write(b"quick", b"slow")
    begun: list[bytes] = []
    stopped, release = threading.Event(), threading.Event()

    def work(record: Record[Any, Any]) -> None:
        begun.append(record.value)
        assert (stopped if record.value == b"quick" else release).wait(PATIENCE)

    with world.member() as consumer, ThreadPoolExecutor(1) as aside:
        call = aside.submit(consumer.process, work, workers=2, drain=PATIENCE)
        until(lambda: len(begun) == 2)
        consumer.stop()
        stopped.set()
        until(lambda: world.lag() == 1)
        assert not call.done()
        release.set()
        assert call.result().done == 2
    assert world.lag() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_child_that_a_handler_forks_says_nothing_of_its_record(world: World) -> None:
    world.write(b"1", b"2", b"3")
    children: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        if record.value == b"2":
            if not (child := os.fork()):
                raise ValueError("in the child")
            children.append(child)
        world.notes(record)

    totals = world.process(work, workers=2)
    for child in children:
        os.waitpid(child, 0)
    assert Counter(world.seen) == Counter([b"1", b"2", b"3"])
    assert (totals.done, totals.failed, totals.rejected) == (3, 0, 0)


def test_a_worker_that_does_not_start_costs_no_record(world: World) -> None:
    world.write(b"1", b"2")
    with pytest.raises(WorkerStartError):
        world.process(failing.work, executor="processes", dead_letter="dead", drain=0)
    assert world.read("dead") == []
    assert set(world.rest(2)) == {b"1", b"2"}


def number(data: bytes) -> int:
    return int(data)


def test_a_record_that_a_deserialiser_refuses_is_a_dead_letter(world: World) -> None:
    world.write(b"1", b"two", b"3")
    totals = world.process(world.notes, value_deserializer=number, dead_letter="dead", workers=2)
    assert sorted(world.seen) == [1, 3]  # type: ignore[comparison-overlap]
    assert (totals.done, totals.dead_lettered) == (3, 1)
    assert [each.value for each in world.read("dead")] == [b"two"]


def test_without_dead_letters_such_a_record_ends_it_and_comes_again(world: World) -> None:
    world.write(b"1", b"two")
    with pytest.raises(RecordDeserializationError):
        world.process(world.notes, value_deserializer=number, workers=1)
    assert world.seen == [1]  # type: ignore[comparison-overlap]
    assert set(world.rest(1)) == {b"two"}


def test_a_record_whose_registry_is_away_is_neither_rejected_nor_a_dead_letter(world: World) -> None:
    world.write(b"1", b"2")

    def away(data: bytes) -> int:
        if data == b"2":
            raise SchemaRegistryError("away")
        return int(data)

    with pytest.raises(SchemaRegistryError, match="away"):
        world.process(
            world.notes, value_deserializer=away, workers=1, dead_letter="dead", retry=Retry(backoff=0)
        )
    with pytest.raises(SchemaRegistryError, match="away"):
        world.process(world.notes, value_deserializer=away, workers=1, retry=Retry(backoff=0))
    assert world.seen == [1]  # type: ignore[comparison-overlap]
    assert world.read("dead") == []
    assert set(world.rest(1)) == {b"2"}


@pytest.mark.parametrize("halve", [False, True])
def test_good_records_of_a_bad_batch_are_handled_again_with_halve(world: World, halve: bool) -> None:
    world.write(*(b"%d" % each for each in range(8)))
    handled: list[bytes] = []

    def work(records: list[Record[Any, Any]]) -> None:
        handled.extend(record.value for record in records)
        if any(record.value == b"5" for record in records):
            raise ValueError("five")

    totals = world.process(work, batch=(8, PATIENCE), halve=halve, workers=1, dead_letter="dead")
    assert totals.done == 8
    assert totals.dead_lettered == (1 if halve else 8)
    assert (len(handled) > 8) is halve


# ---------------------------------------------------------------- brokers refuse


def test_outputs_acknowledged_before_a_refused_one_are_sent_again(world: World) -> None:
    world.write(b"1")
    refused = world.broker.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, topic="dead", times=1)

    def work(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        yield ProducerRecord("out", record.value)
        until(lambda: world.broker.offsets("out") != [(0, 0)])
        yield ProducerRecord("dead", record.value)

    totals = world.process(work, retry=Retry(attempts=2, backoff=0))
    assert refused.hits == 1
    assert (totals.done, totals.failed) == (1, 1)
    assert [each.value for each in world.read("out")] == [b"1", b"1"]
    assert [each.value for each in world.read("dead")] == [b"1"]


def test_a_dead_letter_that_is_refused_is_sent_again_and_its_lock_renewed(
    locking_briefly: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = locking_briefly
    # The wait for it is longer than a lock.
    monkeypatch.setattr(desk, "RESEND_MS", LOCK_MS * 3 // 2)
    world.write(b"bad", b"2")
    refused = world.broker.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, topic="dead", times=1)
    runs: list[bytes] = []

    def work(record: Record[Any, Any]) -> None:
        runs.append(record.value)
        if record.value == b"bad":
            raise ValueError("bad")

    totals = world.process(work, dead_letter="dead", workers=2)
    assert refused.hits == 1
    assert sorted(runs) == [b"2", b"bad"]
    assert (totals.done, totals.dead_lettered) == (2, 1)


def test_a_dead_letter_that_is_too_large_is_shortened(world: World) -> None:
    with Admin(bootstrap_servers=world.broker.bootstrap_servers) as admin:
        admin.create_topics({"small": 1})
        admin.incremental_alter_configs({ConfigResource("topic", "small"): {"max.message.bytes": 1_000}})
    world.write(b"x" * 5_000)

    def work(record: Record[Any, Any]) -> None:
        raise ValueError("bad")

    totals = world.process(work, dead_letter="small")
    assert (totals.done, totals.failed, totals.dead_lettered) == (1, 1, 1)
    (letter,) = world.read("small")
    assert letter.value is None


def test_a_dead_letter_whose_topic_is_deleted_waits_for_it(world: World) -> None:
    world.write(b"bad", b"2")
    with Admin(bootstrap_servers=world.broker.bootstrap_servers) as admin:
        runs: list[bytes] = []

        def work(record: Record[Any, Any]) -> None:
            runs.append(record.value)
            if record.value == b"bad":
                admin.delete_topics(["dead"])
                raise ValueError("bad")

        def is_done() -> bool:
            if runs and "dead" not in admin.list_topics():
                # The producer of dead letters may have asked for it first.
                with contextlib.suppress(TopicAlreadyExistsError):
                    admin.create_topics({"dead": 1})
            return world.lag() == 0

        totals = world.process(work, done=is_done, dead_letter="dead", workers=2)
    assert sorted(runs) == [b"2", b"bad"]
    assert (totals.done, totals.dead_lettered) == (2, 1)
    assert [each.value for each in world.read("dead")] == [b"bad"]


def test_what_brokers_do_not_acknowledge_comes_again(world: World) -> None:
    world.write(b"1", b"2")
    faults = world.broker.faults

    def work(record: Record[Any, Any]) -> None:
        if not world.seen:
            faults.disconnect(ShareAcknowledgeRequest)
            faults.disconnect(ShareFetchRequest)
        world.notes(record)

    world.process(work, workers=1, done=lambda: len(world.seen) >= 2, drain=1)
    faults.clear()
    assert set(world.rest(2)) == {b"1", b"2"}


# ---------------------------------------------------------------- the end, and breaks


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_handler_that_outlasts_drain_may_overlap_with_that_of_the_next_member(
    world: World, how: str
) -> None:
    world.write(b"1", b"long", b"3")
    begun, release = threading.Event(), threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if record.value == b"long":
            begun.set()
            release.wait(PATIENCE)
        world.notes(record)

    consumer = world.member()
    ended = threading.Thread(target=consumer.process, args=(work,), kwargs={"workers": 2, "drain": 0.2})
    ended.start()
    until(lambda: begun.is_set() and len(world.seen) == 2)
    if how == "stop":
        consumer.stop()
        ended.join(PATIENCE)
    consumer.close()
    ended.join(PATIENCE)
    assert world.rest(1) == {b"long": 2}
    release.set()
    until(lambda: len(world.seen) == 3)
    assert Counter(world.seen) == {b"1": 1, b"3": 1, b"long": 1}
    assert world.lag() == 0


PROGRAM = """
import sys, time
from kadence import ShareConsumer
def work(record):
    print(record.value.decode(), flush=True)
    if record.value == b"6":
        time.sleep(600)
with ShareConsumer(bootstrap_servers=sys.argv[1], group_id="q") as consumer:
    consumer.subscribe("t")
    consumer.process(work, workers=1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_after_a_kill_or_a_freeze_what_was_acknowledged_is_not_repeated(
    locking_briefly: World, name: str, tmp_path: Path
) -> None:
    world = locking_briefly
    world.write(*(b"%d" % each for each in range(9)))
    with (tmp_path / "out").open("w") as out:
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, world.broker.bootstrap_servers], stdout=out)
    try:
        until(lambda: "6" in (tmp_path / "out").read_text())
        # The first six leave with the next polls.
        until(lambda: world.lag() == 3)
        os.kill(child.pid, getattr(signal, name))
        assert set(world.rest(3)) == {b"6", b"7", b"8"}
    finally:
        child.kill()
        child.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_ctrl_c_repeats_no_record_that_is_done(world: World) -> None:
    world.write(b"1", b"2", b"3")
    has_raised = threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if record.value == b"2":
            # It reaches the main thread, which is in the loop.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            has_raised.wait(PATIENCE)
        world.notes(record)

    with world.member() as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.process(work, workers=1)
        has_raised.set()
    assert world.seen[:1] == [b"1"]
    assert set(world.rest(2)) == {b"2", b"3"}


def test_a_cancelled_task_repeats_no_record_that_is_done(world: World) -> None:
    world.write(b"1", b"2", b"3")

    async def program() -> None:
        begun = asyncio.Event()

        async def work(record: Record[Any, Any]) -> None:
            if record.value == b"2":
                begun.set()
                await asyncio.sleep(PATIENCE)
            world.notes(record)

        async with AsyncShareConsumer(**settings_of(world.broker)) as consumer:
            await consumer.subscribe("t")
            task = asyncio.create_task(consumer.process(work, workers=1))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(program())
    assert world.seen == [b"1"]
    assert set(world.rest(2)) == {b"2", b"3"}


def test_a_broker_that_restarts_repeats_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Broker(port, topics={"t": 1}, config=FAST, data_dir=tmp_path) as broker:
        from_the_start(broker)
        world = World(broker)
        world.write(b"1", b"2")
        world.process(world.notes, workers=1)
        world.write(b"3")
    with Broker(port, config=FAST, data_dir=tmp_path) as broker:
        world.broker = broker
        world.process(world.notes, workers=1)
    assert world.seen == [b"1", b"2", b"3"]


# ---------------------------------------------------------------- records that go


def test_retention_that_passes_what_is_held_repeats_nothing(world: World) -> None:
    world.write(*(b"%d" % each for each in range(6)))
    release = threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if record.value == b"3":
            world.broker.delete_records("t", 0, 5)
            world.write(b"6")
            release.set()
        world.notes(record)

    world.process(work, workers=1, done=lambda: release.is_set() and b"6" in world.seen)
    assert max(Counter(world.seen).values()) == 1
    assert {b"0", b"1", b"2", b"3", b"5", b"6"} <= set(world.seen)


def test_new_records_at_done_offsets_of_a_truncated_log_are_passed_over(world: World) -> None:
    """A queue's state knows offsets, and no epochs."""
    world.write(b"0", b"1")
    world.write(b"2")

    def both(*values: bytes) -> None:
        world.process(world.notes, done=lambda: set(values) <= set(world.seen))

    both(b"0", b"1", b"2")
    world.broker.elect_uncleanly("t", 0, 0)
    world.write(b"new 0", b"new 1", b"new 2", b"new 3")
    both(b"new 3")
    assert world.seen[3:] == [b"new 3"]


def test_a_topic_that_is_made_anew_is_read_from_its_start(world: World) -> None:
    world.write(b"1", b"2")
    with Admin(bootstrap_servers=world.broker.bootstrap_servers) as admin:

        def work(record: Record[Any, Any]) -> None:
            world.notes(record)
            if record.value == b"2":
                admin.delete_topics(["t"])
                admin.create_topics({"t": 1})
                world.write(b"new 1", b"new 2")

        world.process(work, workers=1, done=lambda: b"new 2" in world.seen)
    assert world.seen == [b"1", b"2", b"new 1", b"new 2"]
