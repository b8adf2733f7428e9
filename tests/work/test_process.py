"""`process` as a program uses it: threads and asyncio, functions and coroutine functions, on the embedded broker."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE, until
from tests.work import handlers

from kadence import (
    Admin,
    Consumer,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    Record,
    TopicPartition,
)
from kadence.errors import (
    ConcurrentAccessError,
    ConfigError,
    IllegalStateError,
    RecordDeserializationError,
    SchemaRegistryError,
)
from kadence.records.arrow import of_records
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.frontier import decode, encode
from kadence.work.processing import Processing

GROUP = "g"
ONE = TopicPartition("one", 0)


@pytest.fixture(params=["function", "coroutine"])
def coroutine(request: pytest.FixtureRequest) -> bool:
    """Whether handlers are coroutine functions."""
    return bool(request.param == "coroutine")


class Seen:
    """What handlers saw, and when all that is expected has come: then the consumer stops."""

    def __init__(self, consumer: Any, expected: int, **failures: int) -> None:
        self.values: Counter[str] = Counter()
        self.order: dict[bytes | None, list[int]] = defaultdict(list)
        self._consumer = consumer
        self._expected = expected
        self._lock = threading.Lock()

    def __call__(self, record: Record[Any, Any]) -> None:
        with self._lock:
            self.values[record.value.decode()] += 1
            self.order[record.key].append(int(record.value))
            if len(self.values) >= self._expected:
                self._consumer.stop()


def member(cluster: Cluster, shell: Shell, topic: str = "orders", **settings: Any) -> Any:
    consumer = shell.make(
        bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest", **settings
    )
    shell.do(lambda: consumer.subscribe(topic))
    return consumer


def produce(cluster: Cluster, count: int, *, keys: int = 5, topic: str = "orders", start: int = 0) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for n in range(start, start + count):
            producer.send(topic, b"%d" % n, b"key %d" % (n % keys))


def handled_by(coroutine: bool, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work as a coroutine function."""
    if not coroutine:
        return work

    async def awaited(record: Any) -> Any:
        await asyncio.sleep(0)
        return work(record)

    return awaited


def committed(cluster: Cluster, topic: str = "orders") -> dict[int, tuple[int, str]]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_consumer_group_offsets(GROUP)
    return {
        p.partition: (at.offset, at.metadata)
        for p, at in found.items()
        if p.topic == topic and at is not None
    }


def read(cluster: Cluster, topic: str) -> list[Record[Any, Any]]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign({p: (0, end) for p, end in ends.items()})
        return list(consumer)


def test_all_workers_come_where_handlers_wait(cluster: Cluster, shell: Shell) -> None:
    """Each worker that comes brings the next one. Here none ends before all are there."""
    produce(cluster, 48, keys=48)
    consumer = member(cluster, shell)
    seen = Seen(consumer, 48)
    all_there = threading.Barrier(16)

    def work(record: Record[Any, Any]) -> None:
        all_there.wait(PATIENCE)
        seen(record)

    shell.do(lambda: consumer.process(work, workers=16))
    shell.do(consumer.close)
    assert set(seen.values.values()) == {1}


