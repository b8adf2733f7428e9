"""Rebalance callbacks: what works inside them, and what becomes of what they raise (C5), on the brokers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.support import Cluster, member_settings, partitions, poll_until, read
from tests.patience import PATIENCE
from tests.virtual import VirtualCluster

from kadence import AsyncConsumer, Consumer, RebalanceListener, TopicPartition
from kadence.errors import ClosedError, IllegalStateError, WakeupError

pytestmark = [pytest.mark.needs("groups"), pytest.mark.brokers("virtual")]

Partitions = list[TopicPartition]


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The group protocol; "consumer" implies the need of "kip-848"."""
    return str(request.param)


class Listener(RebalanceListener):
    """Does what it is given for each kind of step, and remembers the steps."""

    def __init__(self, **does: Callable[[Partitions], Any]) -> None:
        self.told: list[tuple[str, Partitions]] = []
        self._does = does

    def _step(self, kind: str, partitions: Partitions) -> Any:
        self.told.append((kind, sorted(partitions)))
        does = self._does.get(kind)
        return None if does is None else does(partitions)

    def on_partitions_assigned(self, partitions: Partitions) -> Any:
        return self._step("assigned", partitions)

    def on_partitions_revoked(self, partitions: Partitions) -> Any:
        return self._step("revoked", partitions)

    def on_partitions_lost(self, partitions: Partitions) -> Any:
        return self._step("lost", partitions)

    def of(self, kind: str) -> set[TopicPartition]:
        return {partition for name, given in self.told if name == kind for partition in given}


def settings(protocol: str, group: str) -> dict[str, Any]:
    return member_settings(protocol, group_id=group, heartbeat_interval_ms=200)


def share(stays: Consumer, comes: Consumer, topic: str) -> None:
    """Another member takes half of what one member had."""
    comes.subscribe(topic)

    def shared() -> bool:
        comes.poll(0)
        return len(stays.assignment()) == len(comes.assignment()) == 2

    poll_until(stays, shared)


