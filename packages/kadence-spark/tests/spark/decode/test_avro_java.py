"""The expected values of tests/registry/test_avro_resolution.py are those of Avro for Java, which Spark has.

And 60 documents of `make parity-schemas`; tests/registry/test_parity.py reads those that need no Java.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.luck import seeds
from tests.registry.parity import avro
from tests.registry.parity.counted import Counted
from tests.registry.parity.java import Java
from tests.registry.parity.plain import of_python
from tests.registry.parity.registered import Registered
from tests.registry.test_avro_resolution import (
    DEEP,
    DEFAULTS,
    FIELDS,
    MILLIS,
    REFUSED,
    UNIONS,
    as_record,
    decimal,
    record,
    written,
)
from tests.registry.test_avro_unions import JAVA

from kadence_testing.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.shared_spark


@pytest.fixture
def java(spark: SparkSession) -> Java:
    return Java(spark._jvm)


def read(java: Java, writer: Any, reader: Any, data: bytes) -> Any:
    return java.read(java.schema(writer), java.schema(reader), data)


def test_fields(java: Java) -> None:
    for writer, value, reader, expected in FIELDS:
        theirs = record(writer)
        ours = theirs if reader is None else record(reader)
        found = read(java, theirs, ours, written(theirs, {"v": value}))
        assert found["v"] == of_python(expected), (writer, reader)


def test_defaults(java: Java) -> None:
    data = written(record("int"), {"v": 5})
    for kind, default, expected in DEFAULTS:
        reader = record("int", {"name": "more", "type": kind, "default": default})
        assert read(java, record("int"), reader, data) == {"v": 5, "more": of_python(expected)}, kind


def test_records_of_unions(java: Java) -> None:
    for said, writer, value, reader, expected in UNIONS:
        theirs, ours = record(writer), record(reader)
        found, why = java.try_read(java.schema(theirs), java.schema(ours), written(theirs, {"v": value}))
        assert bool(why) == (expected is REFUSED), (said, why)
        assert why or found == {"v": of_python(expected)}, said


def test_a_record_of_a_union_that_does_not_fit_two_records_below(java: Java) -> None:
    """Java takes it, and fails, though another type of the union fits."""
    for writer, value, reader in DEEP:
        theirs, ours = record(writer), record(reader)
        _, why = java.try_read(java.schema(theirs), java.schema(ours), written(theirs, {"v": value}))
        assert "missing required field" in why


def test_types_of_unions_that_values_are_written_as(java: Java) -> None:
    for union, value, place in JAVA:
        assert java.place(java.schema(union), value) == place, (union, value)


def test_a_union_that_is_read_as_one_type_with_a_logical_type(java: Java) -> None:
    """Java converts its value twice, and fails."""
    for writer, value in ((["null", MILLIS], 5), ([MILLIS], 5), (["null", decimal(4, 2)], b"\5")):
        theirs, ours = record(writer), record(writer[-1])
        data = written(theirs, {"v": value})
        assert "expected generic type" in java.try_read(java.schema(theirs), java.schema(ours), data)[1]
        assert as_record(theirs, ours, data) == as_record(ours, None, written(ours, {"v": value}))


@pytest.mark.parametrize("seed", seeds(1))
def test_random_schemas_and_other_versions_of_them(java: Java, seed: int) -> None:
    counted = Counted()
    with SchemaRegistryServer() as server, Registered(server) as registered:
        avro.run(java, registered, Random(seed), 60, counted)
    assert not counted.unexplained, "\n".join(map(str, counted.unexplained[:5]))
    assert counted.documents >= 60
    assert counted.answers
