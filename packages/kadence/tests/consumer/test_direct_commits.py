"""Commits that the application's thread sends by itself, over real sockets, and all that may come in between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.patience import PATIENCE, until

from kadence import AsyncConsumer, Consumer, Producer, TopicPartition
from kadence.clock import FOREVER
from kadence.consumer.events import LosePartitions
from kadence.consumer.group.direct_commits import DirectCommits
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import (
    ClosedError,
    CommitFailedError,
    ForkedError,
    GroupAuthorizationError,
    KafkaTimeoutError,
    WakeupError,
)
from kadence.net import drain
from kadence.net.direct import Asked, DirectWay
from kadence.protocol import error_codes as ec
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.types import GroupMetadata, OffsetAndMetadata
from kadence_broker import Broker

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

RECORDS = 600
CALM_MS = 500
"""For so long this thread may be paused between `poised` and its commit."""
TPS = [TopicPartition("t", number) for number in range(2)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(2 * RECORDS):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield broker


class Ways:
    """Counts the commits that the application's thread sent, and those that it left to the network thread.

    Attributes:
        ask: called in place of each form's `ask`, with the form.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.taken_over = 0
        self.ask: Callable[..., Any] = lambda form, *arguments: form.ask(*arguments)
        offset_form, took_over = DirectWay.offset_form, DirectWay.count

        def counted(way: DirectWay, *arguments: Any) -> Any:
            return _Counted(self, offset_form(way, *arguments))

        def looked_at(way: DirectWay, now: int) -> None:
            before = way._connection.in_flight
            took_over(way, now)
            self.taken_over += way._connection.in_flight - before

        monkeypatch.setattr(DirectWay, "offset_form", counted)
        monkeypatch.setattr(DirectWay, "count", looked_at)


class _Counted:
    """A form that counts what it sends."""

    def __init__(self, ways: Ways, form: Any) -> None:
        self._ways = ways
        self._form = form

    def ask(self, *arguments: Any) -> Any:
        asked = self._ways.ask(self._form, *arguments)
        self._ways.sent += asked is not None
        return asked


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def consumer(broker: Broker, ways: Ways) -> Iterator[Consumer]:
    """In its group, with some commits behind it, the last of them sent by this thread."""
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=10,
    ) as consumer:
        consumer.subscribe("t")
        settle(consumer, ways)
        yield consumer


def settle(consumer: Consumer, ways: Ways) -> None:
    """Commit until that is done by this thread."""

    def is_direct() -> bool:
        before = ways.sent
        consumer.commit(next(consumer))
        return ways.sent > before

    until(is_direct, every=0)


def poised(consumer: Consumer, ways: Ways) -> Any:
    """The next record, when this thread will send its commit: the network thread waits, and nothing is due soon."""
    record: Any = None
    state, direct = consumer._shared_state, consumer._core.commits._shared_state.direct_commits
    assert isinstance(direct, DirectCommits)

    def is_calm() -> bool:
        nonlocal record
        settle(consumer, ways)
        record = next(consumer)
        is_open = direct._way is not None and direct._way.turn() > 0
        return is_open and state.lateness._due - state.clock.now_ms() > CALM_MS

    until(is_calm, every=0.05)
    return record


def stands_at(consumer: Consumer, record: Any) -> bool:
    tp = TopicPartition(record.topic, record.partition)
    found = consumer.committed([tp])[tp]
    return found is not None and found.offset == record.offset + 1


def test_commits_in_a_row_cost_the_network_thread_nothing(consumer: Consumer, ways: Ways) -> None:
    sent = ways.sent
    last: dict[int, int] = {}
    count = 0
    while ways.sent - sent <= 150:
        # The network thread sends those that come while it has something to do, which takes long on a busy machine.
        assert count < 1_000
        count += 1
        record = next(consumer)
        consumer.commit(record)
        last[record.partition] = record.offset + 1
    found = consumer.committed([TopicPartition("t", number) for number in last])
    assert {tp.partition: at.offset for tp, at in found.items() if at is not None} == last


