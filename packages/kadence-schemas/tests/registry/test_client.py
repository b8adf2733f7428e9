"""The client of a schema registry, against one on loopback."""

from __future__ import annotations

import contextlib
import io
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE
from tests.registry.registry_server import RegistryServer

from kadence.errors import ConfigError, SchemaNotFoundError, SchemaRefusedError, SchemaRegistryError
from kadence_schemas import answers, client, http
from kadence_schemas.answers import LAG_EVERY_MS, LAG_S, REFUSED_MS
from kadence_schemas.client import AT_ONCE, LATEST_MS, SchemaRegistryClient, Wanted
from kadence_schemas.framing import frame_of, head_of
from kadence_schemas.http import Http
from kadence_schemas.schemas import AVRO, RegisteredSchema, ResolvedSchema, Schema, SchemaReference
from kadence_schemas.settings import RETRIES, RegistryOptions
from kadence_testing import FakeClock

LONG = {"schema": '"long"'}


def only(ours: SchemaRegistryClient, schema_id: int) -> ResolvedSchema:
    """What a record with this id gets."""
    found = resolved(ours, [schema_id])[schema_id]
    if isinstance(found, SchemaNotFoundError):
        raise found
    return found


def of(*urls: str, clock: FakeClock | None = None, **more: Any) -> tuple[SchemaRegistryClient, list[float]]:
    waits: list[float] = []
    return SchemaRegistryClient._of(RegistryOptions(urls, **more), waits.append, clock), waits


def test_by_id_and_by_subject(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    registry.subjects["a/b-value"] = {**LONG, "version": 3, "id": 7}
    ours, _ = of(registry.url)
    assert only(ours, 7) == ResolvedSchema("AVRO", '"long"')
    assert ours.resolve_latest("a/b-value", AVRO) == ResolvedSchema("AVRO", '"long"')
    assert registry.asked == [
        "/schemas/ids/7",
        "/subjects/a%2Fb-value/versions/latest",
    ]


def test_references_come_along(registry: RegistryServer) -> None:
    registry.subjects["money"] = {"schema": '"long"'}
    registry.schemas[1] = {
        "schema": '"Money"',
        "references": [{"name": "Money", "subject": "money", "version": 2}],
    }
    ours, _ = of(registry.url)
    assert only(ours, 1).references == (("Money", ResolvedSchema("AVRO", '"long"')),)
    assert registry.asked[-1] == "/subjects/money/versions/2?deleted=true"


def test_what_is_not_there(registry: RegistryServer) -> None:
    registry.schemas[2] = {"schema": "", "schemaType": "PROTOBUF"}
    clock = FakeClock()
    ours, waits = of(registry.url, clock=clock)
    with pytest.raises(SchemaNotFoundError, match="schema id 1 is not in the registry"):
        only(ours, 1)
    clock.advance(LAG_EVERY_MS + 1000)
    with pytest.raises(SchemaNotFoundError, match="schema id 2 is of type PROTOBUF, not AVRO"):
        only(ours, 2)
    with pytest.raises(SchemaNotFoundError, match="no subject 'x' with a version"):
        ours.resolve_latest("x", AVRO)
    assert waits == [LAG_S, LAG_S]


def test_it_tries_again_at_the_next_address_and_gives_up(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    registry.failures = 1
    ours, waits = of("http://127.0.0.1:9", registry.url)
    assert only(ours, 7).text == '"long"'
    assert waits == [0.25, 0.5, 1.0]
    registry.failures = 100
    ours, waits = of(registry.url)
    with pytest.raises(SchemaRegistryError, match=f"in {1 + RETRIES} attempts: it answered 500"):
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
    given: dict[str, Any],
    expected: int,
) -> None:
    def nowhere(*_: object) -> None:
        raise OSError("no such host")

    monkeypatch.setattr(Http, "_open", nowhere)
    for _ in range(2):
        ours, _waits = of(url, **given)
        with pytest.raises(SchemaRegistryError):
            only(ours, 7)
    assert caplog.text.count("the login of the schema registry is sent to") == expected
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("given", "header"),
    [({"user_info": "me:hidden"}, "Basic bWU6aGlkZGVu"), ({"token": "hidden"}, "Bearer hidden")],
)
def test_who_we_are(registry: RegistryServer, given: dict[str, Any], header: str) -> None:
    registry.schemas[7] = LONG
    registry.token = header
    ours, _ = of(registry.url, **given)
    only(ours, 7)
    assert "hidden" not in repr(ours)
    registry.token = "another"
    with pytest.raises(
        ConfigError, match=r"refused access \(401\): see the options schema\.registry"
    ) as caught:
        only(ours, 8)
    assert "hidden" not in str(caught.value)


