"""The asyncio shell: the same promises, kept on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.consumer.support import has_settled, poll_until
from tests.patience import PATIENCE, until
from tests.virtual import VirtualCluster

from kadence import Admin, AsyncConsumer, AsyncRebalanceListener, Broker, Producer, TopicPartition
from kadence.errors import ClosedError, ConcurrentAccessError, WakeupError
from kadence.protocol.heartbeat import HeartbeatRequest

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 1)
    produce(broker, 0, 100)
    return broker


def produce(broker: Broker, start: int, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(start, start + count):
            producer.send("t", b"%d" % number)


def consumer(broker: Broker, **settings: Any) -> AsyncConsumer[Any, Any]:
    return AsyncConsumer(
        bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
    )


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


async def read(subject: AsyncConsumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found.extend(int(record.value) for record in await subject.poll(PATIENCE))
    return found


def test_a_group_reads_commits_and_goes_on(served: Broker) -> None:
    async def work() -> None:
        async with consumer(served, group_id="g") as subject:
            await subject.subscribe("t")
            assert await read(subject, 100) == list(range(100))
            await subject.commit()
            found = await subject.committed([PARTITION])
            assert found[PARTITION] is not None
            assert await subject.end_offsets([PARTITION]) == {PARTITION: 100}
            assert "t" in await subject.list_topics()

    run(work())


def test_async_for_reads_one_after_the_other(served: Broker) -> None:
    async def work() -> None:
        async with consumer(served) as subject:
            await subject.assign([PARTITION])
            seen = []
            async for record in subject:
                seen.append(record.offset)
                if len(seen) == 10:
                    break
            assert seen == list(range(10))
            assert await subject.position(PARTITION) == 10

    run(work())


def test_c7_a_cancelled_poll_loses_no_record_and_commits_nothing_unseen(served: Broker) -> None:
    async def work() -> None:
        async with consumer(served, group_id="g", auto_commit_interval_ms=0) as subject:
            await subject.assign([PARTITION])
            assert await read(subject, 100) == list(range(100))
            for _ in range(20):
                waiting = asyncio.create_task(subject.poll(30))
                await asyncio.sleep(0.001)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await asyncio.to_thread(produce, served, 100, 5)
            assert await read(subject, 5) == list(range(100, 105))
        async with consumer(served, group_id="g") as after:
            found = (await after.committed([PARTITION]))[PARTITION]
            assert found is not None
            assert found.offset == 105

    run(work())


def test_polls_cancelled_while_records_come_lose_none(served: Broker) -> None:
    async def work() -> None:
        async with consumer(served, max_poll_records=3) as subject:
            await subject.assign([PARTITION])
            seen: list[int] = []
            while len(seen) < 100:
                task = asyncio.create_task(subject.poll(1))
                await asyncio.sleep(0)
                task.cancel()
                try:
                    seen.extend(int(record.value) for record in await task)
                except asyncio.CancelledError:
                    seen.extend(int(record.value) for record in await subject.poll(1))
            assert seen == list(range(100))

    run(work())


def test_b3_heartbeats_go_on_while_the_loop_is_blocked(served: Broker) -> None:
    """So it may be blocked for longer than a session."""

    async def work() -> None:
        settings: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 100}
        async with consumer(served, group_id="g", **settings) as subject:
            await subject.subscribe("t")
            await read(subject, 100)
            member = subject.group_metadata()
            with served.faults.observe(HeartbeatRequest) as beats:
                beats.wait(10)
            await subject.poll(0)
            assert subject.group_metadata() == member

    run(work())


def test_b4_a_blocked_loop_is_no_progress_though_a_task_waits_in_poll(served: Broker) -> None:
    async def work() -> None:
        settings: dict[str, Any] = {"group_protocol": "consumer", "max_poll_interval_ms": 1_000}
        async with consumer(served, group_id="g", enable_auto_commit=False, **settings) as subject:
            await subject.subscribe("t")
            await read(subject, 100)
            epoch = subject.group_metadata().generation_id
            waiting = asyncio.create_task(subject.poll(PATIENCE))
            await asyncio.sleep(0)
            until(lambda: not subject._core.assigned, what="it stays a member")
            subject.wakeup()
            with pytest.raises(WakeupError):
                await waiting
            await read(subject, 100)
            assert subject.group_metadata().generation_id != epoch
            assert "poll interval exceeded" in [each.cause for each in subject.rebalances()]

    run(work())


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_b4_a_poll_that_waits_on_a_turning_loop_is_progress(cluster: VirtualCluster, protocol: str) -> None:
    topic = cluster.topic()
    subject = cluster.consumer(group_id="g", group_protocol=protocol, max_poll_interval_ms=60_000)
    subject.subscribe(topic)
    poll_until(subject, lambda: has_settled(subject))
    before = subject.group_metadata()
    subject.poll(300)
    assert subject.group_metadata() == before
    assert subject.stalls() == ()


def test_tasks_share_a_consumer_but_only_one_polls(served: Broker) -> None:
    async def work() -> None:
        async with consumer(served, group_id="g") as subject:
            await subject.assign([PARTITION])
            await read(subject, 100)
            waiting = asyncio.create_task(subject.poll(30))
            await asyncio.sleep(0.05)
            await subject.commit()
            assert await subject.position(PARTITION) == 100
            with pytest.raises(ConcurrentAccessError, match="another task"):
                await subject.poll(0)
            subject.wakeup()
            with pytest.raises(WakeupError):
                await waiting

    run(work())


def test_the_next_record_may_be_a_task(served: Broker) -> None:
    """create_task() wants a coroutine: what a step of the iteration gives counts as one, compiled or not."""

    async def work() -> None:
        async with consumer(served) as subject:
            await subject.assign([PARTITION])
            steps = aiter(subject)
            following: tuple[Callable[[], Any], ...] = (subject.__anext__, steps.__anext__)
            found = [await asyncio.create_task(each()) for each in following * 2]
            assert [record.offset for record in found] == [0, 1, 2, 3]

    run(work())


def test_callbacks_may_be_coroutines(served: Broker) -> None:
    class Listener(AsyncRebalanceListener):
        def __init__(self) -> None:
            self.told: list[str] = []

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0.01)
            self.told.append(f"assigned {len(partitions)}")

    async def work() -> None:
        listener = Listener()
        async with consumer(served, group_id="g") as subject:
            await subject.subscribe("t", listener=listener)
            await read(subject, 100)
        assert listener.told == ["assigned 1"]

    run(work())


def test_polls_from_the_buffer_let_other_tasks_run(served: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # However fast they are: it is due at each.
    monkeypatch.setattr("kadence.client.async_shell.BREATH_MS", 0)

    async def work() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with consumer(served, max_poll_records=1) as subject:
            await subject.assign([PARTITION])
            task = asyncio.create_task(other())
            await subject.poll(PATIENCE)
            before = turns
            for _ in range(10):
                assert await subject.poll(0)
            task.cancel()
            assert turns > before

    run(work())


def test_another_loop_and_a_closed_consumer_are_refused(served: Broker) -> None:
    async def make() -> AsyncConsumer:
        return consumer(served)

    async def use(subject: AsyncConsumer) -> None:
        with pytest.raises(ConcurrentAccessError, match="another event loop"):
            await subject.poll(0)

    with asyncio.Runner() as runner:
        subject = runner.run(make())
        asyncio.run(use(subject))
        runner.run(subject.close())

        async def after() -> None:
            with pytest.raises(ClosedError):
                await subject.poll(0)

        runner.run(after())


def test_a_consumer_whose_loop_has_ended_is_closed_on_another(served: Broker) -> None:
    async def begin() -> AsyncConsumer:
        subject = consumer(served, group_id="g")
        await subject.subscribe("t")
        await subject.poll(PATIENCE)
        return subject

    async def end(subject: AsyncConsumer) -> None:
        await asyncio.wait_for(subject.close(), PATIENCE)
        await subject.close()

    asyncio.run(end(asyncio.run(begin())))
    with Admin(bootstrap_servers=served.bootstrap_servers) as admin:
        assert admin.describe_consumer_groups("g")["g"].members == (), "it has left its group"


def test_a_consumer_whose_loop_runs_is_not_closed_on_another(served: Broker) -> None:
    async def end(subject: AsyncConsumer) -> None:
        with pytest.raises(ConcurrentAccessError, match="which is still running: close it there"):
            await subject.close()

    async def work() -> None:
        async with consumer(served) as subject:
            await asyncio.to_thread(asyncio.run, end(subject))
            await subject.assign([PARTITION])
            assert await subject.poll(PATIENCE)

    run(work())


def test_memory_that_runs_out_in_the_second_partition_loses_nothing_of_the_first(broker: Broker) -> None:
    """What the poll took before its deserialiser gave up comes with the next poll, as under threads."""
    broker.create_topic("t", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=number % 2)
    failures = [MemoryError()]

    def read_number(data: bytes) -> int:
        seen.append(int(data) % 2)
        if len(set(seen)) == 2 and failures:
            raise failures.pop()
        return int(data)

    seen: list[int] = []

    async def work() -> None:
        async with consumer(broker, value_deserializer=read_number) as subject:
            both = [PARTITION, TopicPartition("t", 1)]
            await subject.assign(both)
            found: list[int] = []
            while [await subject.position(partition) for partition in both] != [5, 5]:
                try:
                    found.extend(record.value for record in await subject.poll(PATIENCE))
                except MemoryError:
                    assert not failures
            assert not failures
            assert sorted(found) == list(range(10))

    run(work())
