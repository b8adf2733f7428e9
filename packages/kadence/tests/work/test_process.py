"""`process` as a program uses it: handlers and what they return, orders, retries, dead letters, batches, arguments."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.work import handlers
from tests.work.worlds import ONE, Real, Simulated, World, become, is_going

from kadence import Consumer, RebalanceListener, Record, TopicPartition
from kadence.errors import (
    ConcurrentAccessError,
    ConfigError,
    IllegalStateError,
    SchemaRegistryError,
)
from kadence.records.arrow import of_records
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.frontier import decode


class Seen:
    """A handler that keeps what it saw."""

    def __init__(self) -> None:
        self.values: Counter[int] = Counter()
        self.by_key: dict[bytes | None, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def __call__(self, record: Record[Any, Any]) -> None:
        with self._lock:
            self.values[int(record.value)] += 1
            self.by_key[record.key].append(int(record.value))

    def check(self, count: int) -> None:
        """Each once, and those of a key in their order."""
        assert self.values == dict.fromkeys(range(count), 1)
        assert all(numbers == sorted(numbers) for numbers in self.by_key.values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_record_is_handled_in_the_order_of_its_key_and_committed(
    simulated: Simulated, protocol: str
) -> None:
    simulated.write("orders", 300, keys=5)
    seen = Seen()
    member = simulated.member(group_protocol=protocol)
    member.process(seen, until=lambda: len(seen.values) == 300, workers=8)
    member.close()
    seen.check(300)
    assert simulated.offset("orders") == 300


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_on_threads_too(shells: Real, is_coroutine: bool) -> None:
    """Both consumers with both kinds of handlers, which give outputs."""
    shells.write("orders", 300, keys=5)
    seen = Seen()

    def work(record: Record[Any, Any]) -> ProducerRecord:
        seen(record)
        return ProducerRecord("out", record.value)

    async def awaited(record: Record[Any, Any]) -> ProducerRecord:
        await asyncio.sleep(0)
        return work(record)

    member = shells.member()
    handler = awaited if is_coroutine else work
    totals = member.process(handler, until=lambda: len(seen.values) == 300, workers=8)
    seen.check(300)
    assert totals.done == shells.offset("orders") == 300
    assert sorted(shells.values()) == list(range(300))


def test_all_workers_come_where_handlers_wait(real: Real) -> None:
    """Each worker that comes brings the next one. Here none ends before all are there."""
    real.write("orders", 48, keys=48)
    seen = Seen()
    all_there = threading.Barrier(16)

    def work(record: Record[Any, Any]) -> None:
        all_there.wait(PATIENCE)
        seen(record)

    real.member().process(work, until=lambda: len(seen.values) == 48, workers=16)
    assert set(seen.values.values()) == {1}


def test_keys_are_worked_on_beside_each_other(simulated: Simulated) -> None:
    simulated.write("orders", 8, keys=8)
    inside: list[int] = []

    async def work(record: Record[Any, Any]) -> None:
        inside.append(record.offset)
        await become(lambda: len(inside) == 8)

    totals = simulated.member().process(work, until=lambda: simulated.offset("orders") == 8, workers=8)
    assert totals.done == len(inside) == 8


def test_a_record_that_fails_is_tried_again_and_then_a_dead_letter(world: World) -> None:
    world.write("orders", 20, keys=5)
    member = world.member(auto_commit_interval_ms=20)
    seen = Seen()
    attempts: Counter[bytes] = Counter()

    def work(record: Record[Any, Any]) -> None:
        attempts[record.value] += 1
        if record.value == b"7":
            raise ValueError("seven")
        if record.value == b"8" and attempts[b"8"] < 3:
            raise ValueError("not yet")
        seen(record)

    totals = member.process(
        work,
        until=lambda: world.offset("orders") == 20,
        retry=Retry(attempts=3, backoff=0.01),
        dead_letter="dead",
    )
    member.close()
    assert repr(totals) == "Totals(done=20, failed=5, retried=0, dead_lettered=1, already_done=0)"
    assert attempts[b"7"] == attempts[b"8"] == 3
    [letter] = world.read("dead")
    headers = dict(letter.headers)
    assert (letter.value, letter.key) == (b"7", b"key 2")
    assert headers["kadence.error.class"] == b"ValueError"
    assert headers["kadence.error.message"] == b"seven"
    assert headers["kadence.error.attempts"] == b"3"
    assert headers["kadence.error.topic"] == b"orders"
    assert headers["kadence.error.group"] == b"g"
    assert int(headers["kadence.error.first"] or 0) <= int(headers["kadence.error.last"] or 0)
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())


def test_without_dead_letters_it_ends_with_the_exception_and_commits_what_is_done(world: World) -> None:
    world.write("one", 10)
    member = world.member("one")

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 4:
            raise ValueError("four")

    with pytest.raises(ValueError, match="four"):
        member.process(work, order="none", workers=1)
    assert world.committed()[0][0] == 4
    # What was read and not done comes again.
    assert member.do(lambda consumer: consumer.poll(PATIENCE, max_records=1))


def test_a_handler_that_exits_ends_the_processing(world: World) -> None:
    world.write("one", 3)

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 1:
            sys.exit(3)

    with pytest.raises(SystemExit):
        world.member("one").process(work, order="partition", retry=Retry(attempts=3))
    assert world.committed()[0][0] == 1


@pytest.mark.parametrize("error", [handlers.Panic, SystemExit])
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_what_is_no_exception_is_a_failed_attempt_too(
    simulated: Simulated, error: type[BaseException], transactional_id: str | None
) -> None:
    simulated.write("one", 3)
    member = simulated.member("one", isolation_level="read_committed", auto_commit_interval_ms=100)

    def work(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        if record.offset == 0:
            raise error("at once")
        return outputs(record)

    def outputs(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        yield ProducerRecord("out", record.value)
        if record.offset == 1:
            raise error("in the middle")

    member.process(
        work,
        until=lambda: simulated.offset() == 3,
        workers=2,
        dead_letter="dead",
        transactional_id=transactional_id,
    )
    letters = {record.value: dict(record.headers)["kadence.error.class"] for record in simulated.read("dead")}
    assert letters == {b"0": error.__name__.encode(), b"1": error.__name__.encode()}


def test_a_handler_whose_await_is_cancelled_has_failed(simulated: Simulated) -> None:
    simulated.write("one", 2)

    async def work(record: Record[Any, Any], context: Context) -> None:
        if context.attempt == 1:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    member = simulated.member("one", auto_commit_interval_ms=100)
    totals = member.process(
        work,
        until=lambda: simulated.offset() == 2,
        order="partition",
        retry=Retry(attempts=2, backoff=0),
    )
    assert (totals.done, totals.failed) == (2, 2)


def test_what_is_done_above_a_stuck_record_is_not_repeated_after_a_restart(simulated: Simulated) -> None:
    simulated.write("one", 10)
    done: list[int] = []

    async def work(record: Record[Any, Any]) -> None:
        if record.offset == 3:
            await become(lambda: len(done) == 9)
            raise RuntimeError("stuck")
        done.append(record.offset)

    first = simulated.member("one")
    with pytest.raises(RuntimeError, match="stuck"):
        first.process(work, order="none")
    offset, metadata = simulated.committed()[0]
    assert (offset, decode(offset, metadata)) == (3, [(4, 10)])
    first.close()
    assert simulated.committed()[0] == (offset, metadata)
    second = simulated.member("one", auto_commit_interval_ms=100)
    again: list[int] = []
    second.process(lambda record: again.append(record.offset), until=lambda: simulated.offset() == 10)
    assert again == [3]
    assert simulated.committed()[0] == (10, "")


def test_retries_through_a_topic_let_the_key_go_on(simulated: Simulated) -> None:
    simulated.write("one", 5)
    order: list[tuple[str, int, int]] = []

    def work(record: Record[Any, Any], context: Context) -> None:
        order.append((record.topic, int(record.value), context.attempt))
        if record.value == b"1" and context.attempt < 3:
            raise ValueError("later")

    member = simulated.member("one", auto_commit_interval_ms=100)
    member.process(
        work,
        until=lambda: simulated.offset("again") == 2,
        retry=Retry(attempts=3, backoff=0.02, topic="again"),
        dead_letter="dead",
    )
    assert [(topic, n) for topic, n, _ in order if topic == "one"] == [("one", n) for n in range(5)]
    assert [attempt for topic, _, attempt in order if topic == "again"] == [2, 3]
    assert simulated.offset() == 5
    assert simulated.read("dead") == []


@pytest.mark.parametrize("max_records", [50, 20_000])
def test_records_that_wait_in_the_retry_topic_hold_up_no_others(
    simulated: Simulated, max_records: int
) -> None:
    simulated.write("orders", 600, keys=600)
    member = simulated.member(auto_commit_interval_ms=100)
    failed: list[bytes] = []
    done: list[bytes] = []

    def work(record: Record[Any, Any]) -> None:
        if len(failed) < 600:
            failed.append(record.value)
            raise OSError("not now")
        done.append(record.value)

    call = member.processes(
        work,
        workers=4,
        retry=Retry(attempts=3, backoff=3_600, max_backoff=3_600, topic="again"),
        max_records=max_records,
    )
    simulated.until(lambda: simulated.offset("orders") == 600)
    assert len(failed) == 600
    simulated.write("orders", 300, keys=300)
    simulated.until(lambda: len(done) == 300)
    member.stop()
    assert call.result().retried == 600


def test_what_a_handler_returns_is_sent_before_its_record_is_done(world: World) -> None:
    world.write("orders", 50, keys=5)

    def work(record: Record[Any, Any]) -> Any:
        if int(record.value) % 2:
            return ProducerRecord("out", record.value, record.key)
        return [ProducerRecord("out", record.value), ProducerRecord("out", record.value)]

    member = world.member(auto_commit_interval_ms=20)
    member.process(work, until=lambda: world.offset("orders") == 50)
    assert Counter(world.values()) == {n: 1 if n % 2 else 2 for n in range(50)}


@pytest.mark.parametrize("is_async", [False, True])
def test_generators_yield_what_is_sent(world: World, is_async: bool) -> None:
    world.write("one", 3)

    def work(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        yield ProducerRecord("out", record.value)
        yield ProducerRecord("out", record.value + b"!")

    async def awaited(record: Record[Any, Any]) -> AsyncIterator[ProducerRecord]:
        for each in work(record):
            yield each

    member = world.member("one", auto_commit_interval_ms=20)
    member.process(awaited if is_async else work, until=lambda: world.offset() == 3)
    assert [record.value for record in world.read("out")] == [b"0", b"0!", b"1", b"1!", b"2", b"2!"]


def test_an_output_that_cannot_be_sent_is_a_failed_attempt(world: World) -> None:
    world.write("one", 1)
    with pytest.raises(Exception, match="must be bytes"):
        world.member("one").process(lambda record: ProducerRecord("out", "not bytes"))
    assert world.committed()[0][0] == 0


def test_a_coroutine_that_takes_too_long_is_cancelled_and_that_is_an_attempt(simulated: Simulated) -> None:
    simulated.write("one", 2)
    attempts: list[int] = []

    async def work(record: Record[Any, Any], context: Context) -> None:
        if record.value == b"0" and context.attempt < 3:
            attempts.append(context.attempt)
            await asyncio.sleep(3_600)

    simulated.member("one").process(
        work, until=lambda: simulated.offset() == 2, timeout=1, retry=Retry(attempts=3, backoff=0)
    )
    assert attempts == [1, 2]


def test_a_coroutine_that_took_too_long_is_told_as_such(simulated: Simulated) -> None:
    """A timeout of its own is something else."""
    simulated.write("one", 3)
    tries: list[bytes] = []

    async def work(record: Record[Any, Any]) -> None:
        tries.append(record.value)
        if record.value == b"0":
            await asyncio.sleep(3_600)
        elif record.value == b"1":
            raise TimeoutError("its own")

    simulated.member("one", auto_commit_interval_ms=100).process(
        work,
        until=lambda: simulated.offset() == 3,
        timeout=0.05,
        retry=Retry(attempts=2, backoff=0, on=(TimeoutError,)),
        dead_letter="dead",
        order="partition",
    )
    assert sorted(tries) == [b"0", b"0", b"1", b"1", b"2"]
    told = [dict(letter.headers) for letter in simulated.read("dead")]
    assert [(each["kadence.error.class"], each["kadence.error.message"]) for each in told] == [
        (b"HandlerTimeoutError", b"the handler took longer than timeout=0.05 s"),
        (b"TimeoutError", b"its own"),
    ]


# ---------------------------------------------------------------- batches


def test_batches_and_the_bad_record_in_one(world: World) -> None:
    world.write("one", 40)
    member = world.member("one", auto_commit_interval_ms=20)
    batches: list[list[int]] = []
    good: set[int] = set()

    def work(records: list[Record[Any, Any]]) -> None:
        numbers = [int(record.value) for record in records]
        batches.append(numbers)
        if 17 in numbers:
            raise ValueError("seventeen")
        good.update(numbers)

    member.process(
        work,
        until=lambda: world.offset() == 40,
        # Otherwise those behind the bad one would wait for it: all have one key.
        order="none",
        batch=(16, 0.01),
        halve=True,
        retry=Retry(attempts=3, backoff=0.02),
        dead_letter="dead",
    )
    assert good == set(range(40)) - {17}
    assert max(map(len, batches)) == 16
    assert batches.count([17]) == 3
    assert world.values("dead") == [17]


def test_a_batch_whose_generator_raises_is_halved_too(world: World) -> None:
    world.write("one", 16)
    member = world.member("one", auto_commit_interval_ms=20)

    def work(records: list[Record[Any, Any]]) -> Iterator[ProducerRecord]:
        for record in records:
            if record.value == b"7":
                raise ValueError("seven")
            yield ProducerRecord("out", record.value)

    member.process(work, until=lambda: world.offset() == 16, batch=(16, 0.01), halve=True, dead_letter="dead")
    assert world.values("dead") == [7]
    assert sorted(world.values()) == [n for n in range(16) if n != 7]


@pytest.mark.parametrize("executor", [None, "processes"])
def test_batches_are_arrow_tables_where_asked(real: Real, executor: Any) -> None:
    real.write("one", 40, keys=4)
    member = real.member("one", auto_commit_interval_ms=50)
    totals = member.process(
        handlers.table,
        until=lambda: real.offset() == 40,
        batch=(16, 0.01),
        batch_format="arrow",
        halve=True,
        executor=executor,
        workers=2,
        dead_letter="dead",
    )
    assert (totals.done, totals.dead_lettered) == (40, 1)
    assert sorted(real.values()) == [n for n in range(40) if n != 17]
    with Consumer(bootstrap_servers=real.servers) as reader:
        reader.assign({ONE: (0, 40)})
        table = reader.poll_arrow(PATIENCE)
        reader.seek(ONE, 0)
        assert of_records(list(reader.poll(PATIENCE))).slice(0, 1).equals(table.slice(0, 1))


@pytest.mark.parametrize("why", ["fails", "cannot be read"])
def test_a_batch_in_parts_keeps_the_order_of_keys(world: World, why: str) -> None:
    world.write("one", 4)
    tried: list[bytes] = []

    def decoded(data: bytes) -> bytes:
        if data == b"0" and why == "cannot be read":
            raise ValueError
        return data

    member = world.member("one", value_deserializer=decoded, auto_commit_interval_ms=20)
    values: list[bytes] = []

    def work(records: list[Record[Any, Any]]) -> None:
        given = [record.value for record in records]
        if given[0] == b"0" and len(tried) < 3:
            tried.append(given[0])
            raise ValueError
        # With its dead letter the one that cannot be read is done.
        assert why == "fails" or world.read("dead")
        values.extend(given)

    member.process(
        work,
        until=lambda: world.offset() == 4,
        batch=(4, 0.05),
        halve=True,
        dead_letter="dead",
        retry=Retry(attempts=9, backoff=0.01),
    )
    assert values == [b"0", b"1", b"2", b"3"][why != "fails" :]


def test_no_part_of_a_batch_begins_behind_the_record_that_ended_the_processing(world: World) -> None:
    world.write("one", 4)
    given: list[list[bytes]] = []

    def work(records: list[Record[Any, Any]]) -> None:
        given.append([record.value for record in records])
        if records[0].value == b"0":
            raise ValueError("zero")

    with pytest.raises(ValueError, match="zero"):
        world.member("one").process(work, batch=(4, 60), halve=True)
    assert given == [[b"0", b"1", b"2", b"3"], [b"0", b"1"], [b"0"]]


# ---------------------------------------------------------------- values that cannot be read


def test_a_value_that_cannot_be_read_is_a_dead_letter_with_its_bytes(world: World) -> None:
    world.write("one", [b"1", b"two", b"3"])
    member = world.member("one", value_deserializer=int, auto_commit_interval_ms=20)
    values: list[int] = []
    member.process(
        lambda record: values.append(record.value),
        until=lambda: world.offset() == 3,
        dead_letter="dead",
        # It is not tried again: that would take a minute.
        retry=Retry(attempts=5, backoff=PATIENCE),
    )
    assert values == [1, 3]
    [letter] = world.read("dead")
    assert letter.value == b"two"
    headers = dict(letter.headers)
    assert (headers["kadence.error.class"], headers["kadence.error.field"]) == (b"ValueError", b"value")
    assert b"invalid literal for int()" in (headers["kadence.error.message"] or b""), "why it is bad"
    assert headers["kadence.error.attempts"] == b"1"


def test_only_the_values_of_a_batch_that_cannot_be_read_are_dead_letters(world: World) -> None:
    world.write("one", [b"1", b"two", b"3", b"four", b"5"])
    member = world.member("one", value_deserializer=int, auto_commit_interval_ms=20)
    values: list[list[int]] = []

    def work(records: list[Record[Any, Any]]) -> None:
        values.append([record.value for record in records])

    member.process(
        work,
        until=lambda: world.offset() == 5,
        dead_letter="dead",
        retry=Retry(attempts=1),
        order="none",
        batch=(5, PATIENCE),
    )
    assert values == [[1, 3, 5]]
    assert [letter.value for letter in world.read("dead")] == [b"two", b"four"]


def test_values_whose_registry_is_away_are_tried_again_and_never_dead_letters(world: World) -> None:
    world.write("one", 1)
    asked: list[bytes] = []

    def away(data: bytes) -> int:
        asked.append(data)
        if len(asked) != 4:
            raise SchemaRegistryError("away")
        return int(data)

    member = world.member("one", value_deserializer=away, auto_commit_interval_ms=20)
    values: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        values.append(record.value)

    retry = Retry(attempts=2, backoff=0)
    with pytest.raises(SchemaRegistryError, match="away"):
        member.process(work, dead_letter="dead", retry=retry)
    assert len(asked) == 2
    member.process(work, until=lambda: world.offset() == 1, dead_letter="dead", retry=retry)
    assert values == [0]
    assert not world.read("dead")


# ---------------------------------------------------------------- reading


def test_a_range_ends_it(world: World) -> None:
    world.write("one", 20)
    member = world.member(None, group_id=None)
    member.do(lambda consumer: consumer.assign({ONE: (5, 15)}))
    offsets: list[int] = []
    member.process(lambda record: offsets.append(record.offset), order="none")
    assert sorted(offsets) == list(range(5, 15))


@pytest.mark.parametrize("transactional_id", [None, "t"])
@pytest.mark.parametrize("keys", [0, 40])
def test_a_batch_that_nothing_can_be_added_to_does_not_wait(
    simulated: Simulated, keys: int, transactional_id: str | None
) -> None:
    """Not when the range is read, nor for the last attempts, which end one by one."""
    simulated.write("one", 40, keys=keys)
    member = simulated.member(None, isolation_level="read_committed", auto_commit_interval_ms=100)
    member.do(lambda consumer: consumer.assign({ONE: (0, 40)}))
    sizes: list[int] = []
    failed: set[bytes | None] = set()

    async def work(records: list[Record[Any, Any]]) -> None:
        sizes.append(len(records))
        await asyncio.sleep(0.1)
        for record in records:
            if record.offset % 8 == 0 and record.value not in failed:
                failed.add(record.value)
                raise ValueError("not yet")

    began = simulated.now
    totals = member.process(
        work,
        batch=(500, 900),
        workers=4,
        retry=Retry(attempts=10, backoff=1, factor=1),
        transactional_id=transactional_id,
    )
    assert totals.done == 40
    assert sizes[0] == 40
    assert simulated.now - began < 100


@pytest.mark.parametrize(("limit", "value"), [("max_records", 100), ("max_bytes", 20_000)])
def test_a_batch_larger_than_the_limits_does_not_wait(simulated: Simulated, limit: str, value: int) -> None:
    simulated.write("orders", 400, keys=400)
    sizes: list[int] = []
    member = simulated.member()
    began = simulated.now
    more: dict[str, Any] = {limit: value}
    member.process(
        lambda records: sizes.append(len(records)),
        until=lambda: sum(sizes) >= 300,
        batch=(500, 200),
        workers=1,
        **more,
    )
    assert max(sizes) >= 50
    assert simulated.now - began < 100


def test_a_batch_waits_for_what_may_still_come(simulated: Simulated) -> None:
    simulated.write("one", 10, keys=10)
    sizes: list[int] = []
    member = simulated.member("one")
    call = member.processes(lambda records: sizes.append(len(records)), batch=(20, 30))
    simulated.cluster.sleep(20)
    assert sizes == []
    simulated.write("one", 10, keys=10)
    simulated.until(lambda: sizes)
    member.stop()
    call.result()
    assert sizes == [20]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_after_process_the_retry_topic_is_read_no_longer(simulated: Simulated, protocol: str) -> None:
    """Its records wait for another `process`; polls would give them as they lie there."""
    simulated.write("one", 4)
    member = simulated.member("one", auto_commit_interval_ms=100, group_protocol=protocol)

    def fails(record: Record[Any, Any]) -> None:
        raise ValueError("later")

    def raises(record: Record[Any, Any]) -> None:
        assert member.consumer.subscription() == {"one", "again"}
        raise LookupError("the end")

    retry = Retry(attempts=2, backoff=60, topic="again", on=(ValueError,))
    with pytest.raises(LookupError):
        member.process(lambda record: raises(record) if record.offset == 3 else fails(record), retry=retry)
    assert len(simulated.read("again")) == 3
    assert member.consumer.subscription() == {"one"}
    polled: list[Record[Any, Any]] = []
    for _ in range(30):
        polled += member.do(lambda consumer: consumer.poll(5))
    assert [record.offset for record in polled] == [3]
    assert {each.topic for each in member.consumer.assignment()} == {"one"}
    handled: list[int] = []
    member.process(
        lambda record: handled.append(int(record.value)), until=lambda: len(handled) == 3, retry=retry
    )
    assert sorted(handled) == [0, 1, 2]
    assert simulated.offset("again") == 3
    assert member.consumer.subscription() == {"one"}


def test_a_slow_key_holds_up_itself_only_and_reading_is_bounded(simulated: Simulated) -> None:
    simulated.write("orders", 200, keys=10)
    seen = Seen()

    async def work(record: Record[Any, Any]) -> None:
        if record.key == b"key 3":
            await become(lambda: sum(len(each) for each in seen.by_key.values()) >= 180)
        seen(record)

    member = simulated.member(auto_commit_interval_ms=100)
    member.process(work, until=lambda: simulated.offset("orders") == 200, max_records=60)
    seen.check(200)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_go_are_finished_and_committed_first(simulated: Simulated, protocol: str) -> None:
    """The second member joins while the first one works."""
    simulated.write("orders", 400, keys=50)
    handled: list[tuple[str, int, int]] = []

    def work_of(name: str) -> Callable[[Record[Any, Any], Context], Any]:
        async def work(record: Record[Any, Any], context: Context) -> None:
            handled.append((name, record.partition, record.offset))
            # So that something is left for the other one, which begins when what runs of its partitions has ended.
            if name == "first" and record.offset > 5:
                await become(lambda: is_going(context) or any(each[0] == "second" for each in handled))

        return work

    first = simulated.member(group_protocol=protocol)
    of_first = first.processes(work_of("first"), max_records=40)
    simulated.until(lambda: handled)
    second = simulated.member(group_protocol=protocol)
    of_second = second.processes(work_of("second"), max_records=40)
    simulated.until(lambda: len({each[1:] for each in handled}) == 400)
    first.stop()
    second.stop()
    totals = of_first.result(), of_second.result()
    assert len(handled) == 400, "none was handled twice: the frontier was committed before its partition went"
    assert all(each.done for each in totals)
    assert simulated.offset("orders") == 400


def test_partitions_that_go_are_finished_and_committed_first_on_threads(real: Real) -> None:
    real.write("orders", 400, keys=50)
    lock = threading.Lock()
    handled: list[tuple[str, int, int]] = []
    both_work = threading.Event()

    def work_of(name: str) -> Callable[[Record[Any, Any], Context], None]:
        def work(record: Record[Any, Any], context: Context) -> None:
            with lock:
                handled.append((name, record.partition, record.offset))
            if name == "second":
                both_work.set()
            if name == "first" and record.offset > 5:
                until(lambda: is_going(context) or both_work.is_set(), every=0.01)

        return work

    first, second = real.member(), real.member()
    of_first = first.processes(work_of("first"), max_records=40)
    real.until(lambda: handled)
    of_second = second.processes(work_of("second"), max_records=40)
    real.until(lambda: len({each[1:] for each in handled}) == 400)
    first.stop()
    second.stop()
    assert of_first.result().done + of_second.result().done == len(handled) == 400
    assert real.offset("orders") == 400


class Pairs(RebalanceListener):
    """Hears only what can be: partitions come when they are not here, and go when they are."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.told: list[str] = []
        self.wrong: list[Any] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        self._tell("assigned", self.owned.isdisjoint(partitions), partitions)
        self.owned.update(partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        self._tell("revoked", self.owned.issuperset(partitions), partitions)
        self.owned.difference_update(partitions)

    def _tell(self, what: str, is_right: bool, partitions: list[TopicPartition]) -> None:
        self.told += [what] * bool(partitions)
        if not is_right:
            self.wrong.append((what, partitions, set(self.owned)))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("retry_topic", [None, "again"])
def test_a_listener_hears_partitions_come_and_go_in_pairs(
    simulated: Simulated, protocol: str, retry_topic: str | None
) -> None:
    """While `process` runs, when it ends with partitions, when it is called again, and at the end."""
    simulated.write("orders", 40, keys=20)
    pairs = Pairs()
    member = simulated.member(None, group_protocol=protocol)
    member.do(lambda consumer: consumer.subscribe("orders", listener=pairs))

    def fail(record: Record[Any, Any]) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        member.process(fail, retry=Retry(topic=retry_topic))
    assert pairs.owned == member.consumer.assignment() != set()

    async def work(record: Record[Any, Any]) -> None:
        await become(lambda: "revoked" in pairs.told)

    simulated.member(group_protocol=protocol).processes(work)
    member.process(
        work, until=lambda: "revoked" in pairs.told, workers=1, order="none", max_records=4, drain=0
    )
    assert pairs.owned == member.consumer.assignment()
    member.close()
    assert pairs.owned == set()
    assert pairs.wrong == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_partition_that_is_paused_while_the_group_rebalances_is_read_on(
    simulated: Simulated, transactional_id: str | None
) -> None:
    """With an eager assignor, which takes all partitions away and gives most of them back."""
    simulated.write("orders", 200, keys=20)
    settings: dict[str, Any] = {
        "group_protocol": "classic",
        "partition_assignment_strategy": "range",
        "isolation_level": "read_committed",
    }
    member = simulated.member(**settings)
    released: list[bool] = []
    seen = Seen()

    async def work(record: Record[Any, Any]) -> None:
        await become(lambda: released)
        seen(record)

    call = member.processes(
        work, workers=2, order="none", max_records=8, drain=0.1, transactional_id=transactional_id
    )
    simulated.until(lambda: member.program.owned and member.consumer.not_fetched())
    # It only comes and goes: it commits nothing.
    other = simulated.member(enable_auto_commit=False, **settings)
    other.do(lambda consumer: consumer.poll(60))
    other.close()
    released.append(True)
    simulated.until(lambda: len(seen.values) == 200)
    member.stop()
    call.result()
    assert simulated.offset("orders") == 200


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("on", [17, "OSError", (OSError, "x"), [OSError], OSError(), int, (int,)])
def test_retries_are_on_classes_of_exceptions_only(on: Any) -> None:
    with pytest.raises(TypeError, match=r"Retry\(on=.*a class of exceptions or a tuple of them"):
        Retry(on=on)
    assert Retry(attempts=2, on=OSError).allows(1, TimeoutError())


def test_a_topic_of_retries_is_a_name() -> None:
    with pytest.raises(TypeError, match=r"Retry\(topic=False\): a topic's name"):
        Retry(topic=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["attempts", "backoff", "factor", "max_backoff", "jitter"])
def test_retries_are_counted_and_spaced_by_numbers(name: str) -> None:
    given: dict[str, Any] = {name: "5"}
    with pytest.raises(TypeError, match=rf"Retry\({name}='5'\): a (whole )?number"):
        Retry(**given)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"workers": 0}, "at least 1"),
        ({"order": "kex"}, "'key'"),
        ({"executor": "loop"}, "plain"),
        ({"batch": (0, 1)}, "batch"),
        ({"batch": 500}, r"batch=500: \(records, seconds\), such as"),
        ({"batch": (500,)}, "batch"),
        ({"halve": True}, "batch"),
        ({"batch_format": "arrow"}, "batch"),
        ({"batch_format": "rows"}, "'arrow'"),
        ({"timeout": -1}, "timeout"),
        ({"max_records": 0}, "max_records=0: at least 1"),
        ({"workers": "4"}, "workers='4': a whole number"),
        ({"max_bytes": 1.5}, "max_bytes=1.5: a whole number"),
        ({"timeout": "5"}, "a number of seconds >= 0, not '5'"),
        ({"retry": 5}, "retry=5: a Retry"),
        ({"dead_letter": False}, "dead_letter=False: a name"),
        ({"dead_letter": b"dead"}, "dead_letter=b'dead': a name"),
        ({"transactional_id": 5}, "transactional_id=5: a name"),
        ({"retry": Retry(topic="later"), "dead_letter": "later"}, "is also the retry topic"),
    ],
)
def test_arguments_that_are_not_allowed(simulated: Simulated, arguments: dict[str, Any], what: str) -> None:
    member = simulated.member()
    with pytest.raises((TypeError, ValueError, ConfigError), match=what):
        member.do(lambda consumer: consumer.process(print, **arguments))


