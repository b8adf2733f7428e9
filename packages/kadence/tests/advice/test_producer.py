"""Advice in errors of producers, of `read` and of clients' lives: each row is a mistake, its error, and the way out."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from datetime import UTC, date, datetime
from typing import Any

import pytest
from tests.advice.rows import Call, Row, raises

from kadence import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    read,
    stop_on_signals,
)
from kadence.errors import (
    ConfigError,
    ForkedError,
    IllegalStateError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)

PRODUCER = {
    "a text": Row(
        lambda p: p.send("t", "text"),
        SerializationError,
        "e.g. value.encode(); a Producer does that with value_serializer='string'",
        (lambda p: p.send("t", b"text").result(10),),
    ),
    "a topic that does not exist": Row(
        lambda p: p.send("made", b"v").result(10),
        UnknownTopicOrPartitionError,
        "create it, e.g. kadence topics create made --partitions 1",
        (lambda p: created(p, "made"), lambda p: sent(p, "made")),
        {"max_block_ms": 1000},
    ),
    "a record that is too large": Row(
        lambda p: p.send("t", b"v" * 3000),
        RecordTooLargeError,
        "more than max.request.size=2000; raise it (and the broker's message.max.bytes), or send something smaller",
        (lambda p: p.send("t", b"v" * 1000).result(10),),
        {"max_request_size": 2000},
    ),
    "transactions without an id": Row(
        lambda p: p.begin_transaction(),
        IllegalStateError,
        "create it with transactional.id",
        (),
    ),
    "a table without a topic": Row(
        lambda p: p.send_arrow(table(value=[b"v"])),
        SerializationError,
        "pass one to send_arrow(), or add a column 'topic' to the data",
        (
            lambda p: p.send_arrow(table(value=[b"v"]), "t").result(10),
            lambda p: p.send_arrow(table(value=[b"v"], topic=["t"])).result(10),
        ),
    ),
    "a row without a topic": Row(
        lambda p: p.send_arrow(table(value=[b"v"], topic=[None])),
        SerializationError,
        "set it in the column topic. A topic passed to send_arrow() is that of all rows",
        (
            lambda p: p.send_arrow(table(value=[b"v"], topic=[None]), "t").result(10),
            lambda p: p.send_arrow(table(value=[b"v"], topic=["t"])).result(10),
        ),
    ),
    "a table and another partitioner": Row(
        lambda p: p.send_arrow(table(value=[b"v"]), "t"),
        IllegalStateError,
        "give each row its partition, by a column 'partition' without nulls",
        (lambda p: p.send_arrow(table(value=[b"v"], partition=[0]), "t").result(10),),
        {"partitioner": "consistent_random"},
    ),
    "a column of another type": Row(
        lambda p: p.send_arrow(table(value=[1]), "t"),
        SerializationError,
        "the column 'value' must be binary or string, not int64; cast it first",
        (lambda p: p.send_arrow(cast(table(value=[1]), "string"), "t").result(10),),
    ),
    "a partition that is no integer": Row(
        lambda p: p.send_arrow(table(value=[b"v"], partition=[0.0]), "t"),
        SerializationError,
        "the column 'partition' must be an integer, not double; cast it first",
        (
            lambda p: p.send_arrow(cast(table(value=[b"v"], partition=[0.0]), "binary", "int32"), "t").result(
                10
            ),
        ),
    ),
}


def table(**columns: Any) -> Any:
    return pytest.importorskip("pyarrow").table(columns)


def cast(given: Any, *types: str) -> Any:
    """The table with its columns as these types."""
    import pyarrow as pa

    named = zip(given.column_names, types, strict=True)
    return given.cast(pa.schema([(name, pa.type_for_alias(kind)) for name, kind in named]))


def created(producer: Any, topic: str) -> None:
    with Admin(bootstrap_servers=list(producer._config.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic(topic, 1)])


def sent(producer: Producer, topic: str) -> None:
    """By a producer with more time, which a busy machine may need."""
    with Producer(bootstrap_servers=list(producer._config.bootstrap_servers)) as patient:
        patient.send(topic, b"v").result(10)


@pytest.mark.parametrize("row", PRODUCER.values(), ids=PRODUCER)
def test_a_producer_that_follows_the_advice_writes(row: Row, servers: str) -> None:
    with Producer(bootstrap_servers=servers, **row.settings) as producer:
        raises(row, producer)
        for right in row.right:
            right(producer)


@pytest.mark.parametrize(
    ("settings", "call"),
    [
        ({"value_serializer": "string"}, lambda p: p.send("t", "text").result(10)),
        ({"max_request_size": 4000}, lambda p: p.send("t", b"v" * 3000).result(10)),
        (
            {"transactional_id": "advice"},
            lambda p: (p.init_transactions(), p.begin_transaction(), p.abort_transaction()),
        ),
    ],
    ids=["serializer", "size", "transactions"],
)
def test_a_setting_that_a_producers_error_names(settings: dict[str, Any], call: Call, servers: str) -> None:
    with Producer(bootstrap_servers=servers, **settings) as producer:
        call(producer)


def reads(topic: str = "t", **given: Any) -> Call:
    return lambda servers: read(topic, bootstrap_servers=servers, **given)


def read_as(kind: Any) -> Call:
    """Reads a field as a type."""
    return lambda s: read("t", bootstrap_servers=s, value="json", errors="null", schema={"at": kind})


NAMED_TYPES = ("double", "int64", "string", "bool", "date32", "timestamp[us, tz=UTC]")
READ = {
    "bad records by a setting": Row(
        reads(deserialization_errors="skip"),
        ConfigError,
        "read() keeps bad records with errors='null'; leave out deserialization.errors",
        (reads("bad", value="json", errors="null"),),
    ),
    "how bad records are kept": Row(
        reads(value="json", errors="skip"),
        ValueError,
        "errors is 'raise' or 'null'",
        tuple(reads("numbers", value="json", errors=errors) for errors in ("raise", "null")),
    ),
    "a place that is no text": Row(
        reads(since=5),
        TypeError,
        "a date or time (2026-11-22, 2026-11-22T10:30, 2026-11-22T10:30Z), so long ago (-90s, -10m, -2h, -7d) or "
        "milliseconds since 1970 (time:1700000000000), a datetime, a date, or a mapping of offsets ({0: 1200})",
        tuple(
            reads(since=since)
            for since in (
                *("earliest", "latest", "1", "-10", "2026-11-22", "2026-11-22T10:30", "2026-11-22T10:30Z"),
                *("-90s", "-10m", "-2h", "-7d", "time:1700000000000"),
                *(datetime(2026, 11, 22, tzinfo=UTC), date(2026, 11, 22), {0: 1}),
            )
        ),
    ),
    "a group": Row(
        lambda s: read("t", bootstrap_servers=s, group_id="g"),
        ConfigError,
        "leave out group.id",
        (lambda s: read("t", bootstrap_servers=s),),
    ),
    "a misspelt argument": Row(
        lambda s: read("t", bootstrap_servers=s, untill="latest"),
        ConfigError,
        "there is no 'untill': did you mean 'until'?",
        (lambda s: read("t", bootstrap_servers=s, until="latest"),),
    ),
    "no topic": Row(
        lambda s: read([], bootstrap_servers=s),
        ValueError,
        "read() needs a topic",
        (lambda s: read(["t"], bootstrap_servers=s),),
    ),
    "a deserialiser of keys": Row(
        lambda s: read("t", bootstrap_servers=s, key_deserializer="string"),
        ConfigError,
        "read() decodes keys by key='text'; leave out key.deserializer",
        (lambda s: read("t", bootstrap_servers=s, key="text"),),
    ),
    "the column of reasons": Row(
        lambda s: read("t", bootstrap_servers=s, value="json", errors="null", columns=["error"]),
        ValueError,
        "the column error has the reasons; name the field 'value.error'",
        (
            lambda s: read(
                "t",
                bootstrap_servers=s,
                value="json",
                errors="null",
                columns=["value.error"],
                schema={"error": str},
            ),
        ),
    ),
    "schemas that are nowhere": Row(
        lambda s: read("t", bootstrap_servers=s, value="avro"),
        ConfigError,
        "pass schema_registry_url='http://…', or a value_deserializer",
        (
            lambda s: read(
                "t",
                bootstrap_servers=s,
                until="earliest",
                value="avro",
                schema_registry_url="http://127.0.0.1:1",
            ),
        ),
    ),
    "a type that no JSON has": Row(
        read_as("time64[us]"),
        ValueError,
        "a type of pyarrow or its name ('double', 'int64', 'string', 'bool', 'date32', 'timestamp[us, tz=UTC]')",
        tuple(map(read_as, (*NAMED_TYPES, float, int, str, bool, datetime, date, {"inner": int}, [int]))),
    ),
}


@pytest.mark.parametrize("row", READ.values(), ids=READ)
def test_read_follows_the_advice(row: Row, servers: str) -> None:
    pytest.importorskip("pyarrow")
    raises(row, servers)
    for right in row.right:
        right(servers)


def test_what_cannot_wait_on_a_loop_is_awaited(servers: str) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            future = await producer.send("t", b"v")
            with pytest.raises(IllegalStateError, match="await the future"):
                future.result(1)
            assert (await future).topic == "t"

    asyncio.run(main())


def test_each_loop_has_a_client_of_its_own(servers: str) -> None:
    async def make() -> AsyncConsumer[bytes, bytes]:
        return AsyncConsumer(bootstrap_servers=servers)

    async def use(consumer: AsyncConsumer[bytes, bytes]) -> int:
        return len(await consumer.partitions_for("t", timeout=10))

    async def own() -> int:
        async with await make() as consumer:
            return await use(consumer)

    first = asyncio.new_event_loop()
    consumer = first.run_until_complete(make())
    with pytest.raises(KafkaError, match="belongs to another event loop"):
        asyncio.run(use(consumer))
    assert asyncio.run(own()) == 1
    first.run_until_complete(consumer.close())
    first.close()


def test_signals_are_waited_for_once_each_time() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        entered = stop_on_signals(consumer)
        with entered, pytest.raises(RuntimeError, match="call it again for another `with`"):
            entered.__enter__()
        with stop_on_signals(consumer):
            pass


def test_a_callback_of_a_future_may_send_to_a_known_topic(servers: str) -> None:
    problems: list[BaseException] = []
    sent: list[Any] = []
    done = threading.Event()
    with Producer(bootstrap_servers=servers) as producer:

        def waits(future: Any) -> None:
            sent.append(producer.send("t", b"again"))
            try:
                sent[0].result(10)
            except IllegalStateError as problem:
                problems.append(problem)
            done.set()

        producer.partitions_for("t")
        producer.send("t", b"v").add_done_callback(waits)
        assert done.wait(10)
        assert "make the call from another thread. send() may be called in a callback" in str(problems[0])
        assert sent[0].result(10).topic == "t"


def test_a_child_makes_a_client_of_its_own(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"v").result(10)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send("t", b"v")
            except ForkedError as error:
                if "make a new one in the child" in str(error):
                    with Producer(bootstrap_servers=servers) as own:
                        own.send("t", b"v").result(10)
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


def test_a_client_for_asyncio_is_made_on_a_loop(servers: str) -> None:
    async def main() -> int:
        async with AsyncConsumer(bootstrap_servers=servers) as consumer:
            return len(await consumer.partitions_for("t", timeout=10))

    with pytest.raises(
        RuntimeError, match=re.escape("write `async with AsyncConsumer(...)` in an `async def` function that")
    ) as refused:
        AsyncConsumer(bootstrap_servers=servers)
    assert str(refused.value).endswith("asyncio.run() runs; without asyncio, use Consumer")
    assert asyncio.run(main()) == 1
    with Consumer(bootstrap_servers=servers) as consumer:
        assert len(consumer.partitions_for("t", timeout=10)) == 1


def test_a_client_for_asyncio_is_closed_and_not_stopped(servers: str) -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=servers)
        with pytest.raises(TypeError, match=re.escape("await producer.close(), or async with")):
            await producer.stop()  # type: ignore[func-returns-value, misc]
        await producer.close()

    asyncio.run(main())


def test_a_consumer_of_another_thread_is_stopped_by_a_handler_of_your_own(servers: str) -> None:
    told: list[str] = []
    ended: list[int] = []

    def work() -> None:
        try:
            with stop_on_signals():
                pass
        except RuntimeError as error:
            told.append(str(error))
        ended.append(sum(1 for _ in consumer))

    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign_topics("t", start="latest")
        thread = threading.Thread(target=work)
        thread.start()
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            thread.join(30)
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert told[0].endswith("elsewhere call consumer.stop() from a handler of your own")
    assert ended == [0]


def test_offsets_move_once_the_consumers_have_stopped(servers: str) -> None:
    place = TopicPartition("t", 0)
    with Admin(bootstrap_servers=servers) as admin:
        with Consumer(bootstrap_servers=servers, group_id="moved") as member:
            member.subscribe("t")
            while not member.assignment():
                member.poll(0.1)
            with pytest.raises(KafkaError, match="the group has live members; stop its consumers first"):
                admin.alter_consumer_group_offsets("moved", {place: 0})
        admin.alter_consumer_group_offsets("moved", {place: 0})
        assert admin.list_consumer_group_offsets("moved")[place].offset == 0


def test_a_topic_without_a_setting_has_the_brokers_default(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        wrong: Any = {"retention.ms": None}
        with pytest.raises(TypeError, match="leave the setting out for its default"):
            admin.create_topics([NewTopic("by-default", 1, configs=wrong)])
        admin.create_topics([NewTopic("by-default", 1)])
