"""Transactions in a simulation: readers of committed records get those, whatever crashes; what breaks that is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.luck import seeds

from kadence import AsyncConsumer, KafkaError, OffsetAndMetadata, ProducerFencedError, Record, TopicPartition
from kadence.protocol import error_codes as codes
from kadence_broker.coordinator import ClassicGroup
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.storage import Partition
from kadence_broker.storage.aborted import Aborted
from kadence_testing.simulation import (
    Program,
    SimulatedProducer,
    Simulation,
    SimulationError,
    member,
    transformer,
    writer,
)
from kadence_testing.simulation.transactions import Fate

COMMITTED = {"isolation.level": "read_committed"}


async def quick(program: Program, record: Record) -> None:
    """Process a record in no time."""


async def writes(program: Program) -> None:
    """Transactions over two partitions, of which every third is aborted."""
    for attempt in range(1_000):
        try:
            async with program.producer({"transactional.id": "tx"}) as producer:
                await producer.init_transactions()
                for number in range(1_000):
                    if program.stopping.is_set():
                        return
                    await producer.begin_transaction()
                    values = [f"{program.lives}.{attempt}.{number}.{part}".encode() for part in range(2)]
                    await asyncio.gather(
                        *(producer.send_and_wait("t", value, partition=at) for at, value in enumerate(values))
                    )
                    await asyncio.sleep(0.05)
                    if number % 3 == 2:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
        except KafkaError:
            await asyncio.sleep(1)


def fates(simulation: Simulation) -> set[Fate]:
    return {each.fate for each in simulation.history.transactions.all}


def committed_places(simulation: Simulation) -> set[tuple[TopicPartition, int]]:
    everything = simulation.history.transactions.all
    return {place for each in everything if each.fate is Fate.COMMITTED for place in each.places}


def read_places(simulation: Simulation) -> set[tuple[TopicPartition, int]]:
    done = simulation.history.processed
    return {(partition, offset) for (_, partition), offsets in done.items() for offset in offsets}


@pytest.mark.parametrize("seed", seeds(1))
def test_readers_get_what_was_committed_whatever_crashes(seed: int) -> None:
    with Simulation(seed=seed, topics={"t": 2}, nodes=1 + 2 * (seed % 2)) as simulation:
        simulation.start("reader", member("g", ["t"], quick, COMMITTED))
        program = simulation.start("writer", writes)
        for _ in range(8):
            simulation.run(simulation.rng.choice([0.3, 1, 4]))
            what = simulation.rng.choice(["crash", "kill", "cut", "nothing"])
            if what == "crash":
                simulation.broker.crash()
                simulation.run(simulation.rng.choice([0.05, 1]))
                simulation.broker.restart()
            elif what == "kill":
                program.kill()
                program.restart()
            elif what == "cut":
                simulation.network.cut("writer")
                simulation.run(2)
                simulation.network.heal()
            simulation.check()
        simulation.run(5)
        program.stop()
        simulation.run_until(lambda: program.is_done, 120)
        simulation.run_until(lambda: committed_places(simulation) <= read_places(simulation), 120)
        simulation.check()
        assert fates(simulation) >= {Fate.COMMITTED, Fate.ABORTED}


def test_a_producer_that_was_replaced_is_fenced() -> None:
    async def first(program: Program) -> str:
        async with program.producer({"transactional.id": "tx"}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"of the first", partition=0)
            await asyncio.sleep(10)
            try:
                await producer.commit_transaction()
            except ProducerFencedError:
                return "fenced"
            return "committed"

    async def second(program: Program) -> None:
        async with program.producer({"transactional.id": "tx"}) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"of the second", partition=0)

    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("reader", member("g", ["t"], quick, COMMITTED))
        replaced = simulation.start("first", first)
        simulation.run(5)
        simulation.broker.crash()
        simulation.broker.restart()
        simulation.start("second", second)
        simulation.run(30)
        simulation.check()
        assert replaced.result() == "fenced"
        assert [each.fate for each in simulation.history.transactions.all] == [Fate.UNKNOWN, Fate.COMMITTED]
        assert read_places(simulation) == committed_places(simulation)


def begun(*, commits: bool) -> Simulation:
    async def main(program: Program) -> None:
        async with program.producer({"transactional.id": "tx"}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x", partition=0)
            await (producer.commit_transaction() if commits else producer.abort_transaction())

    simulation = Simulation(topics={"t": 1})
    program = simulation.start("writer", main)
    simulation.run_until(lambda: program.is_done)
    simulation.run(1)
    simulation.check()
    return simulation


def test_an_aborted_record_that_a_reader_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(commits=False) as simulation:
        monkeypatch.setattr(Partition, "aborted", lambda self, offset: [])
        with pytest.raises(SimulationError, match=r"of 'tx', which is aborted, can be read: t-0 offset 0"):
            simulation.check()
        simulation.start("reader", member("g", ["t"], quick, COMMITTED))
        with pytest.raises(
            SimulationError, match="a reader of committed records got t-0 offset 0 of transaction 1 of 'tx'"
        ):
            simulation.run(30)


def test_a_committed_record_that_no_reader_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(commits=True) as simulation:
        written = simulation.broker.core.partition("t", 0)
        producer_id = next(iter(written.producers.known))

        def aborted(self: Partition, offset: int) -> list[Aborted]:
            return [Aborted(producer_id, 0, 1, 2)]

        monkeypatch.setattr(Partition, "aborted", aborted)
        with pytest.raises(SimulationError, match="which is committed, cannot be read: t-0 offset 0"):
            simulation.check()


@pytest.mark.parametrize("commits", [True, False])
def test_a_group_that_skips_a_committed_record(commits: bool) -> None:
    """It may skip one that was aborted, and markers."""
    place = TopicPartition("t", 0)

    async def main(program: Program) -> None:
        program.reads_committed("g")
        program.has_processed("g", TopicPartition("other", 0), 0)
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            await consumer.assign({place: 0})
            await consumer.commit({place: OffsetAndMetadata(2)})

    with begun(commits=commits) as simulation:
        simulation.start("skips", main)
        if not commits:
            simulation.run(10)
            assert simulation.history.committed == {("g", place): 2}
            return
        with pytest.raises(
            SimulationError, match="committed t-0 up to 2, and did not process the record at 0"
        ):
            simulation.run(10)


def test_a_transaction_that_is_half_committed() -> None:
    with begun(commits=True) as simulation:
        [first] = simulation.history.transactions.all
        first.places.append((TopicPartition("t", 0), 1))  # where its marker lies, which no reader gets
        first.fate = Fate.UNKNOWN
        with pytest.raises(SimulationError, match="is committed at t-0 offset 0 and aborted at t-0 offset 1"):
            simulation.check()


# Outputs: exactly once


def transforming(protocol: str, seed: int = 1, pause_s: float = 0.3) -> Simulation:
    """Two members that write an output of each record of ``t`` to ``out``."""
    simulation = Simulation(seed=seed, topics={"t": 3, "out": 2}, nodes=1 + 2 * (seed % 2))
    config = {"group.protocol": protocol}
    for name in ("a", "b"):
        simulation.start(name, transformer("g", ["t"], "out", config, pause_s=pause_s))
    simulation.start("shop", writer(["t"], 60, 0.1))
    return simulation


def finish(simulation: Simulation) -> None:
    """Everything has its output."""
    simulation.run_until(lambda: simulation.programs["shop"].is_done, 120)
    simulation.run_until(lambda: simulation.history.outputs.are_complete(simulation.broker.core), 120)
    simulation.check()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", seeds(1))
def test_each_record_has_its_output_exactly_once_whatever_crashes(seed: int, protocol: str) -> None:
    with transforming(protocol, seed) as simulation:
        for _ in range(6):
            simulation.run(simulation.rng.choice([0.3, 1, 4]))
            program = simulation.programs[simulation.rng.choice("ab")]
            what = simulation.rng.choice(["crash", "kill", "cut", "freeze"])
            if what == "crash":
                simulation.broker.crash()
                simulation.run(simulation.rng.choice([0.05, 1]))
                simulation.broker.restart()
            elif what == "kill":
                program.kill(silently=simulation.rng.random() < 0.5)
                program.restart()
            elif what == "cut":
                simulation.network.cut(program.name)
                simulation.run(simulation.rng.choice([2, 25]))
                simulation.network.heal()
            else:
                program.freeze(simulation.rng.choice([2, 25, 60]))
            simulation.check()
        finish(simulation)
        written = sum(map(len, simulation.history.acknowledged.values()))
        assert written >= 2 * 50, "records and their outputs"


def test_a_record_whose_output_is_committed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a program that does not commit its offsets, and is started again."""

    async def forget(self: SimulatedProducer, offsets: object, group_metadata: object) -> None:
        """The offsets are no part of the transaction."""

    monkeypatch.setattr(SimulatedProducer, "send_offsets_to_transaction", forget)
    with transforming("classic") as simulation:
        simulation.run(10)
        simulation.check()
        simulation.programs["a"].kill()
        simulation.programs["a"].restart()
        simulation.run(60)
        with pytest.raises(
            SimulationError, match=r"the output of t-\d offset \d+ is committed 2 times in 'out'"
        ):
            simulation.check()


