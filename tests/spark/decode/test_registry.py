"""The client of a schema registry, against one on loopback."""

from __future__ import annotations

import pytest
from tests.spark.decode.registry_server import RegistryServer

from kadence.errors import ConfigError, TransportError
from kadence.spark.decode import registry as module
from kadence.spark.decode.isolation import BadRecordError
from kadence.spark.decode.options import RegistryOptions
from kadence.spark.decode.registry import ATTEMPTS, REFUSED_MS, Registered, Registry, Schemas

LONG = {"schema": '"long"'}


def client(*urls: str, **more: str) -> tuple[Registry, list[float]]:
    waits: list[float] = []
    return Registry(RegistryOptions(urls, **more), sleep=waits.append), waits


def test_by_id_and_by_subject(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    registry.subjects["a/b-value"] = {**LONG, "version": 3, "id": 7}
    ours, _ = client(registry.url)
    assert ours.by_id(7, kind="AVRO") == Registered("AVRO", '"long"')
    assert ours.newest("a/b-value", kind="AVRO") == Registered("AVRO", '"long"')
    assert [path for path, _ in registry.requests] == [
        "/schemas/ids/7",
        "/subjects/a%2Fb-value/versions/latest",
    ]


def test_references_come_along(registry: RegistryServer) -> None:
    registry.subjects["money"] = {"schema": '"long"'}
    registry.schemas[1] = {
        "schema": '"Money"',
        "references": [{"name": "Money", "subject": "money", "version": 2}],
    }
    ours, _ = client(registry.url)
    assert ours.by_id(1, kind="AVRO").references == (("Money", Registered("AVRO", '"long"')),)
    assert registry.requests[-1][0] == "/subjects/money/versions/2"


def test_what_is_not_there(registry: RegistryServer) -> None:
    registry.schemas[2] = {"schema": "", "schemaType": "PROTOBUF"}
    ours, waits = client(registry.url)
    with pytest.raises(BadRecordError, match="schema id 1 is not in the registry"):
        ours.by_id(1, kind="AVRO")
    with pytest.raises(BadRecordError, match="schema id 2 is of type PROTOBUF, not AVRO"):
        ours.by_id(2, kind="AVRO")
    with pytest.raises(ConfigError, match=r"no subject 'x' with version latest; the option value\.subject"):
        ours.newest("x", kind="AVRO")
    assert waits == []


def test_it_tries_again_at_the_next_address_and_gives_up(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    registry.failures = 1
    ours, waits = client("http://127.0.0.1:9", registry.url)
    assert ours.by_id(7, kind="AVRO").text == '"long"'
    assert waits == [0.25, 0.5, 1.0]
    registry.failures = 100
    ours, waits = client(registry.url)
    with pytest.raises(TransportError, match=f"in {ATTEMPTS} attempts: it answered 500"):
        ours.by_id(7, kind="AVRO")
    assert waits == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [
        ("http://registry.example:8081", {"user_info": "me:hidden"}, 1),
        ("http://registry.example:8082", {"token": "hidden"}, 1),
        ("http://registry.example:8083", {}, 0),
        ("http://127.0.0.1:8081", {"token": "hidden"}, 0),
        ("https://registry.example", {"token": "hidden"}, 0),
    ],
)
def test_a_login_in_the_open_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    url: str,
    given: dict[str, str],
    expected: int,
) -> None:
    def nowhere(*_: object) -> None:
        raise OSError("no such host")

    monkeypatch.setattr(Registry, "_open", nowhere)
    for _ in range(2):
        ours, _waits = client(url, **given)
        with pytest.raises(TransportError):
            ours.by_id(7, kind="AVRO")
    assert caplog.text.count("the login of the schema registry is sent to") == expected
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("given", "header"),
    [({"user_info": "me:hidden"}, "Basic bWU6aGlkZGVu"), ({"token": "hidden"}, "Bearer hidden")],
)
def test_who_we_are(registry: RegistryServer, given: dict[str, str], header: str) -> None:
    registry.schemas[7] = LONG
    registry.token = header
    ours, _ = client(registry.url, **given)
    ours.by_id(7, kind="AVRO")
    assert "hidden" not in repr(ours)
    registry.token = "another"
    with pytest.raises(
        ConfigError, match=r"refused access \(401\): see the options schema\.registry"
    ) as caught:
        ours.by_id(7, kind="AVRO")
    assert "hidden" not in str(caught.value)


def test_files_of_tls_that_are_not_there() -> None:
    ours, _ = client("https://127.0.0.1:9", ca="nowhere.pem")
    with pytest.raises(ConfigError, match=r"schema\.registry\.ssl"):
        ours.by_id(7, kind="AVRO")


def test_an_id_without_a_schema_is_asked_for_once_a_minute(registry: RegistryServer) -> None:
    schemas, options = Schemas(), RegistryOptions((registry.url,))
    registry.schemas[2] = {"schema": "", "schemaType": "PROTOBUF"}
    for now in (0, 1, REFUSED_MS - 1):
        with pytest.raises(BadRecordError, match="schema id 1 is not in the registry"):
            schemas.get(now, options, 1, "AVRO")
        with pytest.raises(BadRecordError, match="schema id 2 is of type PROTOBUF, not AVRO"):
            schemas.get(now, options, 2, "AVRO")
    assert len(registry.requests) == 2
    registry.schemas[1] = LONG
    for now in (REFUSED_MS, REFUSED_MS + 1, 10 * REFUSED_MS):
        assert schemas.get(now, options, 1, "AVRO").text == LONG["schema"]
    assert len(registry.requests) == 3


def test_ids_without_a_schema_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REFUSED", 2)
    asked: list[int] = []

    def ask(options: RegistryOptions, schema_id: int, kind: str) -> Registered:
        asked.append(schema_id)
        raise BadRecordError(f"no {schema_id}")

    schemas, options = Schemas(ask), RegistryOptions(("http://127.0.0.1:9",))
    for schema_id in (1, 2, 3, 3, 2, 1):
        with pytest.raises(BadRecordError, match=f"no {schema_id}"):
            schemas.get(0, options, schema_id, "AVRO")
    assert asked == [1, 2, 3, 1]
    assert len(schemas._refused) == 2