@pytest.mark.parametrize("handler", [lambda: None, lambda record, context, more: None])
def test_a_handler_that_cannot_take_a_record_is_refused_before_any_record_fails(
    simulated: Simulated, handler: Any
) -> None:
    """It would fail with every record, and each would become a dead letter."""
    with pytest.raises(TypeError, match="a handler takes a record"):
        simulated.member().process(handler, dead_letter="dead")


@pytest.mark.parametrize("topics", [["orders", "dead"], re.compile("orders|dead")])
def test_dead_letters_are_not_written_to_a_topic_that_is_subscribed_to(
    simulated: Simulated, topics: Any
) -> None:
    """Each would be read, fail, and be written again, without end."""
    with pytest.raises(ConfigError, match="dead_letter='dead' is among the topics"):
        simulated.member(topics).process(print, dead_letter="dead")


def test_dead_letters_of_a_range_may_go_behind_it(simulated: Simulated) -> None:
    """Who works on the dead letters that are there now comes to an end."""
    simulated.write("dead", 3)
    member = simulated.member(None, group_id=None)
    member.do(lambda consumer: consumer.assign({TopicPartition("dead", 0): (0, 3)}))

    def refuse(record: Record[Any, Any]) -> None:
        raise ValueError

    # The simulation takes the letters for copies.
    simulated.is_checked = False
    assert member.process(refuse, dead_letter="dead").dead_lettered == 3
    assert len(simulated.read("dead")) == 6


