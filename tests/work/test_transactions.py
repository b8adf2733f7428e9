"""`process` with transactions: whoever reads what is committed sees what each record led to exactly once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
from tests.conftest import FAST_GROUPS
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE, until
from tests.work.conftest import TOPICS
from tests.work.test_failures import ROOT
from tests.work.test_process import Interrupted, committed, handled_by, member, produce

from kadence import Admin, Broker, Consumer, Producer, Record, TopicPartition
from kadence.client.aside import Calls, _make
from kadence.clock import SystemClock
from kadence.errors import ConfigError, KafkaTimeoutError, ProducerFencedError, SerializationError
from kadence.protocol import error_codes as ec
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.frontier import decode
from kadence.work.processing import Seek
from kadence.work.rounds import Finished, Round
from kadence.work.settings import settings_of
from kadence.work.transactional import TransactionalDesk, TransactionalProcessing
from kadence.work.transactions import Transactions

ONE = TopicPartition("one", 0)


@pytest.fixture(params=["function", "coroutine"])
def coroutine(request: pytest.FixtureRequest) -> bool:
    """Whether handlers are coroutine functions."""
    return bool(request.param == "coroutine")


def exact(cluster: Cluster, shell: Shell, topic: str = "orders", **settings: Any) -> Any:
    """A member that can have transactions."""
    return member(cluster, shell, topic, isolation_level="read_committed", **settings)


def read(cluster: Cluster, topic: str) -> list[Record]:
    """What is committed of a topic."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        consumer.assign({p: (0, end) for p, end in consumer.end_offsets(partitions).items()})
        return list(consumer)


def read_all(place: Cluster, topic: str, count: int) -> list[Record]:
    """What is committed of a topic, when so much is: Kafka answers before it has written that to the partitions."""
    until(lambda: len(read(place, topic)) >= count)
    return read(place, topic)


def values(cluster: Cluster, topic: str = "out") -> list[int]:
    return [int(record.value or b"") for record in read(cluster, topic)]


class Copies:
    """A handler that returns a copy of its record, and stops the consumer when it has seen so many."""

    def __init__(self, consumer: Any, expected: int, topic: str = "out") -> None:
        self.handled: list[int] = []
        self._consumer = consumer
        self._expected = expected
        self._topic = topic
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> ProducerRecord:
        with self._lock:
            self.handled.append(int(record.value or b""))
            if len(set(self.handled)) >= self._expected:
                self._consumer.stop()
        return ProducerRecord(self._topic, record.value, record.key)


