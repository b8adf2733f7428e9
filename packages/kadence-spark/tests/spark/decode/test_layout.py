"""Which column is whose."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

from kadence.errors import ConfigError
from kadence_spark.decode.layout import Layout, layout_of
from kadence_spark.decode.options import Mode, parse
from kadence_spark.source.schema import COLUMNS


def struct(**columns: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


INNER = struct(a=T.IntegerType())
INT, LONG, TEXT, BYTES = T.IntegerType(), T.LongType(), T.StringType(), T.BinaryType()


def layout(schema: T.StructType, **options: str) -> Layout:
    given = {"value.format": "json", **{name.replace("_", "."): text for name, text in options.items()}}
    decode = parse(given)
    assert decode is not None
    return layout_of(decode, schema, COLUMNS)


def test_flat_columns_are_kafkas_by_name_and_the_values_else() -> None:
    made = layout(struct(id=LONG, offset=LONG, value=BYTES, _error=TEXT, _raw=BYTES))
    assert made.sources == (".id", "offset", "value", ":error", ":raw")
    assert made.columns == ("value", "offset")
    assert made.fields == ("id",)


def test_a_field_that_has_the_name_of_a_column_of_kafkas_in_other_letters_is_a_field() -> None:
    made = layout(
        struct(Timestamp=T.TimestampType(), Offset=LONG, Topic=TEXT, Value=TEXT, Key=TEXT, partition=INT)
    )
    assert made.sources == (".Timestamp", ".Offset", ".Topic", ".Value", ".Key", "partition")
    prefixed = layout(struct(Kafka_offset=LONG, kafka_offset=LONG, Offset=TEXT), metadataPrefix="kafka_x_")
    assert prefixed.sources == (".Kafka_offset", ".kafka_offset", ".Offset")


def test_a_value_that_is_no_bytes_is_decoded_whole() -> None:
    made = layout(struct(value=INNER, topic=TEXT, key=TEXT), key_format="string", mode="permissive")
    assert made.sources == (":value", "topic", ":key")
    assert made.columns == ("key", "value", "topic")


def test_a_prefix_gives_kafkas_columns_other_names() -> None:
    made = layout(struct(offset=TEXT, kafka_offset=LONG), metadataPrefix="kafka_", mode="permissive")
    assert made.sources == (".offset", "offset")


def test_bad_records_are_never_lost_without_a_word() -> None:
    """Permissive is the default where there is a column to show them in, failfast where there is none."""
    assert layout(struct(id=LONG, _error=TEXT)).mode is Mode.PERMISSIVE
    assert layout(struct(id=LONG)).mode is Mode.FAIL
    assert layout(struct(id=LONG)).columns == ("value", "topic", "partition", "offset")
    assert layout(struct(id=LONG), mode="permissive").columns == ("value",)


def test_what_is_read_is_what_is_asked_for() -> None:
    assert layout(struct(_error=TEXT)).columns == ("offset",)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(id=LONG, timestamp=TEXT), "column 'timestamp' is Kafka's and timestamp, not string"),
        (struct(Offset=LONG, offset=LONG), "'offset' of Kafka and 'Offset' of the value differ in case only"),
        (struct(VALUE=LONG, value=BYTES), "'value' of Kafka and 'VALUE' of the value differ in case only"),
        (struct(value=INNER, x=LONG), "beside it 'x', which is no column of Kafka's"),
        (struct(id=LONG, _error=LONG), "column _error is string, not bigint"),
        (T.StructType([T.StructField("id", LONG, nullable=False)]), "column 'id' has NOT NULL"),
        (
            struct(v=T.ArrayType(T.DayTimeIntervalType())),
            "column 'v' has a type that values cannot be decoded into: interv",
        ),
        (struct(v=T.MapType(LONG, LONG)), r"map<bigint,bigint>, as JSON's names are texts"),
        (struct(ids=T.ArrayType(LONG, containsNull=False)), "column 'ids' has NOT NULL"),
    ],
)
def test_a_schema_that_does_not_fit_is_told_of(schema: T.StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        layout(schema)


def test_only_the_key_decoded() -> None:
    made = layout(struct(key=TEXT, value=BYTES), value_format="binary", key_format="string")
    assert made.sources == (":key", "value")
    with pytest.raises(ConfigError, match=r"no column 'id'; with the option value\.format it is a field"):
        layout(struct(id=LONG), value_format="binary", key_format="string")


def test_it_travels() -> None:
    made = layout(struct(id=LONG, _error=TEXT))
    assert pickle.loads(pickle.dumps(made)) == made