def test_a_topic_of_dead_letters_that_is_missing_is_told_at_the_start(simulated: Simulated) -> None:
    with pytest.raises(ConfigError, match="missing"):
        simulated.member("one").process(print, dead_letter="missing")


def test_a_retry_topic_that_is_missing_is_not_subscribed_to(simulated: Simulated) -> None:
    member = simulated.member("one")
    with pytest.raises(ConfigError, match=r"Retry.topic: the cluster has no topic 'missing'"):
        member.process(print, retry=Retry(topic="missing"))
    assert member.consumer.subscription() == {"one"}


def test_a_second_call_and_a_commit_of_everything_are_refused(simulated: Simulated) -> None:
    simulated.write("one", 1)
    member = simulated.member("one")
    refused: list[str] = []

    async def work(record: Record[Any, Any]) -> None:
        for call in (member.consumer.commit, lambda: member.consumer.process(work)):
            with pytest.raises((IllegalStateError, ConcurrentAccessError)) as error:
                await call()
            refused.append(type(error.value).__name__)
        member.stop()

    member.process(work)
    assert refused == ["IllegalStateError", "ConcurrentAccessError"]
    assert simulated.committed()[0] == (1, "")


def test_a_handler_that_returns_something_else_ends_it_and_makes_no_dead_letters(world: World) -> None:
    world.write("one", 3)
    with pytest.raises(TypeError, match=r"\(one, a list or tuple of them, or a generator\), not bool"):
        world.member("one").process(lambda record: True, dead_letter="dead", retry=Retry(attempts=5))
    assert world.read("dead") == []
    assert world.committed()[0] == (0, "")