def check_copies(records: list[Record], count: int) -> None:
    """Each number once, and those of a key in their order."""
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(int(record.value or b""))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.fixture(params=["embedded", "kafka"])
def place(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    """The embedded broker, and Kafka, whose topics are other tests', too."""
    if request.param == "embedded":
        yield cluster
    else:
        yield Cluster("kafka", request.getfixturevalue("kafka").bootstrap_servers)


def test_outputs_and_offsets_are_committed_together(place: Cluster, shell: Shell, coroutine: bool) -> None:
    source, out, group = place.topic(), place.topic(1), place.name("group")
    produce(place, 300, topic=source)
    consumer = shell.make(
        bootstrap_servers=place.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        auto_commit_interval_ms=50,
    )
    shell.do(lambda: consumer.subscribe(source))
    work = Copies(consumer, 300, out)
    name = place.name("worker")
    shell.do(lambda: consumer.process(handled_by(coroutine, work), transactional_id=name, max_records=100))
    shell.do(consumer.close)
    check_copies(read_all(place, out, 300), 300)
    with Admin(bootstrap_servers=place.bootstrap_servers) as admin:
        offsets = admin.list_consumer_group_offsets(group)
        assert sum(at.offset for at in offsets.values()) == 300


def test_nothing_is_seen_of_a_record_before_its_offset_is_committed(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 10, partitions=1)
    consumer = exact(cluster, shell, "one")
    before: list[Any] = []
    handled: list[int] = []

    def work(record: Record, context: Context) -> list[ProducerRecord]:
        handled.append(record.offset)
        if len(handled) == 10:
            before.extend([values(cluster), committed(cluster, "one")])
            consumer.stop()
        return [ProducerRecord("out", record.value), ProducerRecord("out", record.value)]

    shell.do(lambda: consumer.process(work, workers=1, order="none", transactional_id="t"))
    shell.do(consumer.close)
    assert before == [[], {}]
    assert values(cluster) == [n for n in range(10) for _ in range(2)]
    assert committed(cluster, "one")[0] == (10, "")


def process_until(
    cluster: Cluster, shell: Shell, consumer: Any, offset: int, work: Callable[..., Any], **arguments: Any
) -> Any:
    """Process until the group has committed that of topic ``one``; then close the consumer."""

    def stop() -> None:
        until(lambda: committed(cluster, "one").get(0, (0, ""))[0] == offset)
        consumer.stop()

    watcher = threading.Thread(target=stop)
    watcher.start()
    totals = shell.do(lambda: consumer.process(work, **{"transactional_id": "t", **arguments}))
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    return totals


def test_an_output_that_is_refused_is_a_failed_attempt_and_its_key_is_handled_again_in_order(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    assert cluster.broker is not None
    produce(cluster, 30, topic="one", keys=3)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)
    attempts: list[int] = []

    def work(record: Record, context: Context) -> ProducerRecord:
        attempts.append(context.attempt)
        return ProducerRecord("out", record.value, record.key)

    async def awaited(record: Record, context: Context) -> ProducerRecord:
        return work(record, context)

    with cluster.broker.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, topic="out", times=1):
        process_until(
            cluster,
            shell,
            consumer,
            30,
            awaited if coroutine else work,
            retry=Retry(attempts=3, backoff=0.01),
        )
    found = values(cluster)
    assert max(attempts) == 2
    for key in range(3):
        assert [n for n in found if n % 3 == key] == [n for n in range(30) if n % 3 == key]


def test_an_output_that_cannot_be_sent_fails_its_record_alone(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 10, partitions=1)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)

    def work(record: Record) -> list[ProducerRecord]:
        good = ProducerRecord("out", record.value)
        return [good, ProducerRecord("out", "no bytes")] if record.value == b"4" else [good]

    process_until(cluster, shell, consumer, 10, work, order="none", dead_letter="dead")
    assert sorted(values(cluster)) == [n for n in range(10) if n != 4]
    [letter] = read(cluster, "dead")
    assert (letter.value, dict(letter.headers)["kadence.error.class"]) == (
        b"4",
        SerializationError.__name__.encode(),
    )


def test_without_dead_letters_it_ends_with_the_exception_and_commits_the_others(
    cluster: Cluster, shell: Shell, coroutine: bool
) -> None:
    cluster.produce("one", 10, partitions=1)
    consumer = exact(cluster, shell, "one")

    def work(record: Record) -> ProducerRecord:
        if record.offset == 4:
            raise ValueError("four")
        return ProducerRecord("out", record.value)

    with pytest.raises(ValueError, match="four"):
        shell.do(
            lambda: consumer.process(
                handled_by(coroutine, work), order="none", workers=1, transactional_id="t"
            )
        )
    found = values(cluster)
    offset, metadata = committed(cluster, "one")[0]
    # A worker may have had some more in its hand.
    assert found == [0, 1, 2, 3, *(n for run in decode(offset, metadata) for n in range(*run))]
    assert offset == 4
    assert shell.do(lambda: consumer.poll(PATIENCE, max_records=1))
    shell.do(consumer.close)