def test_files_of_tls_that_are_not_there() -> None:
    ours, _ = of("https://127.0.0.1:9", ca="nowhere.pem")
    with pytest.raises(ConfigError, match=r"schema\.registry\.ssl"):
        only(ours, 7)


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ((404, b"<html>nothing here</html>"), "it answered 404, unlike a registry: is this its address"),
        (
            (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
            "it answered 404 with error_code 404",
        ),
        ((404, b'{"error_code": "40403"}'), "it answered 404, unlike a registry"),
        ((404, b"[40403]"), "it answered 404, unlike a registry"),
        ((200, b"<html>log in</html>"), "its answer is not JSON"),
        ((200, b"[" * 100_000), "its answer is nested too deep"),
        ((200, b'["a"]'), "its answer is JSON, but not a JSON object"),
        ((200, b'{"status": "UP"}'), "is not a schema registry"),
        ((200, b'{"schema": 1}'), "is not a schema registry"),
        ((200, b'{"schema": "1", "references": [1]}'), "is not a schema registry"),
        ((200, b'{"schema": "\\ud800"}'), "its answer contains text that is not Unicode"),
        (
            (200, b'{"schema": "1", "references": [{"name": "n", "subject": "\\uDfff", "version": 1}]}'),
            "its answer contains text that is not Unicode",
        ),
    ],
)
def test_an_answer_that_no_registry_gives_is_not_an_unknown_id(
    registry: RegistryServer, fixed: tuple[int, bytes], said: str
) -> None:
    registry.fixed = fixed
    ours, _ = of(registry.url)
    with pytest.raises(SchemaRegistryError, match=said) as caught:
        only(ours, 7)
    assert "option schema.registry.url" in str(caught.value)
    with pytest.raises(SchemaRegistryError, match=said):
        ours.resolve_latest("x", AVRO)


@pytest.mark.parametrize("number", ["-1", "4294967296", "1.5", "true", '"1"', "Infinity", "null", "1e400"])
def test_numbers_that_are_no_ids_or_versions(registry: RegistryServer, number: str) -> None:
    ours, _ = of(registry.url)
    schema = Schema('"string"')
    asked: list[tuple[str, Callable[[], object]]] = [
        (f'{{"id": {number}}}', lambda: ours.register_schema("s", schema)),
        (f'{{"id": {number}, "version": 1, "schema": "1"}}', lambda: ours.lookup_schema("s", schema)),
        (f'{{"id": 1, "version": {number}, "schema": "1"}}', lambda: ours.get_latest_version("s")),
        (f"[{number}]", lambda: ours.get_versions("s")),
        (f"[{number}]", lambda: ours.delete_subject("s")),
        (f'{{"a": {number}}}', lambda: ours.delete_subject("s")),
    ]
    for body, ask in asked:
        registry.fixed = 200, body.encode()
        with pytest.raises(SchemaRegistryError, match="is not a schema registry"):
            ask()
    reference = f'{{"name": "n", "subject": "s", "version": {number}}}'
    registry.fixed = 200, f'{{"schema": "1", "references": [{reference}]}}'.encode()
    with contextlib.suppress(SchemaRegistryError):
        ours.get_schema(7)


@pytest.mark.parametrize("schema_id", [0, 4294967295])
def test_ids_that_records_can_carry(registry: RegistryServer, schema_id: int) -> None:
    ours, _ = of(registry.url)
    registry.fixed = 200, b'{"id": %d}' % schema_id
    assert frame_of(head_of(ours.register_schema("s", Schema('"string"'))), None).schema == schema_id


def test_apicurio_with_legacy_ids_says_of_an_unknown_id_that_there_is_no_such_subject(
    registry: RegistryServer,
) -> None:
    registry.fixed = 404, b'{"error_code": 40401}'
    ours, _ = of(registry.url)
    with pytest.raises(SchemaNotFoundError, match="schema id 7 is not in the registry"):
        only(ours, 7)
    registry.fixed = 404, b'{"error_code": 40402}'
    ours, _ = of(registry.url)
    with pytest.raises(SchemaRegistryError, match="it answered 404 with error_code 40402"):
        only(ours, 7)