# ---------------------------------------------------------------- processes


def test_processes_run_handlers_and_a_record_that_kills_them_is_a_dead_letter(real: Real) -> None:
    real.send("one", [{"value": value, "key": value} for value in (b"a", b"die", b"fail", b"b")])
    member = real.member("one", auto_commit_interval_ms=50)
    member.process(
        handlers.work,
        until=lambda: real.offset() == 4,
        executor="processes",
        workers=2,
        retry=Retry(attempts=2, backoff=0),
        dead_letter="dead",
    )
    answers = sorted(record.value.split()[:2] for record in real.read("out"))
    assert answers == [[b"a", b"1"], [b"b", b"1"]]
    letters = {letter.value: dict(letter.headers) for letter in real.read("dead")}
    assert letters.keys() == {b"die", b"fail"}
    assert letters[b"die"]["kadence.error.class"] == b"WorkerDiedError"
    assert b"exit code 7" in (letters[b"die"]["kadence.error.message"] or b"")
    assert letters[b"fail"]["kadence.error.class"] == b"ValueError"
    assert letters[b"fail"]["kadence.error.attempts"] == b"2"


def test_a_handler_in_a_process_that_takes_too_long_is_killed_and_that_is_an_attempt(real: Real) -> None:
    real.write("one", [b"hang"])
    totals = real.member("one", auto_commit_interval_ms=50).process(
        handlers.work,
        until=lambda: real.offset() == 1,
        executor="processes",
        timeout=0.5,
        # A busy machine may pause a later attempt for as long.
        retry=Retry(attempts=100, backoff=0),
    )
    [answer] = real.read("out")
    value, attempt, _ = (answer.value or b"").split()
    assert value == b"hang"
    assert int(attempt) == totals.failed + 1 >= 2


