"""Polls that are nothing but a step of an index: what they do, and what they stop for (C6, C7, C9)."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.collecting import at_collection
from tests.consumer.application.test_interrupted_callbacks import Subject
from tests.consumer.fetch.test_fetch_collector import put, shared_partition
from tests.patience import PATIENCE

from kadence import (
    Broker,
    Consumer,
    Interceptor,
    OffsetAndMetadata,
    Producer,
    Records,
    TopicPartition,
)
from kadence.consumer import events as m
from kadence.consumer._decoded_records import Attention, DecodedRecords, Decoder, DeliveryState
from kadence.consumer.fetch._steps import ReaderState, Steps
from kadence.consumer.fetch.dead_letters import Delivery
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.errors import ClosedError, ConcurrentAccessError, WakeupError
from kadence.metrics.sensors import Tally
from kadence.records import Record
from kadence_testing import FakeClock

PARTITIONS = 3
COUNT = 8


class World:
    """Steps over decoded records of three partitions.

    Args:
        decodes: a deserialiser is set. It refuses each fifth record, and does first what ``meddling`` says.
    """

    def __init__(self, *, decodes: bool = False) -> None:
        self.clock = FakeClock()
        self.attention = Attention()
        self.polls = Tally(0)
        self.records = Tally(0)
        self.steps: Any = Steps(self.attention, self.clock.now_ms, self.polls)
        self.meddling = ""
        self.asked: list[bytes] = []
        if decodes:
            self.steps.decoder = Decoder(None, self.deserialize)

        class State(DeliveryState):
            processed: object = None

            def current(self) -> str:
                return "the position"

        self.decoded = DecodedRecords
        self.shared_partitions: list[Any] = [State(1) for _ in range(PARTITIONS)]
        numbers: list[Any] = list(range(PARTITIONS))
        self.places = [
            ReaderState(each, numbers[number], self.records)
            for number, each in enumerate(self.shared_partitions)
        ]
        for number in range(PARTITIONS):
            self.fill(number, 0)

    def fill(self, number: int, start: int) -> None:
        """New decoded records, as a reader installs them."""
        records = [
            Record("t", number, offset, value=b"%d" % offset, leader_epoch=4)
            for offset in range(start, start + COUNT)
        ]
        self.shared_partitions[number].decoded = self.decoded(
            self.shared_partitions[number].fetch_epoch, records, start, 3, start + COUNT + 2, 5
        )

    def deserialize(self, data: bytes) -> int:
        self.asked.append(data)
        meddling, self.meddling = self.meddling, ""
        if meddling == "poll":
            assert self.steps.step() is None
            assert self.steps.poll(1) is None
        elif meddling == "interrupt":
            raise KeyboardInterrupt
        elif meddling:
            self.act(meddling, self.steps.touched[0].partition)
        if int(data) % 5 == 4:
            raise ValueError
        return int(data)

    def take(self, what: str, argument: int) -> object:
        try:
            if what == "step":
                record = self.steps.step()
                return None if record is None else (record.partition, record.offset, record.value)
            found = self.steps.poll(argument + 1)
            chunks = {} if found is None else found.by_partition()
            return [(number, [each.offset for each in records]) for number, records in chunks.items()] or None
        except KeyboardInterrupt:
            return "interrupted"

    def act(self, what: str, argument: int) -> object:
        steps, shared_partition = self.steps, self.shared_partitions[argument % PARTITIONS]
        if what in ("step", "several"):
            return self.take(what, argument)
        if what == "arm":
            steps.disarm()
            self.attention.up = False
            steps.arm(self.clock.now_ms(), self.places)
        elif what == "disarm":
            return [place.partition for place in steps.disarm()]
        elif what == "put back":
            again = [place.partition for place in steps.put_back()]
            steps.touched.clear()
            return again
        elif what in ("mark_processed", "settle"):
            getattr(steps, what)()
        elif what == "let go":
            steps.let_go()
        elif what == "attention":
            self.attention.up = True
        elif what == "later":
            self.clock.advance(argument % 2)
        elif what == "pause":
            shared_partition.paused = not shared_partition.paused
        elif what == "revoke":
            shared_partition.revoking = not shared_partition.revoking
        elif what == "hold":
            shared_partition.held = not shared_partition.held
        elif what == "seek":
            shared_partition.fetch_epoch += 1
        else:
            self.fill(argument % PARTITIONS, 100)
        return None


def test_what_moves_while_a_step_makes_its_objects_is_not_given() -> None:
    """The network thread ends a partition's fetch epoch in a collection that a step has begun."""
    number = 0
    while True:
        world = World()
        world.act("arm", 0)
        decoded: Any = world.shared_partitions[0].decoded
        stood: list[int] = []

        def seek(world: World = world, decoded: Any = decoded, stood: list[int] = stood) -> None:
            stood.append(decoded.index)
            world.act("seek", 0)

        with at_collection(number, seek) as done:
            found = world.steps.poll(3)
        if not done:
            assert number > 0
            assert len(found) == 3
            return
        assert decoded.index == (0 if found is None else 3)
        assert (found is None) == (stood == [0]), "it moved before the records were taken"
        assert not world.steps.is_taking
        number += 1