def test_each_record_is_handled_in_the_order_of_its_key_and_committed(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    produce(cluster, 300)
    consumer = member(cluster, shell)
    seen = Seen(consumer, 300)
    shell.do(lambda: consumer.process(handled_by(coroutine, seen), workers=8))
    assert set(seen.values.values()) == {1}
    assert all(numbers == sorted(numbers) for numbers in seen.order.values())
    shell.do(consumer.close)
    assert sum(offset for offset, _ in committed(cluster).values()) == 300


def test_keys_are_worked_on_beside_each_other(cluster: Cluster, shell: Shell, coroutine: bool) -> None:
    produce(cluster, 8, keys=8)
    consumer = member(cluster, shell)
    inside, all_are_inside = [0], threading.Event()

    def work(record: Record[Any, Any]) -> None:
        inside[0] += 1
        if inside[0] == 8:
            all_are_inside.set()
            consumer.stop()
        assert all_are_inside.wait(PATIENCE)

    async def awaited(record: Record[Any, Any]) -> None:
        inside[0] += 1
        if inside[0] == 8:
            all_are_inside.set()
            consumer.stop()
        while not all_are_inside.is_set():  # noqa: ASYNC110 - one event for both kinds of handlers
            await asyncio.sleep(0.001)

    shell.do(lambda: consumer.process(awaited if coroutine else work, workers=8))
    assert inside == [8]
    shell.do(consumer.close)


def test_a_record_that_fails_is_tried_again_and_then_a_dead_letter(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    produce(cluster, 20)
    consumer = member(cluster, shell)
    seen = Seen(consumer, 20)
    attempts: Counter[bytes] = Counter()

    def work(record: Record[Any, Any]) -> None:
        attempts[record.value] += 1
        if record.value == b"7":
            raise ValueError("seven")
        if record.value == b"8" and attempts[b"8"] < 3:
            raise ValueError("not yet")
        seen(record)

    def stop() -> None:
        if attempts[b"7"] == 3 and len(seen.values) == 19:
            consumer.stop()

    def and_stop(record: Record[Any, Any]) -> None:
        try:
            work(record)
        finally:
            stop()

    retry = Retry(attempts=3, backoff=0.01)
    totals = shell.do(
        lambda: consumer.process(handled_by(coroutine, and_stop), retry=retry, dead_letter="dead")
    )
    assert repr(totals) == "Totals(done=20, failed=5, retried=0, dead_lettered=1, skipped=0)"
    shell.do(consumer.close)
    assert attempts[b"7"] == attempts[b"8"] == 3
    assert sum(offset for offset, _ in committed(cluster).values()) == 20
    [letter] = read(cluster, "dead")
    headers = dict(letter.headers)
    assert (letter.value, letter.key) == (b"7", b"key 2")
    assert headers["kadence.error.class"] == b"ValueError"
    assert headers["kadence.error.message"] == b"seven"
    assert headers["kadence.error.attempts"] == b"3"
    assert headers["kadence.error.topic"] == b"orders"
    assert headers["kadence.error.group"] == b"g"
    assert int(headers["kadence.error.first"] or 0) <= int(headers["kadence.error.last"] or 0)
    assert all(numbers == sorted(numbers) for numbers in seen.order.values())


def test_without_dead_letters_it_ends_with_the_exception_and_commits_what_is_done(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    cluster.produce("one", 10, partitions=1)
    consumer = member(cluster, shell, "one")

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 4:
            raise ValueError("four")

    with pytest.raises(ValueError, match="four"):
        shell.do(lambda: consumer.process(handled_by(coroutine, work), order="none", workers=1))
    assert committed(cluster, "one")[0][0] == 4
    # What was read and not done comes again.
    assert shell.do(lambda: consumer.poll(PATIENCE, max_records=1))
    shell.do(consumer.close)


def test_a_handler_that_exits_ends_the_processing(cluster: Cluster, shell: Shell, coroutine: bool) -> None:
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 1:
            sys.exit(3)

    with pytest.raises(SystemExit):
        shell.do(
            lambda: consumer.process(handled_by(coroutine, work), order="partition", retry=Retry(attempts=3))
        )
    assert committed(cluster, "one")[0][0] == 1
    shell.do(consumer.close)


class Panic(BaseException):
    """What extensions in Rust raise."""


@pytest.mark.parametrize("error", [Panic, SystemExit])
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_what_is_no_exception_is_a_failed_attempt_too(
    cluster: Cluster,
    shell: Shell,
    coroutine: bool,
    error: type[BaseException],
    transactional_id: str | None,
) -> None:
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one", isolation_level="read_committed", auto_commit_interval_ms=20)

    def work(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        if record.offset == 0:
            raise error("at once")
        return outputs(record)

    def outputs(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        yield ProducerRecord("out", record.value)
        if record.offset == 1:
            raise error("in the middle")

    watcher = threading.Thread(target=lambda: _stop_at(cluster, consumer, 3))
    watcher.start()
    shell.do(
        lambda: consumer.process(
            handled_by(coroutine, work), workers=2, dead_letter="dead", transactional_id=transactional_id
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    letters = {record.value: dict(record.headers)["kadence.error.class"] for record in read(cluster, "dead")}
    assert letters == {b"0": error.__name__.encode(), b"1": error.__name__.encode()}


def test_a_handler_whose_await_is_cancelled_has_failed(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 2, partitions=1)
    consumer = member(cluster, shell, "one")

    async def work(record: Record[Any, Any], context: Context) -> None:
        if context.attempt == 1:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        elif record.offset == 1:
            consumer.stop()

    shell.do(lambda: consumer.process(work, order="partition", retry=Retry(attempts=2, backoff=0)))
    shell.do(consumer.close)
    assert committed(cluster, "one")[0][0] == 2


def test_what_is_done_above_a_stuck_record_is_not_repeated_after_a_restart(
    cluster: Cluster, shell: Shell
) -> None:
    cluster.produce("one", 10, partitions=1)
    first = member(cluster, shell, "one")
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
        shell.do(lambda: first.process(work, order="none"))
    offset, metadata = committed(cluster, "one")[0]
    assert offset == 3
    assert decode(offset, metadata) == [(4, 10)]
    shell.do(first.close)
    assert committed(cluster, "one")[0] == (offset, metadata)
    second = member(cluster, shell, "one")
    again: list[int] = []

    def only_the_rest(record: Record[Any, Any]) -> None:
        again.append(record.offset)
        second.stop()

    shell.do(lambda: second.process(only_the_rest, order="none"))
    assert again == [3]
    shell.do(second.close)
    assert committed(cluster, "one")[0] == (10, "")


def test_retries_through_a_topic_let_the_key_go_on(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 5, partitions=1)
    consumer = member(cluster, shell, "one")
    order: list[tuple[str, int, int]] = []

    def work(record: Record[Any, Any], context: Context) -> None:
        order.append((record.topic, int(record.value), context.attempt))
        if record.value == b"1":
            if record.topic == "one":
                raise ValueError("later")
            if sum(1 for topic, *_ in order if topic == "again") == 1:
                raise ValueError("once more")
            consumer.stop()

    shell.do(
        lambda: consumer.process(
            work, retry=Retry(attempts=3, backoff=0.02, topic="again"), dead_letter="dead"
        )
    )
    shell.do(consumer.close)
    assert [(topic, n) for topic, n, _ in order if topic == "one"] == [("one", n) for n in range(5)]
    assert [attempt for topic, _, attempt in order if topic == "again"] == [2, 3]
    assert committed(cluster, "one")[0][0] == 5
    assert sum(offset for offset, _ in committed(cluster, "again").values()) == 2
    assert read(cluster, "dead") == []


@pytest.mark.parametrize("max_records", [50, 20_000])
def test_records_that_wait_in_the_retry_topic_hold_up_no_others(
    cluster: Cluster, shell: Shell, max_records: int
) -> None:
    produce(cluster, 4_000, keys=4_000)
    consumer = member(cluster, shell, "orders")
    waiting = threading.Event()
    lock = threading.Lock()
    failed: list[bytes] = []
    done: list[bytes] = []

    def work(record: Record[Any, Any]) -> None:
        with lock:
            if not waiting.is_set():
                failed.append(record.value)
                raise OSError("not now")
            done.append(record.value)
            if len(done) == 2_000:
                consumer.stop()

    def watch() -> None:
        try:
            until(lambda: len(failed) == 4_000 and sum(at for at, _ in committed(cluster).values()) == 4_000)
            waiting.set()
            produce(cluster, 2_000, keys=2_000, start=4_000)
        except BaseException:
            consumer.stop()
            raise

    watcher = threading.Thread(target=watch)
    watcher.start()
    stopper = threading.Timer(PATIENCE, consumer.stop)
    stopper.start()
    shell.do(
        lambda: consumer.process(
            work,
            workers=4,
            retry=Retry(attempts=3, backoff=600, max_backoff=600, topic="again"),
            max_records=max_records,
        )
    )
    stopper.cancel()
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert len(done) == 2_000


def test_what_a_handler_returns_is_sent_before_its_record_is_done(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    produce(cluster, 50)
    consumer = member(cluster, shell)
    seen = Seen(consumer, 50)

    def work(record: Record[Any, Any]) -> Any:
        seen(record)
        if int(record.value) % 2:
            return ProducerRecord("out", record.value, record.key)
        return [ProducerRecord("out", record.value), ProducerRecord("out", record.value)]

    shell.do(lambda: consumer.process(handled_by(coroutine, work)))
    shell.do(consumer.close)
    assert sum(offset for offset, _ in committed(cluster).values()) == 50
    counts = Counter(int(record.value) for record in read(cluster, "out"))
    assert counts == {n: 1 if n % 2 else 2 for n in range(50)}


def test_generators_yield_what_is_sent(cluster: Cluster, shell: Shell, coroutine: bool) -> None:
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")
    seen = Seen(consumer, 3)

    def work(record: Record[Any, Any]) -> Iterator[ProducerRecord]:
        seen(record)
        yield ProducerRecord("out", record.value)
        yield ProducerRecord("out", record.value + b"!")

    async def awaited(record: Record[Any, Any]) -> Any:
        for each in work(record):
            yield each

    shell.do(lambda: consumer.process(awaited if coroutine else work))
    shell.do(consumer.close)
    assert sorted(record.value for record in read(cluster, "out")) == [b"0", b"0!", b"1", b"1!", b"2", b"2!"]


def test_an_output_that_cannot_be_sent_is_a_failed_attempt(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 1, partitions=1)
    consumer = member(cluster, shell, "one")

    def work(record: Record[Any, Any]) -> ProducerRecord:
        return ProducerRecord("out", "not bytes")

    with pytest.raises(Exception, match="must be bytes"):
        shell.do(lambda: consumer.process(work))
    assert committed(cluster, "one")[0][0] == 0
    shell.do(consumer.close)


def test_a_coroutine_that_takes_too_long_is_cancelled_and_that_is_an_attempt(
    cluster: Cluster, shell: Shell
) -> None:
    cluster.produce("one", 2, partitions=1)
    consumer = member(cluster, shell, "one")
    attempts: list[int] = []

    async def work(record: Record[Any, Any], context: Context) -> None:
        if record.value == b"0" and context.attempt < 3:
            attempts.append(context.attempt)
            await asyncio.sleep(PATIENCE)
        elif record.value == b"1":
            consumer.stop()

    shell.do(lambda: consumer.process(work, timeout=0.05, retry=Retry(attempts=3, backoff=0)))
    shell.do(consumer.close)
    assert attempts == [1, 2]
    assert committed(cluster, "one")[0][0] == 2


def test_a_coroutine_that_took_too_long_is_told_as_such(cluster: Cluster, shell: Shell) -> None:
    """Also when the loop has not looked at it meanwhile; a timeout of its own is something else."""
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")
    tries: list[bytes] = []

    async def work(record: Record[Any, Any]) -> None:
        tries.append(record.value)
        if record.value == b"0":
            await asyncio.sleep(PATIENCE)
        elif record.value == b"1":
            raise TimeoutError("its own")
        else:
            consumer.stop()

    retry = Retry(attempts=2, backoff=0, on=(TimeoutError,))
    shell.do(lambda: consumer.process(work, timeout=0.05, retry=retry, dead_letter="dead", order="partition"))
    shell.do(consumer.close)
    assert sorted(tries) == [b"0", b"0", b"1", b"1", b"2"]
    told = [dict(letter.headers) for letter in read(cluster, "dead")]
    assert [(each["kadence.error.class"], each["kadence.error.message"]) for each in told] == [
        (b"HandlerTimeoutError", b"the handler took longer than timeout=0.05 s"),
        (b"TimeoutError", b"its own"),
    ]


def test_batches_and_the_bad_record_in_one(cluster: Cluster, shell: Shell, coroutine: bool) -> None:
    cluster.produce("one", 40, partitions=1)
    consumer = member(cluster, shell, "one")
    batches: list[list[int]] = []
    good: set[int] = set()

    def work(records: list[Record[Any, Any]]) -> None:
        numbers = [int(record.value) for record in records]
        batches.append(numbers)
        if 17 in numbers:
            if len(good) == 39 and numbers == [17]:
                consumer.stop()
            raise ValueError("seventeen")
        good.update(numbers)

    shell.do(
        lambda: consumer.process(
            handled_by(coroutine, work),
            # Otherwise those behind the bad one would wait for it: none of these has a key.
            order="none",
            batch=(16, 0.01),
            halve=True,
            retry=Retry(attempts=100, backoff=0.02, factor=1),
            dead_letter="dead",
        )
    )
    shell.do(consumer.close)
    assert good == set(range(40)) - {17}
    assert max(map(len, batches)) == 16
    assert committed(cluster, "one")[0][0] in (17, 40)


def test_a_batch_whose_generator_raises_is_halved_too(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    cluster.produce("one", 16, partitions=1)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20)

    def work(records: list[Record[Any, Any]]) -> Iterator[ProducerRecord]:
        for record in records:
            if record.value == b"7":
                raise ValueError("seven")
            yield ProducerRecord("out", record.value)

    watcher = threading.Thread(target=lambda: _stop_at(cluster, consumer, 16))
    watcher.start()
    shell.do(
        lambda: consumer.process(
            handled_by(coroutine, work), batch=(16, 0.01), halve=True, dead_letter="dead"
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert [record.value for record in read(cluster, "dead")] == [b"7"]
    assert sorted(int(record.value or b"") for record in read(cluster, "out")) == [
        n for n in range(16) if n != 7
    ]


@pytest.mark.parametrize("executor", [None, "processes"])
def test_batches_are_arrow_tables_where_asked(cluster: Cluster, shell: Shell, executor: Any) -> None:
    produce(cluster, 40, topic="one", keys=4)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=50)
    watcher = threading.Thread(target=lambda: _stop_at(cluster, consumer, 40))
    watcher.start()
    totals = shell.do(
        lambda: consumer.process(
            handlers.table,
            batch=(16, 0.01),
            batch_format="arrow",
            halve=True,
            executor=executor,
            workers=2,
            dead_letter="dead",
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert (totals.done, totals.dead_lettered) == (40, 1)
    assert sorted(int(record.value) for record in read(cluster, "out")) == [n for n in range(40) if n != 17]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign({ONE: (0, 40)})
        table = reader.poll_arrow(PATIENCE)
        reader.seek(ONE, 0)
        assert of_records(list(reader.poll(PATIENCE))).slice(0, 1).equals(table.slice(0, 1))


def test_a_range_ends_it(cluster: Cluster, shell: Shell, coroutine: bool) -> None:
    cluster.produce("one", 20, partitions=1)
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: consumer.assign({ONE: (5, 15)}))
    offsets: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        offsets.append(record.offset)

    shell.do(lambda: consumer.process(handled_by(coroutine, work), order="none"))
    assert sorted(offsets) == list(range(5, 15))
    shell.do(consumer.close)


def test_partitions_that_go_are_finished_and_committed_first(cluster: Cluster) -> None:
    """Two members on threads; the second one joins while the first one works."""
    produce(cluster, 400, keys=50)
    shell = Shell("threads")
    first, second = member(cluster, shell), member(cluster, shell)
    lock = threading.Lock()
    handled: list[tuple[str, int, int]] = []
    has_begun, both_work = threading.Event(), threading.Event()

    def work_of(name: str) -> Callable[[Record[Any, Any], Context], None]:
        def work(record: Record[Any, Any], context: Context) -> None:
            with lock:
                handled.append((name, record.partition, record.offset))
                has_begun.set()
                if {each[0] for each in handled} == {"first", "second"}:
                    both_work.set()
                if len({each[1:] for each in handled}) == 400:
                    first.stop()
                    second.stop()
            # So that something is left for the other one, which begins only when what runs of its partitions has ended.
            while name == "first" and record.offset > 5 and not context.lost and not both_work.wait(0.01):
                pass

        return work

    running = threading.Thread(target=lambda: first.process(work_of("first"), max_records=40))
    running.start()
    assert has_begun.wait(PATIENCE)
    second.process(work_of("second"), max_records=40)
    running.join(PATIENCE)
    first.close()
    second.close()
    assert len({each[1:] for each in handled}) == 400
    assert len(handled) == 400, "none was handled twice: the frontier was committed before its partition went"
    assert sum(offset for offset, _ in committed(cluster).values()) == 400


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
    cluster: Cluster, shell: Shell, protocol: str, retry_topic: str | None
) -> None:
    """While `process` runs, when it ends with partitions, when it is called again, and at the end."""
    produce(cluster, 40, keys=20)
    pairs = Pairs()
    consumer = member(cluster, shell, group_protocol=protocol)
    shell.do(lambda: consumer.subscribe("orders", listener=pairs))

    def fail(record: Record[Any, Any]) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        shell.do(lambda: consumer.process(fail, retry=Retry(topic=retry_topic)))
    assert pairs.owned == consumer.assignment() != set()
    other = member(cluster, Shell("threads"), group_protocol=protocol)
    with other:
        joined = threading.Thread(target=lambda: until(lambda: other.poll(0.1) is None or other.assignment()))
        joined.start()

        def work(record: Record[Any, Any]) -> None:
            until(lambda: "revoked" in pairs.told)
            consumer.stop()

        produce(cluster, 40, keys=20)
        shell.do(lambda: consumer.process(work, workers=1, order="none", max_records=4, drain=0))
        joined.join(PATIENCE)
        assert pairs.owned == consumer.assignment()
    shell.do(consumer.close)
    assert pairs.owned == set()
    assert pairs.wrong == []
    assert "revoked" in pairs.told


@pytest.mark.parametrize("on", [17, "OSError", (OSError, "x"), [OSError], OSError(), int, (int,)])
def test_retries_are_on_classes_of_exceptions_only(on: Any) -> None:
    with pytest.raises(TypeError, match=r"Retry\(on=.*a class of exceptions or a tuple of them"):
        Retry(on=on)
    assert Retry(attempts=2, on=OSError).allows(1, TimeoutError())


@pytest.mark.parametrize("name", ["attempts", "backoff", "factor", "max_backoff", "jitter"])
def test_retries_are_counted_and_spaced_by_numbers(name: str) -> None:
    given: dict[str, Any] = {name: "5"}
    with pytest.raises(TypeError, match=rf"Retry\({name}='5'\): a (whole )?number"):
        Retry(**given)


def test_a_value_that_cannot_be_read_is_a_dead_letter_with_its_bytes(cluster: Cluster, shell: Shell) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"1", b"two", b"3"):
            producer.send("one", value, b"k")
    consumer = member(cluster, shell, "one", value_deserializer=int)
    values: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        values.append(record.value)
        if record.value == 3:
            consumer.stop()

    shell.do(lambda: consumer.process(work, dead_letter="dead", retry=Retry(attempts=5, backoff=PATIENCE)))
    shell.do(consumer.close)
    assert values == [1, 3]
    [letter] = read(cluster, "dead")
    assert letter.value == b"two"
    assert dict(letter.headers)["kadence.error.class"] == RecordDeserializationError.__name__.encode()


def test_only_the_values_of_a_batch_that_cannot_be_read_are_dead_letters(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"1", b"two", b"3", b"four", b"5"):
            producer.send("one", value)
    consumer = member(cluster, shell, "one", value_deserializer=int)
    values: list[list[int]] = []

    def work(records: list[Record[Any, Any]]) -> None:
        values.append([record.value for record in records])
        consumer.stop()

    handle = handled_by(coroutine, work)
    shell.do(
        lambda: consumer.process(
            handle, dead_letter="dead", retry=Retry(attempts=1), order="none", batch=(5, PATIENCE)
        )
    )
    assert values == [[1, 3, 5]]
    assert committed(cluster, "one")[0][0] == 5
    shell.do(consumer.close)
    assert [letter.value for letter in read(cluster, "dead")] == [b"two", b"four"]


@pytest.mark.parametrize("why", ["fails", "cannot be read"])
def test_a_batch_in_parts_keeps_the_order_of_keys(
    cluster: Cluster, shell: Shell, coroutine: bool, why: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"0", b"1", b"2", b"3"):
            producer.send("one", value, b"k")
    tried: list[bytes] = []

    def decoded(data: bytes) -> bytes:
        if data == b"0" and why == "cannot be read":
            raise ValueError
        return data

    consumer = member(cluster, shell, "one", value_deserializer=decoded)
    values: list[bytes] = []

    def work(records: list[Record[Any, Any]]) -> None:
        given = [record.value for record in records]
        if given[0] == b"0" and len(tried) < 3:
            tried.append(given[0])
            raise ValueError
        # With its dead letter the one that cannot be read is done.
        assert why == "fails" or read(cluster, "dead")
        values.extend(given)
        if len(values) == (4 if why == "fails" else 3):
            consumer.stop()

    handle = handled_by(coroutine, work)
    retry = Retry(attempts=9, backoff=0.01)
    shell.do(lambda: consumer.process(handle, batch=(4, 0.05), halve=True, dead_letter="dead", retry=retry))
    shell.do(consumer.close)
    assert values == [b"0", b"1", b"2", b"3"][why != "fails" :]


def test_no_part_of_a_batch_begins_behind_the_record_that_ended_the_processing(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"0", b"1", b"2", b"3"):
            producer.send("one", value, b"k")
    consumer = member(cluster, shell, "one")
    given: list[list[bytes]] = []

    def work(records: list[Record[Any, Any]]) -> None:
        given.append([record.value for record in records])
        if records[0].value == b"0":
            raise ValueError("zero")

    with pytest.raises(ValueError, match="zero"):
        shell.do(lambda: consumer.process(handled_by(coroutine, work), batch=(4, 60), halve=True))
    shell.do(consumer.close)
    assert given == [[b"0", b"1", b"2", b"3"], [b"0", b"1"], [b"0"]]


def test_values_whose_registry_is_away_are_tried_again_and_never_dead_letters(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("one", b"1")
    asked = 0

    def away(data: bytes) -> int:
        nonlocal asked
        asked += 1
        if asked != 4:
            raise SchemaRegistryError("away")
        return int(data)

    consumer = member(cluster, shell, "one", value_deserializer=away)
    values: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        values.append(record.value)
        consumer.stop()

    handle = handled_by(coroutine, work)
    retry = Retry(attempts=2, backoff=0)
    with pytest.raises(SchemaRegistryError, match="away"):
        shell.do(lambda: consumer.process(handle, dead_letter="dead", retry=retry))
    assert asked == 2
    shell.do(lambda: consumer.process(handle, dead_letter="dead", retry=retry))
    shell.do(consumer.close)
    assert values == [1]
    assert not read(cluster, "dead")


def test_a_slow_key_holds_up_itself_only_and_reading_is_bounded(cluster: Cluster, shell: Shell) -> None:
    produce(cluster, 200, keys=10)
    consumer = member(cluster, shell)
    release = threading.Event()
    seen = Seen(consumer, 200)
    others: set[bytes] = set()

    def work(record: Record[Any, Any]) -> None:
        if record.key == b"key 3":
            assert release.wait(PATIENCE)
        else:
            others.add(record.value)
            if len(others) == 180:
                release.set()
        seen(record)

    shell.do(lambda: consumer.process(work, max_records=60))
    shell.do(consumer.close)
    assert set(seen.values.values()) == {1}
    assert sum(offset for offset, _ in committed(cluster).values()) == 200


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
        ({"retry": Retry(topic="later"), "dead_letter": "later"}, "the topic of retries, too"),
    ],
)
def test_arguments_that_are_not_allowed(
    cluster: Cluster, shell: Shell, arguments: dict[str, Any], what: str
) -> None:
    consumer = member(cluster, shell)
    with pytest.raises((TypeError, ValueError, ConfigError), match=what):
        shell.do(lambda: consumer.process(print, **arguments))
    shell.do(consumer.close)


@pytest.mark.parametrize("handler", [lambda: None, lambda record, context, more: None])
def test_a_handler_that_cannot_take_a_record_is_refused_before_any_record_fails(
    cluster: Cluster, shell: Shell, handler: Any
) -> None:
    """It would fail with every record, and each would become a dead letter."""
    consumer = member(cluster, shell)
    with pytest.raises(TypeError, match="a handler takes a record"):
        shell.do(lambda: consumer.process(handler, dead_letter="dead"))
    shell.do(consumer.close)


@pytest.mark.parametrize("topics", [["orders", "dead"], re.compile("orders|dead")])
def test_dead_letters_are_not_written_to_a_topic_that_is_subscribed_to(
    cluster: Cluster, shell: Shell, topics: Any
) -> None:
    """Each would be read, fail, and be written again, without end."""
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP)
    shell.do(lambda: consumer.subscribe(topics))
    with pytest.raises(ConfigError, match="dead_letter='dead' is among the topics"):
        shell.do(lambda: consumer.process(print, dead_letter="dead"))
    shell.do(consumer.close)


def test_dead_letters_of_a_range_may_go_behind_it(cluster: Cluster, shell: Shell) -> None:
    """Who works on the dead letters that are there now comes to an end."""
    produce(cluster, 3, topic="dead")
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: consumer.assign({TopicPartition("dead", 0): (0, 3)}))

    def refuse(record: Record[Any, Any]) -> None:
        raise ValueError

    assert shell.do(lambda: consumer.process(refuse, dead_letter="dead")).dead_lettered == 3
    shell.do(consumer.close)
    assert len(read(cluster, "dead")) == 6


# ---------------------------------------------------------------- processes


def test_processes_run_handlers_and_a_record_that_kills_them_is_a_dead_letter(
    cluster: Cluster, shell: Shell
) -> None:
    values = [b"a", b"die", b"hang", b"fail", b"b"]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for n, value in enumerate(values):
            producer.send("one", value, b"%d" % n)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=50)
    watcher = threading.Thread(target=lambda: _stop_at(cluster, consumer, 5))
    watcher.start()
    shell.do(
        lambda: consumer.process(
            handlers.work,
            executor="processes",
            workers=2,
            # Longer than a busy machine pauses a child: of the others nobody takes long.
            timeout=4,
            retry=Retry(attempts=2, backoff=0),
            dead_letter="dead",
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    answers = sorted(record.value.split()[:2] for record in read(cluster, "out"))
    assert answers == [[b"a", b"1"], [b"b", b"1"], [b"hang", b"2"]]
    letters = {letter.value: dict(letter.headers) for letter in read(cluster, "dead")}
    assert letters.keys() == {b"die", b"fail"}
    assert letters[b"die"]["kadence.error.class"] == b"WorkerDiedError"
    assert b"exit code 7" in (letters[b"die"]["kadence.error.message"] or b"")
    assert letters[b"fail"]["kadence.error.class"] == b"ValueError"
    assert letters[b"fail"]["kadence.error.attempts"] == b"2"


def _stop_at(cluster: Cluster, consumer: Any, offset: int) -> None:
    """Stop once that is committed."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        until(
            lambda: (
                (at := admin.list_consumer_group_offsets(GROUP).get(ONE)) is not None and at.offset == offset
            )
        )
    consumer.stop()


def test_a_handler_in_a_process_that_returns_something_else_ends_it_and_makes_no_dead_letters(
    cluster: Cluster, shell: Shell
) -> None:
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")
    with pytest.raises(TypeError, match="not True"):
        shell.do(
            lambda: consumer.process(
                handlers.wrong, executor="processes", dead_letter="dead", retry=Retry(attempts=5)
            )
        )
    shell.do(consumer.close)
    assert read(cluster, "dead") == []
    assert committed(cluster, "one")[0] == (0, "")


def test_a_handler_that_no_child_can_import_is_refused(cluster: Cluster, shell: Shell) -> None:
    consumer = member(cluster, shell, "one")
    with pytest.raises(TypeError, match="a function of a module"):
        shell.do(lambda: consumer.process(lambda record: None, executor="processes"))
    shell.do(consumer.close)


# ---------------------------------------------------------------- loops of one's own


def test_a_loop_of_ones_own_commits_the_lowest_offset_that_is_not_done(
    cluster: Cluster, shell: Shell
) -> None:
    cluster.produce("one", 6, partitions=1)
    consumer = member(cluster, shell, "one", enable_auto_commit=False)
    first = shell.do(lambda: consumer.poll(PATIENCE, max_records=3))
    work = consumer.track(first)
    more = shell.do(lambda: consumer.poll(PATIENCE, max_records=3))
    further = consumer.track(more)
    zero, one, two = first
    worker = threading.Thread(target=lambda: [further.done(record) for record in more])
    worker.start()
    worker.join(PATIENCE)
    work.done(two)
    shell.do(lambda: consumer.commit(work))
    assert committed(cluster, "one")[0] == (0, "")
    work.done(zero)
    work.done(zero)
    shell.do(lambda: consumer.commit(further))
    assert committed(cluster, "one")[0] == (1, "")
    assert (work.unfinished, further.unfinished) == (1, 0)
    work.done(one)
    shell.do(lambda: consumer.commit(work))
    assert committed(cluster, "one")[0] == (6, "")
    with pytest.raises(IllegalStateError, match="one-0@0"):
        further.done(zero)
    shell.do(consumer.close)


def test_what_was_tracked_before_a_seek_is_forgotten(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 6, partitions=1)
    consumer = member(cluster, shell, "one", enable_auto_commit=False)
    old = consumer.track(shell.do(lambda: consumer.poll(PATIENCE, max_records=3)))
    shell.do(lambda: consumer.seek(ONE, 4))
    records = shell.do(lambda: consumer.poll(PATIENCE, max_records=1))
    work = consumer.track(records)
    for record in records:
        work.done(record)
    shell.do(lambda: consumer.commit(old))
    assert committed(cluster, "one")[0] == (5, "")
    shell.do(consumer.close)


def test_tracking_needs_automatic_commits_to_be_off(cluster: Cluster, shell: Shell) -> None:
    consumer = member(cluster, shell, "one")
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit=false"):
        consumer.track([])
    shell.do(consumer.close)


# ---------------------------------------------------------------- what must not lose records


class Interrupted(BaseException):
    """As Ctrl-C, or a cancelled task."""


def test_an_interruption_commits_nothing_that_is_not_done(cluster: Cluster, shell: Shell) -> None:
    """Neither the end of the consumer, nor another call of `process`, may pass over what was read and not done."""
    cluster.produce("one", 20, partitions=1)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=10)
    release = threading.Event()
    done: list[int] = []

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 0:
            # It raises in the loop, which polls in time meanwhile.
            consumer.commit_async = interrupted
        if record.offset == 3:
            assert release.wait(PATIENCE)
        done.append(record.offset)

    def interrupted(*_: Any) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        shell.do(lambda: consumer.process(work, workers=1, order="none", max_records=8))
    del consumer.commit_async
    release.set()
    position = shell.do(lambda: consumer.position(ONE))
    assert position <= 3
    again: list[int] = []

    def to_the_end(record: Record[Any, Any]) -> None:
        again.append(record.offset)
        if record.offset == 19:
            consumer.stop()

    shell.do(lambda: consumer.process(to_the_end, workers=1, order="none"))
    assert again == list(range(position, 20))
    shell.do(consumer.close)
    assert committed(cluster, "one")[0] == (20, "")


def test_an_interruption_right_after_a_poll_loses_none_of_its_records(cluster: Cluster, shell: Shell) -> None:
    """Ctrl-C came when the poll had returned, and before anybody had its records: they are beyond the position."""
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")
    poll = consumer.poll

    def interrupted(*arguments: Any, **settings: Any) -> Any:
        records = poll(*arguments, **settings)
        if records:
            raise Interrupted
        return records

    async def awaited(*arguments: Any, **settings: Any) -> Any:
        records = await poll(*arguments, **settings)
        if records:
            raise Interrupted
        return records

    consumer.poll = awaited if shell.kind == "asyncio" else interrupted
    with pytest.raises(Interrupted):
        shell.do(lambda: consumer.process(print))
    del consumer.poll
    shell.do(consumer.close)
    assert committed(cluster, "one") == {}


def test_what_is_done_above_the_committed_offset_outlasts_a_process_that_is_interrupted(
    cluster: Cluster, shell: Shell
) -> None:
    """It has committed nothing, and the end of its consumer commits nothing for it: that would have no metadata."""
    cluster.produce("one", 5, partitions=1)
    done = encode(5, [(6, 8)])
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets(GROUP, {ONE: OffsetAndMetadata(5, None, done)})
    consumer = member(cluster, shell, "one")

    def interrupted(*_: Any) -> Any:
        # It is asked for when the partition comes.
        raise Interrupted

    consumer.committed = interrupted
    with pytest.raises(Interrupted):
        shell.do(lambda: consumer.process(print))
    del consumer.committed
    assert shell.do(lambda: consumer.position(ONE)) == 5
    shell.do(consumer.close)
    assert committed(cluster, "one")[0] == (5, done)


@pytest.fixture
def on_a_loop() -> Iterator[Shell]:
    shell = Shell("asyncio")
    yield shell
    assert shell.runner is not None
    shell.runner.close()


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_task_that_is_cancelled_again_and_again_leaves_a_consumer_that_works(
    cluster: Cluster, on_a_loop: Shell, transactional_id: str | None
) -> None:
    """So anyio cancels: in each turn of the loop, until the task has ended."""
    cluster.produce("one", 20, partitions=1)
    consumer = member(cluster, on_a_loop, "one", isolation_level="read_committed")
    begun: list[int] = []
    all_have_begun = asyncio.Event()
    done: list[int] = []

    async def waits(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        if len(begun) == 4:
            all_have_begun.set()
        await asyncio.Event().wait()

    async def works(record: Record[Any, Any]) -> None:
        done.append(record.offset)
        if len(done) == 20:
            consumer.stop()

    async def cancelled() -> None:
        task = asyncio.create_task(
            consumer.process(waits, workers=4, order="none", transactional_id=transactional_id)
        )
        await all_have_begun.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        await consumer.process(works, transactional_id=transactional_id)

    on_a_loop.do(cancelled)
    on_a_loop.do(consumer.close)
    assert done == list(range(20))
    assert committed(cluster, "one")[0] == (20, "")


def test_after_a_second_interruption_close_waits_for_no_handler(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while records are put back because of the first one, so the partitions are still those of `process`."""
    cluster.produce("one", 1, partitions=1)
    consumer = member(cluster, Shell("threads"), "one")
    has_begun, release = threading.Event(), threading.Event()
    turn = Processing._turn

    def interrupted(processing: Processing) -> Any:
        yield from turn(processing)
        if has_begun.is_set():
            raise KeyboardInterrupt

    def interrupted_again(processing: Processing, *, is_interrupted: bool) -> Any:
        raise KeyboardInterrupt

    def work(record: Record[Any, Any]) -> None:
        has_begun.set()
        release.wait(PATIENCE * 2)

    monkeypatch.setattr(Processing, "_turn", interrupted)
    monkeypatch.setattr(Processing, "put_back", interrupted_again)
    with pytest.raises(KeyboardInterrupt):
        consumer.process(work, drain=PATIENCE * 2)
    ended = threading.Timer(PATIENCE / 2, release.set)
    ended.start()
    consumer.close(PATIENCE * 3)
    has_waited = release.is_set()
    release.set()
    ended.cancel()
    assert not has_waited
    assert committed(cluster, "one").get(0, (0, ""))[0] == 0


def test_coroutines_are_cancelled_with_their_process(cluster: Cluster, on_a_loop: Shell) -> None:
    """Otherwise another call of `process` would begin their records again beside them."""
    cluster.produce("one", 4, partitions=1)
    consumer = member(cluster, on_a_loop, "one")
    running: list[int] = []
    all_run = asyncio.Event()

    async def waits(record: Record[Any, Any]) -> None:
        running.append(record.offset)
        if len(running) == 4:
            all_run.set()
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(record.offset)

    async def cancelled() -> None:
        task = asyncio.create_task(consumer.process(waits, workers=4, order="none"))
        await all_run.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert running == []

    on_a_loop.do(cancelled)
    on_a_loop.do(consumer.close)


def test_handlers_may_not_poll_even_while_the_loop_does_not(cluster: Cluster, shell: Shell) -> None:
    """The range is read, so the loop is in no call of the consumer: it waits for the handler."""
    cluster.produce("one", 1, partitions=1)
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: consumer.assign({ONE: (0, 1)}))
    refused: list[str] = []

    def work(record: Record[Any, Any]) -> None:
        until(lambda: consumer.finished() == {ONE})
        for _ in range(20):
            time.sleep(0.005)
            with pytest.raises(ConcurrentAccessError) as raised:
                consumer.poll(0)
            refused.append(str(raised.value))

    async def awaited(record: Record[Any, Any]) -> None:
        while consumer.finished() != {ONE}:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0.005)
            with pytest.raises(ConcurrentAccessError) as raised:
                await consumer.poll(0)
            refused.append(str(raised.value))

    totals = shell.do(lambda: consumer.process(awaited if shell.kind == "asyncio" else work))
    shell.do(consumer.close)
    assert totals.done == 1
    assert len(refused) == 20
    assert all("process()" in each for each in refused), refused


@pytest.mark.parametrize("by_handler", [False, True])
def test_a_close_elsewhere_ends_it_in_order(cluster: Cluster, shell: Shell, by_handler: bool) -> None:
    """By another thread, or another task. A handler waits so for itself, until ``drain`` is over."""
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=int(PATIENCE * 1000))
    second, release = threading.Event(), threading.Event()

    def work(record: Record[Any, Any]) -> None:
        if record.offset == 1:
            second.set()
            if by_handler:
                consumer.close()
            else:
                assert release.wait(PATIENCE)

    async def awaited(record: Record[Any, Any]) -> None:
        if record.offset == 1:
            second.set()
            if by_handler:
                await consumer.close()
            else:
                while not release.is_set():  # noqa: ASYNC110 - one event for both kinds of handlers
                    await asyncio.sleep(0.001)

    async def close() -> None:
        while not second.is_set():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.1, release.set)
        await consumer.close()

    async def both() -> Any:
        closing = asyncio.create_task(close())
        totals = await consumer.process(awaited, workers=1, drain=0.2 if by_handler else PATIENCE)
        await closing
        return totals

    if shell.kind == "asyncio":
        totals = shell.do(both)
    else:

        def close_there() -> None:
            assert second.wait(PATIENCE)
            threading.Timer(0.1, release.set).start()
            consumer.close()

        closer = threading.Thread(target=close_there)
        closer.start()
        totals = consumer.process(work, workers=1, drain=0.2 if by_handler else PATIENCE)
        closer.join(PATIENCE)
    done = 1 if by_handler else 2
    assert totals.done == done
    assert committed(cluster, "one")[0] == (done, "")


def test_a_second_call_and_a_commit_of_everything_are_refused(cluster: Cluster) -> None:
    cluster.produce("one", 1, partitions=1)
    shell = Shell("asyncio")
    consumer = member(cluster, shell, "one")
    refused: list[str] = []

    async def work(record: Record[Any, Any]) -> None:
        for call in (consumer.commit, lambda: consumer.process(work)):
            with pytest.raises((IllegalStateError, ConcurrentAccessError)) as error:
                await call()
            refused.append(type(error.value).__name__)
        consumer.stop()

    shell.do(lambda: consumer.process(work))
    assert refused == ["IllegalStateError", "ConcurrentAccessError"]
    shell.do(consumer.close)
    assert committed(cluster, "one")[0] == (1, "")
    assert shell.runner is not None
    shell.runner.close()


def test_a_handler_that_returns_something_else_ends_it_and_makes_no_dead_letters(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    cluster.produce("one", 3, partitions=1)
    consumer = member(cluster, shell, "one")
    with pytest.raises(TypeError, match=r"\(one, a list or tuple of them, or a generator\), not True"):
        shell.do(
            lambda: consumer.process(
                handled_by(coroutine, lambda record: True), dead_letter="dead", retry=Retry(attempts=5)
            )
        )
    shell.do(consumer.close)
    assert read(cluster, "dead") == []
    assert committed(cluster, "one")[0] == (0, "")


def test_a_topic_of_dead_letters_that_is_missing_is_told_at_the_start(cluster: Cluster, shell: Shell) -> None:
    consumer = member(cluster, shell, "one")
    with pytest.raises(ConfigError, match="missing"):
        shell.do(lambda: consumer.process(print, dead_letter="missing"))
    shell.do(consumer.close)


def test_a_retry_topic_that_is_missing_is_not_subscribed_to(cluster: Cluster, shell: Shell) -> None:
    consumer = member(cluster, shell, "one")
    with pytest.raises(ConfigError, match=r"Retry.topic: the cluster has no topic 'missing'"):
        shell.do(lambda: consumer.process(print, retry=Retry(topic="missing")))
    assert consumer.subscription() == {"one"}
    shell.do(consumer.close)


def test_a_partition_that_is_paused_while_the_group_rebalances_is_read_on(
    cluster: Cluster, shell: Shell
) -> None:
    """With an eager assignor, which takes all partitions away and gives most of them back."""
    produce(cluster, 200, keys=20)
    settings: dict[str, Any] = {
        "group_protocol": "classic",
        "partition_assignment_strategy": "range",
        "session_timeout_ms": 6_000,
    }
    consumer = member(cluster, shell, **settings)
    # It only comes and goes: it commits nothing.
    other = Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, enable_auto_commit=False, **settings
    )
    release = threading.Event()
    seen = Seen(consumer, 200)

    def work(record: Record[Any, Any]) -> None:
        release.wait(PATIENCE)
        seen(record)

    def join_and_leave() -> None:
        until(lambda: bool(consumer.paused()))
        other.subscribe("orders")
        until(lambda: bool(other.poll(0.1)) or bool(other.assignment()))
        other.close()
        release.set()

    joining = threading.Thread(target=join_and_leave)
    joining.start()
    shell.do(lambda: consumer.process(work, workers=2, order="none", max_records=8, drain=0.1))
    joining.join(PATIENCE)
    shell.do(consumer.close)
    assert len(seen.values) == 200