def test_dead_letters_and_retry_records_are_part_of_the_transaction(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 6, partitions=1)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)

    def work(record: Record, context: Context) -> ProducerRecord:
        if record.value == b"1" or (record.value == b"3" and context.attempt == 1):
            raise ValueError("bad")
        if record.value == b"3":
            consumer.stop()
        return ProducerRecord("out", record.value)

    shell.do(
        lambda: consumer.process(
            work,
            transactional_id="t",
            retry=Retry(attempts=2, backoff=0.05, topic="again"),
            dead_letter="dead",
        )
    )
    shell.do(consumer.close)
    assert sorted(values(cluster, "again")) == [1, 3]
    # The second attempt of 1 may come before that of 3, or after it: then it was not handled before the stop.
    assert values(cluster, "dead") in ([], [1])
    assert sorted(values(cluster)) == [0, 2, 3, 4, 5]


def test_a_dead_letter_that_is_refused_is_sent_again_and_holds_up_nothing(
    cluster: Cluster, shell: Shell
) -> None:
    assert cluster.broker is not None
    cluster.produce("one", 6, partitions=1)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)
    attempts: Counter[bytes | None] = Counter()

    def work(record: Record) -> None:
        attempts[record.value] += 1
        if record.value == b"1":
            raise ValueError("one")

    with cluster.broker.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, topic="dead", times=1):
        process_until(cluster, shell, consumer, 6, work, order="none", dead_letter="dead")
    assert set(attempts.values()) == {1}
    assert values(cluster, "dead") == [1]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (TxnOffsetCommitRequest, ec.ILLEGAL_GENERATION),
        (TxnOffsetCommitRequest, ec.STALE_MEMBER_EPOCH),
        (TxnOffsetCommitRequest, ec.TRANSACTION_ABORTABLE),
        (EndTxnRequest, ec.TRANSACTION_ABORTABLE),
        (ProduceRequest, ec.INVALID_TXN_STATE),
    ],
)
def test_a_transaction_that_fails_is_made_again_and_nothing_is_handled_again(
    cluster: Cluster, shell: Shell, request_: type[Any], code: int
) -> None:
    assert cluster.broker is not None
    cluster.produce("one", 20, partitions=1)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)
    work = Copies(consumer, 10_000)
    with cluster.broker.faults.error(request_, code, times=1) as fault:
        process_until(cluster, shell, consumer, 20, work, order="none")
    assert fault.hits == 1
    assert sorted(work.handled) == sorted(values(cluster)) == list(range(20))


class AtOnce:
    """Makes calls where they are asked for."""

    def carry(self, calls: Calls) -> None:
        _make(calls)

    def end(self) -> None:
        """There is nothing to end."""


def test_a_transaction_is_not_waited_for_when_a_record_of_it_has_failed() -> None:
    """Its commit says so at once, each time. Brokers did not take it in time, because its topic is gone, say."""
    late = KafkaTimeoutError("not acknowledged in time")
    future: Future[None] = Future()
    future.set_exception(late)
    producer = Mock()
    producer.send.return_value = future
    producer.commit_transaction.side_effect = late
    ended: list[Any] = []
    transactions = Transactions(lambda: producer, lambda *end: ended.append(end), Mock(), Mock(), AtOnce())
    transactions.start()
    finished = Finished(1, [], [ProducerRecord("out", b"1")], None)
    this = Round([finished], {})
    transactions.commit(this, Mock())
    assert ended == [(this, late, {})]
    assert producer.abort_transaction.call_count == 1


def test_a_second_member_of_the_same_name_ends_the_first_one(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 10, partitions=1)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)

    def work(record: Record) -> ProducerRecord:
        if record.offset == 0:
            until(lambda: bool(consumer.assignment()))
            with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="t") as producer:
                producer.init_transactions()
        return ProducerRecord("out", record.value)

    with pytest.raises(ProducerFencedError):
        shell.do(lambda: consumer.process(work, transactional_id="t", order="partition"))
    shell.do(consumer.close)
    assert values(cluster) == []
    assert committed(cluster, "one").get(0, (0, "")) == (0, "")


