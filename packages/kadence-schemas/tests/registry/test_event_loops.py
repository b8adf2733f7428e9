"""On an event loop nothing waits for a registry's answer but who needs it. On the embedded broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE
from tests.registry.cases import record
from tests.registry.registry_server import RegistryServer

from kadence import (
    AsyncConsumer,
    AsyncProducer,
    Broker,
    ClosedError,
    Consumer,
    Producer,
    Retry,
    SchemaRegistryError,
    SerializationError,
)
from kadence_schemas import AvroDeserializer, AvroSerializer, SchemaRegistryClient
from kadence_schemas.settings import RegistryOptions
from kadence_testing.schema_registry import RegistryRequest

FIRST = record("First", ("id", "int"))
SECOND = record("Second", ("name", "string"))


class SlowRegistry(RegistryServer):
    """Answers nothing about ids before a turning event loop says so.

    Attributes:
        slow: how the paths begin of what waits.
        asked_for: the paths of what waits. has_waited: whether no loop said so in time: it was blocked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[str] = []
        self.has_waited = False
        self.is_slow = False
        self.slow = "/schemas/ids/"
        self.may_answer = threading.Event()

    def answer(self, request: RegistryRequest) -> tuple[int, bytes]:
        if self.is_slow and request.path.startswith(self.slow):
            self.asked_for.append(request.path)
            if not self.may_answer.wait(PATIENCE / 8):
                self.has_waited = True
        return super().answer(request)


@pytest.fixture
def registry() -> Iterator[SlowRegistry]:
    with SlowRegistry() as registry:
        yield registry
        registry.may_answer.set()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"dead": 1}) as broker:
        yield broker


def client(registry: RegistryServer) -> SchemaRegistryClient:
    """One that knows nothing yet."""
    return SchemaRegistryClient._of(RegistryOptions((registry.url,), retries=0), lambda _: None)


def write(
    broker: Broker, registry: SlowRegistry, topic: str, schema: str, *values: Any, partition: int = 0
) -> None:
    serializer = AvroSerializer(client(registry), schema)
    with Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=serializer) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)
    registry.is_slow = True


def reading(broker: Broker, deserializer: Any, *topics: str, **more: Any) -> AsyncConsumer[Any, Any]:
    return AsyncConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
        **more,
    )


async def turning_until(is_so: Callable[[], object]) -> None:
    """Turn the loop until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - the registry's thread says so
            await asyncio.sleep(0.001)


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, PATIENCE)

    asyncio.run(bounded())


async def by_poll(consumer: AsyncConsumer[Any, Any]) -> Any:
    while not (records := await consumer.poll(1)):
        pass
    return [record.value for record in records]


async def by_iteration(consumer: AsyncConsumer[Any, Any]) -> Any:
    return [(await anext(consumer.__aiter__())).value]


async def as_arrow(consumer: AsyncConsumer[Any, Any]) -> Any:
    while not (table := await consumer.poll_arrow(1, value="avro")).num_rows:
        pass
    return table["value"].to_pylist()


async def processed(consumer: AsyncConsumer[Any, Any]) -> Any:
    values: list[Any] = []

    async def handle(each: Any) -> None:
        values.append(each.value)
        consumer.stop()

    await consumer.process(handle)
    return values


async def processed_in_batches(consumer: AsyncConsumer[Any, Any]) -> Any:
    values: list[Any] = []

    async def handle(records: Any) -> None:
        values.extend(each.value for each in records)
        consumer.stop()

    await consumer.process(handle, batch=(1, 0.1))
    return values


@pytest.mark.parametrize("read", [by_poll, by_iteration, as_arrow, processed, processed_in_batches])
def test_the_loop_turns_while_the_registry_is_asked(
    broker: Broker, registry: SlowRegistry, read: Callable[[Any], Awaitable[Any]]
) -> None:
    topic = f"turns-{read.__name__}"
    write(broker, registry, topic, FIRST, {"id": 1})

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))) as consumer:
            await consumer.assign([(topic, 0)])
            reader = asyncio.ensure_future(read(consumer))
            await turning_until(lambda: registry.asked_for)
            assert not reader.done()
            registry.may_answer.set()
            assert await reader == [{"id": 1}]

    run(work())
    assert not registry.has_waited
    assert len(registry.asked_for) == 1


class Lenient:
    """A deserialiser around another one that gives None for what is bad."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def deserialize(self, topic: str, headers: Any, data: bytes, /) -> Any:
        try:
            return self.inner.deserialize(topic, headers, data)
        except Exception:  # noqa: BLE001 - as programs do
            return None


