"""`process` with transactions: whoever reads what is committed sees what each record led to exactly once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter, defaultdict
from concurrent.futures import Future
from typing import Any, cast
from unittest.mock import Mock

import pytest
from tests.consumer.support import Cluster
from tests.patience import PATIENCE, until
from tests.work.test_failures import ROOT
from tests.work.test_interruptions import Interrupted
from tests.work.worlds import ONE, Real, Simulated, SimulatedMember, become

from kadence import Admin, Consumer, OffsetAndMetadata, Producer, Record, TopicPartition
from kadence.client.aside import Calls, _make
from kadence.clock import SystemClock
from kadence.errors import (
    ConfigError,
    KafkaTimeoutError,
    ProducerFencedError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kadence.forked import ThisProcess
from kadence.protocol import error_codes as ec
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence.types import GroupMetadata
from kadence.work import Context, ProducerRecord, Retry
from kadence.work.following import TransactionalFollowing
from kadence.work.frontier import Stretch, decode, encode
from kadence.work.rounds import Finished, Round
from kadence.work.settings import settings_of
from kadence.work.steps import Seek
from kadence.work.transactional import TransactionalDesk, TransactionalProcessing
from kadence.work.transactions import Transactions
from kadence_testing.kafka import Kafka
from kadence_testing.simulation import Program


def exact(simulated: Simulated, topic: str = "orders", **settings: Any) -> SimulatedMember:
    """A member that can have transactions."""
    return simulated.member(topic, isolation_level="read_committed", **settings)


class Copies:
    """A handler that returns a copy of its record."""

    def __init__(self, topic: str = "out") -> None:
        self.handled: list[int] = []
        self._topic = topic

    def __call__(self, record: Record) -> ProducerRecord:
        self.handled.append(int(record.value or b""))
        return ProducerRecord(self._topic, record.value, record.key)


def check_copies(records: list[Record], count: int) -> None:
    """Each number once, and those of a key in their order."""
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(int(record.value or b""))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_outputs_and_offsets_are_committed_together(simulated: Simulated, protocol: str) -> None:
    simulated.write("orders", 300, keys=5)
    member = exact(simulated, auto_commit_interval_ms=50, group_protocol=protocol)
    member.process(
        Copies(),
        until=lambda: simulated.offset("orders") == 300,
        transactional_id="worker",
        max_records=100,
    )
    check_copies(simulated.read("out"), 300)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_on_threads_too(real: Real, kind: str) -> None:
    """The calls of a transaction are made on a thread of their own."""
    real.kind = kind
    real.write("orders", 300, keys=5)
    member = real.member(isolation_level="read_committed", auto_commit_interval_ms=50)
    member.process(
        Copies(), until=lambda: real.offset("orders") == 300, transactional_id="worker", max_records=100
    )
    check_copies(real.read("out"), 300)


def read_all(servers: str, topic: str, count: int) -> list[Record]:
    """What is committed of a topic, when so much is: Kafka answers before it has written that to the partitions."""

    def read() -> list[Record]:
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            partitions = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
            consumer.assign({each: (0, end) for each, end in consumer.end_offsets(partitions).items()})
            return list(consumer)

    until(lambda: len(read()) >= count)
    return read()


def produce(servers: str, topic: str, count: int, *, keys: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, b"key %d" % (n % keys))


def test_on_kafka_too(kafka: Kafka) -> None:
    place = Cluster("kafka", kafka.bootstrap_servers)
    source, out, group = place.topic(), place.topic(1), place.name("group")
    produce(place.bootstrap_servers, source, 300, keys=5)
    work = Copies(out)

    def offset() -> int:
        return sum(at.offset for at in admin.list_consumer_group_offsets(group).values())

    def stop() -> None:
        try:
            until(lambda: offset() == 300)
        finally:
            consumer.stop()

    with (
        Admin(bootstrap_servers=place.bootstrap_servers) as admin,
        Consumer(
            bootstrap_servers=place.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            auto_commit_interval_ms=50,
        ) as consumer,
    ):
        consumer.subscribe(source)
        stopping = threading.Thread(target=stop)
        stopping.start()
        consumer.process(work, transactional_id=place.name("worker"), max_records=100)
        stopping.join(PATIENCE)
        assert offset() == 300
    check_copies(read_all(place.bootstrap_servers, out, 300), 300)


def test_after_a_kill_each_output_is_there_once(kafka: Kafka) -> None:
    """The member is killed again and again, and comes back under its name."""
    place = Cluster("kafka", kafka.bootstrap_servers)
    source, out, group = place.topic(2), place.topic(1), place.name("group")
    produce(place.bootstrap_servers, source, 2_000, keys=7)
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
    subprocess.run(
        [sys.executable, "-m", "tests.work.killed_exactly", *arguments, "to the end"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    check_copies(read_all(place.bootstrap_servers, out, 2_000), 2_000)


def test_nothing_is_seen_of_a_record_before_its_offset_is_committed(simulated: Simulated) -> None:
    simulated.write("one", 10)
    member = exact(simulated, "one")
    before: list[Any] = []
    handled: list[int] = []

    def work(record: Record) -> list[ProducerRecord]:
        handled.append(record.offset)
        if len(handled) == 10:
            before.extend([simulated.values(), simulated.committed()])
            member.stop()
        return [ProducerRecord("out", record.value), ProducerRecord("out", record.value)]

    member.process(work, workers=1, order="none", transactional_id="t")
    assert before == [[], {}]
    assert simulated.values() == [n for n in range(10) for _ in range(2)]
    assert simulated.committed()[0] == (10, "")


def test_an_output_that_is_refused_is_a_failed_attempt_and_its_key_is_handled_again_in_order(
    simulated: Simulated,
) -> None:
    simulated.write("one", 30, keys=3)
    member = exact(simulated, "one", auto_commit_interval_ms=10)
    attempts: list[int] = []

    def work(record: Record, context: Context) -> ProducerRecord:
        attempts.append(context.attempt)
        return ProducerRecord("out", record.value, record.key)

    simulated.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, topic="out", times=1)
    member.process(
        work,
        until=lambda: simulated.offset() == 30,
        transactional_id="t",
        retry=Retry(attempts=3, backoff=0.01),
    )
    assert max(attempts) == 2
    check_copies(simulated.read("out"), 30)


def test_an_output_that_cannot_be_sent_fails_its_record_alone(simulated: Simulated) -> None:
    simulated.write("one", 10)

    def work(record: Record) -> list[ProducerRecord]:
        good = ProducerRecord("out", record.value)
        return [good, ProducerRecord("out", "no bytes")] if record.value == b"4" else [good]

    exact(simulated, "one", auto_commit_interval_ms=10).process(
        work,
        until=lambda: simulated.offset() == 10,
        transactional_id="t",
        order="none",
        dead_letter="dead",
    )
    assert sorted(simulated.values()) == [n for n in range(10) if n != 4]
    [letter] = simulated.read("dead")
    assert (letter.value, dict(letter.headers)["kadence.error.class"]) == (
        b"4",
        SerializationError.__name__.encode(),
    )


def test_without_dead_letters_it_ends_with_the_exception_and_commits_the_others(simulated: Simulated) -> None:
    simulated.write("one", 10)
    member = exact(simulated, "one")

    def work(record: Record) -> ProducerRecord:
        if record.offset == 4:
            raise ValueError("four")
        return ProducerRecord("out", record.value)

    with pytest.raises(ValueError, match="four"):
        member.process(work, order="none", workers=1, transactional_id="t")
    assert simulated.values() == [0, 1, 2, 3]
    assert simulated.committed()[0] == (4, "")
    assert member.do(lambda consumer: consumer.poll(PATIENCE, max_records=1))


def test_dead_letters_and_retry_records_are_part_of_the_transaction(simulated: Simulated) -> None:
    simulated.write("one", 6)

    def work(record: Record, context: Context) -> ProducerRecord:
        if record.value == b"1" or (record.value == b"3" and context.attempt == 1):
            raise ValueError("bad")
        return ProducerRecord("out", record.value)

    exact(simulated, "one", auto_commit_interval_ms=10).process(
        work,
        until=lambda: simulated.values("dead") and 3 in simulated.values(),
        transactional_id="t",
        retry=Retry(attempts=2, backoff=0.05, topic="again"),
        dead_letter="dead",
    )
    assert sorted(simulated.values("again")) == [1, 3]
    assert simulated.values("dead") == [1]
    assert sorted(simulated.values()) == [0, 2, 3, 4, 5]


def test_a_dead_letter_that_is_refused_is_sent_again_and_holds_up_nothing(simulated: Simulated) -> None:
    simulated.write("one", 6)
    attempts: Counter[bytes | None] = Counter()

    def work(record: Record) -> None:
        attempts[record.value] += 1
        if record.value == b"1":
            raise ValueError("one")

    refused = simulated.faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, topic="dead", times=1)
    exact(simulated, "one", auto_commit_interval_ms=10).process(
        work, until=lambda: simulated.offset() == 6, transactional_id="t", order="none", dead_letter="dead"
    )
    assert refused.hits == 1
    assert set(attempts.values()) == {1}
    assert simulated.values("dead") == [1]


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
    simulated: Simulated, request_: type[Any], code: int
) -> None:
    simulated.write("one", 20)
    work = Copies()
    fault = simulated.faults.error(
        request_, code, times=1, **({"topic": "out"} if request_ is ProduceRequest else {})
    )
    exact(simulated, "one", auto_commit_interval_ms=10).process(
        work, until=lambda: simulated.offset() == 20, transactional_id="t", order="none"
    )
    assert fault.hits == 1
    assert sorted(work.handled) == sorted(simulated.values()) == list(range(20))


class AtOnce:
    """Makes calls where they are asked for."""

    def carry(self, calls: Calls) -> None:
        _make(calls, ThisProcess())

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
    transactions = Transactions(
        lambda: producer,
        lambda *end: ended.append(end),
        Mock(),
        Mock(),
        Mock(),
        AtOnce(),
        SystemClock(),
    )
    transactions.start()
    finished = Finished(1, [], [ProducerRecord("out", b"1")], None)
    this = Round([finished], {})
    transactions.commit(this, Mock())
    assert ended == [(this, late, {})]
    assert producer.abort_transaction.call_count == 1


def test_a_second_member_of_the_same_name_ends_the_first_one(simulated: Simulated) -> None:
    simulated.write("one", 10)
    member = exact(simulated, "one", auto_commit_interval_ms=10)

    async def same_name(program: Program) -> None:
        async with program.producer({"transactional.id": "t"}) as producer:
            await producer.init_transactions()

    async def work(record: Record) -> ProducerRecord:
        if record.offset == 0:
            other = simulated.simulation.start("other", same_name)
            await become(lambda: other.is_done)
        return ProducerRecord("out", record.value)

    with pytest.raises(ProducerFencedError):
        member.process(work, transactional_id="t", order="partition")
    assert simulated.values() == []
    assert simulated.offset() == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_go_take_no_output_along(simulated: Simulated, protocol: str) -> None:
    """Two members; the second one joins while the first one works, and each record has one output."""
    simulated.write("orders", 400, keys=50)
    seen: dict[str, set[int]] = {"first": set(), "second": set()}

    def work_of(name: str) -> Any:
        async def work(record: Record) -> ProducerRecord:
            seen[name].add(int(record.value or b""))
            if name == "first" and record.offset > 5:
                await become(lambda: seen["second"])
            return ProducerRecord("out", record.value)

        return work

    first = exact(simulated, group_protocol=protocol)
    of_first = first.processes(work_of("first"), max_records=40, drain=1, transactional_id="first")
    simulated.until(lambda: len(seen["first"]) > 20)
    second = exact(simulated, group_protocol=protocol)
    of_second = second.processes(work_of("second"), max_records=40, transactional_id="second")
    simulated.until(lambda: len(seen["first"] | seen["second"]) == 400)
    simulated.until(lambda: simulated.offset("orders") == 400)
    first.stop()
    second.stop()
    of_first.result()
    of_second.result()
    assert all(seen.values())
    assert sorted(simulated.values()) == list(range(400))


def test_what_is_done_when_the_group_goes_on_during_the_drain_is_committed(simulated: Simulated) -> None:
    """A member that is to stop waits for its last handler. Meanwhile another one joins, so the generation is over."""
    protocol = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    simulated.write("one", 4)
    simulated.write("orders", 40, keys=5)
    first = exact(simulated, "one", auto_commit_interval_ms=60_000, **protocol)
    handled: Counter[int] = Counter()
    released: list[bool] = []

    async def held(record: Record) -> ProducerRecord:
        handled[int(record.value or b"")] += 1
        if record.offset == 0:
            await become(lambda: released)
        return ProducerRecord("out", record.value)

    call = first.processes(held, order="none", transactional_id="first")
    simulated.until(lambda: len(handled) == 4)
    first.stop()
    second = exact(simulated, enable_auto_commit=False, **protocol)
    second.do(lambda consumer: consumer.poll(PATIENCE))
    assert second.consumer.rebalances()
    assert not call.is_done
    released.append(True)
    assert call.result().done == 4
    assert sorted(simulated.values()) == list(range(4))
    assert simulated.offset() == 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_handler_that_outlasts_its_partition_has_no_output_or_the_only_one(
    simulated: Simulated, protocol: str
) -> None:
    """It is written if the last transaction before the partition went still took it; then nobody handles it again."""
    simulated.write("orders", 40, keys=20)
    begun: list[int] = []
    outlasted: list[int] = []

    async def held(record: Record, context: Context) -> ProducerRecord:
        begun.append(record.offset)
        await become(lambda: context.lost or outlasted)
        if context.lost:
            outlasted.append(int(record.value or b""))
        return ProducerRecord("out", record.value)

    first = exact(simulated, group_protocol=protocol)
    of_first = first.processes(held, drain=0, transactional_id="first")
    simulated.until(lambda: begun)
    second = exact(simulated, group_protocol=protocol)
    of_second = second.processes(Copies(), transactional_id="second")
    simulated.until(lambda: len(set(simulated.values())) == 40)
    first.stop()
    second.stop()
    of_first.result()
    of_second.result()
    assert outlasted
    assert sorted(simulated.values()) == list(range(40))


def test_what_does_not_fit_into_the_metadata_waits() -> None:
    """What would be left out would be sent twice. So it is sent when the record that holds up the frontier is done."""
    with Simulated({"offset.metadata.max.bytes": 20}) as simulated:
        simulated.write("one", 10)
        done: list[int] = []
        before: list[tuple[list[int], tuple[int, str]]] = []

        async def work(record: Record) -> ProducerRecord:
            if record.offset == 3:
                await become(lambda: len(done) == 9)
                before.append((simulated.values(), simulated.committed().get(0, (0, ""))))
            done.append(record.offset)
            return ProducerRecord("out", record.value)

        exact(simulated, "one", auto_commit_interval_ms=10).process(
            work, until=lambda: simulated.offset() == 10, order="none", transactional_id="t"
        )
        [(seen, (offset, metadata))] = before
        assert metadata == ""
        assert set(seen) <= set(range(offset)), "nothing is sent that the offset does not tell"
        assert sorted(simulated.values()) == list(range(10))


def test_what_is_done_above_a_stuck_record_is_not_repeated_after_a_restart(simulated: Simulated) -> None:
    simulated.write("one", 10)
    done: list[int] = []

    async def work(record: Record) -> ProducerRecord:
        if record.offset == 3:
            await become(lambda: len(done) == 9)
            raise RuntimeError("stuck")
        done.append(record.offset)
        return ProducerRecord("out", record.value)

    first = exact(simulated, "one")
    with pytest.raises(RuntimeError, match="stuck"):
        first.process(work, order="none", transactional_id="t")
    first.close()
    assert sorted(simulated.values()) == [n for n in range(10) if n != 3]
    assert decode(*simulated.committed()[0]) == [(4, 10)]
    copies = Copies()
    exact(simulated, "one").process(
        copies, until=lambda: simulated.offset() == 10, order="none", transactional_id="t"
    )
    assert copies.handled == [3]
    assert sorted(simulated.values()) == list(range(10))
    assert simulated.committed()[0] == (10, "")


def test_after_an_interruption_nothing_is_sent_twice(shells: Real) -> None:
    """It comes amid a transaction, of which nobody learns whether it was committed."""
    shells.write("one", 20)
    member = shells.member("one", isolation_level="read_committed", auto_commit_interval_ms=10)
    consumer = member.consumer
    assignment = consumer.assignment
    fault = shells.faults.delay(EndTxnRequest, 0.3, times=1)

    def interrupted() -> Any:
        # The loop asks for it in each turn.
        if fault.hits:
            del consumer.assignment
            raise Interrupted
        return assignment()

    consumer.assignment = interrupted
    with pytest.raises(Interrupted):
        member.process(Copies(), order="none", transactional_id="t")
    member.process(Copies(), until=lambda: shells.offset() == 20, order="none", transactional_id="t")
    assert sorted(shells.values()) == list(range(20))


def by_hand(subject: Mock) -> TransactionalProcessing:
    """The loop of a call, with partition 0 of ``one`` and a record of it that waits for a worker."""
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
    clock = SystemClock()
    subject.group_metadata.return_value = GroupMetadata("g")
    desk = TransactionalDesk(settings, clock, clock.now_ms, "g", Mock(), Mock(), Mock(), Mock())
    desk.scheduler.assign(ONE)
    desk.scheduler.read_from(ONE, Stretch(1, 0))
    desk.scheduler.add(ONE, [Record("one", 0, 0, value=b"v")], 0)
    return TransactionalProcessing(
        settings,
        desk,
        subject,
        Mock(),
        Mock(fetch_epochs=lambda: {ONE: 1}, fetch_epochs_of_known=lambda: {ONE: 1}),
        clock,
        Mock(),
        Mock(),
        True,
        1000,
        make=Mock(),
        changed=Mock(),
        caller=Mock(),
        renew=Mock(),
        waits_end=lambda: 0,
        refresh=Mock(),
    )


def test_a_transaction_that_ends_while_records_are_put_back_is_not_taken_back() -> None:
    """The frontiers are those of before it: a commit of them would have its records handled, and sent, again."""
    processing = by_hand(Mock(assignment=lambda: frozenset({ONE})))
    processing.transactions.is_busy = True
    steps = processing.put_back(is_interrupted=True)
    assert isinstance(next(steps), Seek)
    processing.transactions.is_busy = False
    assert list(steps) == []
    assert not processing.is_put_back


def test_what_was_done_above_an_offset_that_retention_has_passed_is_not_sent_again() -> None:
    """The network thread may have found a place before anybody looks where reading began: a stretch by policy alone."""
    following = TransactionalFollowing(Mock(), Mock())
    at = following.found[ONE] = OffsetAndMetadata(5, None, encode(5, [(30, 40)]))
    assert following._known(ONE, Stretch(1, 20, is_by_policy=True)) == at
    assert following._known(ONE, Stretch(1, 0, is_by_policy=True)) is None


def test_offsets_of_a_topic_that_is_gone_are_left_out_and_metadata_is_asked_for_once() -> None:
    """The consumer may fetch nothing meanwhile, and would hear of it when its metadata is five minutes old."""
    processing = by_hand(Mock())
    processing.transactions._producer = Mock()
    refresh = cast("Mock", processing._refresh)
    with processing._desk.lock:
        (task,) = processing._desk.take()
    processing._desk.finish([task])
    round_ = processing._desk.begin(0, 1000, ())
    assert round_ is not None
    assert round_.offsets.keys() == {ONE}
    processing._round_ended(round_, UnknownTopicOrPartitionError(partitions=frozenset({ONE})), {})
    refresh.assert_not_called()
    for _ in range(2):
        assert not processing._begin(processing._clock.now_ms())
        refresh.assert_called_once_with()
    # After two seconds it is tried again, unless metadata does not know the topic either.
    assert processing._begin(processing._clock.now_ms() + 2_001)


def test_a_batch_has_all_its_outputs_or_none(simulated: Simulated) -> None:
    simulated.write("one", 40, keys=6)

    def work(records: list[Record]) -> list[ProducerRecord]:
        if any(record.value == b"17" for record in records):
            raise ValueError("seventeen")
        return [ProducerRecord("out", record.value) for record in records]

    totals = exact(simulated, "one", auto_commit_interval_ms=10).process(
        work,
        until=lambda: simulated.offset() == 40,
        transactional_id="t",
        batch=(16, 0.01),
        halve=True,
        dead_letter="dead",
    )
    assert sorted(simulated.values()) == [n for n in range(40) if n != 17]
    assert simulated.values("dead") == [17]
    assert (totals.done, totals.dead_lettered) == (40, 1)


def test_a_range_ends_it_with_its_last_transaction(simulated: Simulated) -> None:
    simulated.write("one", 20)
    member = simulated.member(None, isolation_level="read_committed")
    member.do(lambda consumer: consumer.assign({ONE: (5, 15)}))
    member.process(Copies(), order="none", transactional_id="t")
    assert sorted(simulated.values()) == list(range(5, 15))
    assert simulated.offset() == 15


@pytest.mark.parametrize(
    ("settings", "transactional_id", "what"),
    [
        ({"isolation_level": "read_uncommitted"}, "t", "read_committed"),
        ({"group_id": None}, "t", r"group\.id"),
        ({}, "", "transactional_id=''"),
    ],
)
def test_what_cannot_work_is_refused(
    simulated: Simulated, settings: dict[str, Any], transactional_id: str, what: str
) -> None:
    member = simulated.member(None, **{"isolation_level": "read_committed", **settings})
    member.do(lambda consumer: consumer.assign([ONE]))
    with pytest.raises((ConfigError, ValueError), match=what):
        member.process(print, transactional_id=transactional_id)
