"""Programs for most simulations: a group member around your handler, a writer, and a transactional program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.consumer.async_consumer import AsyncConsumer
from kadence.errors import FencedInstanceIdError, KafkaError, KafkaTimeoutError, UnreleasedInstanceIdError
from kadence.records import Record
from kadence.types import TopicPartition
from kadence_testing.simulation.outputs import output_of

if TYPE_CHECKING:
    from kadence.consumer.decoded_records import Records
    from kadence_testing.simulation.producer import SimulatedProducer
    from kadence_testing.simulation.simulation import Main, Program

__all__ = ["Handler", "member", "transformer", "writer"]

Handler = Callable[["Program", Record], Awaitable[None]]
"""A coroutine function that processes one record in a program. It may `asyncio.sleep`, and raise."""

_POLL_S: Final = 1.0
_PAUSE_S: Final = 5.0


def member(
    group_id: str,
    topics: Iterable[str],
    handler: Handler,
    config: Mapping[str, Any] | None = None,
    *,
    commits: bool = False,
) -> Main:
    """A program that reads topics in a group, record by record, until `Program.stop`.

    It reports processed records to the simulation's history, which does not allow a commit that skips a record.
    It uses the listener of `Program.attach` and carries out the actions of `Program.order`.

    Args:
        handler: processes one record. config: Kafka's dotted keys, e.g. ``{"group.protocol": "consumer"}``.
        commits: whether it calls commit() after the records of each poll. If not, auto-commit commits.
    """
    names = list(topics)

    async def main(program: Program) -> None:
        settings = {
            "bootstrap.servers": program.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": not commits,
            **(config or {}),
        }
        if settings["auto.offset.reset"] != "earliest":
            program.begins_late(group_id)
        if settings.get("isolation.level") == "read_committed":
            program.reads_committed(group_id)
        while not program.stopping.is_set():
            try:
                await read(program, settings)
            except (FencedInstanceIdError, UnreleasedInstanceIdError, KafkaTimeoutError):
                # Another process has the group.instance.id, or one that died had it a moment ago; or the program was
                # frozen while it closed its consumer. Wait, as a supervisor does.
                await program.sleep(_PAUSE_S)

    async def read(program: Program, settings: Mapping[str, Any]) -> None:
        async with AsyncConsumer(settings) as consumer:
            await consumer.subscribe(names, listener=program.attach(consumer))
            while not program.stopping.is_set():
                records = await consumer.poll(_POLL_S)
                for record in records:
                    await handler(program, record)
                    program.has_processed(
                        group_id, TopicPartition(record.topic, record.partition), record.offset
                    )
                if commits and records:
                    await _commit(consumer)
                await program.obey()

    return main


def writer(topics: Iterable[str], count: int, pause_s: float) -> Main:
    """A program that writes ``count`` numbered records, each to one of the topics, and returns how many were written.

    A record that fails is not written again.
    """
    names = list(topics)

    async def main(program: Program) -> int:
        written = 0
        async with program.producer() as producer:
            for number in range(count):
                topic = program.rng.choice(names)
                if await program.sleep(pause_s * 2 * program.rng.random()):
                    break
                try:
                    await producer.send_and_wait(topic, f"{program.name} {program.lives} {number}".encode())
                except KafkaError:
                    continue
                written += 1
        return written

    return main


def transformer(
    group_id: str,
    topics: Iterable[str],
    into: str,
    config: Mapping[str, Any] | None = None,
    *,
    pause_s: float = 0.0,
    transaction_timeout_s: float = 20.0,
) -> Main:
    """A program that reads topics in a group and writes to another topic, exactly once, until it is asked to stop.

    The records of a poll, their outputs and their offsets are one transaction. Several programs of one group may run.
    The simulation's history checks that no output is missing or duplicated; nothing else may write to the topic of
    outputs. Otherwise it is like a `member`.

    Args:
        config: of the consumer, Kafka's dotted keys.
        pause_s: how long a transaction is open on average. transaction_timeout_s: how long it may be.
    """
    names = list(topics)

    async def main(program: Program) -> None:
        settings = {
            "bootstrap.servers": program.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **(config or {}),
            "enable.auto.commit": False,
        }
        program.makes_outputs(group_id, names, into)
        while not program.stopping.is_set():
            try:
                await transform(program, settings)
            except KafkaError:
                # Another process has the transactional id, or the outcome is unknown. A new producer resolves both.
                await program.sleep(_PAUSE_S)

    async def transform(program: Program, settings: Mapping[str, Any]) -> None:
        outputs = {
            "transactional.id": f"{group_id}-{program.name}",
            "transaction.timeout.ms": round(transaction_timeout_s * 1000),
        }
        async with program.producer(outputs) as producer:
            await producer.init_transactions()
            async with AsyncConsumer(settings) as consumer:
                await consumer.subscribe(names, listener=program.attach(consumer))
                while not program.stopping.is_set():
                    records = await consumer.poll(_POLL_S)
                    if records:
                        await transact(program, consumer, producer, records)
                    await program.obey()

    async def transact(
        program: Program, consumer: AsyncConsumer, producer: SimulatedProducer, records: Records
    ) -> None:
        group = consumer.group_metadata()
        await producer.begin_transaction()
        try:
            sent = await asyncio.gather(
                *(producer.send_and_wait(into, output_of(record), record.key) for record in records),
                return_exceptions=True,
            )
            for failed in (each for each in sent if isinstance(each, BaseException)):
                raise failed
            await asyncio.sleep(pause_s * 2 * program.rng.random())
            await producer.send_offsets_to_transaction(records.next_offsets(), group)
            await producer.commit_transaction()
        except KafkaError:
            await producer.abort_transaction()
            for partition, read in records.by_partition().items():
                if partition in consumer.assignment():
                    await consumer.seek(partition, read[0].offset)

    return main


async def _commit(consumer: AsyncConsumer) -> None:
    try:
        await consumer.commit()
    except KafkaError:
        # The partitions have gone, or the broker is away: their next owner processes the records again.
        return
