"""Transactions in a simulation: readers of committed records get those, whatever crashes; what breaks that is told."""

from __future__ import annotations

import asyncio

import pytest
from tests.luck import seeds

from kadence import AsyncConsumer, KafkaError, OffsetAndMetadata, ProducerFencedError, Record, TopicPartition
from kadence.broker.storage import Partition
from kadence.broker.storage.aborted import Aborted
from kadence.testing.simulation import Program, Simulation, SimulationError, member
from kadence.testing.simulation.transactions import Fate

COMMITTED = {"isolation.level": "read_committed"}


async def quick(program: Program, record: Record) -> None:
    """Process a record in no time."""


async def writes(program: Program) -> None:
    """Transactions over two partitions, of which every third is aborted."""
    for attempt in range(1_000):
        producer = program.producer({"transactional.id": "tx"})
        try:
            await producer.init_transactions()
            for number in range(1_000):
                if program.stopping.is_set():
                    return
                producer.begin_transaction()
                values = [f"{program.lives}.{attempt}.{number}.{part}".encode() for part in range(2)]
                await asyncio.gather(
                    *(producer.send("t", value, partition=part) for part, value in enumerate(values))
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


@pytest.mark.parametrize("seed", seeds(6))
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
        producer = program.producer({"transactional.id": "tx"})
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"of the first", partition=0)
        await asyncio.sleep(10)
        try:
            await producer.commit_transaction()
        except ProducerFencedError:
            return "fenced"
        return "committed"

    async def second(program: Program) -> None:
        producer = program.producer({"transactional.id": "tx"})
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"of the second", partition=0)
        await producer.commit_transaction()

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
        producer = program.producer({"transactional.id": "tx"})
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
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