def test_an_answer_is_read_only_so_far(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 1 << 20)
    ours, _ = of(registry.url)
    for code in (200, 404):
        registry.fixed = code, b" " * (1 << 20) + b'{"error_code": 40403}'
        with pytest.raises(
            SchemaRegistryError, match="more than 1 MiB" if code == 200 else "unlike a registry"
        ):
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
    ours, _ = of(registry.url)
    only(ours, 1)
    assert len(registry.requests) == 1 + 2 * 21
    with pytest.raises(
        SchemaRegistryError, match="subject 'itself' with version 1 of the schema registry refers to itself"
    ):
        only(ours, 2)
    with pytest.raises(
        SchemaRegistryError, match="refers to subject 'nowhere' with version 1, which the registry does not"
    ):
        only(ours, 3)
    monkeypatch.setattr(client, "MOST_REFERENCES", 41)
    ours, _ = of(registry.url)
    with pytest.raises(SchemaRegistryError, match="needs more than 41 others"):
        only(ours, 1)


def test_ids_are_asked_for_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer waits until all are asked for."""
    everybody = threading.Barrier(AT_ONCE, timeout=PATIENCE)

    def together(*_: object) -> io.BytesIO:
        everybody.wait()
        return io.BytesIO(json.dumps(LONG).encode())

    monkeypatch.setattr(Http, "_open", together)
    ours, _ = of("http://127.0.0.1:9")
    assert resolved(ours, range(AT_ONCE)) == dict.fromkeys(range(AT_ONCE), ResolvedSchema("AVRO", '"long"'))


def test_one_failure_ends_the_look_up_of_many_ids(registry: RegistryServer) -> None:
    registry.fixed = 401, b""
    ours, _ = of(registry.url)
    with pytest.raises(ConfigError, match="refused access"):
        resolved(ours, range(1000))
    assert len(registry.requests) < 1000


class Held:
    """Holds the registry's answers until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()
        self.count = 0
        whole = Http._open

        def held(*arguments: Any) -> Any:
            self.count += 1
            self.asked.release()
            assert self.go.wait(PATIENCE)
            return whole(*arguments)

        monkeypatch.setattr(Http, "_open", held)