def test_partitions_that_go_take_no_output_along(cluster: Cluster) -> None:
    """Two members; the second one joins while the first one works, and each record has one output."""
    produce(cluster, 400, keys=50)
    shell = Shell("threads")
    first, second = exact(cluster, shell), exact(cluster, shell)
    lock = threading.Lock()
    seen: dict[str, set[int]] = {"first": set(), "second": set()}
    has_begun, both_work = threading.Event(), threading.Event()

    def work_of(name: str) -> Callable[[Record], ProducerRecord]:
        def work(record: Record) -> ProducerRecord:
            with lock:
                seen[name].add(int(record.value or b""))
                has_begun.set()
                if all(seen.values()):
                    both_work.set()
                if len(seen["first"] | seen["second"]) == 400:
                    first.stop()
                    second.stop()
            if name == "first" and record.offset > 5:
                both_work.wait(PATIENCE)
            return ProducerRecord("out", record.value)

        return work

    running = threading.Thread(
        target=lambda: first.process(work_of("first"), max_records=40, transactional_id="first")
    )
    running.start()
    assert has_begun.wait(PATIENCE)
    second.process(work_of("second"), max_records=40, transactional_id="second")
    running.join(PATIENCE)
    first.close()
    second.close()
    assert sorted(values(cluster)) == list(range(400))
    assert sum(offset for offset, _ in committed(cluster).values()) == 400


def test_what_is_done_when_the_group_goes_on_during_the_drain_is_committed(
    cluster: Cluster, shell: Shell
) -> None:
    """A member that is to stop waits for its last handler. Meanwhile another one joins, so the generation is over."""
    protocol = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    produce(cluster, 4, topic="one")
    produce(cluster, 40)
    first = exact(cluster, shell, "one", auto_commit_interval_ms=60_000, **protocol)
    second = exact(cluster, Shell("threads"), enable_auto_commit=False, **protocol)
    has_begun, may_end = threading.Event(), threading.Event()
    handled: Counter[int] = Counter()

    async def held(record: Record) -> ProducerRecord:
        handled[int(record.value or b"")] += 1
        if record.offset == 0:
            has_begun.set()
            await asyncio.to_thread(may_end.wait, PATIENCE)
        return ProducerRecord("out", record.value)

    def disturb() -> None:
        assert has_begun.wait(PATIENCE)
        until(lambda: len(handled) == 4)
        first.stop()
        until(lambda: bool(second.poll(0.05) or second.rebalances()))
        may_end.set()

    watcher = threading.Thread(target=disturb)
    watcher.start()
    totals = shell.do(lambda: first.process(held, order="none", transactional_id="first"))
    watcher.join(PATIENCE)
    shell.do(first.close)
    second.close()
    assert totals.done == 4
    assert sorted(values(cluster)) == list(range(4))
    assert committed(cluster, "one")[0][0] == 4


def test_a_handler_that_outlasts_its_partition_has_no_output_or_the_only_one(cluster: Cluster) -> None:
    """It is written if the last transaction before the partition went still took it; then nobody handles it again."""
    produce(cluster, 40, keys=20)
    shell = Shell("threads")
    first, second = exact(cluster, shell), exact(cluster, shell)
    has_begun = threading.Event()
    outlasted: list[int] = []

    def held(record: Record, context: Context) -> ProducerRecord:
        has_begun.set()
        until(lambda: context.lost or len(outlasted) > 0)
        if context.lost:
            outlasted.append(int(record.value or b""))
        return ProducerRecord("out", record.value)

    def quick(record: Record) -> ProducerRecord:
        return ProducerRecord("out", record.value)

    def stop_at_the_end() -> None:
        until(lambda: len(set(values(cluster))) == 40)
        first.stop()
        second.stop()

    threads = [
        threading.Thread(target=lambda: first.process(held, drain=0, transactional_id="first")),
        threading.Thread(target=stop_at_the_end),
    ]
    threads[0].start()
    assert has_begun.wait(PATIENCE)
    threads[1].start()
    second.process(quick, transactional_id="second")
    for thread in threads:
        thread.join(PATIENCE)
    first.close()
    second.close()
    assert outlasted
    assert sorted(values(cluster)) == list(range(40))


