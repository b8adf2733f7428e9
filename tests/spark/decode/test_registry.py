"""The client of a schema registry, against one on loopback."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterable, Mapping

import pytest
from tests.spark.decode.registry_server import RegistryServer

from kadence.errors import ConfigError, TransportError
from kadence.spark.decode import registry as module
from kadence.spark.decode.isolation import BadRecordError
from kadence.spark.decode.options import RegistryOptions
from kadence.spark.decode.registry import AT_ONCE, ATTEMPTS, LAG_S, REFUSED_MS, Registered, Registry, Schemas

LONG = {"schema": '"long"'}


def only(ours: Registry, schema_id: int) -> Registered:
    """What a record with this id gets."""
    found = ours.by_ids([schema_id], kind="AVRO")[schema_id]
    if isinstance(found, BadRecordError):
        raise found
    return found


def client(*urls: str, **more: str) -> tuple[Registry, list[float]]:
    waits: list[float] = []
    return Registry(RegistryOptions(urls, **more), sleep=waits.append), waits


def test_by_id_and_by_subject(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    registry.subjects["a/b-value"] = {**LONG, "version": 3, "id": 7}
    ours, _ = client(registry.url)
    assert only(ours, 7) == Registered("AVRO", '"long"')
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
    assert only(ours, 1).references == (("Money", Registered("AVRO", '"long"')),)
    assert registry.requests[-1][0] == "/subjects/money/versions/2"


def test_what_is_not_there(registry: RegistryServer) -> None:
    registry.schemas[2] = {"schema": "", "schemaType": "PROTOBUF"}
    ours, waits = client(registry.url)
    with pytest.raises(BadRecordError, match="schema id 1 is not in the registry"):
        only(ours, 1)
    with pytest.raises(BadRecordError, match="schema id 2 is of type PROTOBUF, not AVRO"):
        only(ours, 2)
    with pytest.raises(ConfigError, match=r"no subject 'x' with a version; the option value\.subject"):
        ours.newest("x", kind="AVRO")
    assert waits == []


def test_it_tries_again_at_the_next_address_and_gives_up(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    registry.failures = 1
    ours, waits = client("http://127.0.0.1:9", registry.url)
    assert only(ours, 7).text == '"long"'
    assert waits == [0.25, 0.5, 1.0]
    registry.failures = 100
    ours, waits = client(registry.url)
    with pytest.raises(TransportError, match=f"in {ATTEMPTS} attempts: it answered 500"):
        only(ours, 7)
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
            only(ours, 7)
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
    only(ours, 7)
    assert "hidden" not in repr(ours)
    registry.token = "another"
    with pytest.raises(
        ConfigError, match=r"refused access \(401\): see the options schema\.registry"
    ) as caught:
        only(ours, 7)
    assert "hidden" not in str(caught.value)


def test_files_of_tls_that_are_not_there() -> None:
    ours, _ = client("https://127.0.0.1:9", ca="nowhere.pem")
    with pytest.raises(ConfigError, match=r"schema\.registry\.ssl"):
        only(ours, 7)


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ((404, b"<html>nothing here</html>"), "it answered 404 as no registry does: is this its address"),
        (
            (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
            "it answered 404 with error_code 404",
        ),
        ((404, b'{"error_code": "40403"}'), "it answered 404 as no registry does"),
        ((404, b"[40403]"), "it answered 404 as no registry does"),
        ((200, b"<html>log in</html>"), "its answer is no JSON"),
        ((200, b"[" * 100_000), "its answer is nested too deep"),
        ((200, b'["a"]'), "its answer is no JSON object"),
        ((200, b'{"status": "UP"}'), "is no schema registry"),
        ((200, b'{"schema": 1}'), "is no schema registry"),
        ((200, b'{"schema": "1", "references": [1]}'), "is no schema registry"),
    ],
)
def test_an_answer_that_no_registry_gives_is_not_an_unknown_id(
    registry: RegistryServer, fixed: tuple[int, bytes], said: str
) -> None:
    registry.fixed = fixed
    ours, _ = client(registry.url)
    with pytest.raises(TransportError, match=said) as caught:
        only(ours, 7)
    assert "option schema.registry.url" in str(caught.value)
    with pytest.raises(TransportError, match=said):
        ours.newest("x", kind="AVRO")


def test_apicurio_with_legacy_ids_says_of_an_unknown_id_that_there_is_no_such_subject(
    registry: RegistryServer,
) -> None:
    registry.fixed = 404, b'{"error_code": 40401}'
    ours, _ = client(registry.url)
    with pytest.raises(BadRecordError, match="schema id 7 is not in the registry"):
        only(ours, 7)
    registry.fixed = 404, b'{"error_code": 40402}'
    with pytest.raises(TransportError, match="it answered 404 with error_code 40402"):
        only(ours, 7)


def test_an_answer_is_read_only_so_far(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    ours, _ = client(registry.url)
    for code in (200, 404):
        registry.fixed = code, b" " * (1 << 20) + b'{"error_code": 40403}'
        with pytest.raises(TransportError, match="more than 1 MiB" if code == 200 else "as no registry does"):
            only(ours, 7)


def test_references_are_asked_for_once_and_have_a_bound(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refers(*subjects: str) -> dict[str, object]:
        return {
            "schema": '"long"',
            "references": [{"name": name, "subject": name, "version": 1} for name in subjects],
        }

    for level in range(20):
        registry.subjects[f"a{level}"] = registry.subjects[f"b{level}"] = refers(
            f"a{level + 1}", f"b{level + 1}"
        )
    registry.subjects["a20"] = registry.subjects["b20"] = LONG
    registry.schemas[1] = refers("a0", "b0")
    registry.schemas[2] = refers("itself")
    registry.subjects["itself"] = refers("itself")
    registry.schemas[3] = refers("nowhere")
    ours, _ = client(registry.url)
    only(ours, 1)
    assert len(registry.requests) == 1 + 2 * 21
    with pytest.raises(
        TransportError, match="subject 'itself' with version 1 of the schema registry refers to itself"
    ):
        only(ours, 2)
    with pytest.raises(
        TransportError, match="refers to subject 'nowhere' with version 1, which the registry does not"
    ):
        only(ours, 3)
    monkeypatch.setattr(module, "MOST_REFERENCES", 41)
    with pytest.raises(TransportError, match="needs more than 41 others"):
        only(ours, 1)


def test_ids_are_asked_for_side_by_side() -> None:
    """Each answer waits until all are asked for."""
    everybody = threading.Barrier(AT_ONCE, timeout=30)

    class Together(Registry):
        def _open(self, opener: object, url: str) -> io.BytesIO:
            everybody.wait()
            return io.BytesIO(json.dumps(LONG).encode())

    found = Together(RegistryOptions(("http://127.0.0.1:9",))).by_ids(range(AT_ONCE), kind="AVRO")
    assert found == dict.fromkeys(range(AT_ONCE), Registered("AVRO", '"long"'))


def test_one_failure_ends_the_look_up_of_many_ids(registry: RegistryServer) -> None:
    registry.fixed = 401, b""
    ours, _ = client(registry.url)
    with pytest.raises(ConfigError, match="refused access"):
        ours.by_ids(range(1000), kind="AVRO")
    assert len(registry.requests) < 1000


def texts(found: Mapping[int, Registered | BadRecordError]) -> dict[int, str]:
    return {
        schema_id: str(made) if isinstance(made, BadRecordError) else made.text
        for schema_id, made in found.items()
    }


def test_an_id_without_a_schema_is_asked_for_once_a_minute(registry: RegistryServer) -> None:
    waits: list[float] = []
    schemas, options = Schemas(sleep=waits.append), RegistryOptions((registry.url,))
    registry.schemas[2] = {"schema": "", "schemaType": "PROTOBUF"}
    for now in (0, 1, REFUSED_MS - 1):
        assert texts(schemas.get(now, options, [1, 2, 1], "AVRO")) == {
            1: "schema id 1 is not in the registry",
            2: "schema id 2 is of type PROTOBUF, not AVRO",
        }
    # Each twice: a follower may not know a new one yet.
    assert len(registry.requests) == 4
    assert waits == [LAG_S]
    registry.schemas[1] = LONG
    for now in (REFUSED_MS, REFUSED_MS + 1, 10 * REFUSED_MS):
        assert texts(schemas.get(now, options, [1], "AVRO")) == {1: LONG["schema"]}
    assert len(registry.requests) == 5
    assert "PROTOBUF" in texts(schemas.get(REFUSED_MS, options, [2], "AVRO"))[2]
    assert len(registry.requests) == 6
    assert waits == [LAG_S]


def test_an_id_that_a_follower_learns_of_late_is_no_bad_record(registry: RegistryServer) -> None:
    def sleep(seconds: float) -> None:
        registry.schemas[1] = LONG

    schemas = Schemas(sleep=sleep)
    found = schemas.get(0, RegistryOptions((registry.url,)), [1, 3], "AVRO")
    assert texts(found) == {1: LONG["schema"], 3: "schema id 3 is not in the registry"}


def test_ids_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REFUSED", 2)
    monkeypatch.setattr(module, "MOST_KNOWN", 2)
    asked: list[int] = []

    def ask(
        options: RegistryOptions, ids: Iterable[int], kind: str
    ) -> dict[int, Registered | BadRecordError]:
        asked.extend(ids)
        return {
            schema_id: BadRecordError(f"no {schema_id}")
            if schema_id < 10
            else Registered("AVRO", str(schema_id))
            for schema_id in ids
        }

    schemas, options = Schemas(ask, sleep=lambda _: None), RegistryOptions(("http://127.0.0.1:9",))
    for schema_id in (1, 2, 3, 3, 2, 1, 11, 12, 13, 13, 12, 11):
        schemas.get(0, options, [schema_id], "AVRO")
    assert asked == [1, 1, 2, 2, 3, 3, 1, 1, 11, 12, 13, 11]
    # One batch may hold more: each is answered.
    assert len(schemas.get(0, options, range(9), "AVRO")) == 9
    assert (len(schemas._refused), len(schemas._known)) == (2, 2)