@pytest.mark.brokers("virtual", "kafka")
@pytest.mark.needs("classic rebalances")
def test_c5_commit_seek_pause_and_position_work_inside_each_step(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    at: dict[str, dict[TopicPartition, int]] = {}

    def assigned(partitions: Partitions) -> None:
        for partition in partitions:
            one.seek(partition, 5)
            assert one.position(partition) == 5
        one.pause(partitions)

    def revoked(partitions: Partitions) -> None:
        assert set(partitions) <= one.assignment()
        at["revoked"] = {partition: one.position(partition) for partition in partitions}
        one.commit(at["revoked"])

    listener = Listener(assigned=assigned, revoked=revoked)
    one = cluster.consumer(enable_auto_commit=False, **settings(protocol, group))
    one.subscribe(topic, listener=listener)
    poll_until(one, lambda: len(listener.of("assigned")) == 4)
    assert one.paused() == one.assignment() == set(partitions(topic))
    assert not one.poll(0.3)
    one.resume(one.assignment())
    found = read(one, 20)
    assert {record.offset for record in found} == set(range(5, 10))
    two = cluster.consumer(**settings(protocol, group))
    share(one, two, topic)
    assert at["revoked"] == dict.fromkeys(two.assignment(), 10)
    assert two.committed(at["revoked"]).keys() == at["revoked"].keys()
    assert all(found is not None and found.offset == 10 for found in two.committed(at["revoked"]).values())
    assert listener.of("lost") == set()


@pytest.mark.needs("classic rebalances")
@pytest.mark.parametrize("step", ["assigned", "revoked"])
def test_c5_an_exception_in_a_step_surfaces_from_poll_and_the_group_goes_on(
    cluster: Cluster, protocol: str, step: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)

    def fails(partitions: Partitions) -> None:
        raise ZeroDivisionError("my bug")

    listener = Listener(**{step: fails})
    one = cluster.consumer(**settings(protocol, group))
    one.subscribe(topic, listener=listener)
    two = cluster.consumer(**settings(protocol, group))
    raised = 0
    end = time.monotonic() + PATIENCE
    subscribed = False
    while not (len(one.assignment()) == len(two.assignment()) == 2):
        assert time.monotonic() < end, f"the group is stuck: {one!r} {two!r} {listener.told}"
        try:
            one.poll(0.1)
        except ZeroDivisionError:
            raised += 1
        if len(one.assignment()) == 4 and not subscribed:
            two.subscribe(topic)
            subscribed = True
        if subscribed:
            two.poll(0)
    assert raised == len([kind for kind, _ in listener.told if kind == step])
    assert raised >= 1
    # Everything is read by somebody. The polls may tell the end of the last round first, when nothing is assigned.
    listener._does.clear()
    one.seek_to_beginning()
    two.seek_to_beginning()
    assert len(read(one, 20)) + len(read(two, 20)) == 40


def test_c5_an_exception_when_partitions_are_lost_surfaces_and_the_member_comes_back(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)

    def fails(partitions: Partitions) -> None:
        raise ZeroDivisionError("my bug")

    listener = Listener(lost=fails)
    subject = cluster.consumer(max_poll_interval_ms=60_000, **settings(protocol, group))
    subject.subscribe(topic, listener=listener)
    read(subject, 40)
    # Longer than the processing timeout, seen by the network thread: the assignment goes.
    cluster.until(lambda: not subject._core.assigned)
    with pytest.raises(ZeroDivisionError):
        poll_until(subject, lambda: False)
    assert listener.of("lost") == set(partitions(topic))
    poll_until(subject, lambda: len(subject.assignment()) == 4)


def test_c5_a_wakeup_inside_a_step_ends_what_waits_there_and_loses_nothing(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)

    def assigned(partitions: Partitions) -> None:
        subject.wakeup()
        subject.committed(partitions)

    listener = Listener(assigned=assigned)
    subject = cluster.consumer(**settings(protocol, group))
    subject.subscribe(topic, listener=listener)
    found: list[Any] = []
    woken = 0
    end = time.monotonic() + PATIENCE
    while len(found) < 40:
        assert time.monotonic() < end
        try:
            found += subject.poll(0.2)
        except WakeupError:
            woken += 1
    # One wakeup, one exception: the one that the callback let through.
    assert woken == 1
    assert sorted((record.partition, record.offset) for record in found) == [
        (partition, offset) for partition in range(4) for offset in range(10)
    ]
    assert listener.of("assigned") == set(partitions(topic))


def test_c5_a_wakeup_that_a_step_swallows_is_spent(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)

    def assigned(partitions: Partitions) -> None:
        subject.wakeup()
        with contextlib.suppress(WakeupError):
            subject.committed(partitions)

    subject = cluster.consumer(**settings(protocol, group))
    subject.subscribe(topic, listener=Listener(assigned=assigned))
    assert len(read(subject, 40)) == 40


def test_c5_unsubscribe_and_close_run_the_revocation_and_raise_what_it_raises(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)

    def revoked(partitions: Partitions) -> None:
        subject.commit(dict.fromkeys(partitions, 7))
        raise ZeroDivisionError("my bug")

    listener = Listener(revoked=revoked)
    subject = cluster.consumer(enable_auto_commit=False, **settings(protocol, group))
    for ends in (subject.unsubscribe, subject.close):
        subject.subscribe(topic, listener=listener)
        poll_until(subject, lambda: len(subject.assignment()) == 4)
        with pytest.raises(ZeroDivisionError):
            ends()
    assert [kind for kind, given in listener.told if kind == "revoked" and len(given) == 4] == ["revoked"] * 2
    after = cluster.consumer(group_id=group)
    found = after.committed(partitions(topic))
    assert {at.offset for at in found.values() if at is not None} == {7}


NO_TIME = 1.0
"""Seconds: what a call takes that waits for nobody but brokers that answer."""

HOURS = 3_600.0

LEAVES: dict[str, Callable[[Any], Any]] = {
    "close": lambda subject: subject.close(HOURS),
    "unsubscribe": lambda subject: subject.unsubscribe(timeout=HOURS),
    "subscribe to nothing": lambda subject: subject.subscribe([]),
}


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("step", ["assigned", "revoked", "lost"])
def test_c5_who_leaves_inside_a_step_waits_for_its_end_no_longer(
    cluster: VirtualCluster, protocol: str, step: str, leave: str
) -> None:
    """The group would wait for the step, and the step for the group. Each partition is told of once."""
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    took: list[float] = []

    def leaves(partitions: Partitions) -> None:
        if not took and partitions and (step != "assigned" or len(partitions) == 4):
            began = cluster.simulation.now
            took.append(-1.0)
            LEAVES[leave](one)
            took[0] = cluster.simulation.now - began

    listener = Listener(**{step: leaves})
    one = cluster.consumer(
        default_api_timeout_ms=3_600_000, max_poll_interval_ms=60_000, **settings(protocol, group)
    )
    one.subscribe(topic, listener=listener)
    two = cluster.consumer(**settings(protocol, group))
    if step != "assigned":
        assert len(read(one, 40)) == 40
    if step == "revoked":
        two.subscribe(topic)
    if step == "lost":
        cluster.until(lambda: not one._core.assigned)
    end = cluster.simulation.now + PATIENCE
    while not took:
        assert cluster.simulation.now < end
        two.poll(0) if step == "revoked" else None
        with contextlib.suppress(ClosedError):
            one.poll(0.2)
    assert 0 <= took[0] < NO_TIME
    if leave == "close":
        with pytest.raises(ClosedError):
            one.poll(0)
    else:
        assert one.subscription() == one.assignment() == frozenset()
        with pytest.raises(IllegalStateError, match="nothing to poll"):
            one.poll(0)
    told = [partition for kind, given in listener.told for partition in given if kind != "assigned"]
    assert sorted(told) == sorted(listener.of("assigned"))
    assert listener.of("lost") == (set(partitions(topic)) if step == "lost" else set())
    cluster.until(lambda: cluster.members(group) == (1 if step == "revoked" else 0))
    if step == "revoked":
        # What was returned is committed, also of what the step was for.
        poll_until(two, lambda: len(two.assignment()) == 4)
        assert {two.position(partition) for partition in partitions(topic)} == {10}


def test_c5_a_poll_in_which_a_step_unsubscribes_waits_for_nothing_more(
    cluster: VirtualCluster, protocol: str
) -> None:
    topic = cluster.topic()
    one = cluster.consumer(**settings(protocol, cluster.name("g")))
    one.subscribe(topic, listener=Listener(assigned=lambda partitions: one.unsubscribe()))
    with pytest.raises(IllegalStateError, match="nothing to poll"):
        next(iter(one))


@pytest.mark.brokers("embedded")
@pytest.mark.parametrize("leave", ["close", "unsubscribe"])
def test_c5_who_leaves_inside_a_step_waits_for_its_end_no_longer_on_threads(
    cluster: Cluster, protocol: str, leave: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    one = cluster.consumer(**settings(protocol, group))
    listener = Listener(revoked=lambda partitions: LEAVES[leave](one) if len(partitions) < 4 else None)
    one.subscribe(topic, listener=listener)
    poll_until(one, lambda: len(one.assignment()) == 4)
    two = cluster.consumer(**settings(protocol, group))
    two.subscribe(topic)
    ended = threading.Event()

    def polls() -> None:
        with contextlib.suppress(ClosedError, IllegalStateError):
            while True:
                one.poll(0.05)
        ended.set()

    thread = threading.Thread(target=polls, daemon=True)
    thread.start()
    poll_until(two, lambda: len(two.assignment()) == 4)
    assert ended.wait(PATIENCE)
    thread.join(PATIENCE)
    assert (listener.of("revoked"), listener.of("lost")) == (set(partitions(topic)), set())


@pytest.mark.brokers("embedded")
def test_c5_with_asyncio_the_steps_are_awaited_and_may_do_the_same(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    raised = 0

    async def work() -> None:
        nonlocal raised
        settings_ = {"auto_offset_reset": "earliest", **settings(protocol, group)}
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, **settings_) as subject:

            async def assigned(partitions: Partitions) -> None:
                for partition in partitions:
                    await subject.seek(partition, 8)
                    assert await subject.position(partition) == 8
                subject.pause(partitions[:1])
                raise ZeroDivisionError("my bug")

            async def revoked(partitions: Partitions) -> None:
                await subject.commit(dict.fromkeys(partitions, 9))

            listener = Listener(assigned=assigned, revoked=revoked)
            await subject.subscribe(topic, listener=listener)
            found: list[Any] = []
            while len(found) < 6:
                try:
                    found += await subject.poll(5)
                except ZeroDivisionError:
                    raised += 1
            assert {record.offset for record in found} == {8, 9}
            assert len(subject.paused()) == 1
            await subject.unsubscribe()
            assert listener.of("revoked") == set(partitions(topic))
            committed = await subject.committed(partitions(topic))
            assert {at.offset for at in committed.values() if at is not None} == {9}

    asyncio.run(asyncio.wait_for(work(), 60))
    assert raised == 1


@pytest.mark.needs("classic rebalances")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_c5_an_asynchronous_commit_inside_revoked_is_done_before_others_read_on(
    cluster: Cluster, protocol: str, assignor: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    ends: list[tuple[set[TopicPartition], Exception | None]] = []

    def revoked(partitions: Partitions) -> None:
        at = {partition: one.position(partition) for partition in partitions}
        one.commit_async(at, lambda offsets, error: ends.append((set(offsets), error)))

    given = member_settings(
        protocol, group_id=group, heartbeat_interval_ms=200, partition_assignment_strategy=assignor
    )
    listener = Listener(revoked=revoked)
    one = cluster.consumer(enable_auto_commit=False, **given)
    one.subscribe(topic, listener=listener)
    assert len(read(one, 40)) == 40
    two = cluster.consumer(**given)
    share(one, two, topic)
    poll_until(one, lambda: bool(ends))
    assert ends == [(listener.of("revoked"), None)]
    # It reads on where the other one was, and nothing twice.
    assert {partition: two.position(partition) for partition in two.assignment()} == dict.fromkeys(
        two.assignment(), 10
    )


def left_for_good(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Wait, without a poll, until the processing timeout has ended the membership, and the next poll can tell so.

    The assignment is empty before: a poll in between calls back for what it knows of.
    """
    cluster.until(lambda: any(message.startswith("lost ") for message in caplog.messages))


def impatient(protocol: str, group: str, **given: Any) -> dict[str, Any]:
    return {**member_settings(protocol, group_id=group, **given), "max_poll_interval_ms": 60_000}


@pytest.mark.needs("classic rebalances")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_b11_a_revocation_that_had_not_begun_when_the_poll_timeout_passed_is_told_as_lost(
    cluster: Cluster, protocol: str, assignor: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not as revoked: somebody else reads them by then, and a commit in the callback would fail."""
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    listener = Listener(revoked=lambda partitions: one.commit(dict.fromkeys(partitions, 1)))
    given = impatient(protocol, group, partition_assignment_strategy=assignor)
    one = cluster.consumer(**given)
    one.subscribe(topic, listener=listener)
    poll_until(one, lambda: len(listener.of("assigned")) == 4)
    listener.told.clear()
    two = cluster.consumer(**given)
    two.subscribe(topic)
    poll_until(two, lambda: len(two.assignment()) == 4)
    left_for_good(cluster, caplog)
    poll_until(one, lambda: bool(listener.told))
    kind, partitions_told = listener.told[0]
    assert (kind, partitions_told) == ("lost", partitions(topic))


def test_b11_partitions_that_went_before_their_assigned_callback_ran_are_told_as_lost(
    cluster: Cluster, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """on_partitions_assigned of what is not owned would raise where it seeks."""
    topic, group = cluster.topic(), cluster.name("g")

    def assigned(partitions: Partitions) -> None:
        for partition in partitions:
            one.seek(partition, 0)

    listener = Listener(assigned=assigned)
    one = cluster.consumer(**impatient(protocol, group))
    one.subscribe(topic, listener=listener)
    one.poll(0)
    cluster.until(lambda: len(one._core.assigned) == 4)
    left_for_good(cluster, caplog)
    poll_until(one, lambda: len(listener.of("assigned")) == 4)
    assert [kind for kind, told in listener.told if told] == ["lost", "assigned"]
