"""What the check of a value against a JSON Schema may take, whoever wrote the value and the schema."""

from __future__ import annotations

import json
import random
import sys
from typing import Any, Final

import pytest
from tests.registry.registry_server import RegistryServer

from kadence import ConfigError, SerializationError
from kadence_schemas import JsonSchemaDeserializer, JsonSchemaSerializer, SchemaRegistryClient, steps

pytest.importorskip("jsonschema")

TOO_LONG: Final = "may take too long"
DRAFT_2020: Final = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
DRAFTS: Final = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    DRAFT_2020["$schema"],
)
NESTED: Final = "(a+)+$"
"""Python looks for its end in 2^n ways."""


@pytest.fixture
def client(registry: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient(registry.url)


def read(schema: dict[str, Any], value: Any) -> Any:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return JsonSchemaDeserializer(None, schema).deserialize("t", (), b"\0\0\0\0\1" + data)


def is_of(schema: dict[str, Any], value: Any) -> bool:
    try:
        read(schema, value)
    except SerializationError as refusal:
        if "does not match its JSON Schema" not in str(refusal):
            raise
        return False
    return True


def chain(links: int, more: dict[str, Any], keyword: str) -> dict[str, Any]:
    """Definitions that each refer to the next one twice."""
    made: dict[str, Any] = {}
    for number in range(links):
        following = {"$ref": f"#/definitions/{number + 1}"}
        both = {"a": following, "b": following} if keyword == "dependentSchemas" else [following, following]
        made[str(number)] = {keyword: both, **more}
    return {**made, str(links): {"type": "string"}}


BLOW_UPS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "choices": ({"$ref": "#/definitions/0", "definitions": chain(40, {}, "anyOf")}, 1),
    "one of": ({"$ref": "#/definitions/0", "definitions": chain(40, {}, "oneOf")}, 1),
    "choices that name their draft": (
        {"$ref": "#/definitions/0", "definitions": chain(40, {"$schema": DRAFTS[2]}, "anyOf")},
        1,
    ),
    "choices in the value": (
        {"anyOf": [{"type": "string"}, *[{"type": "array", "items": {"$ref": "#"}}] * 2]},
        json.loads("[" * 60 + "1" + "]" * 60),
    ),
    "unevaluated": (
        {
            **DRAFT_2020,
            "unevaluatedProperties": False,
            "$ref": "#/definitions/0",
            "definitions": chain(40, {}, "dependentSchemas"),
        },
        {"a": 1, "b": 2},
    ),
    "unevaluated places": (
        {**DRAFT_2020, "unevaluatedItems": False, "anyOf": [{"items": True}] * 500},
        [1] * 3_000,
    ),
    "values in errors": ({"anyOf": [{"minItems": 10**9}] * 300}, [1] * 10_000),
    "a large schema": ({"items": {"properties": {f"p{n}": {} for n in range(1000)}}}, [{}] * 3000),
    "what is contained": (
        {**DRAFT_2020, "items": {"contains": {"enum": list(range(1, 1000))}}},
        [[0] * 100] * 100,
    ),
    "a long way": (
        {
            "items": {"$ref": "#/definitions" + "/a" * 200},
            "definitions": json.loads('{"a":' * 200 + "{}" + "}" * 200),
        },
        [1] * 100,
    ),
}