@pytest.fixture
def world() -> World:
    return World()


def test_a2_steps_take_turns(world: World) -> None:
    world.act("arm", 0)
    given = [world.steps.step() for _ in range(5)]
    assert [(each.partition, each.offset) for each in given] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
    assert world.act("disarm", 0) == [0, 1], "who was served since all had their turn goes behind the others"


def test_each_step_proves_what_the_one_before_it_returned(world: World) -> None:
    world.act("arm", 0)
    world.act("step", 0)
    all_decoded = [each.decoded for each in world.shared_partitions]
    assert (all_decoded[0].position(), all_decoded[0].processed()) == ((1, 4), None)
    world.act("step", 0)
    assert (all_decoded[0].processed(), all_decoded[1].processed()) == ((1, 4), None)


def test_a_hand_that_is_used_up_stands_behind_what_follows_its_last_record(world: World) -> None:
    world.act("arm", 0)
    assert world.act("several", COUNT - 1) == [(0, list(range(COUNT)))]
    assert world.shared_partitions[0].decoded.position() == (COUNT + 2, 5)


def test_steps_end_with_the_millisecond_and_with_the_hand(world: World) -> None:
    world.act("arm", 0)
    assert world.act("several", COUNT) is None
    assert world.act("step", 0) == (0, 0, b"0")
    world.clock.advance(1)
    assert world.act("step", 0) is None


def test_another_thread_takes_no_step(world: World) -> None:
    world.act("arm", 0)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(world.act("step", 0)))
    thread.start()
    thread.join()
    assert found == [None]


def test_metrics_count_steps_once_and_not_what_was_put_back(world: World) -> None:
    world.act("arm", 0)
    for _ in range(4):
        world.act("step", 0)
    world.steps.settle()
    world.steps.settle()
    assert (world.polls.count, world.records.total) == (4, 4)
    world.steps.put_back()
    assert world.records.total == 3
    world.act("arm", 0)
    world.act("step", 0)
    world.act("step", 0)
    world.steps.settle()
    assert (world.polls.count, world.records.total) == (6, 5)


def test_c7_a_thread_that_is_inside_a_call_takes_the_steps_over(world: World) -> None:
    world.act("arm", 0)
    taking = threading.Thread(target=world.steps.take_over)
    taking.start()
    taking.join()
    assert world.act("step", 0) is None


# ---------------------------------------------------------------- what a step must stop for


def armed(*shared_partitions: SharedPartition, **settings: Any) -> Subject:
    """The application side, after a poll that found nothing to do but to take records."""
    subject = Subject(FakeClock(), **settings)
    subject.shared_state.shared_partitions = {one.partition: one for one in shared_partitions}
    for one in shared_partitions:
        put(subject.shared_state, one, 50)
    with subject.shell:
        assert subject.core.polls.poll_buffered(1)
    assert subject.core.polls.steps.step() is not None
    return subject


def tell(subject: Subject) -> None:
    subject.shared_state.tell(m.Failed(ZeroDivisionError()))


def truncate(subject: Subject) -> None:
    for one in subject.shared_state.shared_partitions.values():
        one.fetch_epoch = 2
        one.origin = Origin(2, 5, None)


def revoke(subject: Subject) -> None:
    for one in subject.shared_state.shared_partitions.values():
        one.revoking = True


def pause(subject: Subject) -> None:
    for one in subject.shared_state.shared_partitions.values():
        one.paused = True


def fetch(subject: Subject) -> None:
    put(subject.shared_state, shared_partition(7), 1)


def end(subject: Subject) -> None:
    subject.shared_state.ended = True
    subject.shared_state.alert()


def enter(subject: Subject) -> None:
    with subject.shell:
        pass