def test_a_record_without_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a program that commits, in its transaction, the offset of more than it has worked on."""
    sent = SimulatedProducer.send_offsets_to_transaction

    async def ahead(self: SimulatedProducer, offsets: dict[Any, Any], group_metadata: Any) -> None:
        await sent(self, {each: at.offset + 1 for each, at in offsets.items()}, group_metadata)

    monkeypatch.setattr(SimulatedProducer, "send_offsets_to_transaction", ahead)
    with transforming("classic") as simulation:
        simulation.run(4)
        for name in ("a", "b"):
            simulation.programs[name].kill()
            simulation.programs[name].restart()
        simulation.run(60)
        with pytest.raises(
            SimulationError, match=r"committed t-\d up to \d+, and 'out' has no output of the record at \d+"
        ):
            simulation.check()


async def commits_late(program: Program, protocol: str) -> None:
    """Commits all partitions as the member that it was before another one got some of them."""
    place = [TopicPartition("t", number) for number in range(3)]
    settings = {"bootstrap.servers": program.bootstrap_servers, "group.id": "g", "group.protocol": protocol}
    async with (
        program.producer({"transactional.id": "late"}) as producer,
        AsyncConsumer(settings, enable_auto_commit=False) as consumer,
    ):
        await producer.init_transactions()
        await consumer.subscribe("t")
        while len(consumer.assignment()) < 3:
            await consumer.poll(0.1)
        before = consumer.group_metadata()
        while len(consumer.assignment()) == 3 or consumer.group_metadata() == before:
            await consumer.poll(0.1)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(dict.fromkeys(place, 0), before)


@pytest.mark.parametrize(
    ("protocol", "kind", "broken", "refused"),
    [
        ("classic", ClassicGroup, "commit_code", "ILLEGAL_GENERATION"),
        ("consumer", ConsumerGroup, "partition_code", "STALE_MEMBER_EPOCH"),
    ],
)
def test_a_group_that_takes_offsets_of_the_past(
    monkeypatch: pytest.MonkeyPatch, protocol: str, kind: type[Any], broken: str, refused: str
) -> None:
    for patched in (False, True):
        if patched:
            monkeypatch.setattr(kind, broken, lambda self, *args, **more: codes.NONE)
        with Simulation(topics={"t": 3}) as simulation:
            simulation.start("late", lambda program: commits_late(program, protocol))
            simulation.run(5)
            simulation.start("next", member("g", ["t"], quick, {"group.protocol": protocol}))
            told = "accepted in a transaction of 'late': t-0 of member" if patched else refused
            with pytest.raises(SimulationError, match=told):
                simulation.run(60)