@pytest.mark.parametrize("read", [by_poll, by_iteration, processed])
def test_a_deserialiser_that_takes_all_errors_for_bad_data_gets_the_answer(
    broker: Broker, registry: SlowRegistry, read: Callable[[Any], Awaitable[Any]]
) -> None:
    topic = f"lenient-{read.__name__}"
    write(broker, registry, topic, FIRST, {"id": 1})
    registry.may_answer.set()

    async def work() -> None:
        async with reading(broker, Lenient(AvroDeserializer(client(registry)))) as consumer:
            await consumer.assign([(topic, 0)])
            assert await read(consumer) == [{"id": 1}]

    run(work())


def test_other_partitions_go_on_while_one_waits_for_its_schema(
    broker: Broker, registry: SlowRegistry
) -> None:
    write(broker, registry, "known", FIRST, {"id": 1}, {"id": 2})
    write(broker, registry, "unknown", SECOND, {"name": "a"}, {"name": "b"})
    registry.is_slow = False

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))) as consumer:
            await consumer.assign([("known", 0)])
            assert await by_poll(consumer)
            registry.is_slow = True
            await consumer.assign([("known", 0), ("unknown", 0)])
            await consumer.seek_to_beginning([("known", 0)])
            found: list[Any] = []
            while len(found) < 2 or not registry.asked_for:
                found += [each.value for each in await consumer.poll(0.05, max_records=1)]
            assert {"name": "a"} not in found
            # A poll that ends in time has nothing.
            assert not await consumer.poll(0)
            registry.may_answer.set()
            found = []
            while len(found) < 2:
                found += [each.value for each in await consumer.poll(1)]
            assert found == [{"name": "a"}, {"name": "b"}]

    run(work())
    assert not registry.has_waited
    assert len(registry.asked_for) == 1


@pytest.mark.parametrize("errors", ["raise", "skip"])
@pytest.mark.parametrize("read", [by_poll, by_iteration, as_arrow])
def test_a_registry_that_is_away_is_told_and_makes_no_record_bad(
    broker: Broker, registry: SlowRegistry, read: Callable[[Any], Awaitable[Any]], errors: str
) -> None:
    topic = f"away-{errors}-{read.__name__}"
    write(broker, registry, topic, FIRST, {"id": 1}, {"id": 2})
    registry.may_answer.set()
    registry.failures = 2

    async def work() -> None:
        async with reading(
            broker, AvroDeserializer(client(registry)), deserialization_errors=errors
        ) as consumer:
            await consumer.assign([(topic, 0)])
            for _ in range(2):
                with pytest.raises(SchemaRegistryError, match="500"):
                    await read(consumer)
            assert await consumer.position((topic, 0)) == 0
            assert (await read(consumer))[0] == {"id": 1}

    run(work())


def test_a_registry_that_is_away_makes_no_dead_letters(broker: Broker, registry: SlowRegistry) -> None:
    write(broker, registry, "no-letters", FIRST, {"id": 1})
    registry.may_answer.set()
    registry.failures = 2

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))) as consumer:

            async def handle(each: Any) -> None:
                raise AssertionError(each)

            await consumer.assign([("no-letters", 0)])
            with pytest.raises(SchemaRegistryError, match="500"):
                await consumer.process(handle, dead_letter="dead", retry=Retry(attempts=2, backoff=0))
            assert await consumer.position(("no-letters", 0)) == 0

    run(work())
    assert registry.failures == 0


@pytest.mark.parametrize("batch", [None, (1, 0.1)], ids=["alone", "batch"])
def test_a_wait_for_the_registry_is_no_time_of_the_handler(
    broker: Broker, registry: SlowRegistry, batch: tuple[int, float] | None
) -> None:
    topic = f"slow-{batch is None}"
    write(broker, registry, topic, FIRST, {"id": 1})
    timeout = 0.1
    handled: list[Any] = []

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))) as consumer:

            async def handle(given: Any) -> None:
                handled.append(given)
                consumer.stop()

            await consumer.assign([(topic, 0)])
            processing = asyncio.ensure_future(
                consumer.process(handle, timeout=timeout, dead_letter="dead", batch=batch)
            )
            await turning_until(lambda: registry.asked_for)
            await asyncio.sleep(3 * timeout)
            registry.may_answer.set()
            assert (await processing).dead_lettered == 0

    run(work())
    assert len(handled) == 1