def test_one_request_serves_all_threads_that_want_its_answer(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.schemas[7] = LONG
    held = Held(monkeypatch)
    ours, _ = of(registry.url)
    found: list[ResolvedSchema] = []
    threads = [threading.Thread(target=lambda: found.append(ours.resolve_one(7, AVRO))) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert held.asked.acquire(timeout=PATIENCE)
    # Whoever comes late finds the answer: it does not matter who does.
    held.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [ResolvedSchema("AVRO", '"long"')] * 6
    assert registry.asked == ["/schemas/ids/7"]


def test_those_who_wait_get_the_failure_too(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.fixed = 401, b""
    held = Held(monkeypatch)
    ours, _ = of(registry.url)
    problems: list[Exception] = []
    waits = threading.Semaphore(0)

    def ask(*, late: bool) -> None:
        if late:
            waits.release()
        try:
            ours.resolve_one(7, AVRO)
        except ConfigError as problem:
            problems.append(problem)

    first = threading.Thread(target=ask, kwargs={"late": False})
    first.start()
    assert held.asked.acquire(timeout=PATIENCE)
    second = threading.Thread(target=ask, kwargs={"late": True})
    second.start()
    assert waits.acquire(timeout=PATIENCE)
    held.go.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert len(problems) == 2
    # Nothing of it is kept.
    registry.fixed, registry.schemas[7] = None, LONG
    assert ours.resolve_one(7, AVRO).text == LONG["schema"]


def test_an_interrupted_question_is_asked_again_by_who_waits(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    ours, _ = of(registry.url)

    def interrupted(keys: list[tuple[Wanted, str]]) -> Any:
        # Another thread joins the flight, as the answers see it.
        waiter.start()
        while not ours._resolved._flights[keys[0]]._condition._waiters:  # type: ignore[attr-defined]
            pass
        raise KeyboardInterrupt

    found: list[ResolvedSchema] = []
    waiter = threading.Thread(target=lambda: found.append(ours.resolve_one(7, AVRO)))
    with pytest.raises(KeyboardInterrupt):
        ours._resolved.get([(Wanted(7), AVRO)], interrupted)
    waiter.join(PATIENCE)
    assert [each.text for each in found] == [LONG["schema"]]


def resolved(
    client: SchemaRegistryClient, ids: Iterable[int]
) -> dict[int, ResolvedSchema | SchemaNotFoundError]:
    """Avro schemas by their ids."""
    found = client.resolve([Wanted(each) for each in ids], AVRO)
    return {int(wanted.schema): made for wanted, made in found.items()}


def texts(found: Mapping[int, ResolvedSchema | SchemaNotFoundError]) -> dict[int, str]:
    return {
        schema_id: str(made) if isinstance(made, SchemaNotFoundError) else made.text
        for schema_id, made in found.items()
    }


def test_an_id_without_a_schema_is_asked_for_once_a_minute(registry: RegistryServer) -> None:
    clock = FakeClock()
    ours, waits = of(registry.url, clock=clock)
    registry.schemas[2] = {"schema": "", "schemaType": "PROTOBUF"}
    for ms in (0, 1, REFUSED_MS - 2):
        clock.advance(ms)
        assert texts(resolved(ours, [1, 2, 1])) == {
            1: "schema id 1 is not in the registry",
            2: "schema id 2 is of type PROTOBUF, not AVRO",
        }
    # Each twice: a follower may not know a new one yet.
    assert len(registry.requests) == 4
    assert waits == [LAG_S]
    registry.schemas[1] = LONG
    for ms in (1, 1, 10 * REFUSED_MS):
        clock.advance(ms)
        assert texts(resolved(ours, [1])) == {1: LONG["schema"]}
    assert len(registry.requests) == 5
    assert "PROTOBUF" in texts(resolved(ours, [2]))[2]
    assert len(registry.requests) == 6
    assert waits == [LAG_S]


def test_the_wait_for_a_follower_is_paid_once_for_many_ids(registry: RegistryServer) -> None:
    clock = FakeClock()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(int(seconds * 1000))

    ours = SchemaRegistryClient._of(RegistryOptions((registry.url,)), sleep, clock)
    for schema_id in range(100):
        with pytest.raises(SchemaNotFoundError):
            ours.resolve_one(schema_id, AVRO)
        clock.advance(1)
    assert waits == [LAG_S]
    assert len(registry.requests) == 101
    clock.advance(LAG_EVERY_MS)
    with pytest.raises(SchemaNotFoundError):
        ours.resolve_one(100, AVRO)
    assert waits == [LAG_S, LAG_S]


def test_threads_share_the_wait_for_a_follower(registry: RegistryServer) -> None:
    clock = FakeClock()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            # Another thread asks for another id meanwhile.
            clock.advance(400)
            with pytest.raises(SchemaNotFoundError):
                ours.resolve_one(2, AVRO)

    ours = SchemaRegistryClient._of(RegistryOptions((registry.url,)), sleep, clock)
    with pytest.raises(SchemaNotFoundError):
        ours.resolve_one(1, AVRO)
    assert waits == [LAG_S, 0.6]


def test_an_id_that_a_follower_learns_of_late_is_no_bad_record(registry: RegistryServer) -> None:
    def sleep(seconds: float) -> None:
        registry.schemas[1] = LONG

    ours = SchemaRegistryClient._of(RegistryOptions((registry.url,)), sleep)
    found = resolved(ours, [1, 3])
    assert texts(found) == {1: LONG["schema"], 3: "schema id 3 is not in the registry"}


def test_ids_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_KEPT", 2)
    asked: list[int] = []

    def ask(ids: list[int]) -> dict[int, str | SchemaNotFoundError]:
        asked.extend(ids)
        return {each: SchemaNotFoundError(f"no {each}") if each < 10 else str(each) for each in ids}

    kept: answers.Answers[int, str] = answers.Answers(FakeClock(), lambda _: None, lags=True)
    for schema_id in (1, 2, 3, 3, 2, 1, 11, 12, 13, 13, 12, 11):
        kept.get([schema_id], ask)
    assert asked == [1, 1, 2, 2, 3, 3, 1, 1, 11, 12, 13, 11]
    # One batch may hold more: each is answered.
    assert set(kept.get([1, 2, 3, 11, 12, 13], ask)) == {1, 2, 3, 11, 12, 13}


def test_a_child_after_fork_waits_for_no_thread_of_its_parent(registry: RegistryServer) -> None:
    registry.schemas[7] = LONG
    ours, _ = of(registry.url)
    ours._resolved._lock.acquire()
    ours._resolved._process = -1  # as a child finds it that was forked meanwhile
    assert ours.resolve_one(7, AVRO).text == LONG["schema"]


# ---------------------------------------------------------------- schemas and subjects

MONEY = '{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"}]}'
SALE = Schema(
    '{"type":"record","name":"Sale","fields":[{"name":"price","type":"Money"}]}',
    references=(SchemaReference("Money", "money", 1),),
)


def test_register_look_up_and_read_back(registry: RegistryServer) -> None:
    ours, _ = of(registry.url)
    assert ours.get_subjects() == []
    money = ours.register_schema("money", Schema(MONEY))
    sale = ours.register_schema("sale-value", SALE)
    assert ours.register_schema("sale-value", SALE) == sale != money
    asked = len(registry.requests)
    assert ours.register_schema("sale-value", SALE) == sale
    assert len(registry.requests) == asked, "a schema is registered once"
    assert ours.lookup_schema("sale-value", SALE) == RegisteredSchema("sale-value", 1, sale, SALE)
    assert ours.get_schema(sale) == SALE
    assert ours.get_version("sale-value", 1) == ours.get_latest_version("sale-value")
    assert ours.get_subjects() == ["money", "sale-value"]
    assert ours.get_versions("sale-value") == [1]
    assert ours.resolve_one(sale, AVRO).references == (("Money", ResolvedSchema("AVRO", MONEY)),)
    assert ours.resolve_schema(SALE).references == (("Money", ResolvedSchema("AVRO", MONEY)),)
    assert ours.get_compatibility() == ours.get_compatibility("money") == "NONE"
    ours.set_compatibility("NONE", "money")
    assert ours.delete_subject("money") == [1]
    assert ours.get_schema(money) == Schema(MONEY)
    assert ours.register_schema("money", Schema(MONEY)) == money
    assert ours.get_versions("money") == [2]


def test_schemas_that_mean_the_same_are_one_for_normalize(registry: RegistryServer) -> None:
    ours, _ = of(registry.url)
    turned = json.dumps(dict(reversed(json.loads(MONEY).items())))
    first = ours.register_schema("money", Schema(MONEY), normalize=True)
    assert ours.register_schema("money", Schema(turned), normalize=True) == first
    assert ours.lookup_schema("money", Schema(turned), normalize=True).version == 1
    assert registry.asked[-1] == "/subjects/money?normalize=true"


def test_what_subjects_do_not_have(registry: RegistryServer) -> None:
    ours, _ = of(registry.url)
    for call in (ours.get_latest_version, ours.get_versions, ours.delete_subject, ours.latest_to_write):
        with pytest.raises(SchemaNotFoundError, match="no subject 'x' with a version"):
            call("x")
    with pytest.raises(SchemaNotFoundError, match="no version 7 of subject 'x'"):
        ours.get_version("x", 7)
    registry.add("x", MONEY)
    with pytest.raises(SchemaNotFoundError, match="the schema is not a version of subject 'x'"):
        ours.lookup_schema("x", Schema('"long"'))
    with pytest.raises(SchemaNotFoundError, match="schema id 99 is not in the registry"):
        ours.get_schema(99)


def test_a_schema_that_the_registry_refuses(registry: RegistryServer) -> None:
    ours, waits = of(registry.url)
    with pytest.raises(SchemaRefusedError, match="refused the schema with error_code 42201: Invalid schema"):
        ours.register_schema("x", Schema("{"))
    with pytest.raises(SchemaRefusedError, match="error_code 42203"):
        ours.set_compatibility("FULL")
    registry.fixed = 409, b'{"error_code": 409, "message": "not \\u001b[31m compatible"}'
    with pytest.raises(SchemaRefusedError, match=r"409: not .x1b\[31m compatible"):
        ours.register_schema("x", Schema(MONEY))
    assert waits == []


def test_the_latest_version_is_written_with_for_a_minute(registry: RegistryServer) -> None:
    clock = FakeClock()
    ours, _ = of(registry.url, clock=clock)
    registry.add("x", MONEY)
    assert ours.latest_to_write("x").version == 1
    registry.add("x", '"long"')
    clock.advance(LATEST_MS - 1)
    assert ours.latest_to_write("x").version == 1
    assert ours.get_latest_version("x").version == 2
    clock.advance(1)
    assert ours.latest_to_write("x").version == 2


# ---------------------------------------------------------------- how it is reached


def test_keys_are_confluents_with_or_without_prefix_and_keywords() -> None:
    url = "http://localhost:8081/"
    for made in (
        SchemaRegistryClient(url),
        SchemaRegistryClient({"url": url}),
        SchemaRegistryClient({"schema.registry.url": [url]}),
        SchemaRegistryClient(url=url, basic_auth_user_info="me:hidden", timeout=2.5, max_retries=0),
    ):
        assert repr(made) == "SchemaRegistryClient('http://localhost:8081')"
    assert made._http._options == RegistryOptions(
        ("http://localhost:8081",), user_info="me:hidden", timeout=2.5, retries=0
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"needs schema\.registry\.url"),
        ({"url": "localhost:8081"}, "begins with http://"),
        ({"url": "http://me:hidden@host"}, "must not contain a name and password"),
        ({"url": "http://h", "schema.registry.url": "http://h"}, "given twice"),
        ({"url": "http://h", "basic.auth.userinfo": "me:hidden"}, "did you mean basic.auth.user.info"),
        ({"url": "http://h", "basic.auth.user.info": ("me", "hidden")}, "must be a string, not tuple"),
        ({"url": "http://h", "timeout": 0}, "is not a valid number"),
        ({"url": "http://h", "max.retries": "many"}, "is not a valid number"),
        ({"url": "http://h", "basic.auth.user.info": "a:hidden", "bearer.auth.token": "hidden"}, "give one"),
    ],
)
def test_keys_that_cannot_be_used(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        SchemaRegistryClient(given)
    assert "hidden" not in str(caught.value)


def test_a_token_may_come_from_a_callable(registry: RegistryServer) -> None:
    tokens = iter(["one", "two"])
    registry.schemas[7] = LONG
    ours = SchemaRegistryClient(registry.url, bearer_auth_token=lambda: next(tokens))
    registry.token = "Bearer one"
    ours.get_schema(7)
    registry.token = "Bearer two"
    assert ours.get_subjects() == []


@pytest.mark.parametrize("token", ["hid\nden", "hidd\u00ebn", 5])
def test_what_is_no_token_shows_in_no_error(token: Any) -> None:
    ours = SchemaRegistryClient("http://127.0.0.1:9", bearer_auth_token=lambda: token, max_retries=0)
    with pytest.raises(ConfigError, match="must give a token") as caught:
        ours.get_subjects()
    assert "hid" not in str(caught.value)


def test_a_token_provider_that_raises() -> None:
    def provider() -> str:
        raise RuntimeError("hidden")

    ours = SchemaRegistryClient("http://127.0.0.1:9", bearer_auth_token=provider)
    with pytest.raises(SchemaRegistryError, match="raised RuntimeError") as caught:
        ours.get_subjects()
    assert "hidden" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_answer_that_trickles_ends() -> None:
    clock = FakeClock()

    class Trickle(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            clock.advance(1000)
            return b" "

    class Slow(Http):
        def _open(self, *_: object) -> Any:
            return Trickle()

    ours = Slow(RegistryOptions(("http://127.0.0.1:9",)), lambda _: None, clock)
    with pytest.raises(SchemaRegistryError, match="its answer did not end in time"):
        ours.ask("/subjects")


def test_a_certificate_of_the_client_over_tls(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, client_authority = trustme.CA(), trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    ours = tmp_path / "ours.pem"
    client_authority.issue_cert("reader@registry").private_key_and_cert_chain_pem.write_to_path(str(ours))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    client_authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    with RegistryServer() as registry:
        assert registry._server is not None
        registry._server.socket = context.wrap_socket(registry._server.socket, server_side=True)
        url = registry.url.replace("http:", "https:")
        trusted = {"url": url, "max.retries": 0, "ssl.ca.location": str(ca)}
        known = SchemaRegistryClient(trusted, ssl_certificate_location=str(ours))
        assert known.get_subjects() == []
        for given in (trusted, {**trusted, "ssl.ca.location": None}):
            with pytest.raises(SchemaRegistryError):
                SchemaRegistryClient(given).get_subjects()


def test_the_registry_is_given_a_schema_with_its_type() -> None:
    ours, _ = of("http://127.0.0.1:1")
    for call in (ours.register_schema, ours.lookup_schema):
        for wrong in ('"string"', {"type": "string"}):
            with pytest.raises(
                ConfigError, match=r"pass Schema\(text\), or Schema\(text, type\) if the type is not AVRO"
            ):
                call("a", wrong)  # type: ignore[arg-type]