def test_a_handler_in_a_process_that_returns_something_else_ends_it_and_makes_no_dead_letters(
    real: Real,
) -> None:
    real.write("one", 3)
    with pytest.raises(TypeError, match="not bool"):
        real.member("one").process(
            handlers.wrong, executor="processes", dead_letter="dead", retry=Retry(attempts=5)
        )
    assert real.read("dead") == []
    assert real.committed()[0] == (0, "")


def test_a_handler_that_no_child_can_import_is_refused(real: Real) -> None:
    with pytest.raises(TypeError, match="a function of a module"):
        real.member("one").process(lambda record: None, executor="processes")


# ---------------------------------------------------------------- loops of one's own


def test_a_loop_of_ones_own_commits_the_lowest_offset_that_is_not_done(world: World) -> None:
    world.write("one", 6)
    member = world.member("one", enable_auto_commit=False)
    first = member.do(lambda consumer: consumer.poll(PATIENCE, max_records=3))
    work = member.consumer.track(first)
    more = member.do(lambda consumer: consumer.poll(PATIENCE, max_records=3))
    further = member.consumer.track(more)
    zero, one, two = first
    worker = threading.Thread(target=lambda: [further.done(record) for record in more])
    worker.start()
    worker.join(PATIENCE)
    work.done(two)
    member.do(lambda consumer: consumer.commit(work))
    assert world.committed()[0] == (0, "")
    work.done(zero)
    work.done(zero)
    member.do(lambda consumer: consumer.commit(further))
    assert world.committed()[0] == (1, "")
    assert (work.unfinished, further.unfinished) == (1, 0)
    work.done(one)
    member.do(lambda consumer: consumer.commit(work))
    assert world.committed()[0] == (6, "")
    with pytest.raises(IllegalStateError, match="one-0@0"):
        further.done(zero)


def test_what_was_tracked_before_a_seek_is_forgotten(world: World) -> None:
    world.write("one", 6)
    member = world.member("one", enable_auto_commit=False)
    old = member.consumer.track(member.do(lambda consumer: consumer.poll(PATIENCE, max_records=3)))
    member.do(lambda consumer: consumer.seek(ONE, 4))
    records = member.do(lambda consumer: consumer.poll(PATIENCE, max_records=1))
    work = member.consumer.track(records)
    for record in records:
        work.done(record)
    member.do(lambda consumer: consumer.commit(old))
    assert world.committed()[0] == (5, "")


def test_tracking_needs_automatic_commits_to_be_off(simulated: Simulated) -> None:
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit=false"):
        simulated.member("one").do(lambda consumer: consumer.track([]))