def test_many_workers_wait_for_one_request(broker: Broker, registry: SlowRegistry) -> None:
    write(broker, registry, "many", FIRST, *({"id": each} for each in range(20)))
    done: list[int] = []

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))) as consumer:

            async def handle(each: Any) -> None:
                done.append(each.value["id"])
                if len(done) == 20:
                    consumer.stop()

            await consumer.assign([("many", 0)])
            processing = asyncio.ensure_future(consumer.process(handle, workers=10, order="none"))
            await turning_until(lambda: registry.asked_for)
            registry.may_answer.set()
            await processing

    run(work())
    assert sorted(done) == list(range(20))
    assert len(registry.asked_for) == 1


@pytest.mark.parametrize("read", [by_poll, by_iteration, as_arrow])
def test_a_cancelled_wait_for_a_schema_loses_nothing(
    broker: Broker, registry: SlowRegistry, read: Callable[[Any], Awaitable[Any]]
) -> None:
    topic = f"cancelled-{read.__name__}"
    write(broker, registry, topic, FIRST, {"id": 1})

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))) as consumer:
            await consumer.assign([(topic, 0)])
            reader = asyncio.ensure_future(read(consumer))
            await turning_until(lambda: registry.asked_for)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert await consumer.position((topic, 0)) == 0
            registry.may_answer.set()
            assert await read(consumer) == [{"id": 1}]

    run(work())
    assert len(registry.asked_for) == 1


def test_coroutine_functions_of_a_consumer_for_threads_share_a_loop_that_turns(
    broker: Broker, registry: SlowRegistry
) -> None:
    write(broker, registry, "shared", FIRST, {"id": 1})
    registry.may_answer.set()
    values: list[Any] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client(registry)),
    ) as consumer:

        async def handle(each: Any) -> None:
            values.append(each.value)
            consumer.stop()

        consumer.assign([("shared", 0)])
        consumer.process(handle)
    assert values == [{"id": 1}]


def test_threads_wait_though_a_loop_runs(broker: Broker, registry: SlowRegistry) -> None:
    """A notebook has a running loop, and calls a `Consumer` in it."""
    write(broker, registry, "notebook", FIRST, {"id": 1})
    registry.may_answer.set()

    async def work() -> None:
        async with reading(broker, AvroDeserializer(client(registry))):
            with Consumer(
                bootstrap_servers=broker.bootstrap_servers,
                auto_offset_reset="earliest",
                value_deserializer=AvroDeserializer(client(registry)),
            ) as consumer:
                consumer.assign([("notebook", 0)])
                assert next(consumer).value == {"id": 1}

    run(work())


# ---------------------------------------------------------------- writing


