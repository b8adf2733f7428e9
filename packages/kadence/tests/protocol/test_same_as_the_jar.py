"""schema/ against the JSON files of Kafka's messages, which its jars have: each message and record in each version.

kio, with which the bytes are compared, has neither the newest versions nor the records that coordinators store.
"""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any

import pytest
from tests.protocol.real_requests import IS_4_3
from tests.protocol.values import Case, cases

from kadence_testing.kafka import KAFKA_VERSION, Kafka, kafka_jars
from schema_text import StructDef

_JARS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-share-coordinator",
    "kafka-transaction-coordinator",
)

Shape = tuple[Any, ...]
"""Of each field in the order of the wire: name, type, whether it may be null, tag, and the shape of its struct."""


@cache
def theirs() -> dict[str, Any]:
    """Kafka's files by the name of the message."""
    found = {}
    for jar in _JARS:
        with zipfile.ZipFile(kafka_jars() / f"{jar}-{KAFKA_VERSION}.jar") as files:
            for name in files.namelist():
                if name.endswith(".json"):
                    text = files.read(name).decode()
                    parsed = json.loads(re.sub(r"(^|\s)//.*", "", text))
                    found[parsed["name"]] = parsed
    return found


def has(versions: str | None, version: int) -> bool:
    """Whether Kafka's notation of versions has this one."""
    if versions is None or versions == "none":
        return False
    low, _, high = versions.rstrip("+").partition("-")
    return int(low) <= version and (versions.endswith("+") or version <= int(high or low))


def in_order(fields: list[tuple[int | None, Shape]]) -> Shape:
    """Tagged fields come after the others, by their tags."""
    plain = [shape for tag, shape in fields if tag is None]
    return *plain, *(shape for tag, shape in sorted(fields, key=lambda each: each[0] or 0) if tag is not None)


def kafkas_shape(fields: list[Any], structs: dict[str, Any], version: int) -> Shape:
    found: list[tuple[int | None, Shape]] = []
    for each in fields:
        if has(each.get("versions", each.get("taggedVersions")), version):
            kind, tag = each["type"], each.get("tag")
            inner = each.get("fields") or structs.get(kind.removeprefix("[]"))
            shape = (
                each["name"].lower(),
                re.sub(r"[A-Z]\w*", "struct", kind),
                has(each.get("nullableVersions"), version),
                tag if has(each.get("taggedVersions"), version) else None,
                kafkas_shape(inner, structs, version) if inner else (),
            )
            found.append((shape[3], shape))
    return in_order(found)


def our_shape(case: Case, struct: StructDef) -> Shape:
    found: list[tuple[int | None, Shape]] = []
    for field in struct.fields:
        if case.version in field.versions:
            inner = case.module.structs.get(field.base)
            shape = (
                field.name.replace("_", ""),
                ("[]" if field.is_array else "") + ("struct" if inner else field.base),
                field.nullable is not None and case.version in field.nullable,
                field.tag,
                our_shape(case, inner) if inner else (),
            )
            found.append((field.tag, shape))
    return in_order(found)


@pytest.mark.skipif(IS_4_3, reason="schema/ is of Kafka 4.4")
def test_each_message_has_the_fields_of_kafkas_files(kafka: Kafka) -> None:
    del kafka  # its jars are there
    for case in cases():
        file = theirs()[case.struct.name]
        structs = {each["name"]: each["fields"] for each in file.get("commonStructs", ())}
        assert our_shape(case, case.struct) == kafkas_shape(file["fields"], structs, case.version), str(case)
        assert case.is_flexible == has(file["flexibleVersions"], case.version), str(case)
        number = case.module.key if case.module.key is not None else case.module.record_type
        assert number == file.get("apiKey", number), str(case)
        assert has(file["validVersions"], case.version), str(case)