def wait(subject: Subject) -> None:
    subject.core.clock.advance(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change",
    [
        tell, truncate, revoke, pause, fetch, end, enter, wait,
        lambda subject: subject.core.wakeup(),
        lambda subject: subject.core.abandon(0),
        lambda subject: subject.shared_state.press(),
    ],
    ids=[
        "event", "seek", "revoking", "paused", "fetched", "ended", "entered", "time", "wakeup", "closed", "pressed",
    ],
)  # fmt: skip
def test_a_step_stops_for(change: Callable[[Subject], None]) -> None:
    subject = armed(shared_partition(0))
    change(subject)
    assert subject.core.polls.steps.step() is None


def test_c7_a_second_thread_that_polls_ends_the_steps_of_the_first_within_the_same_millisecond() -> None:
    subject = armed(shared_partition(0))
    found: list[object] = []

    def poll() -> None:
        # It has lowered the attention and has taken nothing yet, when the first thread takes its next step.
        subject.core.commits.due = go_on  # type: ignore[method-assign]
        with subject.shell:
            subject.core.polls.poll_buffered(1)

    def go_on(now: int) -> bool:
        looking.set()
        return not looked.wait(PATIENCE)

    looking, looked = threading.Event(), threading.Event()
    second = threading.Thread(target=poll)
    second.start()
    assert looking.wait(PATIENCE)
    found.append(subject.core.polls.steps.step())
    with pytest.raises(ConcurrentAccessError, match="another thread is using"), subject.shell:
        pass
    looked.set()
    second.join()
    assert found == [None]


# ---------------------------------------------------------------- with deserialisers


@pytest.fixture
def decoding() -> World:
    world = World(decodes=True)
    world.act("arm", 0)
    return world


def test_a_step_deserialises_one_record_and_no_other(decoding: World) -> None:
    assert decoding.act("step", 0) == (0, 0, 0)
    assert decoding.asked == [b"0"]
    assert decoding.shared_partitions[0].decoded.position() == (1, 4)
    assert decoding.shared_partitions[0].decoded.records[0].value == b"0", "what is put back is bytes"


def test_a_refused_record_is_left_to_a_whole_poll_which_does_not_ask_again(decoding: World) -> None:
    for number in range(PARTITIONS):
        assert decoding.act("several", 5) == [(number, [0, 1, 2, 3])], "those before it"
    assert decoding.act("step", 0) is None
    decoder, decoded = decoding.steps.decoder, decoding.shared_partitions[0].decoded
    assert (decoded.position(), decoding.steps.taken) == ((4, 4), PARTITIONS)
    failed, field, error = decoder.failed
    assert (failed, field, type(error)) == (decoded.records[4], "value", ValueError)
    asked = len(decoding.asked)
    out: list[Record] = []
    assert decoder.run(decoded.records, 4, COUNT, out) == 4
    assert (len(decoding.asked), out) == (asked, [])
    assert decoder.run(decoded.records, 5, COUNT, out) == COUNT
    assert [record.value for record in out] == [5, 6, 7]
    assert decoder.failed is None
    assert decoder.run(decoded.records, 4, COUNT, out) == 4
    assert len(decoding.asked) == asked + 4, "another run begins anew"


@pytest.mark.parametrize("meddling", ["seek", "disarm", "fill"])
def test_a_step_gives_nothing_where_a_deserialiser_moved_the_partition(
    decoding: World, meddling: str
) -> None:
    decoding.meddling = meddling
    assert decoding.act("step", 0) is None
    assert decoding.shared_partitions[0].decoded.index == 0
    assert not decoding.steps.is_taking


def test_no_memory_is_no_refusal(decoding: World) -> None:
    def tight(data: bytes) -> bytes:
        raise MemoryError

    decoder = type(decoding.steps.decoder)(None, tight)
    with pytest.raises(MemoryError):
        decoder.run(decoding.shared_partitions[0].decoded.records, 0, 1, [])
    assert decoder.failed is None


def test_a_deserialiser_may_want_topic_and_headers(decoding: World) -> None:
    class Told:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
            return topic, headers, data

    decoder = type(decoding.steps.decoder)(Told(), Told())
    record = Record("t", 1, 7, 3, 1, b"k", None, (("h", b"1"),), 4)
    out: list[Record] = []
    assert decoder.run([record], 0, 1, out) == 1
    assert out == [record.replace(key=("t", (("h", b"1"),), b"k"))]