class Marking:
    """A serialiser around another one that adds a header before it, and takes what that raises for bad data."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def serialize(self, topic: str, headers: Any, data: Any, /) -> bytes:
        headers.append(("by", b"marking"))
        try:
            return bytes(self.inner.serialize(topic, headers, data))
        except Exception:  # noqa: BLE001 - as programs do
            return b"bad"


def sending(broker: Broker, registry: SlowRegistry, **more: Any) -> AsyncProducer:
    """A producer whose registry, once asked, waits for the loop."""
    registry.is_slow, registry.slow = True, "/subjects/"
    return AsyncProducer(
        bootstrap_servers=broker.bootstrap_servers,
        **{"value_serializer": AvroSerializer(client(registry), FIRST), **more},
    )


def written(broker: Broker, registry: SlowRegistry, topic: str) -> list[Any]:
    registry.is_slow = False
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client(registry)),
    ) as consumer:
        consumer.assign([(topic, 0)])
        found: list[Any] = []
        end = consumer.end_offsets([(topic, 0)])
        while len(found) < sum(end.values()):
            found += consumer.poll(1)
        return found


async def known(producer: AsyncProducer, topic: str) -> None:
    """Nothing but the registry is to be waited for."""
    await producer.partitions_for(topic)


@pytest.mark.parametrize("warm", [False, True], ids=["topic-unknown", "topic-known"])
def test_the_loop_turns_while_a_serialiser_asks(
    broker: Broker, registry: SlowRegistry, *, warm: bool
) -> None:
    topic = f"asks-{warm}"
    broker.create_topic(topic, 1)

    async def work() -> None:
        key = AvroSerializer(client(registry), FIRST, is_key=True)
        async with sending(broker, registry, key_serializer=key) as producer:
            if warm:
                await known(producer, topic)
            sender = asyncio.ensure_future(producer.send_and_wait(topic, {"id": 1}, {"id": 2}))
            await turning_until(lambda: registry.asked_for)
            assert not sender.done()
            registry.may_answer.set()
            assert (await sender).offset == 0

    run(work())
    assert not registry.has_waited
    assert len(registry.asked_for) == 2
    assert [each.value for each in written(broker, registry, topic)] == [{"id": 1}]


def test_records_of_tasks_keep_the_order_in_which_they_were_sent(
    broker: Broker, registry: SlowRegistry
) -> None:
    broker.create_topic("ordered", 1)

    async def work() -> None:
        async with sending(broker, registry) as producer:
            # A topic that takes the short way, but for the registry.
            await producer.send("ordered", None)
            senders = [asyncio.ensure_future(producer.send("ordered", {"id": each})) for each in range(20)]
            await turning_until(lambda: registry.asked_for)
            registry.may_answer.set()
            # The answer comes while the loop does not turn: no task has noticed when the last ones are sent.
            while not producer._config.value_serializer._writing._registry._registered._known:
                threading.Event().wait(0.001)
            senders += [
                asyncio.ensure_future(producer.send("ordered", {"id": each})) for each in range(20, 40)
            ]
            await asyncio.gather(*senders)

    run(work())
    assert len(registry.asked_for) == 1
    assert [each.value and each.value["id"] for each in written(broker, registry, "ordered")] == [
        None,
        *range(40),
    ]


def test_other_topics_go_on_while_one_waits(broker: Broker, registry: SlowRegistry) -> None:
    for topic in ("waits", "goes-on"):
        broker.create_topic(topic, 1)

    async def work() -> None:
        async with sending(broker, registry) as producer:
            sender = asyncio.ensure_future(producer.send("waits", {"id": 1}))
            await turning_until(lambda: registry.asked_for)
            assert (await producer.send_and_wait("goes-on", None)).offset == 0
            assert not sender.done()
            registry.may_answer.set()
            await sender

    run(work())


def test_a_cancelled_send_that_waits_for_a_schema_hands_nothing_over(
    broker: Broker, registry: SlowRegistry
) -> None:
    broker.create_topic("cancelled", 1)

    async def work() -> None:
        async with sending(broker, registry) as producer:
            senders = [asyncio.ensure_future(producer.send("cancelled", {"id": each})) for each in range(3)]
            await turning_until(lambda: registry.asked_for)
            senders[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await senders[0]
            registry.may_answer.set()
            await asyncio.gather(*senders[1:])
            assert not producer._calls.short_way.held

    run(work())
    assert [each.value["id"] for each in written(broker, registry, "cancelled")] == [1, 2]


def test_a_serialiser_that_takes_all_errors_for_bad_data_gets_the_answer_for_writing(
    broker: Broker, registry: SlowRegistry
) -> None:
    registry.may_answer.set()

    async def work() -> None:
        serializer = Marking(AvroSerializer(client(registry), FIRST))
        async with sending(broker, registry, value_serializer=serializer) as producer:
            await producer.send("marked", {"id": 1}, headers=[("a", b"b")])

    run(work())
    [found] = written(broker, registry, "marked")
    assert found.value == {"id": 1}
    assert found.headers == (("a", b"b"), ("by", b"marking"))


def test_a_registry_that_is_away_is_told_to_each_who_sends(broker: Broker, registry: SlowRegistry) -> None:
    async def work() -> None:
        async with sending(broker, registry) as producer:
            registry.failures = 1
            senders = [asyncio.ensure_future(producer.send("told", {"id": each})) for each in range(5)]
            await turning_until(lambda: registry.asked_for)
            registry.may_answer.set()
            for sender in senders:
                with pytest.raises(
                    SerializationError, match="the value of a record for topic 'told'"
                ) as told:
                    await sender
                assert isinstance(told.value.__cause__, SchemaRegistryError)
            # One question for all, and the next call asks again.
            assert len(registry.asked_for) == 1
            await producer.send("told", {"id": 5})

    run(work())
    assert [each.value["id"] for each in written(broker, registry, "told")] == [5]


def test_a_producer_that_is_closed_ends_who_waits_for_a_schema(
    broker: Broker, registry: SlowRegistry
) -> None:
    async def work() -> None:
        producer = sending(broker, registry)
        sender = asyncio.ensure_future(producer.send("closed", {"id": 1}))
        await turning_until(lambda: registry.asked_for)
        await producer.close()
        with pytest.raises(ClosedError):
            await sender
        registry.may_answer.set()

    run(work())