def test_every_commit_is_counted_once(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    def total() -> float:
        return next(value for key, value in consumer.metrics().items() if key.name == "commit-total")

    with broker.faults.observe(OffsetCommitRequest) as seen:
        # It has been told of the earlier ones by then.
        consumer.committed(TPS)
        before, sent = total(), ways.sent
        for _ in range(50):
            consumer.commit(next(consumer))
        consumer.committed(TPS)
        until(lambda: total() - before == 50, what=lambda: f"{total() - before}")
        assert len(seen) == 50
    assert ways.sent > sent


def test_the_epoch_of_the_leader_and_only_one_offset_without_metadata(consumer: Consumer, ways: Ways) -> None:
    record = next(consumer)
    settle(consumer, ways)
    sent = ways.sent
    consumer.commit({TPS[0]: OffsetAndMetadata(3, record.leader_epoch, "mine")})
    consumer.commit({TPS[0]: OffsetAndMetadata(4), TPS[1]: OffsetAndMetadata(5)})
    assert ways.sent == sent, "these are for the network thread"
    assert consumer.committed(TPS) == {TPS[0]: OffsetAndMetadata(4), TPS[1]: OffsetAndMetadata(5)}
    consumer.commit({TPS[0]: OffsetAndMetadata(6, record.leader_epoch)})
    assert consumer.committed(TPS)[TPS[0]] == OffsetAndMetadata(6, record.leader_epoch)


def offsets_of(record: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offset that a commit of a record commits, as a program gives it."""
    return {
        TopicPartition(record.topic, record.partition): OffsetAndMetadata(
            record.offset + 1, record.leader_epoch
        )
    }


def test_a_record_is_committed_with_the_epoch_of_its_leader(consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    sent = ways.sent
    consumer.commit(record)
    assert ways.sent == sent + 1
    offsets = offsets_of(record)
    assert consumer.committed(offsets) == offsets


def test_a_committed_record_is_processed(consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    consumer.commit(record)
    found = consumer._shared_state.shared_partitions[TPS[record.partition]].processed_position()
    assert found is not None
    assert found.offset == record.offset + 1


def test_the_time_in_commits_is_counted(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    measures = consumer._shared_state.measures.poll_measures
    record, before = poised(consumer, ways), measures.commit_sync_ms
    sent = ways.sent
    with broker.faults.delay(OffsetCommitRequest, 0.05, times=1):
        consumer.commit(record)
    assert ways.sent == sent + 1
    assert measures.commit_sync_ms - before >= 50


def test_callbacks_of_earlier_commits_run_before(consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    told: list[Any] = []
    consumer.commit_async({TPS[0]: 1}, lambda offsets, error: told.append((offsets, error)))
    consumer.commit(record)
    assert told == [({TPS[0]: OffsetAndMetadata(1)}, None)]
    assert stands_at(consumer, record)


def test_wakeup_before_a_commit(consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    sent = ways.sent
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.commit(record)
    assert ways.sent == sent
    consumer.commit(record)
    assert stands_at(consumer, record)


def test_a_member_that_was_refused_for_good_commits_nothing(consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    sent, exchange = ways.sent, consumer._core.exchange
    exchange.fatal = GroupAuthorizationError("no access")
    with pytest.raises(GroupAuthorizationError, match="no access"):
        consumer.commit(record)
    assert ways.sent == sent
    exchange.fatal = None
    consumer.commit(record)


def test_c12_of_a_partition_that_was_lost_nothing_is_committed(consumer: Consumer, ways: Ways) -> None:
    """No poll has told of the loss yet, and the partition is assigned again."""
    record = poised(consumer, ways)
    sent, exchange = ways.sent, consumer._core.exchange
    exchange.callbacks.append(LosePartitions(0, (TPS[record.partition],)))
    with pytest.raises(CommitFailedError):
        consumer.commit(record)
    assert ways.sent == sent
    exchange.callbacks.clear()
    assert not stands_at(consumer, record)


def test_of_an_assignment_that_the_program_does_not_know_nothing_is_committed(
    consumer: Consumer, ways: Ways
) -> None:
    record = poised(consumer, ways)
    sent, known, tp = ways.sent, consumer._core.known, TPS[record.partition]
    before = known.partitions
    known.partitions = {**before, tp: SharedPartition(tp, 0)}
    with pytest.raises(CommitFailedError):
        consumer.commit(record)
    assert ways.sent == sent
    known.partitions = before
    assert not stands_at(consumer, record)


def test_c19_an_offset_before_the_place_that_a_policy_has_chosen(broker: Broker, ways: Ways) -> None:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="late",
        auto_offset_reset="latest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe("t")
        until(lambda: bool(consumer.poll(0.05)) or len(consumer.assignment()) == len(TPS))
        for tp in TPS:
            consumer.position(tp)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(2 * RECORDS):
                producer.send("t", b"late", partition=number % 2)
        record = poised(consumer, ways)
        consumer.commit(record)
        sent = ways.sent
        consumer.commit(record.replace(offset=RECORDS - 2))
        assert ways.sent == sent
        assert stands_at(consumer, record)


def test_after_a_seek_records_of_before_are_committed_as_well(consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    tp = TPS[record.partition]
    consumer.seek(tp, 5)
    consumer.commit(record)
    assert stands_at(consumer, record)
    later = next(each for each in consumer if each.partition == tp.partition)
    assert later.offset == 5
    consumer.commit(later)
    assert stands_at(consumer, later)


@pytest.mark.parametrize("given", [lambda record: record, offsets_of], ids=["record", "offsets"])
@pytest.mark.parametrize("code", [ec.COORDINATOR_LOAD_IN_PROGRESS, ec.NOT_COORDINATOR])
def test_an_error_that_passes_is_the_network_threads_affair(
    broker: Broker, consumer: Consumer, ways: Ways, code: int, given: Callable[[Any], Any]
) -> None:
    record = poised(consumer, ways)
    taken_over = ways.taken_over
    with broker.faults.error(OffsetCommitRequest, code, times=1):
        consumer.commit(given(record))
    assert stands_at(consumer, record)
    assert ways.taken_over == taken_over + 1
    settle(consumer, ways)


def test_a_refusal_is_raised(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    record = next(consumer)
    with (
        broker.faults.error(OffsetCommitRequest, ec.UNKNOWN_MEMBER_ID, times=1),
        pytest.raises(CommitFailedError),
    ):
        consumer.commit(record)


def test_a_lost_connection_in_the_wait(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    for _ in range(3):
        record = poised(consumer, ways)
        taken_over = ways.taken_over
        with broker.faults.disconnect(OffsetCommitRequest, times=1):
            consumer.commit(record)
        assert stands_at(consumer, record)
        assert ways.taken_over == taken_over + 1


@pytest.mark.parametrize("is_sent", [False, True], ids=["before it is sent", "after"])
def test_a_commit_of_a_signal_handler_in_the_midst(
    consumer: Consumer, ways: Ways, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """Each commits its own offset, and neither takes the other's answer away."""
    outer = poised(consumer, ways)
    ask = ways.ask
    nested: list[int] = []

    def interrupted(form: Any, *arguments: Any) -> Any:
        asked = ask(form, *arguments) if is_sent else None
        if not nested:
            nested.append(outer.offset)
            consumer.commit({TopicPartition(outer.topic, outer.partition): outer.offset}, timeout=PATIENCE)
        return asked if is_sent else ask(form, *arguments)

    monkeypatch.setattr(ways, "ask", interrupted)
    consumer.commit(outer, timeout=PATIENCE)
    monkeypatch.setattr(ways, "ask", ask)
    assert nested
    if is_sent:
        # The handler's commit is the later one.
        assert stands_at(consumer, outer) is False
        consumer.commit(outer)
    assert stands_at(consumer, outer)


def test_without_any_time_nothing_is_sent(consumer: Consumer, ways: Ways) -> None:
    before = ways.sent
    with contextlib.suppress(KafkaTimeoutError):
        consumer.commit(next(consumer), timeout=0)
    assert ways.sent == before


def test_the_time_limit(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    for limit in (0.02, 0.3):
        record = poised(consumer, ways)
        sent = ways.sent
        with (
            broker.faults.drop(OffsetCommitRequest, times=1),
            pytest.raises(KafkaTimeoutError, match="commit"),
        ):
            consumer.commit(record, timeout=limit)
        assert ways.sent == sent + 1
        with broker.faults.disconnect(ConsumerGroupHeartbeatRequest, times=1):
            # The lost answer would hold up the connection until request.timeout.ms.
            consumer.commit(record)
        assert stands_at(consumer, record)


def test_a_slow_answer_is_the_network_threads_affair(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    taken_over = ways.taken_over
    with broker.faults.freeze() as frozen:

        def thaw() -> None:
            until(lambda: ways.taken_over > taken_over, every=0.001)
            frozen.thaw()

        thawing = threading.Thread(target=thaw)
        thawing.start()
        consumer.commit(record)
        thawing.join(PATIENCE)
    assert ways.taken_over == taken_over + 1
    assert stands_at(consumer, record)


def test_the_answer_comes_just_when_the_application_has_waited_for_long(
    broker: Broker, consumer: Consumer, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken over then, so there is no other answer."""
    ask, wake = ways.ask, SharedState.wake
    asked: list[Asked] = []

    def seen(form: Any, *arguments: Any) -> Any:
        sent = ask(form, *arguments)
        assert sent is not None
        asked.append(sent)
        return sent

    def late(shared_state: SharedState) -> None:
        if asked:
            frozen.thaw()
            until(lambda: not asked[-1].is_waiting, every=0.001)
        wake(shared_state)

    record = poised(consumer, ways)
    taken_over = ways.taken_over
    monkeypatch.setattr(ways, "ask", seen)
    monkeypatch.setattr(SharedState, "wake", late)
    with broker.faults.freeze() as frozen:
        consumer.commit(record, timeout=PATIENCE)
    assert [each.is_answered for each in asked] == [True]
    assert ways.taken_over == taken_over
    monkeypatch.undo()
    assert stands_at(consumer, record)


def test_a_commit_of_a_signal_handler_under_another_identity(
    consumer: Consumer, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that the interrupted one has made are of the former identity, and are used no more."""
    direct = consumer._core.commits._shared_state.direct_commits
    assert isinstance(direct, DirectCommits)
    made = DirectCommits._made
    forms: list[Any] = []

    def interrupted(self: DirectCommits, way: DirectWay, *arguments: Any) -> Any:
        form = made(self, way, *arguments)
        # The handler's commit: the member has another identity now.
        self.forms, self._forms_of = {}, (way, GroupMetadata("g"))
        forms.append(form)
        return form

    record = poised(consumer, ways)
    direct.forms.clear()
    monkeypatch.setattr(DirectCommits, "_made", interrupted)
    consumer.commit(record)
    assert forms
    assert not direct.forms


def test_wakeup_in_the_wait(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    sent = ways.sent

    def wake() -> None:
        until(lambda: ways.sent > sent, every=0.001)
        consumer.wakeup()

    with broker.faults.freeze():
        waking = threading.Thread(target=wake)
        waking.start()
        with pytest.raises(WakeupError):
            consumer.commit(record)
        waking.join(PATIENCE)
    later = next(consumer)
    consumer.commit(later)
    assert stands_at(consumer, later), "what was sent first takes nothing back"
    settle(consumer, ways)


def test_ctrl_c_in_the_wait(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    record = poised(consumer, ways)
    sent = ways.sent
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until(lambda: ways.sent > sent, every=0.001)
        signal.pthread_kill(main, signal.SIGINT)

    with broker.faults.freeze():
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.commit(record)
        interrupting.join(PATIENCE)
    later = next(consumer)
    consumer.commit(later)
    assert stands_at(consumer, later)


@pytest.mark.parametrize("goes_on", ["same", "next", "all"])
def test_ctrl_c_at_any_line(broker: Broker, consumer: Consumer, ways: Ways, goes_on: str) -> None:
    """The next commit counts, whichever it is."""
    at, happened, sent = 0, True, 0
    while happened:
        at += 1
        settle(consumer, ways)
        record, before = next(consumer), ways.sent
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            consumer.commit(record)
        happened = interruption.happened
        sent += ways.sent > before
        try:
            if goes_on == "next":
                record = next(consumer)
            consumer.commit(*(() if goes_on == "all" else (record,)))
            assert stands_at(consumer, record)
        except BaseException as error:
            error.add_note(f"after an interruption at line {at}: {interruption.where}")
            raise
    # Of an interrupted commit, two thirds of the lines come before it is sent; on a busy machine some go the other way.
    assert sent > at // 10
    assert at > 20


def test_close_by_another_thread_in_the_wait(broker: Broker, ways: Ways) -> None:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe("t")
    record = poised(consumer, ways)
    sent = ways.sent
    with broker.faults.freeze():

        def close() -> None:
            until(lambda: ways.sent > sent, every=0.001)
            consumer.close(PATIENCE)

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises((WakeupError, ClosedError)):
            consumer.commit(record)
    closing.join(PATIENCE)
    assert not closing.is_alive()


def test_what_was_read_before_a_seek_does_not_count(consumer: Consumer, ways: Ways) -> None:
    """By the door for all commits (C19), on this thread as on the other."""
    tp, stale = TPS[0], {TPS[0]: -1}
    consumer.commit({tp: OffsetAndMetadata(7)})
    sent = ways.sent
    consumer._run(consumer._core.commits.commit({tp: OffsetAndMetadata(9)}, FOREVER, stale))
    assert ways.sent == sent
    assert consumer.committed([tp])[tp] == OffsetAndMetadata(7)
    settle(consumer, ways)


def test_all_that_was_returned_of_one_partition(broker: Broker, ways: Ways) -> None:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="by-hand",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([TPS[0]])
        for _ in range(20):
            record = next(consumer)
            consumer.commit()
            assert stands_at(consumer, record)

        def is_direct() -> bool:
            next(consumer)
            consumer.commit()
            return ways.sent > 0

        until(is_direct, every=0)


def test_heartbeats_come_in_between(ways: Ways) -> None:
    """The network thread and this one write on the same connection, thousands of times."""
    with Broker(
        topics={"t": 1},
        config={
            "group.consumer.heartbeat.interval.ms": "10",
            "group.consumer.min.heartbeat.interval.ms": "10",
        },
    ) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(3_000):
                producer.send("t", b"x")
        with (
            Consumer(
                bootstrap_servers=broker.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
            broker.faults.observe(ConsumerGroupHeartbeatRequest) as beats,
        ):
            consumer.subscribe("t")
            settle(consumer, ways)
            sent = ways.sent
            for _ in range(2_000):
                record = next(consumer)
                consumer.commit(record)
            assert stands_at(consumer, record)
            assert len(beats) > 20
            # How many of them is the machine's business.
            assert ways.sent > sent


def test_while_every_object_begins_a_collection(consumer: Consumer, ways: Ways) -> None:
    sent, before = ways.sent, gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(30):
            record = next(consumer)
            consumer.commit(record)
    finally:
        gc.set_threshold(*before)
    assert stands_at(consumer, record)
    assert ways.sent > sent


def test_a_broker_that_pauses_in_the_middle(broker: Broker, consumer: Consumer, ways: Ways) -> None:
    last: dict[int, int] = {}
    done = threading.Event()

    def pause() -> None:
        while not done.wait(0.1):
            with broker.faults.freeze():
                done.wait(0.25)

    pausing = threading.Thread(target=pause)
    pausing.start()
    try:
        for _ in range(400):
            record = next(consumer)
            consumer.commit(record)
            last[record.partition] = record.offset + 1
    finally:
        done.set()
        pausing.join(PATIENCE)
    found = consumer.committed([TopicPartition("t", number) for number in last])
    assert {tp.partition: at.offset for tp, at in found.items() if at is not None} == last


def test_under_asyncio(broker: Broker, ways: Ways) -> None:
    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            await consumer.subscribe("t")
            count = 0
            async for record in consumer:
                await consumer.commit(record)
                count += 1
                # Those that come while the network thread has something to do are its own.
                if count >= 100 and ways.sent > 50:
                    break
            record = await anext(aiter(consumer))
            with broker.faults.freeze():
                task = asyncio.create_task(consumer.commit(record))
                await asyncio.sleep(0.02)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            record = await anext(aiter(consumer))
            await consumer.commit(record)
            tp = TopicPartition(record.topic, record.partition)
            found = (await consumer.committed([tp]))[tp]
            assert found is not None
            assert found.offset == record.offset + 1

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_tasks_that_commit_at_once(broker: Broker, ways: Ways) -> None:
    """Each learns of its own commit, be it sent by the loop's thread or not."""

    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            await consumer.subscribe("t")
            for number in itertools.count():
                if number >= 60 and ways.sent > 20:
                    break
                records = [await anext(aiter(consumer)) for _ in range(3)]
                failing = number % 10 == 9
                with contextlib.ExitStack() as faults:
                    if failing:
                        faults.enter_context(
                            broker.faults.error(OffsetCommitRequest, ec.GROUP_AUTHORIZATION_FAILED, times=1)
                        )
                    ended = await asyncio.gather(*map(consumer.commit, records), return_exceptions=True)
                failed = [each for each in ended if each is not None]
                assert all(isinstance(each, GroupAuthorizationError) for each in failed)
                assert bool(failed) is failing

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_in_a_forked_child(consumer: Consumer, ways: Ways) -> None:
    record = next(consumer)
    child = os.fork()
    if not child:
        try:
            consumer.commit(record)
        except ForkedError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    settle(consumer, ways)
