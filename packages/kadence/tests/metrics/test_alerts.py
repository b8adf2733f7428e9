"""The alerts of docs/production.md: each fires in the situation that it is for, and none when all is well or meant.

Real consumers bring the metrics, in a simulation's time, and are scraped twice a minute of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.metrics.prometheus import Prometheus

from kadence import AsyncConsumer, AsyncProducer, Record, TopicPartition, errors
from kadence_testing.simulation import Program, Simulation, member, writer

PAGE: Final = Path(__file__).resolve().parents[4] / "docs" / "production.md"
RULES: Final = [
    rule
    for block in re.findall(r"^```yaml\n(groups:\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for group in yaml.safe_load(block)["groups"]
    for rule in group["rules"]
]
SCRAPE_S: Final = 30.0
GROUP: Final = "billing"


class Watched:
    """A simulation that Prometheus watches."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.prometheus = Prometheus(RULES)
        self.workers: list[Program] = []
        self.producers: list[AsyncProducer] = []

    def work(
        self,
        name: str = "worker",
        handler: Callable[[Program, Record], Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Program:
        """Start a member of the group, which is scraped while it runs."""
        main = member(GROUP, ["orders"], handler or at_once, settings)
        self.workers.append(self.simulation.start(name, main))
        return self.workers[-1]

    def process(self, handler: Callable[[Record], Any], **arguments: Any) -> None:
        """Start a member that runs `AsyncConsumer.process`."""

        async def main(program: Program) -> None:
            settings = {"bootstrap.servers": program.bootstrap_servers, "auto.offset.reset": "earliest"}
            async with AsyncConsumer({**settings, "group.id": GROUP}) as consumer:
                await consumer.subscribe(["orders"], listener=program.attach(consumer))
                await consumer.process(handler, **arguments)

        self.workers.append(self.simulation.start("worker", main))

    def write(self, count: int, pause_s: float = 5.0) -> None:
        self.simulation.start("shop", writer(["orders"], count, pause_s))

    def minutes(self, number: float) -> None:
        """Let this time pass."""
        for _ in range(round(number * 60 / SCRAPE_S)):
            self.simulation.run(SCRAPE_S)
            alive = [each.consumer for each in self.workers if each.is_running and each.consumer is not None]
            self.prometheus.turn(self.simulation.now, [*alive, *self.producers])


async def at_once(program: Program, record: Record) -> None:
    """Work that takes no time."""


def refusing(data: bytes) -> bytes:
    """A deserialiser."""
    if data == b"bad":
        raise ValueError("bad")
    return data


def bad_record(watched: Watched) -> None:
    async def main(program: Program) -> None:
        async with program.producer() as producer:
            await producer.send_and_wait("orders", b"bad", partition=0)

    watched.simulation.start("shop", main)


def reading_on(settings: Mapping[str, Any], partition: int = 0) -> Callable[[Program], Any]:
    """A program that reads a partition, and polls on whatever a poll raises."""

    async def main(program: Program) -> None:
        async with AsyncConsumer(
            {"bootstrap.servers": program.bootstrap_servers, "auto.offset.reset": "earliest", **settings}
        ) as consumer:
            program.attach(consumer)
            await consumer.assign([TopicPartition("orders", partition)])
            while not program.stopping.is_set():
                try:
                    await consumer.poll(1.0)
                except errors.KafkaError:
                    await asyncio.sleep(10)

    return main


# ---------------------------------------------------------------- situations


def all_is_well(watched: Watched) -> None:
    """Three members read what transactions commit; one hangs for a second, and a rolling update replaces two.

    The third one runs `process`.
    """

    async def work(record: Record) -> None:
        await asyncio.sleep(2)

    async def sell(program: Program) -> None:
        async with program.producer({"transactional.id": "shop"}) as producer:
            watched.producers.append(producer)
            await producer.init_transactions()
            for number in range(200):
                await producer.begin_transaction()
                await (await producer.send("orders", b"%d" % number))
                await asyncio.sleep(2)
                await producer.commit_transaction()
                await asyncio.sleep(5)

    committed = {"isolation.level": "read_committed"}
    watched.simulation.start("shop", sell)
    members = [watched.work(name, settings=committed) for name in ("one", "two")]
    watched.process(work, dead_letter="orders.dead")
    watched.minutes(2)
    members[0].freeze(1)  # a hiccup, as machines have them
    watched.minutes(8)
    for each in members:
        each.stop()
        watched.minutes(1)
        each.restart()
        watched.minutes(1)
    watched.minutes(8)


def paused_on_purpose(watched: Watched) -> None:
    async def pause(consumer: AsyncConsumer) -> None:
        consumer.pause([TopicPartition("orders", 0)])

    worker = watched.work()
    watched.write(100)
    watched.minutes(1)
    worker.order(pause)
    watched.minutes(7)


def leaves_its_group(watched: Watched) -> None:
    """Its metrics are scraped as long as the program keeps it: before it joins, between groups, when it is closed."""

    async def main(program: Program) -> None:
        consumer = AsyncConsumer({"bootstrap.servers": program.bootstrap_servers, "group.id": GROUP})
        program.attach(consumer)
        await asyncio.sleep(60)
        for _ in range(2):
            await consumer.subscribe(["orders"])
            for _ in range(60):
                await consumer.poll(1.0)
            await consumer.unsubscribe()
            await asyncio.sleep(60)
        await consumer.close()
        await asyncio.sleep(120)

    watched.workers.append(watched.simulation.start("worker", main))
    watched.minutes(7)


def too_slow(watched: Watched) -> None:
    """It takes 4 records a second, in polls of two minutes, while 12 come."""

    async def slowly(program: Program, record: Record) -> None:
        await asyncio.sleep(0.25)

    async def flood(program: Program) -> None:
        async with program.producer() as producer:
            for second in range(40 * 60):
                for number in range(12_000 if second == 0 else 12):
                    last = await producer.send("orders", b"%d %d" % (second, number), partition=0)
                await last
                await asyncio.sleep(1)

    watched.simulation.start("shop", flood)
    watched.work(handler=slowly)
    watched.minutes(20)


def open_transaction(watched: Watched) -> None:
    async def hang(program: Program) -> None:
        patient = {"transactional.id": "shop", "transaction.timeout.ms": 900_000}
        async with program.producer(patient) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("orders", b"one"))
            await asyncio.sleep(800)

    watched.work(settings={"isolation.level": "read_committed"})
    watched.simulation.start("shop", hang)
    watched.minutes(8)


def poll_raises(watched: Watched) -> None:
    bad_record(watched)
    watched.workers.append(
        watched.simulation.start(
            "worker", reading_on({"value.deserializer": refusing, "client.id": "worker"})
        )
    )
    watched.minutes(2)


def record_is_skipped(watched: Watched) -> None:
    skipping = {"value.deserializer": refusing, "deserialization.errors": "skip"}
    watched.workers.append(watched.simulation.start("worker", reading_on(skipping)))
    watched.minutes(1)
    bad_record(watched)
    watched.minutes(2)


def loop_stalls(watched: Watched) -> None:
    async def third_is_slow(program: Program, record: Record) -> None:
        await asyncio.sleep(200 if record.offset == 3 else 0)

    watched.work(handler=third_is_slow)
    watched.write(20)
    watched.minutes(6)


def partition_does_not_exist(watched: Watched) -> None:
    watched.workers.append(watched.simulation.start("worker", reading_on({}, partition=9)))
    watched.minutes(6)


def one_member_comes_and_goes(watched: Watched) -> None:
    watched.work()
    watched.write(200)
    watched.minutes(1)
    other = watched.work("other")
    for _ in range(7):
        watched.minutes(1)
        other.stop()
        watched.minutes(1)
        other.restart()


def cut_off(watched: Watched) -> None:
    watched.work()
    watched.minutes(1)
    watched.simulation.network.cut("worker")
    watched.minutes(2)


def machine_is_paused(watched: Watched) -> None:
    worker = watched.work()
    watched.minutes(1)
    worker.freeze(4)
    watched.minutes(1)


def record_runs_for_long(watched: Watched) -> None:
    async def third_is_slow(record: Record) -> None:
        await asyncio.sleep(600 if record.offset == 3 else 0)

    watched.process(third_is_slow)
    watched.write(60)
    watched.minutes(7)


def record_is_given_up(watched: Watched) -> None:
    async def refuse(record: Record) -> None:
        if record.value == b"bad":
            raise ValueError("bad")

    watched.process(refuse, dead_letter="orders.dead")
    watched.minutes(1)
    bad_record(watched)
    watched.minutes(1)


def shop(watched: Watched, settings: Mapping[str, Any], *, cut_s: float) -> None:
    """A producer of a record a second, which reaches no broker for ``cut_s``."""

    async def main(program: Program) -> None:
        async with program.producer(settings) as producer:
            watched.producers.append(producer)
            while not program.stopping.is_set():
                with contextlib.suppress(errors.KafkaError):
                    await producer.send("orders", bytes(1000))
                await asyncio.sleep(1)

    watched.simulation.start("shop", main)
    watched.minutes(2)
    watched.simulation.network.cut("shop")
    watched.minutes(cut_s / 60)
    watched.simulation.network.heal("shop")
    watched.minutes(1)


def records_expire(watched: Watched) -> None:
    shop(watched, {"delivery.timeout.ms": 60_000, "request.timeout.ms": 20_000}, cut_s=150)


def brokers_take_nothing(watched: Watched) -> None:
    patient = {"delivery.timeout.ms": 900_000, "buffer.memory": 100_000, "batch.size": 10_000}
    shop(watched, {**patient, "max.block.ms": 600_000}, cut_s=240)


@dataclass(frozen=True)
class Situation:
    """What happens, and which alerts it sets off beside the one that is for it."""

    happens: Callable[[Watched], None]
    others: frozenset[str] = frozenset()


SITUATIONS: Final = {
    "KafkaLagGrows": Situation(too_slow),
    # After five minutes both say it; this one says why.
    "KafkaTransactionOpen": Situation(open_transaction, frozenset({"KafkaPartitionNotRead"})),
    "KafkaPollRaises": Situation(poll_raises),
    "KafkaLoopStalls": Situation(loop_stalls),
    "KafkaPartitionNotRead": Situation(partition_does_not_exist),
    "KafkaRebalancesOften": Situation(one_member_comes_and_goes),
    "KafkaNoHeartbeat": Situation(cut_off),
    "KafkaNetworkThreadLate": Situation(machine_is_paused),
    "KafkaRecordsSkipped": Situation(record_is_skipped),
    "KafkaWorkHeldUp": Situation(record_runs_for_long),
    "KafkaDeadLetters": Situation(record_is_given_up),
    "KafkaSendsFail": Situation(records_expire),
    "KafkaProducerBufferFull": Situation(brokers_take_nothing),
}
LONG: Final = {"KafkaLagGrows", "KafkaTransactionOpen", "KafkaPartitionNotRead", "KafkaRebalancesOften"}
"""Situations that take many minutes of the simulation's time."""


def fired(happens: Callable[[Watched], None]) -> set[str]:
    with Simulation(seed=7, topics={"orders": 2, "orders.dead": 1}) as simulation:
        watched = Watched(simulation)
        happens(watched)
        return set(watched.prometheus.fired)


def test_each_alert_has_a_situation() -> None:
    assert {rule["alert"] for rule in RULES} == set(SITUATIONS)


@pytest.mark.parametrize(
    "alert", [pytest.param(each, marks=pytest.mark.heavy) if each in LONG else each for each in SITUATIONS]
)
def test_an_alert_fires_in_the_situation_that_it_is_for(alert: str) -> None:
    situation = SITUATIONS[alert]
    assert fired(situation.happens) == {alert, *situation.others}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(all_is_well, marks=pytest.mark.heavy),
        pytest.param(paused_on_purpose, marks=pytest.mark.heavy),
        leaves_its_group,
    ],
)
def test_no_alert_fires_when_all_is_well_or_meant(happens: Callable[[Watched], None]) -> None:
    assert fired(happens) == set()
