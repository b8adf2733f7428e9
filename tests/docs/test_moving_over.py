"""The pages for those who come from another client, held against the clients themselves.

What the programs on them print is shown by `test_snippets.py`.
"""

from __future__ import annotations

import inspect
import re
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import pytest

from kadence import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, Record
from kadence.config import ClientConfig, ConsumerConfig, ProducerConfig, keys
from kadence.errors import ConfigError

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
        for code in re.findall(r"`([^`]+)`", row[1]):
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
        assert all(hasattr(Record, name) for name in names(row[1]))


@pytest.mark.parametrize(("kind", "config"), [("consumer", ConsumerConfig), ("producer", ProducerConfig)])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_tables_of_keys_say_what_the_settings_do(
    client: str, kind: str, config: type[ClientConfig]
) -> None:
    ours = {row.name: row.default for row in keys(config)}
    table = rows(client, f"Keys of the {kind}")
    assert len(table) > 10
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
            case [_, instead]:
                for name in theirs:
                    with pytest.raises(ConfigError, match=re.escape(instead)):
                        config.parse({"bootstrap.servers": "localhost:9092", name: "x"})