def test_the_cycle_collector_knows_records_with_objects_in_them(decoding: World) -> None:
    class Order(list[Any]):
        """Can be referred to weakly."""

    decoder = type(decoding.steps.decoder)(None, Order)
    out: list[Record] = []
    decoder.run([Record("t", 0, 0, value=b"v")], 0, 1, out)
    record = out.pop()
    order: Any = record.value
    order.append(record)
    kept = weakref.ref(order)
    del record, order
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    "settings",
    [{"value_deserializer": bytes}, {"interceptors": [Interceptor()]}],
    ids=["deserialiser", "interceptor"],
)
def test_c14_no_setting_leaves_the_steps(settings: dict[str, Any]) -> None:
    subject = armed(shared_partition(0), **settings)
    assert all(subject.core.polls.steps.step() is not None for _ in range(40))


class Sees(Interceptor):
    """Notes the offsets that it sees at a time, and leaves out each fifth record."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def on_consume(self, records: Records) -> Records:
        self.seen.append([record.offset for record in records])
        return Records.of(record for record in records if record.offset % 5)


def test_an_interceptor_sees_what_each_step_returns_and_a_record_left_out_is_a_step_of_its_own() -> None:
    sees = Sees()
    subject = armed(shared_partition(0), interceptors=[sees])
    steps = subject.core.polls.steps
    del sees.seen[:]
    before = steps.calls
    found = [steps.step().offset for _ in range(6)]
    assert found == [2, 3, 4, 6, 7, 8]
    assert sees.seen == [[offset] for offset in range(2, 9)]
    assert steps.calls - before == 7
    records = steps.poll(3)
    assert [record.offset for record in records] == [9, 11]
    assert sees.seen[-1] == [9, 10, 11]
    assert list(records.next_offsets().values()) == [OffsetAndMetadata(12, None)]


def test_c7_another_thread_is_refused_while_a_step_is_in_an_interceptor() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Slow(Interceptor):
        def on_consume(self, records: Records) -> Records:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert leave.wait(PATIENCE)
            return records

    subject = armed(shared_partition(0), interceptors=[Slow()])

    def work() -> None:
        subject.core.polls.steps.arm(
            subject.core.clock.now_ms(), list(subject.core.polls.collector._ring.values())
        )
        found.append(subject.core.polls.steps.step())

    found: list[Record | None] = []
    other = threading.Thread(target=work)
    subject.shared_state.attention.up = False
    other.start()
    assert inside.wait(PATIENCE)
    with pytest.raises(ConcurrentAccessError, match="another thread is using"), subject.shell:
        pass
    leave.set()
    other.join()
    assert found[0] is not None


def test_c7_what_an_interceptor_was_interrupted_at_comes_again() -> None:
    class Interrupts(Interceptor):
        left = 1

        def on_consume(self, records: Records) -> Records:
            [record] = records
            if record.offset == 7 and self.left:
                self.left -= 1
                raise KeyboardInterrupt
            return records

    one = shared_partition(0)
    subject = armed(one, interceptors=[Interrupts()])
    steps = subject.core.polls.steps
    found = [steps.step().offset for _ in range(5)]
    with pytest.raises(KeyboardInterrupt):
        steps.step()
    assert one.position == Origin(1, 7, None)
    found += [steps.step().offset for _ in range(3)]
    assert found == list(range(2, 10))


def test_c14_a_partition_that_waits_for_its_dead_letters_takes_no_step() -> None:
    class Letters:
        topic = "bad"

        def deliver(self, bad: Any) -> Delivery:
            return Delivery(bad)

    subject = Subject(
        FakeClock(), value_deserializer=int, deserialization_errors="dead-letter", dead_letter_topic="bad"
    )
    assert subject.core.polls.decoding is not None
    subject.core.polls.decoding._dead_letters = Letters()  # type: ignore[assignment]
    bad, good = shared_partition(0), shared_partition(1)
    subject.shared_state.shared_partitions = {one.partition: one for one in (bad, good)}
    put(subject.shared_state, bad, 50, value=b"bad")
    put(subject.shared_state, good, 50, value=b"1")
    with subject.shell:
        assert subject.core.polls.poll_buffered(1)
    steps = subject.core.polls.steps
    found = [steps.step() for _ in range(40)]
    assert [record and record.partition for record in found] == [1] * 40


def test_c7_another_thread_is_refused_while_a_step_is_in_a_deserialiser() -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow(data: bytes) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            assert leave.wait(PATIENCE)
        return data

    subject = armed(shared_partition(0), value_deserializer=slow)

    def work() -> None:
        subject.core.polls.steps.arm(
            subject.core.clock.now_ms(), list(subject.core.polls.collector._ring.values())
        )
        found.append(subject.core.polls.steps.step())

    found: list[Record | None] = []
    other = threading.Thread(target=work)
    subject.shared_state.attention.up = False
    other.start()
    assert inside.wait(PATIENCE)
    with pytest.raises(ConcurrentAccessError, match="another thread is using"), subject.shell:
        pass
    leave.set()
    other.join()
    assert found[0] is not None


def test_b4_a_stall_tells_how_many_records_a_step_gave_and_which() -> None:
    one = shared_partition(0)
    subject = armed(one)
    assert subject.core.polls.steps.poll(7)
    subject.core.polls.steps.settle()  # somebody reads the metrics
    assert subject.core.stalls._look() == (7, {one.partition: range(2, 9)})
    with subject.shell:
        assert subject.core.polls.poll_buffered(20)
    assert subject.core.stalls._look() == (20, {one.partition: range(9, 29)})


# ---------------------------------------------------------------- the whole consumer


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(2_000):
            producer.send("t", b"%d" % number, partition=number % 2)
    return broker


def consumer(broker: Broker, **settings: Any) -> Consumer:
    made = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)
    made.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    return made


def test_polls_of_all_kinds_read_each_record_once_and_in_order(served: Broker) -> None:
    found: dict[int, list[int]] = {0: [], 1: []}
    sizes = (1, 3, 500, 7, 1, 64, 65)
    with consumer(served) as subject:
        turn = 0
        while sum(map(len, found.values())) < 2_000:
            turn += 1
            if turn % 3 == 0:
                records = [next(subject)]
            elif turn % 3 == 1:
                iterator = iter(subject)
                records = [next(iterator) for _ in range(min(5, 2_000 - sum(map(len, found.values()))))]
            else:
                records = list(subject.poll(5, max_records=sizes[turn % len(sizes)]))
            for record in records:
                found[record.partition].append(record.offset)
            for number in (0, 1):
                assert subject.position(TopicPartition("t", number)) == len(found[number])
    assert found == {0: list(range(1_000)), 1: list(range(1_000))}


def test_d_iteration_commits_what_a_later_step_proved(served: Broker) -> None:
    def work() -> None:
        with consumer(served, group_id="g") as subject:
            subject.pause([("t", 1)])
            for record in subject:
                if record.offset == 300:
                    raise RuntimeError("while it is processed")

    with pytest.raises(RuntimeError):
        work()
    with consumer(served, group_id="g") as after:
        found = after.committed([("t", 0)])[TopicPartition("t", 0)]
        assert found is not None
        assert found.offset == 300


def test_c7_another_thread_is_refused_until_a_poll_has_let_its_records_go(served: Broker) -> None:
    """It would take records, and some of those might be let go in the midst of that."""
    subject = consumer(served)
    refused: list[bool] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(subject._core.polls.steps, name)

        def let_go(self) -> None:
            def enter() -> None:
                with pytest.raises(ConcurrentAccessError):
                    subject.position(TopicPartition("t", 0))
                refused.append(True)

            other = threading.Thread(target=enter)
            other.start()
            other.join(PATIENCE)
            subject._core.polls.steps.let_go()

    subject._steps = Watched()  # type: ignore[assignment]  # it stands for all of it
    with subject:
        assert subject.poll(10)
    assert refused == [True]


def test_c7_an_iteration_is_refused_while_another_thread_is_inside_and_ends_by_wakeup_and_close(
    served: Broker,
) -> None:
    subject = consumer(served)
    iterator = iter(subject)
    next(iterator)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with subject._shell:
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    assert inside.wait(10)
    with pytest.raises(ConcurrentAccessError):
        next(iterator)
    leave.set()
    other.join()
    next(iterator)
    subject.wakeup()
    with pytest.raises(WakeupError):
        next(iterator)
    next(iterator)
    subject.close()
    with pytest.raises(ClosedError):
        next(iterator)


def test_a_hand_voided_by_a_seek_gives_nothing_more(served: Broker) -> None:
    with consumer(served) as subject:
        subject.pause([("t", 1)])
        iterator = iter(subject)
        assert [next(iterator).offset for _ in range(10)] == list(range(10))
        subject.seek(TopicPartition("t", 0), 500)
        assert [next(iterator).offset for _ in range(10)] == list(range(500, 510))
        subject.seek_to_beginning([("t", 0)])
        assert next(iterator).offset == 0