def test_after_a_kill_each_output_is_there_once(place: Cluster) -> None:
    """The member is killed again and again, and comes back under its name."""
    source, out, group = place.topic(2), place.topic(1), place.name("group")
    produce(place, 2_000, keys=7, topic=source)
    arguments = [place.bootstrap_servers, source, out, group]
    for told in (60, 300, 10):
        with subprocess.Popen(
            [sys.executable, "-m", "tests.work.killed_exactly", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            for _ in range(told):
                assert child.stdout.readline()
            child.kill()
    done = subprocess.run(
        [sys.executable, "-m", "tests.work.killed_exactly", *arguments, "to the end"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    assert done.returncode == 0
    check_copies(read_all(place, out, 2_000), 2_000)


def test_what_does_not_fit_into_the_metadata_waits(shell: Shell) -> None:
    """What would be left out would be sent twice. So it is sent when the record that holds up the frontier is done."""
    config = {**FAST_GROUPS, "offset.metadata.max.bytes": 20}
    with Broker(topics=TOPICS, config=config) as broker:
        cluster = Cluster("embedded", broker.bootstrap_servers, broker=broker)
        cluster.produce("one", 10, partitions=1)
        consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)
        others_are_done = threading.Event()
        done: list[int] = []

        def work(record: Record) -> ProducerRecord:
            if record.offset == 3:
                assert others_are_done.wait(PATIENCE)
                before.append((values(cluster), committed(cluster, "one").get(0, (0, ""))))
            done.append(record.offset)
            if len(done) == 9:
                others_are_done.set()
            return ProducerRecord("out", record.value)

        before: list[tuple[list[int], tuple[int, str]]] = []
        process_until(cluster, shell, consumer, 10, work, order="none")
        [(seen, (offset, metadata))] = before
        assert metadata == ""
        assert set(seen) <= set(range(offset)), "nothing is sent that the offset does not tell"
        assert sorted(values(cluster)) == list(range(10))


def test_what_is_done_above_a_stuck_record_is_not_repeated_after_a_restart(
    cluster: Cluster, shell: Shell
) -> None:
    cluster.produce("one", 10, partitions=1)
    first = exact(cluster, shell, "one")
    others_are_done = threading.Event()
    done: list[int] = []

    def work(record: Record) -> ProducerRecord:
        if record.offset == 3:
            assert others_are_done.wait(PATIENCE)
            raise RuntimeError("stuck")
        done.append(record.offset)
        if len(done) == 9:
            others_are_done.set()
        return ProducerRecord("out", record.value)

    with pytest.raises(RuntimeError, match="stuck"):
        shell.do(lambda: first.process(work, order="none", transactional_id="t"))
    shell.do(first.close)
    assert sorted(values(cluster)) == [n for n in range(10) if n != 3]
    second = exact(cluster, shell, "one")
    copies = Copies(second, 1)
    shell.do(lambda: second.process(copies, order="none", transactional_id="t"))
    shell.do(second.close)
    assert copies.handled == [3]
    assert sorted(values(cluster)) == list(range(10))
    assert committed(cluster, "one")[0] == (10, "")


def test_after_an_interruption_nothing_is_sent_twice(cluster: Cluster, shell: Shell) -> None:
    """It comes amid a transaction, of which nobody learns whether it was committed."""
    assert cluster.broker is not None
    cluster.produce("one", 20, partitions=1)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)
    is_to_end = threading.Event()
    assignment = consumer.assignment

    def interrupted() -> Any:
        # The loop asks for it in each turn.
        if is_to_end.is_set():
            del consumer.assignment
            raise Interrupted
        return assignment()

    consumer.assignment = interrupted
    with cluster.broker.faults.delay(EndTxnRequest, 0.3, times=1) as fault:

        def watch() -> None:
            fault.wait(timeout=PATIENCE)
            is_to_end.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        with pytest.raises(Interrupted):
            shell.do(lambda: consumer.process(Copies(consumer, 100), order="none", transactional_id="t"))
        watcher.join(PATIENCE)
    process_until(cluster, shell, consumer, 20, Copies(consumer, 100), order="none")
    assert sorted(values(cluster)) == list(range(20))


def test_a_transaction_that_ends_while_records_are_put_back_is_not_taken_back() -> None:
    """The frontiers are those of before it: a commit of them would have its records handled, and sent, again."""
    settings = settings_of(
        print,
        workers=1,
        order="key",
        executor=None,
        retry=None,
        dead_letter=None,
        timeout=None,
        batch=None,
        halve=False,
        batch_format="records",
        max_records=10,
        max_bytes=1000,
        drain=1,
        transactional_id="t",
    )
    one = TopicPartition("one", 0)
    clock = SystemClock()
    desk = TransactionalDesk(settings, clock, clock.now_ms, "g", Mock(), Mock(), Mock(), Mock())
    subject = Mock(assignment=lambda: frozenset({one}))
    processing = TransactionalProcessing(
        settings,
        desk,
        subject,
        clock,
        Mock(),
        Mock(),
        True,
        1000,
        make=Mock(),
        changed=Mock(),
        caller=Mock(),
        renew=Mock(),
    )
    desk.scheduler.assign(one)
    desk.scheduler.add(one, [Record("one", 0, 0, value=b"v")], 0)
    processing.transactions.is_busy = True
    steps = processing.put_back(is_interrupted=True)
    assert isinstance(next(steps), Seek)
    processing.transactions.is_busy = False
    assert list(steps) == []
    assert not processing.is_put_back


def test_a_batch_has_all_its_outputs_or_none(cluster: Cluster, shell: Shell, coroutine: bool) -> None:
    produce(cluster, 40, topic="one", keys=6)
    consumer = exact(cluster, shell, "one", auto_commit_interval_ms=10)

    def work(records: list[Record]) -> list[ProducerRecord]:
        if any(record.value == b"17" for record in records):
            raise ValueError("seventeen")
        return [ProducerRecord("out", record.value) for record in records]

    totals = process_until(
        cluster,
        shell,
        consumer,
        40,
        handled_by(coroutine, work),
        batch=(16, 0.01),
        halve=True,
        dead_letter="dead",
    )
    assert sorted(values(cluster)) == [n for n in range(40) if n != 17]
    assert values(cluster, "dead") == [17]
    assert (totals.done, totals.dead_lettered) == (40, 1)


def test_a_range_ends_it_with_its_last_transaction(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("one", 20, partitions=1)
    consumer = shell.make(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g", isolation_level="read_committed"
    )
    shell.do(lambda: consumer.assign({ONE: (5, 15)}))
    shell.do(lambda: consumer.process(Copies(consumer, 100), order="none", transactional_id="t"))
    shell.do(consumer.close)
    assert sorted(values(cluster)) == list(range(5, 15))
    assert committed(cluster, "one")[0][0] == 15


@pytest.mark.parametrize(
    ("settings", "transactional_id", "what"),
    [
        ({"isolation_level": "read_uncommitted"}, "t", "read_committed"),
        ({"group_id": None}, "t", r"group\.id"),
        ({}, "", "transactional_id=''"),
    ],
)
def test_what_cannot_work_is_refused(
    cluster: Cluster, shell: Shell, settings: dict[str, Any], transactional_id: str, what: str
) -> None:
    given = {"group_id": "g", "isolation_level": "read_committed", **settings}
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers, **given)
    shell.do(lambda: consumer.assign([ONE]))
    with pytest.raises((ConfigError, ValueError), match=what):
        shell.do(lambda: consumer.process(print, transactional_id=transactional_id))
    shell.do(consumer.close)