@pytest.mark.parametrize("kind", BLOW_UPS)
def test_a_check_that_multiplies_ends(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    schema, value = BLOW_UPS[kind]
    deserializer = JsonSchemaDeserializer(None, schema)
    # A tenth of what a check may take, which is as good a proof.
    monkeypatch.setattr(steps, "STEPS", 2_000)
    with pytest.raises(SerializationError, match=TOO_LONG):
        deserializer.deserialize("t", (), b"\0\0\0\0\1" + json.dumps(value).encode())


def test_a_writer_is_bounded_as_a_reader_is(client: SchemaRegistryClient) -> None:
    schema, value = BLOW_UPS["choices"]
    with pytest.raises(SerializationError, match=TOO_LONG):
        JsonSchemaSerializer(client, schema).serialize("t", (), value)


def test_what_is_nested_too_deep() -> None:
    with pytest.raises(SerializationError, match="nested too deep"):
        read({"items": {"$ref": "#"}}, b"[" * 900 + b"]" * 900)
    with pytest.raises(SerializationError, match="nested too deep"):
        read({"$ref": "#"}, 1)


def test_arrays_are_compared_once() -> None:
    unique = {"uniqueItems": True, "items": {"uniqueItems": True}}
    # Equal hashes: whoever writes numbers may choose them.
    colliding = [number * (2**61 - 1) for number in range(5_000)]
    for good in (
        [{"a": number} for number in range(5_000)],
        colliding,
        [1, True, "1", None, [1], {"1": 1}, [True]],
    ):
        assert is_of(unique, good)
        assert not is_of(unique, [*good, good[-1]])
    for equal in (
        [1, 1.0],
        [0, -0.0],
        [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}],
        [2**80, 2.0**80],
        [2**70 + 1] * 2,
    ):
        assert not is_of(unique, equal)
    assert is_of(unique, [2**80 + 1, 2.0**80, [["1:a"]], ["1:a"]])


def test_an_enum_of_thousands_is_looked_up() -> None:
    schema = {"$schema": DRAFTS[0], "items": {"enum": [{"a": number} for number in range(5_000)]}}
    assert is_of(schema, [{"a": number} for number in range(0, 5_000, 2)])
    assert not is_of(schema, [{"a": 1}, {"a": 5_000}])


SEARCHES: Final[dict[str, dict[str, Any]]] = {
    "pattern": {"propertyNames": {"pattern": NESTED}},
    "patternProperties": {"patternProperties": {NESTED: {}}},
    "additionalProperties": {"patternProperties": {NESTED: {}}, "additionalProperties": {}},
    "unevaluatedProperties": {
        **DRAFT_2020,
        "unevaluatedProperties": {},
        "allOf": [{"patternProperties": {NESTED: {}}}],
    },
}


@pytest.mark.parametrize("keyword", SEARCHES)
def test_a_search_without_end_is_not_begun(monkeypatch: pytest.MonkeyPatch, keyword: str) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(SerializationError, match=TOO_LONG):
        read(SEARCHES[keyword], {"a" * 40 + "!": 1})


@pytest.mark.parametrize("keyword", SEARCHES)
def test_re2_makes_such_searches(keyword: str) -> None:
    pytest.importorskip("re2")
    assert is_of(SEARCHES[keyword], {"a" * 40: 1})
    assert is_of(SEARCHES[keyword], {"a" * 40 + "!": 1}) == (keyword != "pattern")


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?=(a+)+$)",
        r"(x+x+)+y(?=z)",
        r"(a|aa)+(?!b)$",
        r"(?:(a*)*\1)*b",
        r"(?(1)a|(a*)*)*b",
        r"(a{0,9}){0,99}(?=b)",
    ],
)
def test_what_neither_can_search_for_is_refused(pattern: str) -> None:
    with pytest.raises(SerializationError, match=TOO_LONG):
        read({"pattern": pattern}, "a" * 40)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[a-z0-9]+(-[a-z0-9]+)?$", "a" * 1_000, "a" * 1_000 + "!"),
        (r"^(?=.*[a-z])(?=.*\d)(?!0)\S{8,64}$", "passw0rd!", "password"),
        (r"^\w+$", "größe", "a b"),
        (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "ada@example.org", "ada@example"),
        (r"^(?:2[0-3]|[01]\d):[0-5]\d$", "23:59", "24:00"),
        (r"^(a)\1$", "aa", "ab"),
    ],
)
@pytest.mark.parametrize("has_re2", [True, False])
def test_usual_patterns_are_those_of_python(
    monkeypatch: pytest.MonkeyPatch, pattern: str, good: str, bad: str, *, has_re2: bool
) -> None:
    if not has_re2:
        monkeypatch.setitem(sys.modules, "re2", None)
    assert is_of({"pattern": pattern}, good)
    assert not is_of({"pattern": pattern}, bad)


