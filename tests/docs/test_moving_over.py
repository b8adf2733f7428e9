"""The pages for those who come from another client, held against the clients themselves.

What the programs on them print is shown by `test_snippets.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.schema_registry
import pytest

from kadence import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Broker,
    Consumer,
    OffsetAndMetadata,
    Producer,
    Record,
    Token,
    TopicPartition,
    errors,
)
from kadence.config import ClientConfig, ConsumerConfig, ProducerConfig, keys
from kadence.errors import ConcurrentAccessError, ConfigError, IllegalStateError, SerializationError
from kadence.idioms import advice
from kadence_schemas import SchemaRegistryClient

with warnings.catch_warnings(action="ignore"):
    import kafka

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLIENTS: dict[str, tuple[type, type]] = {
    "confluent-kafka": (confluent_kafka.Consumer, Consumer),
    "kafka-python": (kafka.KafkaConsumer, Consumer),
    "aiokafka": (aiokafka.AIOKafkaConsumer, AsyncConsumer),
}
PRODUCERS: dict[str, tuple[type, type]] = {
    "confluent-kafka": (confluent_kafka.Producer, Producer),
    "kafka-python": (kafka.KafkaProducer, Producer),
    "aiokafka": (aiokafka.AIOKafkaProducer, AsyncProducer),
}
ADMINS: dict[str, type] = {
    "confluent-kafka": confluent_kafka.admin.AdminClient,
    "kafka-python": kafka.KafkaAdminClient,
    "aiokafka": aiokafka.admin.AIOKafkaAdminClient,
}
RECORDS: dict[str, list[str]] = {
    "confluent-kafka": [name for name in dir(confluent_kafka.Message) if not name.startswith("_")],
    "kafka-python": list(kafka.consumer.fetcher.ConsumerRecord._fields),
    "aiokafka": list(aiokafka.ConsumerRecord.__dataclass_fields__),
}

VERSIONS = {"confluent-kafka": "2.16.1", "kafka-python": "3.0.12", "aiokafka": "0.14.0"}
"""The versions that the pages are about."""


def calls_of(client: type) -> set[str]:
    """The public methods of a class."""
    return {name for name in dir(client) if name[0].islower() and callable(getattr(client, name))}


def names(text: str) -> list[str]:
    """What Markdown names in code: of `a(b, c)` the a."""
    return [re.split(r"\W", code, maxsplit=1)[0] for code in re.findall(r"`([^`]+)`", text)]


def rows(client: str, section: str) -> list[list[str]]:
    page = (DOCS / f"from-{client}.md").read_text()
    text = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def as_described(client: str) -> None:
    if version(client) != VERSIONS[client]:
        pytest.skip(f"the page is about {client} {VERSIONS[client]}; here is {version(client)}")


def check_ours(table: list[list[str]], ours: type) -> None:
    """Each call that the second column names exists, with the parameters that are named."""
    for row in table:
        for code in re.findall(r"`([^`]+)`", row[0] if row[1].startswith("the same") else row[1]):
            if code.startswith(("for ", "async ", "with")):
                continue
            owner: Any = Admin if code.startswith("Admin.") else ours
            call = re.split(r"\W", code.removeprefix("Admin."), maxsplit=1)[0]
            assert hasattr(owner, call), f"{code}: there is no {call}"
            parameters = inspect.signature(getattr(owner, call)).parameters
            for given in re.findall(r"(\w+)=", code):
                assert given in parameters, f"{code}: no parameter {given}"


@pytest.mark.parametrize("client", CLIENTS)
def test_each_call_of_theirs_has_a_row(client: str) -> None:
    as_described(client)
    calls = calls_of(CLIENTS[client][0])
    named = {name for row in rows(client, "Calls") for name in names(row[0])}
    assert calls <= named
    assert named - calls <= {"KafkaConsumer", "for", "async"}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_call_of_their_producer_has_a_row(client: str) -> None:
    as_described(client)
    theirs, ours = PRODUCERS[client]
    table = rows(client, "Producing")
    assert {name for row in table for name in names(row[0])} == calls_of(theirs)
    check_ours(table, ours)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_call_of_their_admin_has_a_row_or_is_said_to_be_missing(client: str) -> None:
    as_described(client)
    table = rows(client, "Administering")
    page = (DOCS / f"from-{client}.md").read_text().partition("## Administering\n")[2].partition("\n## ")[0]
    same = set(names(page.partition("\nThe same name here: ")[2].partition("\n")[0]))
    missing = set(names(page.partition("\nNot here: ")[2].partition("\n")[0]))
    named = {name for row in table for name in names(row[0])}
    assert named | same | missing == calls_of(ADMINS[client])
    assert {name for name in missing if hasattr(Admin, name)} == set()
    assert all(hasattr(Admin, name) for name in same)
    check_ours(table, Admin)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_call_that_is_named_for_it_exists(client: str) -> None:
    check_ours(rows(client, "Calls"), CLIENTS[client][1])


@pytest.mark.parametrize("client", CLIENTS)
def test_each_field_of_their_records_has_a_row(client: str) -> None:
    as_described(client)
    section = "Messages and records" if client == "confluent-kafka" else "Records"
    table = rows(client, section)
    assert set(RECORDS[client]) == {name for row in table for name in names(row[0])}
    for row in table:
        assert all(hasattr(Record, name) for name in names(row[0] if row[1] == "the same" else row[1]))


@pytest.mark.parametrize(("kind", "config"), [("consumer", ConsumerConfig), ("producer", ProducerConfig)])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_tables_of_keys_say_what_the_settings_do(
    client: str, kind: str, config: type[ClientConfig]
) -> None:
    ours = {row.name: row.default for row in keys(config)}
    table = rows(client, f"Keys of the {kind}")
    assert len(table) > 1
    for row in table:
        theirs = [name.replace("_", ".") for name in re.findall(r"`([^`]+)`", row[0])]
        if not theirs:
            continue
        match row:
            case [_, _, here]:
                [name] = theirs
                default = ours[name]
                if isinstance(default, bool | str | int):
                    assert here == (f"`{default}`".lower() if default != "" else "–")
            case [_, here] if (found := re.match(r"`([a-z.]+)`", here)) and found[1] in ours:
                assert not set(theirs) & set(ours)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_keys_with_advice_in_their_error(client: str) -> None:
    page = (DOCS / f"from-{client}.md").read_text()
    (listed,) = re.findall(r"the error says what to do instead: (.*)\.$", page, re.MULTILINE)
    keys_with_advice = re.findall(r"`([^`]+)`", listed)
    assert len(keys_with_advice) > 2
    for name in keys_with_advice:
        instead = advice("setting", name.replace("_", "."))
        assert instead is not None
        assert instead not in {row.name for row in keys(ConsumerConfig)}
        with pytest.raises(ConfigError, match=re.escape(instead)):
            ConsumerConfig.parse({"bootstrap.servers": "localhost:9092", name: "x"})


def test_the_table_of_codes_names_codes_of_theirs_and_classes_of_ours() -> None:
    page = (DOCS / "from-confluent-kafka.md").read_text()
    table = page.partition("### Codes of errors")[2].partition("\n## ")[0]
    lines = [
        line.strip().strip("|").split(" | ") for line in table.splitlines() if line.strip().startswith("| `")
    ]
    assert len(lines) > 8
    for theirs, ours in lines:
        assert [name for name in names(theirs) if not hasattr(confluent_kafka.KafkaError, name)] == []
        for name in names(ours):
            assert hasattr(errors, name) or name in ("ValueError", "TypeError")


@pytest.fixture
def served() -> Iterator[str]:
    with Broker(topics={"orders": 1}) as broker:
        yield broker.bootstrap_servers


def test_timestamp_0_is_now_there_and_1970_here_and_negative_ones_are_refused(served: str) -> None:
    as_described("confluent-kafka")
    theirs = confluent_kafka.Producer({"bootstrap.servers": served})
    for timestamp in (0, -5):
        theirs.produce("orders", b"theirs", timestamp=timestamp)
    theirs.flush(10)
    with Producer(bootstrap_servers=served) as producer:
        producer.send("orders", b"ours", timestamp=0).result(timeout=10)
        with pytest.raises(SerializationError, match="not -5"):
            producer.send("orders", b"ours", timestamp=-5)
    with Consumer(bootstrap_servers=served) as consumer:
        consumer.assign_topics("orders", start="earliest")
        now, negative, ours = (next(consumer).timestamp for _ in range(3))
    assert now > 1_700_000_000_000
    assert (negative, ours) == (-5, 0)


def test_offsets_with_metadata_have_another_order_here() -> None:
    for theirs in (kafka.OffsetAndMetadata, aiokafka.structs.OffsetAndMetadata):
        assert theirs._fields[:2] == ("offset", "metadata")
    assert list(OffsetAndMetadata.__dataclass_fields__) == ["offset", "leader_epoch", "metadata"]


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_what_the_pages_say_of_settings(client: str) -> None:
    page = (DOCS / f"from-{client}.md").read_text()
    assert "| auto-commit without a group | is a `ConfigError`" in page
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
        ConsumerConfig.parse({"bootstrap.servers": "localhost:1"}, enable_auto_commit=True)
    assert "a function that gives a `kadence.Token`, not an object with `token()`" in page

    class Provider:
        def token(self) -> Token:
            return Token("t", 1.0)

    login = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
    }
    with pytest.raises(ConfigError, match="is not a callable"):
        ConsumerConfig.parse(login, sasl_oauthbearer_token_provider=Provider())
    ConsumerConfig.parse(login, sasl_oauthbearer_token_provider=Provider().token)


def test_what_the_pages_say_of_assigned_partitions(served: str) -> None:
    partition = TopicPartition("orders", 0)
    with Consumer(bootstrap_servers=served) as consumer:
        consumer.assign([partition])
        consumer.incremental_assign([partition])
        with pytest.raises(IllegalStateError):
            consumer.incremental_unassign([TopicPartition("orders", 1)])


def test_what_the_page_says_of_tasks_and_of_what_start_waited_for(served: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=served, group_id="g") as consumer:
            await consumer.subscribe("orders")
            assert not consumer.assignment()
            for call in (
                consumer.position(TopicPartition("orders", 0)),
                consumer.seek(TopicPartition("orders", 0), 0),
            ):
                with pytest.raises(IllegalStateError):
                    await call
            first = asyncio.create_task(consumer.poll(10))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentAccessError):
                await consumer.poll()
            first.cancel()

    asyncio.run(main())


def test_a_second_assign_keeps_positions_here_and_not_in_aiokafka(served: str) -> None:
    as_described("aiokafka")
    first, second = TopicPartition("orders", 0), TopicPartition("more", 0)

    async def positions() -> tuple[int, int]:
        theirs = aiokafka.AIOKafkaConsumer(bootstrap_servers=served, auto_offset_reset="earliest")
        await theirs.start()
        theirs.assign([aiokafka.TopicPartition(*first)])
        theirs.seek(aiokafka.TopicPartition(*first), 1)
        theirs.assign([aiokafka.TopicPartition(*each) for each in (first, second)])
        at = await theirs.position(aiokafka.TopicPartition(*first))
        await theirs.stop()
        async with AsyncConsumer(bootstrap_servers=served, auto_offset_reset="earliest") as ours:
            await ours.assign([first])
            await ours.seek(first, 1)
            await ours.assign([first, second])
            return at, await ours.position(first)

    with Producer(bootstrap_servers=served) as producer:
        producer.send_and_wait("orders", b"0")
        producer.send_and_wait("more", b"0")
    assert asyncio.run(positions()) == (0, 1)


def test_what_the_pages_say_of_serialisers_and_partitioners(served: str) -> None:
    def text(value: Any) -> bytes:
        return str(value).encode()

    with warnings.catch_warnings(action="ignore"):
        their_producer = kafka.KafkaProducer(bootstrap_servers=served, value_serializer=text)
    their_producer.send("orders", None, b"k").get(10)
    their_producer.close()

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=served, value_serializer=text) as theirs:
            await theirs.send_and_wait("orders", None, b"k")

    asyncio.run(send())
    asked: list[tuple[bytes | None, list[int], list[int]]] = []

    def partitioner(key: bytes | None, everything: Any, available: Any) -> int:
        asked.append((key, list(everything), list(available)))
        return 0

    with Producer(bootstrap_servers=served, value_serializer=text, partitioner=partitioner) as producer:
        producer.send_and_wait("orders", None, b"k")
    assert asked == [(b"k", [0], [0])]
    with Consumer(bootstrap_servers=served) as consumer:
        consumer.assign_topics("orders", start="earliest")
        assert [next(consumer).value for _ in range(3)] == [b"None", b"None", None]
    assert not callable(kafka.KafkaProducer.DEFAULT_CONFIG["partitioner"])
    assert callable(aiokafka.producer.producer.DefaultPartitioner())


def test_the_type_of_a_timestamp_is_one_less_than_in_confluent_kafka(served: str) -> None:
    with Producer(bootstrap_servers=served) as producer:
        producer.send_and_wait("orders", b"0")
    with Consumer(bootstrap_servers=served) as consumer:
        consumer.assign_topics("orders", start="earliest")
        record = next(consumer)
    assert record.timestamp_type == confluent_kafka.TIMESTAMP_CREATE_TIME - 1
    assert confluent_kafka.TIMESTAMP_LOG_APPEND_TIME - 1 == 1, (
        "as Record.timestamp_type says of brokers' times"
    )


def test_the_keys_of_a_registry_for_url_login_and_tls_are_the_same(tmp_path: Path) -> None:
    pem = str(tmp_path / "ca.pem")
    Path(pem).write_text("")
    keys_there = {"url": "https://localhost:1", "basic.auth.user.info": "me:secret"}
    confluent_kafka.schema_registry.SchemaRegistryClient(keys_there)
    SchemaRegistryClient(keys_there)
    for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"):
        with pytest.raises(ConfigError) as refused:
            SchemaRegistryClient({"url": "https://localhost:1", name: pem, "cache.capacity": 1})
        assert "'cache.capacity'" in str(refused.value)
        assert name in str(refused.value)