def test_a_pattern_that_is_none_is_refused_with_its_schema() -> None:
    schemas: list[dict[str, Any]] = [{"pattern": "("}, {"patternProperties": {"(": {}}}]
    for schema in schemas:
        with pytest.raises(ConfigError, match="not a JSON Schema"):
            JsonSchemaDeserializer(None, schema)


def test_a_schema_that_takes_too_long_itself_is_refused() -> None:
    # Python goes through the letters of each set.
    with pytest.raises(ConfigError, match="too large"):
        JsonSchemaDeserializer(None, {"pattern": r"[\u0000-\uff00]" * 1_000})


# ---------------------------------------------------------------- beside jsonschema's own keywords


def some_value(luck: random.Random, depth: int = 3) -> Any:
    kind = luck.randrange(9 if depth else 6)
    if kind < 6:
        return luck.choice([None, True, False, 0, 1, -1, 1.0, 2.5, 10, "", "a", "ab", "abc", "x", "12", "ü"])
    if kind == 6:
        return {luck.choice("abcx"): some_value(luck, depth - 1) for _ in range(luck.randint(0, 3))}
    return [some_value(luck, depth - 1) for _ in range(luck.randint(0, 4))]


def some_schema(luck: random.Random, draft: int, depth: int = 3) -> Any:
    def inner() -> Any:
        if depth:
            return some_schema(luck, draft, depth - 1)
        return luck.choice([{}, {"type": "string"}, {"type": "integer"}, *([True, False] if draft else [])])

    def several() -> list[Any]:
        return [inner() for _ in range(luck.randint(1, 3))]

    makers: dict[str, Any] = {
        "type": lambda: luck.choice(["string", "integer", "number", "object", "array", ["string", "null"]]),
        "enum": lambda: luck.choice([[1, "a", None], [[1], {"a": True}], [True, 2.5]]),
        "pattern": lambda: luck.choice(["^a", "b$", "^[a-c]+$", r"\\d", "(a|b)+c"]),
        "maxItems": lambda: luck.randint(0, 3),
        "uniqueItems": lambda: True,
        "items": inner,
        "properties": lambda: {luck.choice("abcx"): inner() for _ in range(2)},
        "patternProperties": lambda: {luck.choice(["^a", "b", "[bc]"]): inner()},
        "additionalProperties": lambda: luck.choice([False, inner()]),
        "required": lambda: [luck.choice("abcx")],
        "anyOf": several,
        "allOf": several,
        "oneOf": several,
        "not": inner,
        "$ref": lambda: "#/definitions/x",
    }
    if draft:
        makers |= {"const": lambda: some_value(luck, 2), "contains": inner, "propertyNames": inner}
    if draft > 1:
        makers |= {"if": inner, "then": inner, "else": inner}
    if draft > 2:
        makers |= {
            "unevaluatedProperties": lambda: luck.choice([False, inner()]),
            "unevaluatedItems": inner,
            "dependentSchemas": lambda: {luck.choice("abcx"): inner()},
        }
    return {name: makers[name]() for name in luck.sample(sorted(makers), luck.randint(0, 4))}


@pytest.mark.parametrize("draft", range(len(DRAFTS)))
def test_values_are_good_and_bad_as_to_jsonschema(draft: int) -> None:
    from jsonschema.validators import validator_for

    from kadence_schemas.bounded import BoundedSchema

    luck = random.Random(draft)
    verdicts = {True: 0, False: 0}
    for _ in range(40):
        types = luck.choice([["string"], ["integer", "object", "array"]])
        schema = some_schema(luck, draft) | {"$schema": DRAFTS[draft], "definitions": {"x": {"type": types}}}
        theirs, ours = validator_for(schema)(schema), BoundedSchema(schema, {})
        for _ in range(6):
            value = some_value(luck)
            is_good = theirs.is_valid(value)
            assert (ours.refusal(value) is None) == is_good, (schema, value)
            verdicts[is_good] += 1
    assert min(verdicts.values()) > 10
